"""Row scalings around a neighbour sum: diag(left) (A + I) diag(right), which graph convolutions and means are."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from dtdg_lab.kernels import device_rows
from dtdg_lab.kernels.adjacency import Adjacency
from dtdg_lab.kernels.self_edges import put_first, with_self


class ScaledOperator:
    """diag(left) (A + I) diag(right), or without the identity; rows (n,) of M vertices.

    Args:
        adjacency: A, (n, M).
        left: (n,) scale of each row; 1 where None.
        right: (M,) scale of each column; 1 where None.
        add_self: whether the identity is added: a self loop that is there counts beside it.
        first: the vertex of row 0.
    """

    def __init__(
        self, adjacency: Adjacency, left: Tensor | None, right: Tensor | None, *, add_self: bool = False, first: int = 0
    ) -> None:
        self._adjacency, self._left, self._right = adjacency, left, right
        self._add_self, self._first = add_self, first
        self._baked: Adjacency | None = None

    def apply(self, x: Tensor) -> Tensor:
        """The operator times x, (M, F) -> (n, F), differentiable.

        Scales and identity are baked into edge weights, since torch's weighted sum costs what its plain one does; DGL's
        costs several times as much, so there the scales stay outside.
        """
        if self._adjacency.backend == "dgl":
            return self.apply_once(x)
        if self._baked is None:
            self._baked = self._bake()
        return self._baked.multiply(x)

    def apply_once(self, x: Tensor) -> Tensor:
        """The same without preparation, for a product that is computed once."""
        rows = slice(self._first, self._first + self._adjacency.shape[0])
        x = x if self._right is None else x * self._right.unsqueeze(1)
        y = self._adjacency.multiply(x)
        y = y + x[rows] if self._add_self else y
        return y if self._left is None else y * self._left.unsqueeze(1)

    def _bake(self) -> Adjacency:
        adjacency = self._adjacency
        if adjacency.on_device:
            return self._bake_on_device()
        indptr, indices, weights = adjacency.arrays
        height, width = adjacency.shape
        kind = str(adjacency.dtype).removeprefix("torch.")
        left = np.ones(height, kind) if self._left is None else self._left.cpu().numpy()
        right = np.ones(width, kind) if self._right is None else self._right.cpu().numpy()
        scaled = np.repeat(left, np.diff(indptr)) * right[indices]
        if weights is not None:
            scaled *= weights
        if self._add_self:
            own = left * right[self._first : self._first + height]
            indptr, indices = with_self(indptr, indices, self._first)
            scaled = put_first(indptr, scaled, own)
        return adjacency.like(indptr, indices, scaled, columns=width)

    def _bake_on_device(self) -> Adjacency:
        adjacency, first = self._adjacency, self._first
        height, width = adjacency.shape
        left = adjacency.indptr.new_ones(height, dtype=adjacency.dtype) if self._left is None else self._left
        right = adjacency.indptr.new_ones(width, dtype=adjacency.dtype) if self._right is None else self._right
        scaled = left[adjacency.edge_rows()] * right[adjacency.indices]
        scaled = scaled if adjacency.weights is None else scaled * adjacency.weights
        if not self._add_self:
            return adjacency.like(adjacency.indptr, adjacency.indices, scaled, columns=width)
        own = left * right[first : first + height]
        return adjacency.like(
            *device_rows.with_self(adjacency.indptr, adjacency.indices, first, scaled, own), columns=width
        )  # fmt: skip
