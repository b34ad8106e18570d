"""Rows of neighbours: on this rank, gathered from all ranks, or exchanged by precomputed indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor


class NeighbourRows:
    """The rows of neighbours that a pull of n own rows needs; here all nodes are own rows.

    Attributes:
        all_here: whether :meth:`joined` gives back what it is given.
    """

    all_here: ClassVar[bool] = True

    def joined(self, x: Tensor, direction: str) -> Tensor:
        """Return the columns of the operators along a direction (``in`` or ``out``): (n, F) -> (M, F), differentiable.

        Other functions may compute until rows are here (:mod:`dtdg_lab.engine.exchange.pausable`).
        """
        return x

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows (c, F) and scores (c,) that hold the k best of the snapshot, in the order in which ties are broken."""
        return x, scores

    def layer(self, number: int) -> NeighbourRows:
        """Return the same, for one layer of a model."""
        return self


class Gathered(NeighbourRows):
    """Own rows are a share of consecutive nodes; all others' are gathered, without gradient.

    Args:
        gather: joins the ranks' rows in rank order, of all nodes, or ``each`` from every rank; collective.
    """

    all_here = False

    def __init__(self, gather: Callable[..., Tensor]) -> None:
        self._gather = gather

    def joined(self, x: Tensor, direction: str) -> Tensor:
        """Return the rows of all nodes, in order."""
        return self._gather(x)

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k best of every rank, in rank order; ranks with fewer nodes fill up with minus infinity."""
        joined = self._gather(best_filled(x, scores, k), row_count=k)
        return joined[:, :-1], joined[:, -1]


def best_filled(x: Tensor, scores: Tensor, k: int) -> Tensor:
    """Return the k best rows and their scores, (k, F + 1), ties to the lower row; minus infinity beyond the last."""
    best = torch.sort(scores, descending=True, stable=True).indices[:k]
    best_rows = torch.cat([x.index_select(0, best), scores.index_select(0, best).unsqueeze(1)], dim=1)
    missing = best_rows.new_zeros(k - len(best_rows), best_rows.shape[1])
    missing[:, -1] = -torch.inf
    return torch.cat([best_rows, missing])
