"""ESDG: snapshots over ranks, redistributed to nodes over ranks for the recurrent layer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from dtdg_lab.core.plans import SnapshotBlocks, share
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.exchange.redistribution import AllToAllPhase, BlockRows, Moved, OfRows, OfStack
from dtdg_lab.engine.graph_view import stack_ranges
from dtdg_lab.engine.halo_exchange import Exchanger, Started
from dtdg_lab.engine.parallel_map import parallel_imap

# Rows of whole snapshots become rows of some nodes in all snapshots by an all-to-all, and return by another.
#
# Ranks of a column hold the same rows of different snapshots of a block. The output of a rank's spatial part goes to
# the rank that runs the node through time; the output of that goes to the rank that has the snapshot in the next
# layer. Gradients go in the opposite direction. With overlap a piece is sent while the next is computed: own snapshots
# one after another towards nodes, pieces of own nodes towards snapshots. Work is cut the same in both cases, so that
# results are bitwise equal.
#
# References: ESDG section 4.2 (redistribution), section 6.5 (overlap, left open there).
#
# Differs from the paper: rows are not returned after the last layer, where the loss is a sum over nodes. Gradients
# with respect to inputs that depend on no parameter are not sent. Section 5.1 sends [Y0 ; Y0 W] of CD-GCN, we send
# Y0 alone.


T = TypeVar("T")

PIECES = 4  # into which work is cut at least, so that rows of one can be sent while the next is computed
SENDS = 4  # exchanges of one phase with overlap, at most: more cost the processor more than they hide
LEAST_ROWS = 4096  # of a piece, over all its snapshots: smaller ones cost more in calls than they hide
TO_VERTICES, TO_SNAPSHOTS = "to_vertices", "to_snapshots"


@dataclass(slots=True)
class Redistribution:
    """How the rows of a plan move between the ranks of this rank's column.

    Attributes:
        plan: the assignment of snapshots and nodes to ranks.
        rank: this one, of the run's R.
        column: the K ranks of its column.
        exchanger: of the column; records what it exchanges.
        dtype: of the rows.
        device: where they are.
        features: F, width of the input.
        overlap: whether rows are sent piece by piece while more are computed.
        reuse: whether rows that depend on no parameter are sent once and kept.
        alone: whether own snapshots must be computed sequentially: if ranks exchange rows during aggregation.
        kept: block -> rows that were sent once.
    """

    plan: SnapshotBlocks
    rank: int
    column: Group
    exchanger: Exchanger
    dtype: torch.dtype
    device: str
    features: int
    overlap: bool
    reuse: bool
    alone: bool
    kept: dict[int, list[Tensor]] = field(default_factory=dict)

    @property
    def ranks(self) -> list[int]:
        """The run's ranks in the column, in its order."""
        return self.plan.column(self.rank)

    def slots(self, block: int, rank: int) -> list[range]:
        """A rank's own snapshots of a block in runs that are computed together; the same number for every rank."""
        largest = max((self.plan.own(block, other) for other in self.ranks), key=len)
        rows = max(len(self.plan.rows(other)) for other in range(self.plan.ranks))
        runs = len(stack_ranges(largest, rows=rows, features=self.features, device=self.device)) if largest else 0
        runs = max(runs, min(PIECES, len(largest), len(largest) * rows // LEAST_ROWS))
        return [share(self.plan.own(block, rank), slot, runs) for slot in range(runs)]

    def of_block(self, block: int, pass_name: str) -> RankRedistribution:
        """The redistribution of one block; ``pass_name`` is the pass of the values: ``forward`` or ``rerun``."""
        return RankRedistribution(self, block, pass_name)

    def empty(self, *shape: int) -> Tensor:
        """An uninitialised tensor for rows."""
        return torch.empty(*shape, dtype=self.dtype, device=self.device)


class RankRedistribution(BlockRows):
    """Moves rows of one block of time (see :class:`BlockRows`). Collective in the column.

    Args:
        of: settings shared by all blocks.
        block: index of the block.
        pass_name: ``forward`` or ``rerun``.
    """

    def __init__(self, of: Redistribution, block: int, pass_name: str) -> None:
        plan, ranks = of.plan, of.ranks
        self._of, self._pass, self._number = of, pass_name, block
        self._block, self._rows = plan.block(block), plan.rows(of.rank)
        self._own = [plan.own(block, rank) for rank in ranks]
        self._chunks = [plan.chunk(rank) for rank in ranks]
        self._slots = [of.slots(block, rank) for rank in ranks]
        self._me = of.column.rank

    def to_vertices(self, work: OfStack[T], phase: AllToAllPhase) -> Moved[T]:
        """Send own snapshots' rows to the ranks that have their nodes, run by run."""
        of, mine = self._of, [slot for slot in self._slots[self._me] if slot]
        first = of.reuse and phase.layer == 0 and not phase.backward
        if first and self._number in of.kept:
            return of.kept[self._number], []
        out = of.empty(len(self._block), len(self._chunks[self._me]), phase.width)
        rests: list[T] = []
        in_progress: list[tuple[Started, list[range]]] = []
        with closing(parallel_imap(work, range(len(mine)), device=of.device, alone=of.alone)) as found:
            for slots in self._sends(len(self._slots[self._me])):
                stacks: list[Tensor] = []
                for slot in slots:
                    if own := self._slots[self._me][slot]:
                        rows, rest = next(found)
                        rests.append(rest)
                        stacks.append(rows.unflatten(0, (len(own), -1)))
                there = [range(of_rank[slots[0]].start, of_rank[slots[-1]].stop) for of_rank in self._slots]
                in_progress.append((self._send_snapshots(stacks, there, phase), there))
        for pending, there in in_progress:
            rows = of.exchanger.finish(pending).rows
            parts = rows.split([len(snapshots) * out.shape[1] for snapshots in there])
            for snapshots, part in zip(there, parts, strict=True):
                start = snapshots.start - self._block.start
                out[start : start + len(snapshots)] = part.view(len(snapshots), *out.shape[1:])
        arrived = list(out.unbind())
        if first:
            of.kept[self._number] = arrived
        return arrived, rests

    def to_snapshots(
        self, work: OfRows[T], pieces: Sequence[slice], phase: AllToAllPhase, *, like: Tensor, height: int
    ) -> Moved[T]:
        """Send own nodes' rows to the ranks that have the snapshots, piece by piece."""
        of, own = self._of, self._own[self._me]
        out = of.empty(len(own), len(self._rows), phase.width)
        rests: list[T] = []
        in_progress: list[tuple[Started, list[range]]] = []
        with closing(parallel_imap(work, pieces, device=of.device)) as found:
            for numbers in self._sends(len(pieces)):
                here = []
                for rows, rest in islice(found, len(numbers)):
                    rests.append(rest)
                    here.append(rows)
                ends = [
                    (share(chunk, numbers[0], len(pieces)), share(chunk, numbers[-1], len(pieces)))
                    for chunk in self._chunks
                ]
                there = [range(first.start, last.stop) for first, last in ends]
                in_progress.append((self._send_vertices(here, there, phase), there))
        for pending, there in in_progress:
            arrived = of.exchanger.finish(pending).rows
            parts = arrived.split([len(own) * len(vertices) for vertices in there])
            for vertices, part in zip(there, parts, strict=True):
                start = vertices.start - self._rows.start
                out[:, start : start + len(vertices)] = part.view(len(own), len(vertices), phase.width)
        lengths = [len(slot) for slot in self._slots[self._me] if slot]
        return [rows.flatten(0, 1) for rows in out.split(lengths)] if lengths else [], rests

    def pieces(self, rows: int, size: int) -> list[slice]:
        """The own chunk, in as many equal pieces as the largest chunk needs."""
        longest, shortest = (max(map(len, self._chunks)), min(map(len, self._chunks)))
        worth = len(self._block) * longest // LEAST_ROWS
        number = max(-(-longest // size), min(PIECES, shortest, worth), 1)
        cut = [share(range(rows), piece, number) for piece in range(number)]
        return [slice(piece.start, piece.stop) for piece in cut]

    def _sends(self, number: int) -> list[range]:
        """Pieces of work that are sent together: all, or with overlap a few in turn, each a header and a call."""
        sends = min(SENDS, number) if self._of.overlap else 1
        return [share(range(number), send, sends) for send in range(sends)]

    def _send_snapshots(self, stacks: list[Tensor], there: list[range], phase: AllToAllPhase) -> Started:
        """Start sending rows (S', n, C) of own snapshots, some stacked; rank p sends its snapshots ``there[p]``."""
        snapshots = len(there[self._me])
        send = [snapshots * len(chunk) for chunk in self._chunks]
        rows = self._of.empty(sum(send), phase.width)
        for chunk, part in zip(self._chunks, rows.split(send), strict=True):
            start, at = chunk.start - self._rows.start, 0
            for stack in stacks:
                of_chunk = part[at : at + len(stack) * len(chunk)].view(len(stack), len(chunk), phase.width)
                of_chunk.copy_(stack[:, start : start + len(chunk)])
                at += len(stack) * len(chunk)
        receive = [len(of_rank) * len(self._chunks[self._me]) for of_rank in there]
        return self._start(rows, send, receive, phase, TO_VERTICES)

    def _send_vertices(self, pieces: list[Tensor], there: list[range], phase: AllToAllPhase) -> Started:
        """Start sending rows (S, piece, C) of own nodes; rank q sends its nodes ``there[q]``."""
        y = torch.cat(pieces, dim=1) if len(pieces) > 1 else pieces[0]
        own, piece = len(self._own[self._me]), len(there[self._me])
        send = [len(snapshots) * piece for snapshots in self._own]  # in the order of time, as the rows are
        return self._start(
            y.reshape(-1, phase.width), send, [own * len(vertices) for vertices in there], phase, TO_SNAPSHOTS
        )

    def _start(self, rows: Tensor, send: list[int], receive: list[int], phase: AllToAllPhase, name: str) -> Started:
        pass_name = "backward" if phase.backward else self._pass
        return self._of.exchanger.start(rows, send, receive, phase.layer, pass_name, name=name)
