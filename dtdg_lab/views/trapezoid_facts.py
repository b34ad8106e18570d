"""What pictures of trapezoid-shaped windows are made of: the facts of an event ``trapezoid``, and what they predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.batching.decay import RULES, decayed_counts
from dtdg_lab.batching.row_memory import RowMemory
from dtdg_lab.batching.trapezoid import Trapezoid
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.layout import share


@dataclass(frozen=True, slots=True)
class Shape:
    """The settings that make the shape of a window: how many snapshots are full, and how the others decay.

    Attributes:
        full_snapshots: K.
        alpha: share of chunks, as the rule reads it.
        decay: the rule.
    """

    full_snapshots: int
    alpha: float
    decay: str

    @property
    def words(self) -> str:
        """As a line of text has it."""
        return f"K {self.full_snapshots}, alpha {self.alpha:g}, {self.decay}"


@dataclass(frozen=True, slots=True, eq=False)
class TrapezoidFacts:
    """W snapshots in a window, of which the newest are full and older ones have ever fewer of C chunks a part.

    Attributes:
        window: W.
        shape: the settings in use.
        chunks: C, of every part.
        nodes: N.
        row_counts: (C + 1,) vertices in the first c chunks of all parts, about.
        rank_row_counts: (R, C + 1) the same of each rank that was told; R is 1 where only the largest was.
        base_bytes: of a step's peak, what does not grow with its rows; None where it is not known.
        row_bytes: what each row of the largest rank's batch adds to the peak; None where it is not known.
        piece_bytes: what each row and snapshot of its largest piece adds (:mod:`dtdg_lab.batching.row_memory`).
        piece_rows: most vertices of a piece.
    """

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

    def counts(self, shape: Shape | None = None) -> tuple[int, ...]:
        """Chunks of every snapshot of a whole window, oldest first; C of a full one."""
        shape = shape or self.shape
        full = min(shape.full_snapshots, self.window)
        newest_first = decayed_counts(
            shape.decay, chunks=self.chunks, alpha=shape.alpha, decayed=self.window - full
        )  # fmt: skip
        return (*reversed(newest_first), *[self.chunks] * full)

    def rows(self, shape: Shape | None = None) -> int:
        """Rows of vertices in a whole window, of all ranks, about."""
        return round(float(self.row_counts[[*self.counts(shape)]].sum()))

    @property
    def whole_rows(self) -> int:
        """Rows of a window with all its snapshots full."""
        return self.window * self.nodes

    def kept(self, shape: Shape | None = None) -> float:
        """Share of these that a window has."""
        return self.rows(shape) / self.whole_rows

    def peak_bytes(self, shape: Shape | None = None) -> float | None:
        """What a step is predicted to need at its peak on the largest rank; None where it is not known."""
        if self.base_bytes is None or self.row_bytes is None:
            return None
        rank_rows = self.rank_row_counts[:, [*self.counts(shape)]].sum(axis=1)
        shape = shape or self.shape
        full = min(shape.full_snapshots, self.window)
        memory = RowMemory(
            self.base_bytes, 0.0, self.piece_bytes, nodes=round(float(self.rank_row_counts[:, -1].max())),
            chunks=self.chunks, piece_rows=self.piece_rows,
        )  # fmt: skip
        of_piece = memory.peak_bytes(Trapezoid(self.window, full, self.chunks, shape.alpha, shape.decay))
        return of_piece + self.row_bytes * float(rank_rows.max())

    def changed(self, changes: Mapping[str, Any]) -> TrapezoidFacts:
        """The same after live settings have changed; others among them are passed over."""
        known = {name: changes[name] for name in ("full_snapshots", "alpha", "decay") if name in changes}
        return replace(self, shape=replace(self.shape, **known)) if known else self

    def same(self, other: TrapezoidFacts) -> bool:
        """Whether it is the same plan."""
        mine, theirs = (
            (f.window, f.shape, f.chunks, f.nodes, f.base_bytes, f.row_bytes, f.piece_bytes, f.row_counts.tolist())
            for f in (self, other)
        )  # fmt: skip
        return mine == theirs and np.array_equal(self.rank_row_counts, other.rank_row_counts)


def trapezoid_facts(data: Mapping[str, Any]) -> TrapezoidFacts:
    """The facts in the data of an event ``trapezoid``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        alpha, decay = float(data.get("alpha") or 1.0), str(data.get("decay") or RULES[0])
        nodes, chunks = int(data["nodes"]), int(data.get("chunks") or 1)
        row_counts = np.asarray(data.get("row_counts") or [0, nodes], np.float64)
        facts = TrapezoidFacts(
            window=int(data["window"]),
            shape=Shape(int(data["full_snapshots"]), alpha, decay),
            chunks=chunks,
            nodes=nodes,
            row_counts=row_counts,
            rank_row_counts=np.atleast_2d(np.asarray(data.get("rank_row_counts") or row_counts, np.float64)),
            base_bytes=_number(data.get("base_bytes")),
            row_bytes=_number(data.get("row_bytes")),
            piece_bytes=_number(data.get("piece_bytes")) or 0.0,
            piece_rows=int(data.get("piece_rows") or 1),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"a trapezoid of snapshots cannot be drawn from what is told of it ({error!r}): was it recorded by another "
            "version?"
        ) from error
    _check(facts)
    return facts


def _check(facts: TrapezoidFacts) -> None:
    shape, counts = facts.shape, (facts.row_counts, *facts.rank_row_counts)
    fit = all(len(each) == facts.chunks + 1 and (np.diff(each) >= 0).all() for each in counts)
    if not (
        fit
        and round(facts.row_counts[-1]) == facts.nodes > 0
        and facts.window >= 1
        and shape.full_snapshots >= 1
        and shape.decay in RULES
    ):
        raise DataError(
            f"an event told a window of {facts.window} snapshots, {shape.words}, and rows of {len(facts.row_counts)} "
            f"prefixes of {facts.chunks} chunks, which do not fit each other: was it recorded by another version?"
        )


def trapezoid_left(data: Mapping[str, Any]) -> bool:
    """Whether an event ``trapezoid`` or ``chunks`` says that the run went on with batches of another kind."""
    return "layout" in data and data["layout"] is None


def trapezoid_words(facts: TrapezoidFacts) -> str:
    """The window in a sentence or two, as a row of a table of events."""
    counts, full = facts.counts(), min(facts.shape.full_snapshots, facts.window)
    text = f"Windows of {facts.window} snapshot{'' if facts.window == 1 else 's'}: the newest {full} full"
    if full < facts.window:
        older = ", ".join(map(str, reversed(counts[: facts.window - full])))
        text += (
            f", those before in {older} of {facts.chunks:,} chunks ({facts.shape.decay}, alpha {facts.shape.alpha:g})"
        )
    text += f". {share(facts.kept())} of the rows of {facts.window} full ones"
    peak = facts.peak_bytes()
    return text + ("." if peak is None else f", {format_bytes(peak)} at a step's peak by prediction.")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
