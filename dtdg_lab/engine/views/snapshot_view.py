"""A snapshot, or several stacked ones, as a model sees them: some nodes, and the rows of their neighbours."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.kernels.operators import Operators
from dtdg_lab.models.graph_view import DIRECTION_OF, GraphView


class NeighbourRows:
    """Rows that a pull of n own rows needs; in this base class all nodes are own rows.

    Attributes:
        all_here: whether :meth:`joined` returns its input.
    """

    all_here: ClassVar[bool] = True

    def joined(self, x: Tensor, direction: str) -> Tensor:
        """Return the columns of the operators along a direction (``in`` or ``out``): (n, F) -> (M, F), differentiable.

        Other functions may compute until rows are here (:mod:`dtdg_lab.engine.exchange.pausable`).
        """
        return x

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return rows (c, F) and scores (c,) that contain the snapshot's k best, in tie-breaking order."""
        return x, scores

    def layer(self, number: int) -> NeighbourRows:
        """Return the same rows, for one layer of a model."""
        return self


class Gathered(NeighbourRows):
    """Neighbour rows for a range of own nodes; the rows of all nodes are gathered, without gradient.

    Args:
        gather: joins the rows of all ranks in rank order, all own rows or ``row_count`` from every rank; collective.
    """

    all_here = False

    def __init__(self, gather: Callable[..., Tensor]) -> None:
        self._gather = gather

    def joined(self, x: Tensor, direction: str) -> Tensor:
        """Return the rows of all nodes, in order."""
        return self._gather(x)

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k best rows of every rank, in rank order; ranks with fewer nodes pad with minus infinity."""
        joined = self._gather(best_filled(x, scores, k), row_count=k)
        return joined[:, :-1], joined[:, -1]


def best_filled(x: Tensor, scores: Tensor, k: int) -> Tensor:
    """Return the k best rows and their scores, (k, F + 1), ties to the lower row; minus infinity beyond the last."""
    best = torch.sort(scores, descending=True, stable=True).indices[:k]
    best_rows = torch.cat([x.index_select(0, best), scores.index_select(0, best).unsqueeze(1)], dim=1)
    missing = best_rows.new_zeros(k - len(best_rows), best_rows.shape[1])
    missing[:, -1] = -torch.inf
    return torch.cat([best_rows, missing])


class SnapshotView(GraphView):
    """One snapshot, or several stacked ones, as a :class:`dtdg_lab.models.graph_view.GraphView`.

    Pulls of features, and pulls of such pulls, do not depend on parameters. With ``may_keep`` they are computed once
    and cached (ESDG section 5.5). If a model makes no other pulls, the adjacency is freed.

    Args:
        operators: operators of the own rows of all snapshots.
        snapshots: S snapshots of the sequence.
        inputs: features of the own rows, (S n, F).
        neighbours: source of the neighbours' rows.
        num_nodes: nodes of a snapshot, N.
        all_inputs: features of all columns of ``in``, if they are here already.
        pulled: cache of first-layer pulls, by their kinds in order; the view adds to it.
        may_keep: returns whether to cache a first-layer pull of this many bytes; None caches nothing.
    """

    def __init__(
        self,
        operators: Operators,
        snapshots: range,
        inputs: Tensor,
        neighbours: NeighbourRows,
        *,
        num_nodes: int,
        all_inputs: Tensor | None = None,
        pulled: dict[tuple[str, ...], Tensor] | None = None,
        may_keep: Callable[[int], bool] | None = None,
    ) -> None:
        self._operators, self.snapshots, self.inputs, self._neighbours = operators, snapshots, inputs, neighbours
        self._num_nodes, self._all_inputs = num_nodes, all_inputs
        self._pulled = {} if pulled is None else pulled
        self._may_keep = may_keep
        self._is_busy = False
        self._base: SnapshotView | None = None

    @property
    def num_rows(self) -> int:
        """Number of computed rows, over all stacked snapshots."""
        return len(self.inputs)

    def layer(self, number: int) -> SnapshotView:
        """Return the same rows; exchanges are recorded for this layer."""
        neighbours = self._neighbours.layer(number)
        if neighbours is self._neighbours:
            return self
        view = copy.copy(self)
        view._neighbours, view._is_busy = neighbours, False
        view._base = self  # keeps the base view alive, so that its store finds it while it is in use
        return view

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Combine the neighbours' rows over one hop, (n, F) -> (n, F).

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind == "attention":
            return self._attend(x, scores)
        path = self._path(x) if self._may_keep is not None else None
        if path is not None:
            return self._constant(x, (*path, kind))
        operator = self._operators.scaled(kind)
        self._is_busy = True
        return operator.apply(self._neighbours.joined(x, DIRECTION_OF[kind]))

    def _path(self, x: Tensor) -> tuple[str, ...] | None:
        """Return the kinds of pulls that turn the inputs into x; None if x may depend on parameters."""
        if x is self.inputs:
            return ()
        return next((path for path, result in self._pulled.items() if result is x), None)

    def _constant(self, x: Tensor, path: tuple[str, ...]) -> Tensor:
        if path in self._pulled:
            return self._pulled[path]
        operator = self._operators.scaled(path[-1])
        is_known = x is self.inputs and self._all_inputs is not None and DIRECTION_OF[path[-1]] == "in"
        columns = self._all_inputs if is_known else self._neighbours.joined(x, DIRECTION_OF[path[-1]])
        assert columns is not None and self._may_keep is not None
        with torch.no_grad():
            result = operator.apply_once(columns)
        if self._may_keep(columns.numel() * columns.element_size()):  # the same on all ranks, so that gathers match
            self._pulled[path] = result
        if not self._is_busy:
            self._operators.release()
        return result

    def _attend(self, x: Tensor, scores: tuple[Tensor, Tensor] | None) -> Tensor:
        if scores is None:
            raise UnsupportedError("a pull of kind 'attention' needs scores=(from, to). Change the model.")
        self._is_busy = True
        scores_from, scores_to = scores
        if not self._neighbours.all_here:  # one exchange brings both
            joined = self._neighbours.joined(torch.cat([x, scores_from], dim=1), "in")
            x, scores_from = joined.split([x.shape[1], scores_to.shape[1]], dim=1)
        return self._operators.attention().apply(x, scores_from, scores_to)

    def columns(self, x: Tensor, direction: str) -> Tensor:
        """Return the rows of all nodes that own rows receive from: (n, F) -> (M, F), differentiable.

        Features are exchanged once, if pulls of features are cached.
        """
        self._is_busy = True
        path = self._path(x)
        if self._may_keep is None or path is None:
            return self._neighbours.joined(x, direction)
        if not path and self._all_inputs is not None and direction == "in":
            return self._all_inputs
        key = (*path, f"columns-{direction}")
        if key in self._pulled:
            return self._pulled[key]
        columns = self._neighbours.joined(x, direction)
        assert self._may_keep is not None
        if not self._neighbours.all_here and self._may_keep(columns.numel() * columns.element_size()):
            self._pulled[key] = columns
        return columns

    def edges(self, direction: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the source column and target row of every edge, (E,) each, and its weight, (E, 1) or None."""
        self._is_busy = True
        adjacency, weights = self._operators.adjacency(direction), self._operators.own_weights(direction)
        return adjacency.indices.long(), adjacency.edge_rows(), None if weights is None else weights.unsqueeze(1)

    def num_targets(self, x: Tensor, direction: str) -> int:
        """Return the number of output rows: a layer may have more input rows."""
        return self._operators.adjacency(direction).shape[0]

    def sampled_share(self, direction: str) -> Tensor | None:
        """Return the sampled share of each row's neighbours, (n,); None without sampling."""
        return self._operators.sampled_share(direction)

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the rows of the k nodes with the largest scores, (min(k, N), F), and the scores; ties to lower nodes.

        Raises:
            UnsupportedError: the view has several snapshots.
        """
        if len(self.snapshots) > 1:
            raise UnsupportedError("top does not work on stacked snapshots. Call it on each snapshot's own view.")
        x, scores = self._neighbours.candidates(x, scores, k)
        best = torch.sort(scores, descending=True, stable=True).indices[: min(k, self._num_nodes)]
        return x.index_select(0, best), scores.index_select(0, best)


class OneVertex(GraphView):
    """A view of one node without edges, in which a pull returns its input."""

    num_rows = 1

    def layer(self, number: int) -> GraphView:
        """Return this view: all layers are alike."""
        return self

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return the rows."""
        return x

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the one row."""
        return x[:1], scores[:1]
