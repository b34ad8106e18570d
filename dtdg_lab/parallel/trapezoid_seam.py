"""Nothing moves but into another order: older snapshots of a window have a prefix of the vertices of newer ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from torch import Tensor

from dtdg_lab.parallel.survival_rows import SurvivalRows
from dtdg_lab.parallel.threads import in_order
from dtdg_lab.parallel.time_block import Leg

T = TypeVar("T")
FEW_ROWS = 512
WIDER = 4  # windows are short: what a piece keeps is little, and calls cost more


class TrapezoidSeam:
    """The seam (see :class:`dtdg_lab.parallel.time_block.Seam`) of a window, one snapshot a space.

    Through time vertices run in the order in which they survive. Decayed snapshots have this order already; rows of
    full ones are put into it, and back.

    Args:
        heights: (S,) rows of each snapshot, oldest first, never fewer in a newer one.
        full: how many of the newest ones are full.
        rows: the order.
        device: where work is done, one piece after another.
        whole: rows of each snapshot of a whole window, oldest first: no piece has more rows x snapshots than its
            largest, so that the short windows of a segment's start are not the peak.
    """

    def __init__(
        self, heights: Sequence[int], full: int, rows: SurvivalRows, *, device: str, whole: Sequence[int] = ()
    ) -> None:
        self._heights, self._decayed = list(heights), len(heights) - full
        self._rows, self._device, self._whole = rows, device, list(whole)

    def to_vertices(self, work: Callable[[int], tuple[Tensor, T]], leg: Leg) -> tuple[list[Tensor], list[T]]:
        """What the work gives, full snapshots' rows in the order of survival."""

        def ordered(place: int) -> tuple[Tensor, T]:
            rows, rest = work(place)
            return rows if place < self._decayed else rows.index_select(0, self._rows.own), rest

        found = in_order(ordered, range(len(self._heights)), device=self._device, alone=True)
        return [rows for rows, _ in found], [rest for _, rest in found]

    def to_snapshots(
        self, work: Callable[[slice], tuple[Tensor, T]], pieces: Sequence[slice], leg: Leg, *, like: Tensor, height: int
    ) -> tuple[list[Tensor], list[T]]:
        """Each piece's rows are written into the snapshots that have them; full ones are put back into their order."""
        out = [like.new_empty(rows, leg.width) for rows in self._heights]

        def write(rows: slice) -> T:
            found, rest = work(rows)
            for part, here in zip(out[len(out) - len(found) :], found, strict=True):
                part[rows] = here[: len(part) - rows.start]
            return rest

        found = in_order(write, pieces, device=self._device, alone=True)
        whole = [rows.index_select(0, self._rows.place) for rows in out[self._decayed :]]
        return [*out[: self._decayed], *whole], found

    def pieces(self, rows: int, size: int) -> list[slice]:
        """Runs of at most ``WIDER`` times ``size`` vertices that are in the same snapshots.

        The first few are one piece although some of them enter late: what calls cost is more than they do.
        """
        most = max(
            (min(stop - first, WIDER * size) * held for first, stop, held in _runs(self._whole, rows, size)),
            default=None,
        )
        found = []
        for first, stop, held in _runs(self._heights, rows, size):
            step = WIDER * size if most is None else max(1, min(WIDER * size, most // held))
            found += [slice(start, min(start + step, stop)) for start in range(first, stop, step)]
        return found


def _runs(heights: Sequence[int], rows: int, size: int) -> list[tuple[int, int, int]]:
    """Vertices in the same snapshots, from and to, and in how many; the first few together."""
    if not heights:
        return []
    edges = sorted({0, rows, *(height for height in heights if height < rows)})
    few = max(edge for edge in edges if edge <= min(size, FEW_ROWS))
    bounds = pairwise([0, *(edge for edge in edges if edge and edge >= few)])
    return [(first, stop, sum(height > first for height in heights)) for first, stop in bounds]
