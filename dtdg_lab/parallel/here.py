"""Nothing moves: own snapshots have all vertices that this rank trains, and these have all snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.sequence import StackedSpace
from dtdg_lab.parallel.threads import in_order
from dtdg_lab.parallel.time_block import Leg, TimeBlock, by_snapshot

T = TypeVar("T")


class Here:
    """The seam (see :class:`dtdg_lab.parallel.time_block.Seam`) where rows are already where they are wanted.

    Args:
        spaces: the S snapshots, some stacked.
        device: where work is done.
        alone: whether pieces over spaces must be worked on one after another.
    """

    def __init__(self, spaces: Sequence[StackedSpace], *, device: str, alone: bool) -> None:
        self._stacks = [len(space.snapshots) for space in spaces]
        self._device, self._alone = device, alone

    def to_vertices(self, work: Callable[[int], tuple[Tensor, T]], leg: Leg) -> tuple[list[Tensor], list[T]]:
        """Views of what the work gives, by snapshot."""
        found = in_order(work, range(len(self._stacks)), device=self._device, alone=self._alone)
        return by_snapshot(self._stacks, [rows for rows, _ in found]), [rest for _, rest in found]

    def to_snapshots(
        self, work: Callable[[slice], tuple[Tensor, T]], pieces: Sequence[slice], leg: Leg, *, like: Tensor, height: int
    ) -> tuple[list[Tensor], list[T]]:
        """Each piece's rows are written where they belong."""
        covered = sum(rows.stop - rows.start for rows in pieces) == height
        make = like.new_empty if covered else like.new_zeros
        out = [make(stacked * height, leg.width) for stacked in self._stacks]
        parts = by_snapshot(self._stacks, out)

        def write(rows: slice) -> T:
            found, rest = work(rows)
            for part, here in zip(parts, found, strict=True):
                part[rows] = here
            return rest

        return out, in_order(write, pieces, device=self._device)

    def pieces(self, rows: int, size: int) -> list[slice]:
        """Runs of ``size`` vertices."""
        return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


class WholeRun:
    """A run as one block of time, nothing of which moves (see :class:`dtdg_lab.parallel.time_block.Timeline`)."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __len__(self) -> int:
        return 1

    def open(self, number: int, way: str) -> TimeBlock:
        """All of it."""
        return block_here(self._run, self._run.snapshots)

    def turn(self, number: int) -> None:
        """Nobody asks."""


def block_here(run: Run, snapshots: range) -> TimeBlock:
    """Some snapshots of a run as a block of time of which nothing moves."""
    sequence = run.sequence
    stacks = [sequence.stacks(snapshots, layer) for layer in range(run.model.layers)]
    seam = Here(stacks[0], device=sequence.device, alone=sequence.collective)
    read = [spaces[0].num_rows // len(spaces[0].snapshots) for spaces in stacks[1:]]
    return TimeBlock(snapshots, stacks, [*read, run.own], seam)
