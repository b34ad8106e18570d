"""Rows of one rank's vertices where another rank's vertices pull from them; gradients go back the way they came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.comm.group import Group
from dtdg_lab.comm.pending_rows import Arrived, PendingRows
from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.plans import HaloPlan
from dtdg_lab.parallel.layout import Marks, Unmarked
from dtdg_lab.parallel.leg_times import LegTimes

_WAYS = ("forward", "backward", "rerun")
NO_LAYER = -1  # rows of all vertices are no layer's halo


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """A halo plan on a device: made once where the same rows are exchanged again and again.

    Attributes:
        send: (s,) int64 rows to be sent, those for rank 0 first.
        send_counts: (R,) rows for each rank.
        receive_counts: (R,) rows from each.
        least_rows: rows that a tensor must have to be sent from.
    """

    send: Tensor
    send_counts: tuple[int, ...]
    receive_counts: tuple[int, ...]
    least_rows: int

    @classmethod
    def of(cls, plan: HaloPlan, device: str | torch.device = "cpu") -> Route:
        """The plan's rows as a tensor on ``device``."""
        send = torch.tensor(plan.send, device=device)
        return cls(
            send,
            tuple(plan.send_counts.tolist()),
            tuple(plan.receive_counts.tolist()),
            int(plan.send.max(initial=-1)) + 1,
        )

    def added_up(self, rows: Tensor, shape: Sequence[int]) -> Tensor:
        """What came back of the rows sent, added up where each was sent from: (s, F) -> ``shape``."""
        total = rows.new_zeros(shape)
        # rank by rank: within one rank's rows none comes twice, so that a sum has the same order on every device
        for index, part in zip(self.send.split(self.send_counts), rows.split(self.send_counts), strict=True):
            total.index_add_(0, index, part)
        return total


@dataclass(frozen=True, slots=True)
class Started:
    """An exchange that was started: its rows on their way, and what it is noted as."""

    pending: PendingRows
    layer: int
    way: str


