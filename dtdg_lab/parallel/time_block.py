"""What is computed of a run at once: consecutive snapshots, the spaces of them that are here, and how rows move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from dtdg_lab.parallel.sequence import StackedSpace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Leg:
    """One movement of rows between what mixes neighbours and what runs through time.

    Attributes:
        layer: of the model, from 0.
        backward: whether gradients move; else values do.
        width: C, numbers in a row.
    """

    layer: int
    backward: bool
    width: int


class Seam(Protocol):
    """Moves rows from own snapshots, which have all vertices (n), to own vertices (m), which have all S snapshots.

    What is computed is handed over as work on pieces, so that rows of one piece may travel while the next is computed.
    """

    def to_vertices(self, work: Callable[[int], tuple[Tensor, T]], leg: Leg) -> tuple[list[Tensor], list[T]]:
        """Rows of own vertices in every snapshot of the block, S times (m, C), and what else the work gave, in order.

        Args:
            work: given the place of an own stack of S' snapshots, its rows (S' n, C) without history, and a rest.
            leg: what moves.
        """
        ...

    def to_snapshots(
        self, work: Callable[[slice], tuple[Tensor, T]], pieces: Sequence[slice], leg: Leg, *, like: Tensor, height: int
    ) -> tuple[list[Tensor], list[T]]:
        """Rows of all vertices in each own stack, (S' height, C), and what else the work gave, in order.

        Args:
            work: given a piece of the own vertices, their rows in all snapshots, (S, piece, C), and a rest.
            pieces: of the own vertices, in order; as many on every rank.
            leg: what moves.
            like: of the type and on the device of the result.
            height: rows of a snapshot where nothing moves; those that no piece has are zero.
        """
        ...

    def pieces(self, rows: int, size: int) -> list[slice]:
        """The first ``rows`` own vertices in pieces of at most ``size``, as many pieces on every rank."""
        ...


@dataclass(frozen=True, slots=True)
class TimeBlock:
    """S consecutive snapshots of a run, as one rank computes them.

    Attributes:
        snapshots: all S of them.
        stacks: for every layer the spaces of own snapshots, some stacked; the same snapshots for all layers.
        vertices: for every layer how many vertices are run through time here: those that the next layer reads, and the
            own ones in the last.
        seam: moves rows between own snapshots and own vertices.
    """

    snapshots: range
    stacks: Sequence[Sequence[StackedSpace]]
    vertices: Sequence[int]
    seam: Seam


class Timeline(Protocol):
    """A run's snapshots in consecutive blocks of time, one of which is here at a time."""

    def __len__(self) -> int:
        """nb, the blocks."""
        ...

    def open(self, number: int, way: str) -> TimeBlock:
        """Bring a block here; what an earlier one brought may go.

        Args:
            number: of the block, from 0.
            way: ``forward``, or ``rerun`` where it is computed again.
        """
        ...

    def turn(self, number: int) -> None:
        """Note that backward of a block begins."""
        ...


def by_snapshot(stacks: Sequence[int], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Views of stacked rows, one for each snapshot.

    Args:
        stacks: snapshots in each tensor.
        tensors: (S' n, C) each.
    """
    return [
        part
        for stacked, rows in zip(stacks, tensors, strict=True)
        for part in rows.unflatten(0, (stacked, -1)).unbind()
    ]
