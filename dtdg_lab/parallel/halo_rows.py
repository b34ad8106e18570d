"""Neighbours' rows that other ranks own, exchanged at every pull by indices computed once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dtdg_lab.comm.group import Group
from dtdg_lab.parallel.exchange import Exchanger, Route
from dtdg_lab.parallel.flights import awaited_rows
from dtdg_lab.parallel.neighbours import best_filled


class HaloRows:
    """Own rows first, then those received (see :class:`dtdg_lab.core.plans.HaloPlan`). Collective.

    Args:
        exchanger: sends and receives rows, in forward and in backward.
        group: the ranks it does so between.
        route: gives the exchange of these snapshots along a way, ``in`` or ``out``.
        vertices: (n,) the own vertices' numbers in the graph, ascending.
        number: the layer of the model that exchanges are counted for.
        awaited: whether a pull suspends while its rows are on their way; else it stands still for them.
    """

    def __init__(
        self, exchanger: Exchanger, group: Group, route: Callable[[str], Route], vertices: Tensor, number: int = 0,
        *, awaited: bool = False,
    ) -> None:  # fmt: skip
        self._exchanger, self._group, self._route = exchanger, group, route
        self._vertices, self._number, self._awaited = vertices, number, awaited

    async def joined(self, x: Tensor, way: str) -> Tensor:
        """Own rows and those of remote neighbours: (n, F) -> (n + h, F)."""
        if self._awaited:
            return torch.cat([x, await awaited_rows(x, self._exchanger, self._route(way), self._number)])
        return torch.cat([x, self._exchanger.pull(x, self._route(way), self._number)])

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of every rank, by vertex: (R k, F) and (R k,), differentiable."""
        best = torch.sort(scores, descending=True, stable=True).indices[:k]
        numbers = self._vertices.new_full((k, 1), torch.iinfo(self._vertices.dtype).max)
        numbers[: len(best), 0] = self._vertices[best]
        each = [k] * self._group.size
        joined = self._exchanger.gather(best_filled(x, scores, k), each)
        order = torch.argsort(self._group.gather_rows(numbers, each)[:, 0], stable=True)
        joined = joined.index_select(0, order)
        return joined[:, :-1], joined[:, -1]

    def layer(self, number: int) -> HaloRows:
        """The same rows, counted for another layer."""
        return HaloRows(self._exchanger, self._group, self._route, self._vertices, number, awaited=self._awaited)
