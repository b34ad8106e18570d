"""A snapshot, or several stacked ones, as a model sees them from some of their vertices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.kernels.operators import Operators


class Gather(Protocol):
    """Joins ranks' rows; collective, without gradient."""

    def __call__(self, rows: Tensor, each: int | None = None) -> Tensor:
        """All ranks' rows in rank order: of all vertices, or ``each`` from every rank."""
        ...


class SnapshotSpace:
    """What a model may ask of snapshots (see :class:`dtdg_lab.models.base.Space`).

    Pulls of the snapshots' own features, and pulls of those, do not depend on parameters: they are computed once and
    kept (ESDG section 5.5), and where a model asks for no others, the adjacency is let go.

    Args:
        operators: of the snapshot, or of the stacked ones.
        snapshots: which snapshots of the sequence.
        rows: the vertices computed here.
        all_inputs: features of all vertices, (N, F), or (S N, F) stacked.
        pulled: first-layer pulls that are kept, by their kinds in order; the space adds to it.
        may_keep: told the bytes of a first-layer pull, says whether they may be kept.
        gather: where rows are a share, joins them with the other ranks'.
    """

    def __init__(
        self,
        operators: Operators,
        snapshots: range,
        rows: range,
        all_inputs: Tensor,
        *,
        pulled: dict[tuple[str, ...], Tensor],
        may_keep: Callable[[int], bool],
        gather: Gather | None = None,
    ) -> None:
        self._operators, self.snapshots, self._rows = operators, snapshots, rows
        self._all_inputs, self._pulled, self._may_keep, self._gather = all_inputs, pulled, may_keep, gather
        self.inputs = all_inputs if len(rows) == len(all_inputs) else all_inputs[rows.start : rows.stop]
        self._is_busy = False

    @property
    def num_rows(self) -> int:
        """Vertices whose rows are computed; stacked, those of all snapshots."""
        return len(self._rows)

    async def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """One hop of neighbours' rows combined, (n, F) -> (n, F).

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind == "attention":
            return self._attend(x, scores)
        path = self._path(x)
        if path is not None:
            return self._constant(x, (*path, kind))
        self._is_busy = True
        return self._operators.scaled(kind).apply(self._joined(x))

    def _path(self, x: Tensor) -> tuple[str, ...] | None:
        """The kinds of pulls that make x of the inputs; None where x may depend on parameters."""
        if x is self.inputs:
            return ()
        return next((path for path, result in self._pulled.items() if result is x), None)

    def _constant(self, x: Tensor, path: tuple[str, ...]) -> Tensor:
        if path in self._pulled:
            return self._pulled[path]
        everything = self._all_inputs if x is self.inputs else self._joined(x)
        with torch.no_grad():
            result = self._operators.scaled(path[-1]).apply_once(everything)
        if self._may_keep(everything.numel() * everything.element_size()):  # the same on all ranks, as gathers must be
            self._pulled[path] = result
        if not self._is_busy:
            self._operators.release()
        return result

    def _attend(self, x: Tensor, scores: tuple[Tensor, Tensor] | None) -> Tensor:
        if scores is None:
            raise UnsupportedError("a pull of kind 'attention' needs scores=(from, to). Change the model.")
        self._is_busy = True
        scores_from, scores_to = scores
        if self._gather is not None:
            x, scores_from = self._gather(torch.cat([x, scores_from], dim=1)).split([x.shape[1], scores_to.shape[1]], 1)
        return self._operators.attention().apply(x, scores_from, scores_to)

    def _joined(self, x: Tensor) -> Tensor:
        return x if self._gather is None else self._gather(x)

    async def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows of the k vertices with the largest scores, (min(k, N), F), and these scores; ties to the lower vertex.

        Raises:
            UnsupportedError: the space stands for several snapshots.
        """
        if len(self.snapshots) > 1:
            raise UnsupportedError("top of stacked snapshots: ask each snapshot for its own.")
        if self._gather is not None:
            x, scores = self._candidates(x, scores, k)
            k = min(k, len(self._all_inputs))
        best = torch.sort(scores, descending=True, stable=True).indices[:k]
        return x.index_select(0, best), scores.index_select(0, best)

    def _candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of every rank, in rank order; ranks with fewer vertices fill up with minus infinity."""
        assert self._gather is not None
        best = torch.sort(scores, descending=True, stable=True).indices[:k]
        own = torch.cat([x.index_select(0, best), scores.index_select(0, best).unsqueeze(1)], dim=1)
        missing = own.new_zeros(k - len(own), own.shape[1])
        missing[:, -1] = -torch.inf
        joined = self._gather(torch.cat([own, missing]), each=k)
        return joined[:, :-1], joined[:, -1]
