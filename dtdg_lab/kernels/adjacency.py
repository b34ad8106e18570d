"""A sparse matrix whose row v lists the in-neighbours of vertex v, and its differentiable product with features."""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.kernels.backend import has_bag_kernel, import_dgl
from dtdg_lab.kernels.device_rows import transposed, transposed_order
from dtdg_lab.kernels.difference import edge_rows

_INT32_EDGES = 2**31 - 1
Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]


class _Product(torch.autograd.Function):
    """A @ x; its backward is the product with the transpose, which is built once per matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, owner: Adjacency) -> Tensor:
        ctx.owner = owner
        return owner.product(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.owner.transposed_adjacency().multiply(grads[0]), None


class Adjacency:
    """Rows ``lo .. hi`` of one snapshot's adjacency, shape (n, M), with n = hi - lo.

    On the CPU the index arrays given are used in place, not copied. Tensors that are on the device already are used
    there, and so is what is made of them: nothing goes by the host.

    Args:
        indptr: (N + 1,) offsets of each vertex's in-neighbours: an array, or an int32 tensor on the device.
        indices: (E,) in-neighbours, of the same kind.
        weights: (E,) edge weights, or None where every edge counts 1.
        rows: the vertices whose rows are kept; all where None.
        columns: M, the vertices that may be in-neighbours; N where None.
        backend: ``dgl`` or ``torch`` (see :func:`dtdg_lab.kernels.backend.choose_backend`).
        dtype: type of the products.
        device: where the products run.
    """

    def __init__(
        self,
        indptr: NDArray[np.int64] | Tensor,
        indices: NDArray[np.int32] | Tensor,
        weights: NDArray[np.float32] | Tensor | None,
        *,
        rows: range | None = None,
        columns: int | None = None,
        backend: str = "torch",
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        every = range(len(indptr) - 1)
        rows = every if rows is None else rows
        # where all are kept nothing has to be read, which would wait for the device
        first, last = (0, len(indices)) if rows == every else (int(indptr[rows.start]), int(indptr[rows.stop]))
        self.shape = (len(rows), len(every) if columns is None else columns)
        self.num_edges = last - first
        self.backend, self.dtype, self.device = backend, dtype, device
        offsets, indices = indptr[rows.start : rows.stop + 1] - first, indices[first:last]
        weights = None if weights is None else weights[first:last]
        if isinstance(offsets, Tensor):
            self.indptr, self.indices = offsets, cast(Tensor, indices)
            self.weights = None if weights is None else cast(Tensor, weights).to(dtype)
            self._host: Arrays | None = None
        else:
            kind = np.int32 if self.num_edges <= _INT32_EDGES else np.int64  # torch wants one type for both
            held = None if weights is None else np.asarray(weights)
            self._host = (offsets.astype(kind), np.asarray(indices).astype(kind, copy=False), held)
            self.indptr, self.indices = _on(self._host[0], device), _on(self._host[1], device)
            self.weights = None if held is None else _on(held, device).to(dtype)
        self._block: Any = None
        self._matrix: Tensor | None = None
        self._transposed: Adjacency | None = None

    def multiply(self, x: Tensor) -> Tensor:
        """Weighted sums over in-neighbours: (M, F) -> (n, F), differentiable in x."""
        product: Tensor = _Product.apply(x, self)
        return product

    def product(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sums over in-neighbours with these weights (E,), or the own ones: (M, F) -> (n, F), without gradient."""
        weights = self.weights if weights is None else weights
        x = x.contiguous()
        if self.backend == "dgl":
            block = self.block()
            ops = import_dgl().ops
            return ops.copy_u_sum(block, x) if weights is None else ops.u_mul_e_sum(block, x, weights.unsqueeze(1))
        if has_bag_kernel(self.device, x.dtype):
            return torch.embedding_bag(x, self.indices, self.indptr, False, 0, False, weights, True)[0]
        if weights is None or weights is self.weights:
            return self.matrix @ x
        return self._csr(weights) @ x

    def block(self) -> Any:
        """The edges as a DGL block from M to n vertices, made once."""
        if self._block is None:
            # edges numbered by hand: where DGL numbers them itself, its sum of edge values fails in single precision
            numbers = torch.arange(self.num_edges, dtype=self.indices.dtype, device=self.device)
            csc: tuple[str, tuple[Any, ...]] = ("csc", (self.indptr, self.indices, numbers))
            self._block = import_dgl().create_block(csc, num_src_nodes=self.shape[1], num_dst_nodes=self.shape[0])
        return self._block

    @property
    def matrix(self) -> Tensor:
        """The rows as a torch CSR matrix, (n, M), made once."""
        if self._matrix is None:
            ones = torch.ones(self.num_edges, dtype=self.dtype, device=self.device)
            self._matrix = self._csr(ones if self.weights is None else self.weights)
        return self._matrix

    def _csr(self, weights: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(
                self.indptr, self.indices, weights, size=self.shape, check_invariants=False
            )  # fmt: skip

    def row_sums(self) -> Tensor:
        """Weighted in-degree of each row, (n,); the number of in-neighbours where edges carry no weight."""
        if self.weights is None:
            return self.indptr.diff().to(self.dtype)
        sums = torch.zeros(self.shape[0], dtype=self.dtype, device=self.device)
        return sums.index_add_(0, self.edge_rows(), self.weights)

    def edge_rows(self) -> Tensor:
        """The row of every edge, (E,) int64."""
        return edge_rows(self.indptr, self.num_edges)

    def column_sums(self) -> Tensor:
        """Weighted out-degree of each column, (M,); the number of edges out of it where edges carry no weight."""
        sums = torch.zeros(self.shape[1], dtype=self.dtype, device=self.device)
        ones = torch.ones(1, dtype=self.dtype, device=self.device).expand(self.num_edges)
        return sums.index_add_(0, self.indices, ones if self.weights is None else self.weights)

    @property
    def on_device(self) -> bool:
        """Whether it was given tensors: what is made of it is then made of them, on the device."""
        return self._host is None

    @property
    def arrays(self) -> Arrays:
        """Offsets (n + 1,), in-neighbours (E,) and weights (E,) or None, as numpy arrays that are only read."""
        if self._host is None:
            weights = None if self.weights is None else self.weights.cpu().numpy()
            return self.indptr.cpu().numpy(), self.indices.cpu().numpy(), weights
        return self._host

    def part(self, rows: range) -> Adjacency:
        """Some of the rows, (len(rows), M)."""
        held = (self.indptr, self.indices, self.weights) if self._host is None else self._host
        return self.like(*held, rows=rows, columns=self.shape[1])

    def transposed_adjacency(self) -> Adjacency:
        """The transpose, (M, n): row u lists the vertices that have u as in-neighbour. Made once."""
        if self._transposed is None:
            if self._host is None:
                turned: tuple[Any, ...] = transposed(self.indptr, self.indices, self.weights, self.shape[1])
            else:
                turned = _transposed(*self._host, self.shape[1])
            self._transposed = self.like(*turned, columns=self.shape[0])
        return self._transposed

    def transposed_order(self) -> Tensor:
        """Which edge of this matrix each edge of the transpose is, (E,) int64."""
        if self._host is None:
            return transposed_order(self.indptr, self.indices)
        return _on(np.argsort(_transposed_keys(*self._host[:2])), self.device)

    def like(self, indptr: Any, indices: Any, weights: Any, **shape: Any) -> Adjacency:
        """Another matrix with the same backend, type and device; ``rows`` and ``columns`` as in the constructor."""
        return Adjacency(
            indptr, indices, weights, backend=self.backend, dtype=self.dtype, device=self.device, **shape
        )  # fmt: skip


def _transposed(
    indptr: NDArray[Any], indices: NDArray[Any], weights: NDArray[Any] | None, columns: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Offsets (M + 1,), rows (E,) and weights of the transpose of n rows and M columns."""
    keys = _transposed_keys(indptr, indices)
    if weights is None:
        keys.sort()  # numpy sorts keys several times faster than it orders them
    else:
        order = np.argsort(keys)
        weights, keys = weights[order], keys[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(indices, minlength=columns))])
    return offsets, (keys % max(len(indptr) - 1, 1)).astype(indices.dtype), weights


def _transposed_keys(indptr: NDArray[Any], indices: NDArray[Any]) -> NDArray[np.int64]:
    """For each edge its column, then its row, as one number."""
    rows = len(indptr) - 1
    keys = indices.astype(np.int64)
    keys *= max(rows, 1)
    keys += np.repeat(np.arange(rows), np.diff(indptr))
    return keys


def _on(array: NDArray[Any], device: str) -> Tensor:
    """The array as a tensor that is only read; on the CPU it shares the array's memory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array).to(device)
