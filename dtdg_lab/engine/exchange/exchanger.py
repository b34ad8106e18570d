"""Exchange of rows between ranks, forward and backward, and its records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.plans import HaloPlan
from dtdg_lab.distributed.all_to_all import Arrived, ExchangeTimes, PendingRows, ReadTimes
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.record_rows import ExchangeRow, LinkRow
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.kernels.uploads import upload


class CollectiveTimes:
    """Times of finished exchanges since the last drain. Seconds with several exchanges in flight count once."""

    def __init__(self) -> None:
        self._flights: dict[tuple[int, str, str], list[ReadTimes]] = {}

    def add(self, layer: int, pass_name: str, collective: str, times: ReadTimes) -> None:
        """Record a finished exchange."""
        self._flights.setdefault((layer, pass_name, collective), []).append(times)

    def drain(self) -> Callable[[], list[ExchangeRow]]:
        """Forget the times, and return a function that reads them, by layer, pass and collective."""
        flights, self._flights = self._flights, {}
        return partial(exchange_rows, flights)


def exchange_rows(flights: Mapping[tuple[int, str, str], Sequence[ReadTimes]]) -> list[ExchangeRow]:
    """Return the seconds of exchanges, by layer, pass and collective."""
    rows = []
    for key, read in flights.items():
        times = [read_times() for read_times in read]
        rows.append(ExchangeRow(*key, len(times), covered_s(times), sum(flight.exposed_s for flight in times)))
    return rows


def covered_s(flights: Sequence[ExchangeTimes]) -> float:
    """Return the seconds in which at least one exchange was in flight."""
    total_ns, until_ns = 0, 0
    for flight in sorted(flights, key=attrgetter("began_ns")):
        total_ns += max(0, flight.ended_ns - max(flight.began_ns, until_ns))
        until_ns = max(until_ns, flight.ended_ns)
    return total_ns * 1e-9


_PASSES = ("forward", "backward", "rerun")
NO_LAYER = -1  # rows of all nodes are no layer's halo


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """A halo plan on a device, reusable for repeated exchanges of the same rows.

    Attributes:
        send: (s,) int64 indices of the rows to send, ordered by destination rank.
        send_counts: (R,) rows to each rank.
        receive_counts: (R,) rows from each rank.
        least_rows: fewest rows of a tensor that this route can send from.
    """

    send: Tensor
    send_counts: tuple[int, ...]
    receive_counts: tuple[int, ...]
    least_rows: int

    @classmethod
    def of(cls, plan: HaloPlan, device: str | torch.device = "cpu") -> Route:
        """Return the plan's route, with its rows on ``device``."""
        send = upload(plan.send, str(device))
        return cls(
            send,
            tuple(plan.send_counts.tolist()),
            tuple(plan.receive_counts.tolist()),
            int(plan.send.max(initial=-1)) + 1,
        )

    def sum_by_row(self, rows: Tensor, shape: Sequence[int]) -> Tensor:
        """Sum returned rows into the rows they were sent from: (s, F) -> ``shape``."""
        total = rows.new_zeros(shape)
        # rank by rank: one rank's rows are distinct, so sums have the same order on every device
        for index, part in zip(self.send.split(self.send_counts), rows.split(self.send_counts), strict=True):
            total.index_add_(0, index, part)
        return total


@dataclass(frozen=True, slots=True)
class Started:
    """A started exchange: its pending rows and the names under which it is recorded."""

    pending: PendingRows
    layer: int
    pass_name: str
    collective: str


