"""The time blocks of a rank: own snapshots are transferred to the device, and rows are redistributed per block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.engine.backprop.time_blocks import Here
from dtdg_lab.engine.strategy import BlockRedistribution, SequenceSegment, StackedView, StepMarks, TimeBlock, Unmarked


class Redistributions(Protocol):
    """What moves rows between ranks, block by block."""

    def of_block(self, block: int, pass_name: str) -> BlockRedistribution:
        """The moves of one block in one pass."""
        ...

    def slots(self, block: int, rank: int) -> Sequence[range]:
        """Own snapshots of a rank in a block, cut as they are computed; some may be empty."""
        ...


class Snapshots(Protocol):
    """What :class:`BlockTimeline` needs of a sequence."""

    def stack(self, snapshots: range) -> StackedView:
        """Some consecutive snapshots as one view."""
        ...

    def stacks(self, snapshots: range, layer: int) -> Sequence[StackedView]:
        """Consecutive snapshots for one layer; small ones are stacked."""
        ...


class BlockTimeline:
    """The own snapshots of one block after another (see :class:`dtdg_lab.engine.strategy.Timeline`).

    Args:
        plan: the assignment of snapshots and nodes to ranks.
        rank: this rank.
        snapshots: its rows of them.
        run: the segment of the nodes that it runs through time.
        bring: transfers the graphs of own snapshots to the device.
        moves: how rows move between ranks; None if all snapshots are on this rank.
        one_by_one: whether snapshots are never stacked, as for models that process each by itself.

    Attributes:
        marks: called after transfers and at the start of blocks; replaced for every step.
        turned: called with the same arguments as ``marks.block``.
    """

    def __init__(
        self,
        plan: SnapshotBlocks,
        rank: int,
        snapshots: Snapshots,
        run: SequenceSegment,
        *,
        bring: Callable[[range], None],
        moves: Redistributions | None,
        one_by_one: bool,
    ) -> None:
        self.marks: StepMarks = Unmarked()
        self.turned: Callable[[int, str], None] = lambda number, pass_name: None
        self._plan, self._rank, self._snapshots, self._run = plan, rank, snapshots, run
        self._bring, self._moves, self._one_by_one = bring, moves, one_by_one

    def __len__(self) -> int:
        return self._plan.blocks

    def open(self, number: int, pass_name: str) -> TimeBlock:
        """Transfer the own snapshots of a block to the device."""
        self.marks("compute")
        own = self._plan.own(number, self._rank)
        self._bring(own)
        spaces = self._spaces(number, own)
        self.marks("transfer")
        self._begin(number, pass_name)
        layers = range(self._run.model.layers)
        stacks = [[space.layer(layer) for space in spaces] for layer in layers]
        redistribution: BlockRedistribution = Here(
            spaces, device=self._run.sequence.device, alone=self._run.sequence.collective
        )
        if self._moves is not None:
            redistribution = self._moves.of_block(number, pass_name)
        return TimeBlock(self._plan.block(number), stacks, [self._run.own for _ in layers], redistribution)

    def turn(self, number: int) -> None:
        """Start the backward pass of a block."""
        self.marks("compute")
        self._begin(number, "backward")

    def _begin(self, number: int, pass_name: str) -> None:
        self.marks.block(number, pass_name)
        self.turned(number, pass_name)

    def _spaces(self, number: int, own: range) -> list[StackedView]:
        if self._one_by_one:
            return [self._snapshots.stack(range(t, t + 1)) for t in own]
        if self._moves is None:
            return list(self._snapshots.stacks(own, 0))
        return [self._snapshots.stack(slot) for slot in self._moves.slots(number, self._rank) if slot]
