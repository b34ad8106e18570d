"""Rows of whole snapshots become rows of some vertices in all snapshots, all to all, and come back.

Ranks of a column hold the same rows of different snapshots of a block. What a rank's spatial parts give goes to the
rank that runs the vertex through time; what comes out of that goes to the rank that has the snapshot in the next
layer. Gradients go the other way. With overlap a piece travels while the next is computed: own snapshots one after
another on the way to vertices, pieces of own vertices on the way back. Work is cut alike whether or not: results are
the same bits.

References: ESDG section 4.2 (redistribution), section 6.5 (overlap, left open there).

Differs from the paper: rows do not come back after the last layer, where loss is a sum over vertices; the gradient of
what no parameter has touched is not sent; section 5.1 sends [Y0 ; Y0 W] of CD-GCN, here Y0 alone goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from dtdg_lab.comm.group import Group
from dtdg_lab.comm.pending_rows import PendingRows
from dtdg_lab.core.plans import SnapshotBlocks, share
from dtdg_lab.parallel.exchange_log import ExchangeLog
from dtdg_lab.parallel.space_store import stack_ranges
from dtdg_lab.parallel.threads import in_turn
from dtdg_lab.parallel.time_block import Leg

T = TypeVar("T")

PIECES = 4  # that work is cut into, so that rows of one can travel while the next is computed
LEAST_ROWS = 4096  # of a piece, over all its snapshots: below, the calls take longer than what they hide
TO_VERTICES, TO_SNAPSHOTS = "to_vertices", "to_snapshots"


@dataclass(slots=True)
class Redistribution:
    """How the rows of a plan move between the ranks of this rank's column.

    Attributes:
        plan: who has which snapshots and vertices.
        rank: this one, of the run's R.
        column: the K ranks of its column.
        log: takes down what moved.
        dtype: of the rows.
        device: where they are.
        features: F, width of the input.
        overlap: whether rows travel piece by piece while more are computed.
        reuse: whether rows that depend on no parameter are moved once and kept.
        alone: whether own snapshots must be worked on one after another: where ranks exchange rows while a model pulls.
        kept: block -> what was moved once.
    """

    plan: SnapshotBlocks
    rank: int
    column: Group
    log: ExchangeLog
    dtype: torch.dtype
    device: str
    features: int
    overlap: bool
    reuse: bool
    alone: bool
    kept: dict[int, list[Tensor]] = field(default_factory=dict)

    @property
    def ranks(self) -> list[int]:
        """The run's ranks in the column, by their place in it."""
        return self.plan.column(self.rank)

    def slots(self, block: int, rank: int) -> list[range]:
        """A rank's own snapshots of a block in runs that are computed together; as many for every rank, some empty."""
        largest = max((self.plan.own(block, other) for other in self.ranks), key=len)
        rows = max(len(self.plan.rows(other)) for other in range(self.plan.ranks))
        runs = len(stack_ranges(largest, rows=rows, features=self.features, device=self.device)) if largest else 0
        runs = max(runs, min(PIECES, len(largest), len(largest) * rows // LEAST_ROWS))
        return [share(self.plan.own(block, rank), slot, runs) for slot in range(runs)]

    def seam(self, block: int, way: str) -> RankSeam:
        """The seam of one block; ``way`` is what a movement of values is called: ``forward`` or ``rerun``."""
        return RankSeam(self, block, way)

    def empty(self, *shape: int) -> Tensor:
        """Room for rows."""
        return torch.empty(*shape, dtype=self.dtype, device=self.device)


class RankSeam:
    """Moves rows of one block of time (see :class:`dtdg_lab.parallel.time_block.Seam`). Collective in the column.

    Args:
        of: how rows move.
        block: which block.
        way: ``forward`` or ``rerun``.
    """

    def __init__(self, of: Redistribution, block: int, way: str) -> None:
        plan, ranks = of.plan, of.ranks
        self._of, self._way, self._number = of, way, block
        self._block, self._rows = plan.block(block), plan.rows(of.rank)
        self._own = [plan.own(block, rank) for rank in ranks]
        self._chunks = [plan.chunk(rank) for rank in ranks]
        self._slots = [of.slots(block, rank) for rank in ranks]
        self._me = of.column.rank

    def to_vertices(self, work: Callable[[int], tuple[Tensor, T]], leg: Leg) -> tuple[list[Tensor], list[T]]:
        """Own snapshots' rows go to the ranks that have their vertices, run by run."""
        of, mine = self._of, [slot for slot in self._slots[self._me] if slot]
        first = of.reuse and leg.layer == 0 and not leg.backward
        if first and self._number in of.kept:
            return of.kept[self._number], []
        out = of.empty(len(self._block), len(self._chunks[self._me]), leg.width)
        rests: list[T] = []
        pieces: list[Tensor] = []
        flying: list[tuple[PendingRows, list[range]]] = []
        with closing(in_turn(work, range(len(mine)), device=of.device, alone=of.alone)) as found:
            for slot, own in enumerate(self._slots[self._me]):
                if own:
                    rows, rest = next(found)
                    rests.append(rest)
                    pieces.append(rows.unflatten(0, (len(own), -1)))
                if of.overlap:
                    there = [slots[slot] for slots in self._slots]
                    flying.append((self._send_snapshots(pieces, there, leg), there))
                    pieces = []
        if not of.overlap:
            flying.append((self._send_snapshots(pieces, self._own, leg), self._own))
        for pending, there in flying:
            rows = self._arrived(pending, leg, TO_VERTICES)
            parts = rows.split([len(snapshots) * out.shape[1] for snapshots in there])
            for snapshots, part in zip(there, parts, strict=True):
                start = snapshots.start - self._block.start
                out[start : start + len(snapshots)] = part.view(len(snapshots), *out.shape[1:])
        arrived = list(out.unbind())
        if first:
            of.kept[self._number] = arrived
        return arrived, rests

    def to_snapshots(
        self, work: Callable[[slice], tuple[Tensor, T]], pieces: Sequence[slice], leg: Leg, *, like: Tensor, height: int
    ) -> tuple[list[Tensor], list[T]]:
        """Own vertices' rows go to the ranks that have the snapshots, piece by piece."""
        of, own = self._of, self._own[self._me]
        out = of.empty(len(own), len(self._rows), leg.width)
        rests: list[T] = []
        here: list[Tensor] = []
        flying: list[tuple[PendingRows, list[range]]] = []
        for number, (rows, rest) in enumerate(in_turn(work, pieces, device=of.device)):
            rests.append(rest)
            if of.overlap:
                there = [share(chunk, number, len(pieces)) for chunk in self._chunks]
                flying.append((self._send_vertices(rows, there, leg), there))
            else:
                here.append(rows)
        if not of.overlap:
            flying.append((self._send_vertices(torch.cat(here, dim=1), self._chunks, leg), self._chunks))
        for pending, there in flying:
            arrived = self._arrived(pending, leg, TO_SNAPSHOTS)
            parts = arrived.split([len(own) * len(vertices) for vertices in there])
            for vertices, part in zip(there, parts, strict=True):
                start = vertices.start - self._rows.start
                out[:, start : start + len(vertices)] = part.view(len(own), len(vertices), leg.width)
        lengths = [len(slot) for slot in self._slots[self._me] if slot]
        return [rows.flatten(0, 1) for rows in out.split(lengths)] if lengths else [], rests

    def pieces(self, rows: int, size: int) -> list[slice]:
        """The own chunk, in as many even pieces as the largest chunk needs."""
        longest, shortest = (max(map(len, self._chunks)), min(map(len, self._chunks)))
        worth = len(self._block) * longest // LEAST_ROWS
        number = max(-(-longest // size), min(PIECES, shortest, worth), 1)
        cut = [share(range(rows), piece, number) for piece in range(number)]
        return [slice(piece.start, piece.stop) for piece in cut]

    def _send_snapshots(self, pieces: list[Tensor], there: list[range], leg: Leg) -> PendingRows:
        """Start sending rows (S', n, C) of own snapshots; rank p sends those ``there[p]``."""
        own, chunk = there[self._me], len(self._chunks[self._me])
        x = torch.cat(pieces) if len(pieces) > 1 else pieces[0] if pieces else self._of.empty(0, 0, leg.width)
        starts = [chunk.start - self._rows.start for chunk in self._chunks]
        cut = [
            x[:, start : start + len(chunk)].reshape(-1, leg.width)
            for start, chunk in zip(starts, self._chunks, strict=True)
        ]
        send = [len(own) * len(chunk) for chunk in self._chunks]
        return self._start(torch.cat(cut), send, [len(snapshots) * chunk for snapshots in there], leg, TO_VERTICES)

    def _send_vertices(self, y: Tensor, there: list[range], leg: Leg) -> PendingRows:
        """Start sending rows (S, piece, C) of own vertices; rank q sends those ``there[q]``."""
        own, piece = len(self._own[self._me]), len(there[self._me])
        send = [len(snapshots) * piece for snapshots in self._own]  # in the order of time, as the rows are
        return self._start(
            y.reshape(-1, leg.width), send, [own * len(vertices) for vertices in there], leg, TO_SNAPSHOTS
        )

    def _start(self, rows: Tensor, send: list[int], receive: list[int], leg: Leg, name: str) -> PendingRows:
        log = self._of.log
        row_bytes = leg.width * rows.element_size()
        number = log.start(leg.layer, self._way_of(leg), send, row_bytes, own=self._me)
        place = (number, leg.layer, 2 * leg.backward + (name == TO_SNAPSHOTS))
        return self._of.column.start_exchange(rows, send, receive, place=place)

    def _arrived(self, pending: PendingRows, leg: Leg, name: str) -> Tensor:
        self._of.log.marks("compute")
        found = pending.wait()
        self._of.log.arrived(leg.layer, self._way_of(leg), name, found)
        return found.rows

    def _way_of(self, leg: Leg) -> str:
        return "backward" if leg.backward else self._way
