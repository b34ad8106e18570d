"""A snapshot, or several stacked ones, as a model sees them from some of their vertices."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.kernels.operators import Operators
from dtdg_lab.parallel.neighbours import AllHere, Neighbours

WAY = {"gcn": "in", "mean": "in", "diffusion-in": "in", "diffusion-out": "out", "attention": "in"}


class SnapshotSpace:
    """What a model may ask of snapshots (see :class:`dtdg_lab.models.base.Space`).

    Pulls of the snapshots' own features, and pulls of those, do not depend on parameters: where ``may_keep`` is given
    they are computed once and kept (ESDG section 5.5), and where a model asks for no others, the adjacency is let go.

    Args:
        operators: of the own rows of the snapshot, or of the stacked ones.
        snapshots: which snapshots of the sequence, S of them.
        inputs: features of the own rows, (S n, F).
        neighbours: where a pull finds others' rows.
        num_nodes: N, the vertices of a snapshot.
        all_inputs: features of all columns of ``in``, where they are here already.
        pulled: first-layer pulls that are kept, by their kinds in order; the space adds to it.
        may_keep: told the bytes of a first-layer pull, says whether they may be kept; None keeps none.
    """

    def __init__(
        self,
        operators: Operators,
        snapshots: range,
        inputs: Tensor,
        neighbours: Neighbours,
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
        self._base: SnapshotSpace | None = None

    @property
    def num_rows(self) -> int:
        """Vertices whose rows are computed; stacked, those of all snapshots."""
        return len(self.inputs)

    def layer(self, number: int) -> SnapshotSpace:
        """The same rows; exchanges are counted for this layer."""
        neighbours = self._neighbours.layer(number)
        if neighbours is self._neighbours:
            return self
        seen = SnapshotSpace(
            self._operators, self.snapshots, self.inputs, neighbours, num_nodes=self._num_nodes,
            all_inputs=self._all_inputs, pulled=self._pulled, may_keep=self._may_keep,
        )  # fmt: skip
        seen._base = self  # so that a store that does not keep spaces finds it as long as it is in use
        return seen

    async def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """One hop of neighbours' rows combined, (n, F) -> (n, F).

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind == "attention":
            return await self._attend(x, scores)
        path = self._path(x) if self._may_keep is not None else None
        if path is not None:
            return await self._constant(x, (*path, kind))
        operator = self._operators.scaled(kind)
        self._is_busy = True
        return operator.apply(await self._neighbours.joined(x, WAY[kind]))

    def _path(self, x: Tensor) -> tuple[str, ...] | None:
        """The kinds of pulls that make x of the inputs; None where x may depend on parameters."""
        if x is self.inputs:
            return ()
        return next((path for path, result in self._pulled.items() if result is x), None)

    async def _constant(self, x: Tensor, path: tuple[str, ...]) -> Tensor:
        if path in self._pulled:
            return self._pulled[path]
        operator = self._operators.scaled(path[-1])
        known = x is self.inputs and self._all_inputs is not None and WAY[path[-1]] == "in"
        everything = self._all_inputs if known else await self._neighbours.joined(x, WAY[path[-1]])
        assert everything is not None and self._may_keep is not None
        with torch.no_grad():
            result = operator.apply_once(everything)
        if self._may_keep(everything.numel() * everything.element_size()):  # the same on all ranks, as gathers must be
            self._pulled[path] = result
        if not self._is_busy:
            self._operators.release()
        return result

    async def _attend(self, x: Tensor, scores: tuple[Tensor, Tensor] | None) -> Tensor:
        if scores is None:
            raise UnsupportedError("a pull of kind 'attention' needs scores=(from, to). Change the model.")
        self._is_busy = True
        scores_from, scores_to = scores
        if not isinstance(self._neighbours, AllHere):  # one exchange brings both
            joined = await self._neighbours.joined(torch.cat([x, scores_from], dim=1), "in")
            x, scores_from = joined.split([x.shape[1], scores_to.shape[1]], dim=1)
        return self._operators.attention().apply(x, scores_from, scores_to)

    async def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows of the k vertices with the largest scores, (min(k, N), F), and these scores; ties to the lower vertex.

        Raises:
            UnsupportedError: the space stands for several snapshots.
        """
        if len(self.snapshots) > 1:
            raise UnsupportedError("top of stacked snapshots: ask each snapshot for its own.")
        x, scores = self._neighbours.candidates(x, scores, k)
        best = torch.sort(scores, descending=True, stable=True).indices[: min(k, self._num_nodes)]
        return x.index_select(0, best), scores.index_select(0, best)
