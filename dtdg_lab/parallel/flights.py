"""Pulls that suspend: rows leave in one node of the graph and arrive in another, and what lies between runs meanwhile.

Backward runs nodes in reverse order of their making. The gradient of what arrived leaves where the rows arrived and is
waited for where they left, so that whatever was computed in between in forward is computed in between in backward.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from dtdg_lab.parallel.exchange import Exchanger, Route, Started, refuse_second_gradients


class Flight:
    """One pull's exchange. A coroutine that awaits it goes on when its driver says so, and waits for the rest then.

    Attributes:
        in_flight_s: seconds that its rows took forward; None before they were waited for.
        exposed_s: of these, what the rank stood still for.
    """

    def __init__(self, exchanger: Exchanger, route: Route, layer: int) -> None:
        self.exchanger, self.route, self.layer = exchanger, route, layer
        self.in_flight_s: float | None = None
        self.exposed_s = 0.0
        self._out: Started | None = None
        self._back: Started | None = None

    def __await__(self) -> Generator[Flight, None, None]:
        yield self

    def leave(self, rows: Tensor) -> None:
        """Start forward."""
        route, exchanger = self.route, self.exchanger
        self._out = exchanger.start(rows, route.send_counts, route.receive_counts, self.layer, exchanger.forward_way)

    def land(self) -> Tensor:
        """Wait for forward."""
        assert self._out is not None
        found, self._out = self.exchanger.finish(self._out), None
        self.in_flight_s, self.exposed_s = found.in_flight_s, found.exposed_s
        return found.rows

    def return_(self, gradients: Tensor) -> None:
        """Start backward."""
        route = self.route
        self._back = self.exchanger.start(gradients, route.receive_counts, route.send_counts, self.layer, "backward")

    def land_back(self) -> Tensor:
        """Wait for backward."""
        assert self._back is not None
        found, self._back = self.exchanger.finish(self._back), None
        return found.rows


async def awaited_rows(x: Tensor, exchanger: Exchanger, route: Route, layer: int) -> Tensor:
    """Rows that this rank's vertices pull from and other ranks own, (h, F); suspends once, after they have left.

    Args:
        x: (n, F) own rows.
        exchanger: starts and finishes exchanges; every rank starts the same ones in the same order.
        route: what goes where.
        layer: of the model, for the record.

    References: FlareDTDG section 3.4 (a snapshot's forward is a coroutine that awaits its exchange).
    """
    flight = Flight(exchanger, exchanger.checked(x, route), layer)
    left = _Leave.apply(x, flight)
    await flight
    rows: Tensor = _Land.apply(left, flight)
    return rows


class _Leave(torch.autograd.Function):
    """Forward: own rows go out. Backward: the gradient of those that came in has come back, and is added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, flight: Flight) -> Tensor:
        ctx.flight, ctx.shape = flight, x.shape
        flight.leave(x.index_select(0, flight.route.send))
        return x.new_zeros(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        flight: Flight = ctx.flight
        return flight.route.added_up(flight.land_back(), ctx.shape), None


class _Land(torch.autograd.Function):
    """Forward: others' rows come in. Backward: their gradient goes out."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, flight: Flight) -> Tensor:
        ctx.flight = flight
        return flight.land()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        refuse_second_gradients()
        flight: Flight = ctx.flight
        flight.return_(gradients[0])
        return gradients[0].new_zeros(0), None