class Exchanger:
    """Exchanges rows with the other ranks, in forward and in backward, and takes down what went where.

    Every rank must ask the same in the same order, also where it has nothing to send: backward follows the order of
    forward in reverse, so ranks whose tensors are made by the same operations stay in step. Ranks that do not are found
    out by what travels in front of the rows (:func:`dtdg_lab.comm.rows.start_rows`). On a GPU backward runs in a
    thread of autograd's while the one that asked for it waits: one thread at a time is here.

    Args:
        group: the processes; rank r executes part r of the plans.
        marks: told where an exchange begins and ends; may be set anew.
        leg: what its exchanges are called where their seconds are told.

    Attributes:
        marks: as above.
        forward_way: what pulls are noted as: ``forward``, or ``rerun`` while a block of time is computed again.
        links: (layer, that or ``backward``) -> (2, R) rows and bytes sent to each rank since the last drain.
            Of what :meth:`gather` sends only what it is told a layer for; the rest is in the group's bytes alone.
        legs: seconds of all of them.
    """

    def __init__(self, group: Group, marks: Marks | None = None, *, leg: str = "halo") -> None:
        self.marks: Marks = Unmarked() if marks is None else marks
        self.legs, self._leg = LegTimes(), leg
        self.forward_way = "forward"
        self.links: dict[tuple[int, str], NDArray[np.int64]] = {}
        self._group = group
        self._exchanges = 0

    def pull(self, x: Tensor, plan: HaloPlan | Route, layer: int) -> Tensor:
        """Rows that this rank's vertices pull from and other ranks own, (h, F); differentiable once.

        Args:
            x: (S n, F) this rank's own rows, of S stacked snapshots; of 4 or 8 bytes a number.
            plan: for these snapshots, and for as many parts as there are ranks.
            layer: of the model, for the record.

        Raises:
            PlanError: the plan is not for this number of ranks or rows.
            RunFailedError: another rank is in another exchange.
        """
        return self._between_ranks(x, self.checked(x, plan), layer)

    def checked(self, x: Tensor, plan: HaloPlan | Route) -> Route:
        """The route of a plan that fits the ranks and the rows.

        Raises:
            PlanError: it does not.
        """
        route = plan if isinstance(plan, Route) else Route.of(plan, x.device)
        if len(route.send_counts) != self._group.size or route.least_rows > len(x):
            raise PlanError(
                f"a halo plan for {len(route.send_counts)} part(s) and {route.least_rows} or more own rows does not "
                f"fit {self._group.size} rank(s) and {len(x)} own rows. Make it of a partition merged by "
                "Partition.on_ranks, for the snapshots that are stacked."
            )
        return route

    def gather(self, x: Tensor, counts: Sequence[int], layer: int = NO_LAYER) -> Tensor:
        """All ranks' rows in rank order, (sum(counts), F); differentiable once: gradients are summed over ranks.

        Args:
            x: (n, F) this rank's rows.
            counts: (R,) rows of each rank.
            layer: of the model, for the record; where none is given, links do not tell of it.

        Raises:
            PlanError: the counts do not fit the ranks or the rows.
            RunFailedError: another rank is in another exchange.
        """
        rank, ranks = self._group.rank, self._group.size
        if len(counts) != ranks or counts[rank] != len(x):
            raise PlanError(
                f"rank {rank} has {len(x)} rows, but the counts of {ranks} rank(s) are said to be {list(counts)}. "
                "Give the rows of every rank, in rank order."
            )
        if ranks == 1:
            return x
        others = [0 if other == rank else 1 for other in range(ranks)]
        send = torch.arange(len(x), device=x.device).repeat(ranks - 1)
        mine, theirs = [len(x) * one for one in others], [int(n) * one for n, one in zip(counts, others, strict=True)]
        rows = self._between_ranks(x, Route(send, tuple(mine), tuple(theirs), len(x)), layer)
        lower, higher = rows.split([sum(theirs[:rank]), sum(theirs[rank:])])
        return torch.cat([lower, x, higher])

    def drain(self) -> list[tuple[int, str, int, int, int]]:
        """(layer, way, to, rows, bytes) of every link that carried rows since the last call, which it forgets."""
        links, self.links = self.links, {}
        return [
            (layer, way, to, int(rows), int(moved))
            for (layer, way), sent in links.items()
            for to, (rows, moved) in enumerate(sent.T)
            if rows
        ]

    def _between_ranks(self, x: Tensor, route: Route, layer: int) -> Tensor:
        if self._group.size == 1:  # nobody to exchange with
            return x.new_zeros((0, *x.shape[1:]))
        received: Tensor = _Rows.apply(x, self, route, layer)
        return received

    def swap(self, rows: Tensor, send: Sequence[int], receive: Sequence[int], layer: int, way: str) -> Tensor:
        """One exchange of rows as they are, without a gradient: what forward and backward do."""
        return self.finish(self.start(rows, send, receive, layer, way)).rows

    def start(self, rows: Tensor, send: Sequence[int], receive: Sequence[int], layer: int, way: str) -> Started:
        """Let rows leave; every rank must start the same exchanges in the same order, and finish each once."""
        place = (self._exchanges, layer, _WAYS.index(way))
        self._exchanges += 1
        if layer != NO_LAYER:
            link = self.links.setdefault((layer, way), np.zeros((2, self._group.size), dtype=np.int64))
            row_bytes = math.prod(rows.shape[1:]) * rows.element_size()
            link += np.outer([1, row_bytes], send)
        return Started(self._group.start_exchange(rows, send, receive, place=place), layer, way)

    def finish(self, started: Started) -> Arrived:
        """Wait for what was started; only what is stood still for counts as an exchange in the step's phases."""
        self.marks("compute")
        found = started.pending.wait()
        self.marks.exchange(found.wait_s)
        self.legs.add(started.layer, started.way, self._leg, found)
        return found


class _Rows(torch.autograd.Function):
    """Forward: own rows go out, others' come in. Backward: the gradient of what came in goes back and is added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchanger: Exchanger, route: Route, layer: int) -> Tensor:
        ctx.exchanger, ctx.route, ctx.layer, ctx.shape = exchanger, route, layer, x.shape
        rows = x.index_select(0, route.send)
        return exchanger.swap(rows, route.send_counts, route.receive_counts, layer, exchanger.forward_way)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        refuse_second_gradients()
        route: Route = ctx.route
        rows = ctx.exchanger.swap(gradients[0], route.receive_counts, route.send_counts, ctx.layer, "backward")
        return route.added_up(rows, ctx.shape), None, None, None


def refuse_second_gradients() -> None:
    """Called in backward of what crosses ranks.

    Raises:
        UnsupportedError: the gradient is to have a gradient.
    """
    if torch.is_grad_enabled():
        raise UnsupportedError(
            "a gradient of a gradient was asked for (create_graph=True), and rows that cross ranks have only a "
            "first one. Leave create_graph out, or run on one rank."
        )
