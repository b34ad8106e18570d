"""A window of a sampled part as one block of time, whose snapshots have each their own number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from dtdg_lab.parallel.here import Here
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.sequence import StackedSpace
from dtdg_lab.parallel.threads import in_order
from dtdg_lab.parallel.time_block import Leg, TimeBlock

T = TypeVar("T")


class WindowTimeline:
    """A window as one block of time, nothing of which moves (see :class:`dtdg_lab.parallel.time_block.Timeline`).

    Args:
        run: of the window, on a :class:`SampledSequence`.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __len__(self) -> int:
        return 1

    def open(self, number: int, way: str) -> TimeBlock:
        """All of it."""
        run = self._run
        stacks = [run.sequence.stacks(run.snapshots, layer) for layer in range(run.model.layers)]
        read = [spaces[0].num_rows for spaces in stacks[1:]]
        return TimeBlock(run.snapshots, stacks, [*read, run.own], _Uneven(stacks[0], device=run.sequence.device))

    def turn(self, number: int) -> None:
        """Nobody asks."""


class _Uneven(Here):
    """Rows are already where they are wanted; the first layer's snapshots have each their own number of them.

    Args:
        spaces: the snapshots as the first layer sees them, one each.
        device: where work is done.
    """

    def __init__(self, spaces: Sequence[StackedSpace], *, device: str) -> None:
        super().__init__(spaces, device=device, alone=False)
        self._heights = [space.num_rows for space in spaces]

    def to_snapshots(
        self, work: Callable[[slice], tuple[Tensor, T]], pieces: Sequence[slice], leg: Leg, *, like: Tensor, height: int
    ) -> tuple[list[Tensor], list[T]]:
        """Gradients of the first layer's rows, where they belong; else as everywhere."""
        if leg.layer > 0 or not leg.backward:
            return super().to_snapshots(work, pieces, leg, like=like, height=height)
        out = [like.new_zeros(rows, leg.width) for rows in self._heights]

        def write(rows: slice) -> T:
            found, rest = work(rows)
            for whole, here in zip(out, found, strict=True):
                whole[rows] = here
            return rest

        return out, in_order(write, pieces, device=self._device)
