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
from dtdg_lab.engine.exchange.exchanger import Exchanger, Started
from dtdg_lab.engine.exchange.redistribution import AllToAllPhase, BlockRows, Moved, OfRows, OfStack
from dtdg_lab.engine.views.device_sequence import stack_ranges
from dtdg_lab.kernels.parallel_map import parallel_imap

# Rows of whole snapshots become rows of some nodes in all snapshots by an all-to-all, and return by another one.
#
# Ranks of a column have the same rows of different snapshots of a block. The output of a rank's spatial part goes to
# the rank that runs the node through time. That rank's output goes to the rank that has the snapshot in the next
# layer. Gradients go in the opposite direction. With overlap, a piece is sent while the next one is computed: one own
# snapshot after another towards nodes, pieces of own nodes towards snapshots. Work is divided the same way in both
# cases, so results are bitwise equal.
#
# References: ESDG section 4.2 (redistribution), section 6.5 (overlap, left open there).
#
# Differs from the paper: rows are not returned after the last layer, where the loss is a sum over nodes. Gradients
# of inputs that depend on no parameter are not sent. For CD-GCN, section 5.1 sends [Y0 ; Y0 W], and we send Y0 alone.


T = TypeVar("T")

PIECES = 4  # minimum number of pieces of work, so that one is sent while the next is computed
SENDS = 4  # maximum number of exchanges of a phase with overlap; more cost more than they hide
LEAST_ROWS = 4096  # minimum rows of a piece, over all its snapshots; smaller pieces cost more than they hide
TO_VERTICES, TO_SNAPSHOTS = "to_vertices", "to_snapshots"