class Exchanger:
    """Exchanges rows with the other ranks, forward and backward, and records the traffic.

    All ranks must start the same exchanges in the same order, even with nothing to send. Backward reverses the order
    of forward, so ranks that run the same operations stay in step. The header of each exchange detects ranks that do
    not (:func:`dtdg_lab.distributed.all_to_all.start_rows`). An exchanger is not thread-safe. Autograd's GPU thread may
    use it, because the thread that called ``backward`` waits meanwhile.

    Args:
        group: the processes; rank r executes part r of the plans.
        marks: called at the start and end of an exchange.
        name: name of its exchanges in records.
        ranks: (R,) number of each group member in records; 0 to R - 1 if None.

    Attributes:
        marks: as above.
        forward_pass: name of the pass in records: ``forward``, or ``rerun`` while a time block is recomputed.
        links: (layer, pass) -> (2, R) rows and bytes sent to each rank since the last drain.
            Rows that :meth:`gather` sends without a layer are only in the group's bytes.
        times: times of all exchanges.
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
        """Fetch the rows of remote neighbours, (h, F); differentiable once.

        Args:
            x: (S n, F) this rank's own rows of S stacked snapshots, 4 or 8 bytes a number.
            plan: halo plan of these snapshots, with one part per rank.
            layer: layer of the model, for the record.

        Raises:
            PlanError: the plan is not for this number of ranks or rows.
            RunFailedError: another rank is in another exchange.
        """
        return self._between_ranks(x, self.checked(x, plan), layer)

    def checked(self, x: Tensor, plan: HaloPlan | Route) -> Route:
        """Return the plan's route.

        Raises:
            PlanError: the plan does not fit the ranks or the rows.
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
            layer: layer of the model, for the record; without it the rows are missing in ``links``.

        Raises:
            PlanError: the counts do not fit the ranks or the rows.
            RunFailedError: another rank is in another exchange.
        """
        rank, ranks = self._group.rank, self._group.size
        if len(counts) != ranks or counts[rank] != len(x):
            raise PlanError(
                f"rank {rank} has {len(x)} rows, which does not fit counts={list(counts)} of {ranks} rank(s). "
                "Give the rows of every rank, in rank order."
            )
        if ranks == 1:
            return x
        send = torch.arange(len(x), device=x.device).repeat(ranks - 1)
        send_counts = tuple(0 if peer == rank else len(x) for peer in range(ranks))
        receive_counts = tuple(0 if peer == rank else int(count) for peer, count in enumerate(counts))
        rows = self._between_ranks(x, Route(send, send_counts, receive_counts, len(x)), layer)
        lower, higher = rows.split([sum(receive_counts[:rank]), sum(receive_counts[rank:])])
        return torch.cat([lower, x, higher])

    def drain(self) -> list[LinkRow]:
        """Return the traffic of each link and reset it; links without rows are left out."""
        links, self.links = self.links, {}
        return [
            LinkRow(layer, pass_name, to, int(rows), int(sent_bytes))
            for (layer, pass_name), traffic in links.items()
            for to, (rows, sent_bytes) in zip(self._ranks, traffic.T, strict=True)
            if rows
        ]

    def _between_ranks(self, x: Tensor, route: Route, layer: int) -> Tensor:
        if self._group.size == 1:
            return x.new_zeros((0, *x.shape[1:]))
        flight = PendingExchange(self, route, layer)
        received: Tensor = RowArrival.apply(RowDeparture.apply(x, flight), flight)
        return received

    def start(
        self, rows: Tensor, send: Sequence[int], receive: Sequence[int], layer: int, pass_name: str, *, name: str = ""
    ) -> Started:
        """Start sending rows; every rank must start the same exchanges in the same order, and finish each once.

        Rows that a rank sends to itself are not counted. ``name`` replaces the exchanger's name in records.
        """
        exchange_id = (self._exchanges, layer, _PASSES.index(pass_name))
        self._exchanges += 1
        if layer != NO_LAYER:
            link = self.links.setdefault((layer, pass_name), np.zeros((2, self._group.size), dtype=np.int64))
            row_bytes = math.prod(rows.shape[1:]) * rows.element_size()
            sent_rows = [0 if to == self._group.rank else count for to, count in enumerate(send)]
            link += np.outer([1, row_bytes], sent_rows)
        pending = self._group.start_exchange(rows, send, receive, tag=exchange_id)
        return Started(pending, layer, pass_name, name or self._name)

    def finish(self, started: Started) -> Arrived:
        """Wait for a started exchange; only the time spent waiting counts as exchange in the step's phases.

        On a GPU later work waits, not the host.
        """
        self.marks("compute")
        arrived = started.pending.wait()
        self.marks.exchange(arrived.times)
        self.times.add(started.layer, started.pass_name, started.collective, arrived.times)
        return arrived


def refuse_second_gradients() -> None:
    """Refuse a second derivative through an exchange.

    Raises:
        UnsupportedError: autograd is building a graph of the gradients.
    """
    if torch.is_grad_enabled():
        raise UnsupportedError(
            "create_graph=True asks for a second derivative, but an exchange between ranks has only a first one. "
            "Leave create_graph out, or run on one rank."
        )


class PendingExchange:
    """The exchange of one aggregation, started and later awaited.

    Attributes:
        times: returns the times of forward; None until this rank has waited for the rows.

    References: FlareDTDG section 3.4 (a snapshot's forward awaits its exchange).
    """

    def __init__(self, exchanger: Exchanger, route: Route, layer: int) -> None:
        self.exchanger, self.route, self.layer = exchanger, route, layer
        self.times: ReadTimes | None = None
        self._started: Started | None = None

    def start(self, rows: Tensor, *, backward: bool = False) -> None:
        """Start sending own rows, or in ``backward`` the gradients of received rows."""
        send, receive, pass_name = self.route.send_counts, self.route.receive_counts, self.exchanger.forward_pass
        if backward:
            send, receive, pass_name = receive, send, "backward"
        self._started = self.exchanger.start(rows, send, receive, self.layer, pass_name)

    def wait(self) -> Arrived:
        """Wait for the started exchange."""
        assert self._started is not None
        started, self._started = self._started, None
        return self.exchanger.finish(started)


class RowDeparture(torch.autograd.Function):
    """Forward: start sending own rows. Backward: receive their gradients and sum them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, flight: PendingExchange) -> Tensor:
        """Start sending rows."""
        ctx.flight, ctx.shape = flight, x.shape
        flight.start(x.index_select(0, flight.route.send))
        return x.new_zeros(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Wait for the gradients of the sent rows, and sum them."""
        return ctx.flight.route.sum_by_row(ctx.flight.wait().rows, ctx.shape), None


class RowArrival(torch.autograd.Function):
    """Forward: receive rows of other ranks. Backward: start sending their gradients."""

    @staticmethod
    def forward(ctx: Any, departed: Tensor, flight: PendingExchange) -> Tensor:
        """Wait for the rows of other ranks."""
        ctx.flight, arrived = flight, flight.wait()
        flight.times = arrived.times
        return arrived.rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Start sending gradients back."""
        refuse_second_gradients()
        ctx.flight.start(gradients[0], backward=True)
        return gradients[0].new_zeros(0), None
