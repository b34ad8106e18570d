"""Events of decayed windows: the shape of the window with its predicted size, and the chunks of the parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.records.events import Event
from dtdg_lab.systems.decayed_windows.window import RULES, Trapezoid
from dtdg_lab.systems.decayed_windows.workload import RowMemory


@dataclass(frozen=True, slots=True)
class Shape:
    """The settings of a window's shape: how many snapshots are full, and how the others decay.

    Attributes:
        full_snapshots: K.
        alpha: share of chunks, as read by the decay rule.
        decay: the decay rule.
    """

    full_snapshots: int
    alpha: float = 1.0
    decay: str = RULES[0]

    @property
    def words(self) -> str:
        """Text of the settings."""
        return f"K {self.full_snapshots}, alpha {self.alpha:g}, {self.decay}"


@dataclass(frozen=True, slots=True, eq=False)
class TrapezoidFacts(Event):
    """The size of a run's windows: the newest snapshots are full, older ones keep ever fewer chunks of each part.

    Attributes:
        window: W, snapshots of a window.
        shape: the settings in use.
        chunks: C, of every part.
        nodes: N.
        row_counts: (C + 1,) approximate number of nodes in the first c chunks of all parts.
        rank_row_counts: (C + 1,) the same for the largest rank, or (R, C + 1) for each rank.
        base_bytes: share of a step's peak that does not grow with its rows; None if unknown.
        row_bytes: bytes per row of the largest rank's batch; None if unknown.
        piece_bytes: bytes per row and snapshot of the largest piece
            (:mod:`dtdg_lab.systems.decayed_windows.workload`).
        piece_rows: maximum nodes of a piece.
    """

    kind: ClassVar[str] = "trapezoid"
    about: ClassVar[str] = "a trapezoid of snapshots"
    ended: ClassVar[str] = "no windows from here on"
    window: int
    shape: Shape
    chunks: int
    nodes: int
    row_counts: NDArray[np.float64]
    rank_row_counts: NDArray[np.float64]
    base_bytes: float | None
    row_bytes: float | None
    piece_bytes: float = 0.0
    piece_rows: int = 1

    @property
    def full(self) -> int:
        """Number of full snapshots in a whole window."""
        return min(self.shape.full_snapshots, self.window)

    @property
    def trapezoid(self) -> Trapezoid:
        """The trapezoid of a whole window."""
        return Trapezoid(self.window, self.full, self.chunks, self.shape.alpha, self.shape.decay)

    def counts(self) -> tuple[int, ...]:
        """Return the number of chunks in every snapshot of a whole window, oldest first; C in a full one."""
        return (*reversed(self.trapezoid.counts), *[self.chunks] * self.full)

    def shares(self) -> tuple[float, ...]:
        """Return the share of nodes in every snapshot of a whole window, oldest first."""
        return tuple((self.row_counts[[*self.counts()]] / self.nodes).tolist())

    def rows(self) -> int:
        """Return the rows of a whole window over all ranks, for chunks of equal size."""
        return round(float(self.row_counts[[*self.counts()]].sum()))

    @property
    def full_rows(self) -> int:
        """Rows of a window with all its snapshots full."""
        return self.window * self.nodes

    def kept_share(self) -> float:
        """Return the rows of a window as a share of a window with all its snapshots full."""
        return self.rows() / self.full_rows

    def peak_bytes(self) -> float | None:
        """Return the predicted peak of a step on the largest rank; None if unknown."""
        if self.base_bytes is None or self.row_bytes is None:
            return None
        by_rank = np.atleast_2d(self.rank_row_counts)
        rank_rows = by_rank[:, [*self.counts()]].sum(axis=1)
        nodes = round(float(by_rank[:, -1].max()))
        memory = RowMemory(self.base_bytes, 0.0, self.piece_bytes, nodes, self.chunks, self.piece_rows)
        return memory.peak_bytes(self.trapezoid) + self.row_bytes * float(rank_rows.max())

    def changed(self, changes: Mapping[str, Any]) -> TrapezoidFacts:
        """Return the facts under other settings; settings that do not shape a window are ignored."""
        shape = {name: changes[name] for name in ("full_snapshots", "alpha", "decay") if name in changes}
        return replace(self, window=changes.get("window", self.window), shape=replace(self.shape, **shape))

    @property
    def words(self) -> str:
        """One or two sentences on the window, for the table of events."""
        text = f"Windows of {self.window} snapshot{'' if self.window == 1 else 's'}: the newest {self.full} full"
        if self.full < self.window:
            older, shape = ", ".join(map(str, self.trapezoid.counts)), self.shape
            text += f", those before in {older} of {self.chunks:,} chunks ({shape.decay}, alpha {shape.alpha:g})"
        text += f". {_percent(self.kept_share())} of the rows of {self.window} full ones"
        peak = self.peak_bytes()
        return text + ("." if peak is None else f", {format_bytes(peak)} at a step's peak by prediction.")

    def write(self) -> dict[str, Any]:
        """Return the recorded data, with ``counts``: chunks of the decayed snapshots, newest first."""
        data = Event.write(self)
        del data["shape"]
        return {"window": data.pop("window"), **asdict(self.shape), "counts": [*self.trapezoid.counts], **data}

    @classmethod
    def entries(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Map recorded data to the fields' names; data without chunks means that every snapshot has all nodes."""
        counts = data.get("row_counts") or [0, data["nodes"]]
        return {"chunks": 1, "rank_row_counts": counts, **data, "shape": data, "row_counts": counts}

    def check(self) -> None:
        """Raise a DataError if the counts contradict the chunks and nodes."""
        shape, counts = self.shape, (self.row_counts, *np.atleast_2d(self.rank_row_counts))
        fits = all(len(numbers) == self.chunks + 1 and (np.diff(numbers) >= 0).all() for numbers in counts)
        if not (
            fits
            and round(self.row_counts[-1]) == self.nodes > 0
            and self.window >= 1
            and shape.full_snapshots >= 1
            and shape.decay in RULES
        ):
            raise DataError(
                f"an event has a window of {self.window} snapshots, {shape.words}, and rows of {len(self.row_counts)} "
                f"prefixes of {self.chunks} chunks, which do not fit each other: was it recorded by another version?"
            )


