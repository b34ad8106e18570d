"""Exchange of rows between ranks, in forward and in backward, and its records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.plans import HaloPlan
from dtdg_lab.distributed.all_to_all import Arrived, PendingRows
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.record_rows import ExchangeRow, LinkRow
from dtdg_lab.engine.strategy import StepMarks


class CollectiveTimes:
    """What has been waited for since the last drain. Seconds in which several exchanges travel count once."""

    def __init__(self) -> None:
        self._flights: dict[tuple[int, str, str], list[tuple[float, float, float]]] = {}  # begin, end, exposed

    def add(self, layer: int, pass_name: str, collective: str, arrived: Arrived) -> None:
        """Note an exchange that has been waited for."""
        flight = (arrived.started_s, arrived.started_s + arrived.in_flight_s, arrived.exposed_s)
        self._flights.setdefault((layer, pass_name, collective), []).append(flight)

    def drain(self) -> list[ExchangeRow]:
        """Return and forget the times, by layer, pass and collective."""
        times, self._flights = self._flights, {}
        return [
            ExchangeRow(*key, len(flights), covered_s(flights), sum(exposed_s for *_, exposed_s in flights))
            for key, flights in times.items()
        ]


def covered_s(flights: list[tuple[float, float, float]]) -> float:
    """Seconds in which at least one of some intervals (begin, end, ..) lies."""
    total, until = 0.0, float("-inf")
    for begin, end, _ in sorted(flights):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


_PASSES = ("forward", "backward", "rerun")
NO_LAYER = -1  # rows of all nodes are no layer's halo


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
        """Return the plan's route, with its rows on ``device``."""
        send = torch.tensor(plan.send, device=device)
        return cls(
            send,
            tuple(plan.send_counts.tolist()),
            tuple(plan.receive_counts.tolist()),
            int(plan.send.max(initial=-1)) + 1,
        )

    def added_up(self, rows: Tensor, shape: Sequence[int]) -> Tensor:
        """Add up what came back of the rows sent, where each was sent from: (s, F) -> ``shape``."""
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
    pass_name: str
    collective: str


class Exchanger:
    """Exchanges rows with the other ranks, in forward and in backward, and takes down what went where.

    Every rank must ask the same in the same order, also where it has nothing to send: backward follows the order of
    forward in reverse, so ranks whose tensors are made by the same operations stay in step. Ranks that do not are found
    out by what travels in front of the rows (:func:`dtdg_lab.distributed.all_to_all.start_rows`). On a GPU backward
    runs in a
    thread of autograd's while the one that asked for it waits: one thread at a time is here.

    Args:
        group: the processes; rank r executes part r of the plans.
        marks: called where an exchange begins and ends; may be replaced.
        name: of its exchanges in records.
        ranks: by its place in the group, each one's number in records; the places themselves where None.

    Attributes:
        marks: as above.
        forward_way: pass in records: ``forward``, or ``rerun`` while a time block is recomputed.
        links: (layer, that or ``backward``) -> (2, R) rows and bytes sent to each rank since the last drain.
            Rows that :meth:`gather` sends without a layer are only in the group's bytes.
        times: seconds of all of them.
    """

    def __init__(
        self, group: Group, marks: StepMarks | None = None, *, name: str = "halo", ranks: Sequence[int] | None = None
    ) -> None:
        self.marks = StepMarks() if marks is None else marks
        self.times, self._name, self._ranks = CollectiveTimes(), name, range(group.size) if ranks is None else ranks
        self.forward_pass = "forward"
        self.links: dict[tuple[int, str], NDArray[np.int64]] = {}
        self._group = group
        self._exchanges = 0

    def pull(self, x: Tensor, plan: HaloPlan | Route, layer: int) -> Tensor:
        """Rows that this rank's nodes pull from and other ranks own, (h, F); differentiable once.

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
        """Return the route of a plan that fits the ranks and the rows.

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
        """Gather the ranks' rows in rank order, (sum(counts), F); differentiable once: gradients are summed over ranks.

        Args:
            x: (n, F) this rank's rows.
            counts: (R,) rows of each rank.
            layer: of the model, for the record; if missing, it is not recorded in links.

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
        is_sent = [0 if rank_number == rank else 1 for rank_number in range(ranks)]
        send = torch.arange(len(x), device=x.device).repeat(ranks - 1)
        mine, theirs = [len(x) * one for one in is_sent], [int(n) * one for n, one in zip(counts, is_sent, strict=True)]
        rows = self._between_ranks(x, Route(send, tuple(mine), tuple(theirs), len(x)), layer)
        lower, higher = rows.split([sum(theirs[:rank]), sum(theirs[rank:])])
        return torch.cat([lower, x, higher])

    def drain(self) -> list[LinkRow]:
        """Return and forget what each link carried; links without rows are left out."""
        links, self.links = self.links, {}
        return [
            LinkRow(layer, pass_name, to, int(rows), int(moved))
            for (layer, pass_name), sent in links.items()
            for to, (rows, moved) in zip(self._ranks, sent.T, strict=True)
            if rows
        ]

    def _between_ranks(self, x: Tensor, route: Route, layer: int) -> Tensor:
        if self._group.size == 1:  # a single rank
            return x.new_zeros((0, *x.shape[1:]))
        flight = PendingExchange(self, route, layer)
        received: Tensor = RowArrival.apply(RowDeparture.apply(x, flight), flight)
        return received

    def start(
        self, rows: Tensor, send: Sequence[int], receive: Sequence[int], layer: int, pass_name: str, *, name: str = ""
    ) -> Started:
        """Let rows leave; every rank must start the same exchanges in the same order, and finish each once.

        What a rank sends itself moves nowhere. ``name`` replaces that of the exchanger in records.
        """
        exchange_id = (self._exchanges, layer, _PASSES.index(pass_name))
        self._exchanges += 1
        if layer != NO_LAYER:
            link = self.links.setdefault((layer, pass_name), np.zeros((2, self._group.size), dtype=np.int64))
            row_bytes = math.prod(rows.shape[1:]) * rows.element_size()
            moved = [0 if to == self._group.rank else count for to, count in enumerate(send)]
            link += np.outer([1, row_bytes], moved)
        pending = self._group.start_exchange(rows, send, receive, tag=exchange_id)
        return Started(pending, layer, pass_name, name or self._name)

    def finish(self, started: Started) -> Arrived:
        """Wait for what was started; only what is stood still for counts as an exchange in the step's phases."""
        self.marks("compute")
        arrived = started.pending.wait()
        self.marks.exchange(arrived.wait_s)
        self.times.add(started.layer, started.pass_name, started.collective, arrived)
        return arrived


