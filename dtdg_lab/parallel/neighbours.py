"""Where a pull finds the rows of neighbours: here, gathered from all ranks, or exchanged by precomputed indices."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Gather(Protocol):
    """Joins ranks' rows; collective, without gradient."""

    def __call__(self, rows: Tensor, each: int | None = None) -> Tensor:
        """All ranks' rows in rank order: of all vertices, or ``each`` from every rank."""
        ...


class Neighbours(Protocol):
    """Gives the rows that a pull of n own rows needs."""

    async def joined(self, x: Tensor, way: str) -> Tensor:
        """The columns of the operators along a way (``in`` or ``out``): (n, F) -> (M, F), differentiable.

        It may suspend until rows are here (:mod:`dtdg_lab.parallel.flights`); then somebody must drive the model.
        """
        ...

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows (c, F) and scores (c,) that hold the k best of the snapshot, in the order in which ties are broken."""
        ...

    def layer(self, number: int) -> Neighbours:
        """The same, for one layer of a model."""
        ...


class AllHere:
    """All vertices are own rows."""

    async def joined(self, x: Tensor, way: str) -> Tensor:
        """The rows given."""
        return x

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """All of them, by vertex."""
        return x, scores

    def layer(self, number: int) -> AllHere:
        """All layers alike."""
        return self


class Gathered:
    """Own rows are a share of consecutive vertices; all others' are gathered, without gradient.

    Args:
        gather: joins the ranks' shares.
    """

    def __init__(self, gather: Gather) -> None:
        self._gather = gather

    async def joined(self, x: Tensor, way: str) -> Tensor:
        """The rows of all vertices, in order."""
        return self._gather(x)

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of every rank, in rank order; ranks with fewer vertices fill up with minus infinity."""
        joined = self._gather(best_filled(x, scores, k), each=k)
        return joined[:, :-1], joined[:, -1]

    def layer(self, number: int) -> Gathered:
        """All layers alike."""
        return self


def best_filled(x: Tensor, scores: Tensor, k: int) -> Tensor:
    """The k best rows beside their scores, (k, F + 1), ties to the lower row; minus infinity where there are fewer."""
    best = torch.sort(scores, descending=True, stable=True).indices[:k]
    own = torch.cat([x.index_select(0, best), scores.index_select(0, best).unsqueeze(1)], dim=1)
    missing = own.new_zeros(k - len(own), own.shape[1])
    missing[:, -1] = -torch.inf
    return torch.cat([own, missing])
