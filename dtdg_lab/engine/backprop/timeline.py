"""Consecutive time blocks of a segment, loaded one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtdg_lab.engine.exchange.redistribution import BlockRows
from dtdg_lab.engine.segment import SequenceSegment

if TYPE_CHECKING:
    from dtdg_lab.engine.views.snapshot_view import SnapshotView


@dataclass(frozen=True, slots=True)
class TimeBlock:
    """S consecutive snapshots of a run, as one rank computes them.

    Attributes:
        snapshots: all S of them.
        stacks: for every layer the views of own snapshots, some stacked; the same snapshots for all layers.
        vertices: for every layer how many nodes are run through time here: those that the next layer reads, and the
            own ones in the last.
        redistribution: moves rows between own snapshots and own nodes.
    """

    snapshots: range
    stacks: Sequence[Sequence[SnapshotView]]
    vertices: Sequence[int]
    redistribution: BlockRows


class Timeline:
    """A run's snapshots in consecutive time blocks; one block is loaded at a time.

    Here some of them are the only block, and it needs no transfers.

    Args:
        run: the segment.
        snapshots: those of the block; all where None.
    """

    def __init__(self, run: SequenceSegment, snapshots: range | None = None) -> None:
        self._run, self._snapshots = run, run.snapshots if snapshots is None else snapshots

    def __len__(self) -> int:
        """nb, the blocks."""
        return 1

    def open(self, number: int, pass_name: str) -> TimeBlock:
        """Load a block; data of an earlier one may be released.

        Args:
            number: of the block, from 0.
            pass_name: the pass: ``forward``, or ``rerun`` for recomputation.
        """
        sequence = self._run.sequence
        stacks = [sequence.stacks(self._snapshots, layer) for layer in range(self._run.model.layers)]
        redistribution = BlockRows(stacks[0], device=sequence.device, alone=sequence.collective)
        read = [views[0].num_rows // len(views[0].snapshots) for views in stacks[1:]]
        return TimeBlock(self._snapshots, stacks, [*read, self._run.own], redistribution)

    def turn(self, number: int) -> None:
        """Note that backward of a block begins."""
