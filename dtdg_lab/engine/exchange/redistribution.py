"""Movement of a time block's rows between own snapshots and own nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from dtdg_lab.engine.parallel_map import parallel_map

if TYPE_CHECKING:
    from dtdg_lab.engine.views.snapshot_view import SnapshotView

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AllToAllPhase:
    """One movement of rows between what mixes neighbours and what runs through time.

    Attributes:
        layer: of the model, from 0.
        backward: whether gradients move; else values do.
        width: C, numbers in a row.
    """

    layer: int
    backward: bool
    width: int


# Given a stack of snapshots or a piece of the nodes: their rows, and what else the work gave. Then all that moved, in
# order: rows of each snapshot, or of each stack, and the rest.
OfStack = Callable[[int], tuple[Tensor, T]]
OfRows = Callable[[slice], tuple[Tensor, T]]
Moved = tuple[list[Tensor], list[T]]


class BlockRows:
    """Rows of a time block: of all nodes (n) in own snapshots, and of own nodes (m) in all S snapshots.

    What is computed is given as work on pieces, so that rows of one piece may be sent while the next is computed.
    Here rows are already where they are needed; subclasses move them between ranks.

    Args:
        spaces: the S snapshots, some stacked.
        device: where work is done.
        alone: whether pieces over spaces must be worked on one after another.
    """

    def __init__(self, spaces: Sequence[SnapshotView], *, device: str, alone: bool) -> None:
        self._stacks = [len(space.snapshots) for space in spaces]
        self._device, self._alone = device, alone

    def to_vertices(self, work: OfStack[T], phase: AllToAllPhase) -> Moved[T]:
        """Rows of own nodes in every snapshot of the block, S times (m, C), and what else the work gave, in order.

        Args:
            work: given the place of an own stack of S' snapshots, its rows (S' n, C) without history, and a rest.
            phase: what moves.
        """
        results = parallel_map(work, range(len(self._stacks)), device=self._device, alone=self._alone)
        return by_snapshot(self._stacks, [rows for rows, _ in results]), [rest for _, rest in results]

    def to_snapshots(
        self, work: OfRows[T], pieces: Sequence[slice], phase: AllToAllPhase, *, like: Tensor, height: int
    ) -> Moved[T]:
        """Rows of all nodes in each own stack, (S' height, C), and what else the work gave, in order.

        Args:
            work: given a piece of the own nodes, their rows in all snapshots, (S, piece, C), and a rest.
            pieces: of the own nodes, in order; as many on every rank.
            phase: what moves.
            like: of the type and on the device of the result.
            height: rows of a snapshot where nothing moves; those that no piece has are zero.
        """
        covered = sum(rows.stop - rows.start for rows in pieces) == height
        make = like.new_empty if covered else like.new_zeros
        out = [make(stacked * height, phase.width) for stacked in self._stacks]
        parts = by_snapshot(self._stacks, out)

        def write(rows: slice) -> T:
            piece_rows, rest = work(rows)
            for part, rows_here in zip(parts, piece_rows, strict=True):
                part[rows] = rows_here
            return rest

        return out, parallel_map(write, pieces, device=self._device)

    def pieces(self, rows: int, size: int) -> list[slice]:
        """Return the first ``rows`` own nodes in pieces of at most ``size``, as many pieces on every rank."""
        return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def by_snapshot(stacks: Sequence[int], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return views of stacked rows, one for each snapshot.

    Args:
        stacks: snapshots in each tensor.
        tensors: (S' n, C) each.
    """
    return [
        part
        for stacked, rows in zip(stacks, tensors, strict=True)
        for part in rows.unflatten(0, (stacked, -1)).unbind()
    ]