@dataclass(slots=True)
class Redistribution:
    """Movement of the rows of a plan between the ranks of this rank's column.

    Attributes:
        plan: the assignment of snapshots and nodes to ranks.
        rank: this rank of the run's R.
        column: the K ranks of its column.
        exchanger: exchanger of the column; records its exchanges.
        dtype: dtype of the rows.
        device: device of the rows.
        features: F, width of the input.
        overlap: True to send rows piece by piece while more are computed.
        reuse: True to send rows that depend on no parameter only once, and keep them.
        alone: True to compute own snapshots sequentially, because ranks exchange rows during aggregation.
        sent_once: block -> kept rows.
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
    sent_once: dict[int, list[Tensor]] = field(default_factory=dict)

    @property
    def ranks(self) -> list[int]:
        """Ranks of the run in the column, in its order."""
        return self.plan.column(self.rank)

    def slots(self, block: int, rank: int) -> list[range]:
        """Return a rank's snapshots of a block in runs that are computed together, equally many on every rank."""
        largest = max((self.plan.own(block, member) for member in self.ranks), key=len)
        rows = max(len(self.plan.rows(member)) for member in range(self.plan.ranks))
        runs = len(stack_ranges(largest, rows=rows, features=self.features, device=self.device)) if largest else 0
        runs = max(runs, min(PIECES, len(largest), len(largest) * rows // LEAST_ROWS))
        return [share(self.plan.own(block, rank), slot, runs) for slot in range(runs)]

    def of_block(self, block: int, pass_name: str) -> RankRedistribution:
        """Return the redistribution of one block; ``pass_name`` is ``forward`` or ``rerun``."""
        return RankRedistribution(self, block, pass_name)

    def empty(self, *shape: int) -> Tensor:
        """Return an uninitialised tensor for rows."""
        return torch.empty(*shape, dtype=self.dtype, device=self.device)


class RankRedistribution(BlockRows):
    """Movement of the rows of one block of time (see :class:`BlockRows`). Collective in the column.

    Args:
        shared: settings shared by all blocks.
        block: index of the block.
        pass_name: ``forward`` or ``rerun``.
    """

    def __init__(self, shared: Redistribution, block: int, pass_name: str) -> None:
        plan, ranks = shared.plan, shared.ranks
        self._shared, self._pass, self._number = shared, pass_name, block
        self._block, self._rows = plan.block(block), plan.rows(shared.rank)
        self._own = [plan.own(block, rank) for rank in ranks]
        self._chunks = [plan.chunk(rank) for rank in ranks]
        self._slots = [shared.slots(block, rank) for rank in ranks]
        self._me = shared.column.rank

    def to_vertices(self, work: OfStack[T], phase: AllToAllPhase) -> Moved[T]:
        """Send own snapshots' rows to the ranks of their nodes, run by run."""
        shared, slots_here = self._shared, [slot for slot in self._slots[self._me] if slot]
        is_constant = shared.reuse and phase.layer == 0 and not phase.backward
        if is_constant and self._number in shared.sent_once:
            return shared.sent_once[self._number], []
        out = shared.empty(len(self._block), len(self._chunks[self._me]), phase.width)
        rests: list[T] = []
        in_progress: list[tuple[Started, list[range]]] = []
        with closing(parallel_imap(work, range(len(slots_here)), device=shared.device, alone=shared.alone)) as results:
            for slots in self._sends(len(self._slots[self._me])):
                stacks: list[Tensor] = []
                for slot in slots:
                    if snapshots := self._slots[self._me][slot]:
                        rows, rest = next(results)
                        rests.append(rest)
                        stacks.append(rows.unflatten(0, (len(snapshots), -1)))
                spans = [range(slots_of[slots[0]].start, slots_of[slots[-1]].stop) for slots_of in self._slots]
                in_progress.append((self._send_snapshots(stacks, spans, phase), spans))
        for pending, spans in in_progress:
            rows = shared.exchanger.finish(pending).rows
            parts = rows.split([len(snapshots) * out.shape[1] for snapshots in spans])
            for snapshots, part in zip(spans, parts, strict=True):
                start = snapshots.start - self._block.start
                out[start : start + len(snapshots)] = part.view(len(snapshots), *out.shape[1:])
        arrived = list(out.unbind())
        if is_constant:
            shared.sent_once[self._number] = arrived
        return arrived, rests

    def to_snapshots(
        self, work: OfRows[T], pieces: Sequence[slice], phase: AllToAllPhase, *, like: Tensor, height: int
    ) -> Moved[T]:
        """Send own nodes' rows to the ranks of their snapshots, piece by piece."""
        shared, snapshots = self._shared, self._own[self._me]
        out = shared.empty(len(snapshots), len(self._rows), phase.width)
        rests: list[T] = []
        in_progress: list[tuple[Started, list[range]]] = []
        with closing(parallel_imap(work, pieces, device=shared.device)) as results:
            for numbers in self._sends(len(pieces)):
                computed = []
                for rows, rest in islice(results, len(numbers)):
                    rests.append(rest)
                    computed.append(rows)
                ends = [
                    (share(chunk, numbers[0], len(pieces)), share(chunk, numbers[-1], len(pieces)))
                    for chunk in self._chunks
                ]
                spans = [range(first.start, last.stop) for first, last in ends]
                in_progress.append((self._send_vertices(computed, spans, phase), spans))
        for pending, spans in in_progress:
            arrived = shared.exchanger.finish(pending).rows
            parts = arrived.split([len(snapshots) * len(vertices) for vertices in spans])
            for vertices, part in zip(spans, parts, strict=True):
                start = vertices.start - self._rows.start
                out[:, start : start + len(vertices)] = part.view(len(snapshots), len(vertices), phase.width)
        lengths = [len(slot) for slot in self._slots[self._me] if slot]
        return [rows.flatten(0, 1) for rows in out.split(lengths)] if lengths else [], rests

    def pieces(self, rows: int, size: int) -> list[slice]:
        """Divide the own chunk into as many equal pieces as the largest chunk needs."""
        longest, shortest = (max(map(len, self._chunks)), min(map(len, self._chunks)))
        worth = len(self._block) * longest // LEAST_ROWS
        number = max(-(-longest // size), min(PIECES, shortest, worth), 1)
        cut = [share(range(rows), piece, number) for piece in range(number)]
        return [slice(piece.start, piece.stop) for piece in cut]

    def _sends(self, number: int) -> list[range]:
        """Return the pieces of work of each exchange: all in one, or with overlap a few each."""
        sends = min(SENDS, number) if self._shared.overlap else 1
        return [share(range(number), send, sends) for send in range(sends)]

    def _send_snapshots(self, stacks: list[Tensor], spans: list[range], phase: AllToAllPhase) -> Started:
        """Start sending rows (S', n, C) of own snapshots, some stacked; rank p sends its snapshots ``spans[p]``."""
        snapshots = len(spans[self._me])
        send = [snapshots * len(chunk) for chunk in self._chunks]
        rows = self._shared.empty(sum(send), phase.width)
        for chunk, part in zip(self._chunks, rows.split(send), strict=True):
            start, offset = chunk.start - self._rows.start, 0
            for stack in stacks:
                target = part[offset : offset + len(stack) * len(chunk)].view(len(stack), len(chunk), phase.width)
                target.copy_(stack[:, start : start + len(chunk)])
                offset += len(stack) * len(chunk)
        receive = [len(span) * len(self._chunks[self._me]) for span in spans]
        return self._start(rows, send, receive, phase, TO_VERTICES)

    def _send_vertices(self, pieces: list[Tensor], spans: list[range], phase: AllToAllPhase) -> Started:
        """Start sending rows (S, piece, C) of own nodes; rank q sends its nodes ``spans[q]``."""
        y = torch.cat(pieces, dim=1) if len(pieces) > 1 else pieces[0]
        snapshots_here, piece = len(self._own[self._me]), len(spans[self._me])
        send = [len(snapshots) * piece for snapshots in self._own]  # in order of time, like the rows
        return self._start(
            y.reshape(-1, phase.width),
            send,
            [snapshots_here * len(vertices) for vertices in spans],
            phase,
            TO_SNAPSHOTS,
        )

    def _start(self, rows: Tensor, send: list[int], receive: list[int], phase: AllToAllPhase, name: str) -> Started:
        pass_name = "backward" if phase.backward else self._pass
        return self._shared.exchanger.start(rows, send, receive, phase.layer, pass_name, name=name)
