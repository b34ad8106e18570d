"""Redistribution of a time block's rows between own snapshots (all nodes) and own nodes (all snapshots)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from dtdg_lab.kernels.parallel_map import parallel_map

if TYPE_CHECKING:
    from dtdg_lab.engine.views.snapshot_view import SnapshotView

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AllToAllPhase:
    """One redistribution of rows, between a layer's spatial and temporal parts.

    Attributes:
        layer: layer of the model, from 0.
        backward: whether gradients move; else values move.
        width: C, numbers in a row.
    """

    layer: int
    backward: bool
    width: int


# Work on a stack of snapshots, or on a piece of the nodes, returns rows and an extra result. Moved: the redistributed
# rows of each snapshot, or of each stack, and the extra results, in order.
OfStack = Callable[[int], tuple[Tensor, T]]
OfRows = Callable[[slice], tuple[Tensor, T]]
Moved = tuple[list[Tensor], list[T]]


class BlockRows:
    """Rows of a time block: of all nodes (n) in own snapshots, and of own nodes (m) in all S snapshots.

    Callers pass work on pieces, so that rows of one piece may be sent while the next is computed.
    This class serves a single rank; subclasses move rows between ranks.

    Args:
        views: the S snapshots, some stacked.
        device: device of the work.
        alone: whether work on stacks must run one item at a time.
    """

    def __init__(self, views: Sequence[SnapshotView], *, device: str, alone: bool) -> None:
        self._stacks = [len(view.snapshots) for view in views]
        self._device, self._alone = device, alone

    def to_vertices(self, work: OfStack[T], phase: AllToAllPhase) -> Moved[T]:
        """Compute rows by stack; return rows of own nodes in each snapshot, S times (m, C), and the extra results.

        Args:
            work: takes the index of an own stack of S' snapshots; returns its rows (S' n, C), detached, and an extra
                result.
            phase: the redistribution.
        """
        results = parallel_map(work, range(len(self._stacks)), device=self._device, alone=self._alone)
        return by_snapshot(self._stacks, [rows for rows, _ in results]), [rest for _, rest in results]

    def to_snapshots(
        self, work: OfRows[T], pieces: Sequence[slice], phase: AllToAllPhase, *, like: Tensor, height: int
    ) -> Moved[T]:
        """Compute rows by piece of nodes; return rows of all nodes in each own stack, (S' height, C), and the extras.

        Args:
            work: takes a piece of the own nodes; returns their rows in all snapshots, (S, piece, C), and an extra
                result.
            pieces: pieces of the own nodes, in order; as many on every rank.
            phase: the redistribution.
            like: tensor with the type and device of the result.
            height: rows of a snapshot on a single rank; rows outside all pieces are zero.
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
        """Cut the first ``rows`` own nodes into pieces of at most ``size``, the same number on every rank."""
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
