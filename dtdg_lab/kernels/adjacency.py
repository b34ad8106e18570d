"""A sparse matrix whose row v lists the in-neighbours of vertex v, and its differentiable product with features."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.kernels.backend import import_dgl


class _CSRProduct(torch.autograd.Function):
    """A @ x with the transpose built once per matrix; torch's own backward would convert it at every call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, owner: Adjacency) -> Tensor:
        ctx.owner = owner
        return owner.matrix @ x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.owner.transposed @ grads[0], None


class Adjacency:
    """Rows ``lo .. hi`` of one snapshot's adjacency, shape (n, N), with n = hi - lo.

    Args:
        indptr: (N + 1,) offsets of each vertex's in-neighbours.
        indices: (E,) in-neighbours.
        weights: (E,) edge weights, or None where every edge counts 1.
        rows: the vertices whose rows are kept; all where None.
        backend: ``dgl`` or ``torch`` (see :func:`choose_backend`).
        dtype: type of the products.
        device: where the products run.
    """

    def __init__(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        weights: NDArray[np.float32] | None,
        *,
        rows: range | None = None,
        backend: str = "torch",
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        rows = range(len(indptr) - 1) if rows is None else rows
        first, last = int(indptr[rows.start]), int(indptr[rows.stop])
        self.shape = (len(rows), len(indptr) - 1)
        self.num_edges = last - first
        self.dtype, self.device = dtype, device
        self.indptr = torch.tensor(np.asarray(indptr[rows.start : rows.stop + 1]) - first, device=device)
        self.indices = torch.tensor(np.asarray(indices[first:last]), device=device)
        self.weights: Tensor | None = None
        if weights is not None:
            self.weights = torch.tensor(np.asarray(weights[first:last]), device=device).to(dtype)
        self._backend = backend
        self._block: Any = None
        self._matrix: Tensor | None = None
        self._transposed: Tensor | None = None

    def multiply(self, x: Tensor) -> Tensor:
        """Weighted sums over in-neighbours: (N, F) -> (n, F), differentiable in x."""
        if self._backend == "dgl":
            dgl = import_dgl()
            if self._block is None:
                csc: tuple[str, tuple[Any, ...]] = ("csc", (self.indptr, self.indices.long(), []))
                self._block = dgl.create_block(csc, num_src_nodes=self.shape[1], num_dst_nodes=self.shape[0])
            if self.weights is None:
                return dgl.ops.copy_u_sum(self._block, x)
            return dgl.ops.u_mul_e_sum(self._block, x, self.weights.unsqueeze(1))
        return _CSRProduct.apply(x, self)

    def row_sums(self) -> Tensor:
        """Weighted in-degree of each row, (n,); the number of in-neighbours where edges carry no weight."""
        if self.weights is None:
            return (self.indptr[1:] - self.indptr[:-1]).to(self.dtype)
        rows = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.indptr.diff())
        return torch.zeros(self.shape[0], dtype=self.dtype, device=self.device).index_add_(0, rows, self.weights)

    @property
    def matrix(self) -> Tensor:
        """The rows as a torch CSR matrix."""
        if self._matrix is None:
            values = torch.ones(self.num_edges, dtype=self.dtype, device=self.device)
            self._matrix = _csr(self.indptr, self.indices, values if self.weights is None else self.weights, self.shape)
        return self._matrix

    @property
    def transposed(self) -> Tensor:
        """The transpose as a torch CSR matrix, (N, n)."""
        if self._transposed is None:
            rows = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.indptr.diff())
            order = torch.sort(self.indices, stable=True).indices
            counts = torch.bincount(self.indices, minlength=self.shape[1])
            offsets = torch.zeros(self.shape[1] + 1, dtype=torch.int64, device=self.device)
            torch.cumsum(counts, 0, out=offsets[1:])
            values = self.matrix.values()[order]
            self._transposed = _csr(offsets, rows[order], values, (self.shape[1], self.shape[0]))
        return self._transposed


def _csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(indptr.int(), indices.int(), values, size=shape, check_invariants=False)