@dataclass(frozen=True, slots=True)
class ChunkFacts(Event):
    """Chunks of a run's parts.

    Attributes:
        chunker: the requested chunker.
        made_by: the chunker that made them, if another one.
        chunks: C, of every part.
        parts: P.
        nodes: N.
        sizes: nodes of the smallest, the mean and the largest chunk.
        cut_edges: edges within parts that join two chunks, over all snapshots, without self-loops.
        cut_share: cut edges as a share of ``edges``; 0 if there are none.
        edges: all edges within parts.
        seconds: time of making them.
        note: deviations from the request.
    """

    kind: ClassVar[str] = "chunks"
    about: ClassVar[str] = "the chunks"
    ended: ClassVar[str] = "no chunks from here on"
    chunker: str
    made_by: str
    chunks: int
    parts: int
    nodes: int
    sizes: tuple[int | float, ...]
    cut_edges: int
    cut_share: float
    edges: int
    seconds: float
    note: str = ""

    @property
    def words(self) -> str:
        """One or two sentences on the chunks."""
        smallest, _, largest = self.sizes
        text = (
            f"{self.chunks:,} chunk{'s' * (self.chunks > 1)} in {'each of ' if self.parts > 1 else ''}{self.parts} "
            f"part{'s' * (self.parts > 1)} by {self.made_by or self.chunker}, {smallest:,} to {largest:,} nodes each, "
            f"made in {format_seconds(self.seconds)}; {_percent(self.cut_share)} of the edges within parts join two "
            "chunks."
        )
        note = self.note.rstrip(".")
        return f"{text} NOTE: {note}." if note else text


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