def refuse_second_gradients() -> None:
    """Refuse a second derivative through an exchange.

    Raises:
        UnsupportedError: the gradient is to have a gradient.
    """
    if torch.is_grad_enabled():
        raise UnsupportedError(
            "a gradient of a gradient was asked for (create_graph=True), and rows that cross ranks have only a "
            "first one. Leave create_graph out, or run on one rank."
        )


class PendingExchange:
    """The exchange of one aggregation: what it brings is waited for after it was started.

    Attributes:
        in_flight_s: seconds that its rows took forward; None before they were waited for.
        exposed_s: of these, what the rank stood still for.

    References: FlareDTDG section 3.4 (a snapshot's forward awaits its exchange).
    """

    def __init__(self, exchanger: Exchanger, route: Route, layer: int) -> None:
        self.exchanger, self.route, self.layer = exchanger, route, layer
        self.in_flight_s: float | None = None
        self.exposed_s = 0.0
        self._started: Started | None = None

    def start(self, rows: Tensor, *, back: bool = False) -> None:
        """Let own rows leave, or the gradients of those that came in."""
        send, receive, pass_name = self.route.send_counts, self.route.receive_counts, self.exchanger.forward_pass
        if back:
            send, receive, pass_name = receive, send, "backward"
        self._started = self.exchanger.start(rows, send, receive, self.layer, pass_name)

    def wait(self) -> Arrived:
        """Wait for what was started, and let go of it."""
        assert self._started is not None
        started, self._started = self._started, None
        return self.exchanger.finish(started)


class RowDeparture(torch.autograd.Function):
    """Forward: own rows go out. Backward: the gradient of those that came in has come back, and is added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, flight: PendingExchange) -> Tensor:
        """Start sending rows."""
        ctx.flight, ctx.shape = flight, x.shape
        flight.start(x.index_select(0, flight.route.send))
        return x.new_zeros(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Wait for the gradients of the rows, and add them up."""
        return ctx.flight.route.added_up(ctx.flight.wait().rows, ctx.shape), None


class RowArrival(torch.autograd.Function):
    """Forward: others' rows come in. Backward: their gradient goes out."""

    @staticmethod
    def forward(ctx: Any, departed: Tensor, flight: PendingExchange) -> Tensor:
        """Wait for the rows that other ranks sent."""
        ctx.flight, arrived = flight, flight.wait()
        flight.in_flight_s, flight.exposed_s = arrived.in_flight_s, arrived.exposed_s
        return arrived.rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Start sending gradients back."""
        refuse_second_gradients()
        ctx.flight.start(gradients[0], back=True)
        return gradients[0].new_zeros(0), None
