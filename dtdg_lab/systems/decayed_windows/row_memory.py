"""Memory of a step over a window, predicted from the window's shape and a few measured steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.systems.decayed_windows.window import WHOLE_CHUNKS, Trapezoid


def largest_piece(heights: Sequence[float], full: int, max_nodes: int) -> float:
    """Return the largest number of rows that a piece has in all snapshots of a whole window.

    A piece has nodes that enter the window together.

    Args:
        heights: rows of a full snapshot and of the decayed ones, newest first.
        full: K, number of full snapshots.
        max_nodes: nodes of a piece, at most.
    """
    entering = pairwise([*heights, 0])
    return max(min(newer - older, max_nodes) * (full + age) for age, (newer, older) in enumerate(entering))


@dataclass(frozen=True, slots=True)
class RowMemory:
    """Peak bytes of a step on the largest rank as a linear function of the window's rows.

    The peak is ``base_bytes``, plus ``row_bytes`` per row of each snapshot, plus ``piece_bytes`` per row and snapshot
    of the largest piece: the nodes that run through time at once, at most ``piece_rows``.

    Attributes:
        base_bytes: constant part.
        row_bytes: per row and snapshot.
        piece_bytes: per row and snapshot of the largest piece.
        nodes: own nodes of the largest rank.
        chunks: C per part.
        piece_rows: maximum number of nodes that run through time at once.
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
        """Fit the terms to the shapes and peak bytes of some steps; none is negative, and no prediction is too low.

        Args:
            steps: at least one.
            nodes: own nodes of the largest rank.
            chunks: C.
            piece_rows: maximum number of nodes that run through time at once.
        """
        from scipy.optimize import nnls  # here: charts read this module, and scipy takes 0.3 s to import

        shapes = cls(0.0, 0.0, 0.0, nodes, chunks, piece_rows)
        sizes = np.array([[1.0, shapes.rows(shape), shapes.piece(shape)] for shape, _ in steps])
        peaks, scale = np.array([peak for _, peak in steps]), sizes.max(axis=0)
        terms = nnls(sizes / scale, peaks)[0] / scale
        terms = terms * max(1.0, float(np.max(peaks / (sizes @ terms))))
        base, row, piece = terms.tolist()
        return cls(base, row, piece, nodes, chunks, piece_rows)

    def rows(self, shape: Trapezoid) -> float:
        """Return the rows of all snapshots of a whole window, for chunks of equal size."""
        return self.nodes * (shape.full + sum(shape.counts) / self.chunks)

    def piece(self, shape: Trapezoid) -> float:
        """Return the rows of the largest piece in all snapshots."""
        heights = [self.nodes, *(self.nodes * count / self.chunks for count in shape.counts)]
        return largest_piece(heights, shape.full, self.piece_rows)

    def peak_bytes(self, shape: Trapezoid) -> float:
        """Return the predicted peak of a step of a whole window; shorter windows are cut so that they need no more."""
        return self.base_bytes + self.row_bytes * self.rows(shape) + self.piece_bytes * self.piece(shape)


def probe_shapes(shape: Trapezoid, *, decays: bool) -> list[Trapezoid]:
    """Return windows to be measured: they differ in rows, and in how many run through how many snapshots together.

    They do not depend on the K and alpha of ``shape``: a run that is resumed or tuned measures the same.

    Args:
        shape: of the run's windows.
        decays: False if all snapshots are full.
    """
    window = shape.window
    fulls = sorted({1, min(2, window), window})
    if shape.chunks == WHOLE_CHUNKS or not decays:
        return [replace(shape, window=full, full=full) for full in fulls]
    return [
        *(replace(shape, full=full, alpha=OPTIONS["alpha"].low or 0.0, decay="ladder") for full in fulls),
        *(replace(shape, full=1, alpha=alpha, decay="text") for alpha in (0.1, 0.5)),
    ]
