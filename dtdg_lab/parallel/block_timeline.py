"""The blocks of time of a rank's share: own snapshots are brought, and the seam is that of the block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.parallel.here import Here
from dtdg_lab.parallel.layout import Marks, Unmarked
from dtdg_lab.parallel.redistribution import Redistribution
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.sequence import StackedSpace
from dtdg_lab.parallel.time_block import Seam, TimeBlock


class Snapshots(Protocol):
    """What a timeline asks of a sequence."""

    def stack(self, snapshots: range) -> StackedSpace:
        """Some consecutive snapshots as one space."""
        ...

    def stacks(self, snapshots: range, layer: int) -> Sequence[StackedSpace]:
        """Consecutive snapshots for one layer, as many stacked as are small."""
        ...


class BlockTimeline:
    """Own snapshots of one block after another (see :class:`dtdg_lab.parallel.time_block.Timeline`).

    Args:
        plan: who has which snapshots and vertices.
        rank: this one.
        snapshots: its rows of them.
        run: of the vertices that it runs through time.
        bring: brings the graphs of own snapshots.
        moves: how rows move between ranks; None where all snapshots are on this one.
        one_by_one: whether no snapshots are stacked, as for models that look at each by itself.

    Attributes:
        marks: told when graphs have been brought, and where blocks begin; set anew for every step.
        turned: told the same as ``marks.block``.
    """

    def __init__(
        self, plan: SnapshotBlocks, rank: int, snapshots: Snapshots, run: Run, *, bring: Callable[[range], None],
        moves: Redistribution | None, one_by_one: bool,
    ) -> None:  # fmt: skip
        self.marks: Marks = Unmarked()
        self.turned: Callable[[int, str], None] = lambda number, way: None
        self._plan, self._rank, self._snapshots, self._run = plan, rank, snapshots, run
        self._bring, self._moves, self._one_by_one = bring, moves, one_by_one

    def __len__(self) -> int:
        return self._plan.blocks

    def open(self, number: int, way: str) -> TimeBlock:
        """Bring the own snapshots of a block here."""
        self.marks("compute")
        own = self._plan.own(number, self._rank)
        self._bring(own)
        spaces = self._spaces(number, own)
        self.marks("transfer")
        self._begin(number, way)
        layers = range(self._run.model.layers)
        stacks = [[space.layer(layer) for space in spaces] for layer in layers]
        seam: Seam = Here(spaces, device=self._run.sequence.device, alone=self._run.sequence.collective)
        if self._moves is not None:
            seam = self._moves.seam(number, way)
        return TimeBlock(self._plan.block(number), stacks, [self._run.own for _ in layers], seam)

    def turn(self, number: int) -> None:
        """Backward of a block begins."""
        self.marks("compute")
        self._begin(number, "backward")

    def _begin(self, number: int, way: str) -> None:
        self.marks.block(number, way)
        self.turned(number, way)

    def _spaces(self, number: int, own: range) -> list[StackedSpace]:
        if self._one_by_one:
            return [self._snapshots.stack(range(t, t + 1)) for t in own]
        if self._moves is None:
            return list(self._snapshots.stacks(own, 0))
        return [self._snapshots.stack(slot) for slot in self._moves.slots(number, self._rank) if slot]
