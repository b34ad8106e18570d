"""Memory of a step over a window, as it follows from the window's shape and a few steps that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dtdg_lab.batching.trapezoid import Trapezoid


@dataclass(frozen=True, slots=True)
class RowMemory:
    """Peak bytes of a step on the largest rank, of windows of some part sizes.

    ``base_bytes`` are there always, ``row_bytes`` for each row of each snapshot, and ``piece_bytes`` for each row and
    snapshot of the largest piece: as many vertices as run through time at once, ``piece_rows`` at most.

    Attributes:
        base_bytes: as said.
        row_bytes: as said.
        piece_bytes: as said.
        nodes: own vertices of the largest rank.
        chunks: C of each part.
        piece_rows: as said.
    """

    base_bytes: float
    row_bytes: float
    piece_bytes: float
    nodes: int
    chunks: int
    piece_rows: int

    @classmethod
    def through(
        cls, steps: Sequence[tuple[Trapezoid, float]], *, nodes: int, chunks: int, piece_rows: int
    ) -> RowMemory:
        """Fitted to the shapes and peak bytes of some steps, none of which takes more; what would be negative is 0.

        Args:
            steps: at least one.
            nodes: own vertices of the largest rank.
            chunks: C.
            piece_rows: most vertices that run through time at once.
        """
        shapes = cls(0.0, 0.0, 0.0, nodes, chunks, piece_rows)
        sizes = np.array([[1.0, shapes.rows(shape), shapes.piece(shape)] for shape, _ in steps])
        peaks, kept = np.array([peak for _, peak in steps]), [0, 1, 2]
        while True:
            scale = sizes[:, kept].max(axis=0)
            found = np.linalg.lstsq(sizes[:, kept] / scale, peaks, rcond=None)[0] / scale
            if len(kept) == 1 or found.min() >= 0:
                break
            del kept[int(np.argmin(found * scale))]
        numbers = np.zeros(3)
        numbers[kept] = np.maximum(found, 0.0)
        short = max(1.0, float(np.max(peaks / (sizes @ numbers))))  # a budget is not to be exceeded
        base, row, piece = (float(number) * short for number in numbers)
        return cls(base, row, piece, nodes, chunks, piece_rows)

    def rows(self, shape: Trapezoid) -> float:
        """Rows of all snapshots of a whole window; chunks are taken as alike."""
        return self.nodes * (shape.full + sum(shape.counts) / self.chunks)

    def piece(self, shape: Trapezoid) -> float:
        """Rows times snapshots of the largest piece: vertices that enter a window together run through the rest."""
        heights = [self.nodes, *(self.nodes * count / self.chunks for count in shape.counts), 0.0]
        pieces = [
            min(newer - older, self.piece_rows) * (shape.full + place)
            for place, (newer, older) in enumerate(pairwise(heights))
        ]
        return max(pieces)

    def peak_bytes(self, shape: Trapezoid) -> float:
        """Estimated peak of a step of a whole window; shorter ones are cut so that they take no more."""
        return self.base_bytes + self.row_bytes * self.rows(shape) + self.piece_bytes * self.piece(shape)
