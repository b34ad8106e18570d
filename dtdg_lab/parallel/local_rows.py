"""Rows of a decayed snapshot: no neighbour is elsewhere, since edges between parts were dropped."""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.comm.group import Group
from dtdg_lab.parallel.exchange import Exchanger, Route
from dtdg_lab.parallel.halo_rows import HaloRows


class LocalRows:
    """Own rows alone (see :class:`dtdg_lab.parallel.neighbours.Neighbours`); the best are those of all ranks.

    Args:
        exchanger: gathers candidates.
        group: the ranks.
        vertices: (n,) the vertices' numbers in the graph, in the order of the rows.
    """

    def __init__(self, exchanger: Exchanger, group: Group, vertices: Tensor) -> None:
        self._exchanger, self._group, self._vertices = exchanger, group, vertices

    async def joined(self, x: Tensor, way: str) -> Tensor:
        """The rows given."""
        return x

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of every rank, by vertex."""
        vertices, order = torch.sort(self._vertices)
        rows = HaloRows(self._exchanger, self._group, _nowhere, vertices)
        return rows.candidates(x.index_select(0, order), scores.index_select(0, order), k)

    def layer(self, number: int) -> LocalRows:
        """All layers alike."""
        return self


def _nowhere(way: str) -> Route:
    raise AssertionError("a decayed snapshot exchanges no rows")
