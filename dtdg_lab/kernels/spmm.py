"""Sparse adjacency on a device: normalisation, self-loops, stacking, and SpMM by torch or DGL."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot, edge_rows, stacked_on_device
from dtdg_lab.kernels.uploads import upload


@functools.cache
def import_dgl() -> ModuleType:
    """Import DGL on first use, and return it.

    Raises:
        NotAvailableError: it is not installed for this Python or does not import with this torch.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")  # otherwise DGL writes a config file into the home folder
    try:
        import dgl
    except (ImportError, OSError, FileNotFoundError) as error:
        advice = (
            "PyPI has no DGL for Python 3.12 and later; use Python 3.11, or kernel='torch', which needs none."
            if sys.version_info >= (3, 12)
            else "Install it with: pip install 'dgl==1.1.3' packaging; or set kernel='torch', which needs none."
        )
        raise NotAvailableError(f"DGL cannot be imported ({type(error).__name__}: {error}). {advice}") from error
    return dgl


def has_bag_kernel(device: str, dtype: torch.dtype) -> bool:
    """Return whether torch's ``embedding_bag`` runs FBGEMM, a vectorised and prefetched sum of rows by index.

    A bag of embeddings is a row of a sparse product. FBGEMM needs x86 and single precision; otherwise
    ``embedding_bag`` first copies every row, and the CSR product is faster.
    """
    return device == "cpu" and dtype == torch.float32 and "fbgemm" in torch.backends.quantized.supported_engines


# On the CPU, ``index_select`` and ``scatter_`` take a fraction of the time of indexing with brackets.


def transposed(
    indptr: Tensor, indices: Tensor, values: Tensor | None, columns: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return offsets (M + 1,), rows (E,) and values of the transpose of n rows and M columns; types are kept.

    Edges of a column stay in the order of rows. On the CPU scipy's counting takes a quarter of the time of a sort.
    """
    if indices.device.type == "cpu":
        from scipy.sparse import csr_array

        data = torch.ones_like(indices, dtype=torch.int8) if values is None else values
        columnwise = csr_array(
            (data.numpy(), indices.numpy(), indptr.numpy()), shape=(len(indptr) - 1, columns), copy=False
        ).tocsc()
        arrays = zip((columnwise.indptr, columnwise.indices, columnwise.data), (indptr, indices, data), strict=True)
        offsets, rows, data = (torch.tensor(array, dtype=like.dtype) for array, like in arrays)
        return offsets, rows, None if values is None else data
    order = torch.argsort(indices, stable=True)
    counts = torch.zeros(columns + 1, dtype=indptr.dtype, device=indptr.device)
    counts.index_add_(0, indices + 1, torch.ones_like(indices, dtype=indptr.dtype))
    rows = edge_rows(indptr, len(indices)).index_select(0, order).to(indices.dtype)
    return counts.cumsum(0, dtype=indptr.dtype), rows, None if values is None else values.index_select(0, order)


def without_loops(indptr: Tensor, indices: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Return offsets (n + 1,) and in-neighbours without self-loops, where row i is node ``first + i``."""
    is_edge = indices != edge_rows(indptr, len(indices)) + first
    counted = torch.zeros(len(indices) + 1, dtype=indptr.dtype, device=indptr.device)
    counted[1:] = is_edge.cumsum(0, dtype=indptr.dtype)
    return counted.index_select(0, indptr), indices.masked_select(is_edge)


def with_self(
    indptr: Tensor, indices: Tensor, first: int, values: Tensor | None = None, self_values: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Insert a self-loop before the in-neighbours of every row; an existing self-loop stays too.

    Args:
        indptr: (n + 1,).
        indices: (E,).
        first: the node of row 0.
        values: (E,) values of the edges, or None.
        self_values: (n,) values of the self-loops, or None.

    Returns:
        Offsets (n + 1,), in-neighbours (E + n,) and their values.
    """
    numbers = torch.arange(len(indptr), dtype=indptr.dtype, device=indptr.device)
    offsets = indptr + numbers
    loop_positions = offsets[:-1].long()
    # an edge moves up by the self-loops of its row and of the rows before it
    edge_positions = torch.arange(1, len(indices) + 1, device=indptr.device).add_(edge_rows(indptr, len(indices)))

    def joined(edges: Tensor, loops: Tensor) -> Tensor:
        merged = edges.new_empty(len(edges) + len(loops)).scatter_(0, loop_positions, loops.to(edges.dtype))
        return merged.scatter_(0, edge_positions, edges)

    merged_values = None if values is None or self_values is None else joined(values, self_values)
    return offsets, joined(indices, numbers[:-1] + first), merged_values


_INT32_EDGES = 2**31 - 1


class _Product(torch.autograd.Function):
    """A @ x, whose backward is the product with the cached transpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, owner: Adjacency | SharedAdjacency) -> Tensor:
        ctx.owner = owner
        return owner.product(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.owner.transposed_adjacency().multiply(grads[0]), None


class Adjacency:
    """Sparse matrix of n rows of a snapshot's adjacency, (n, M): row v lists the in-neighbours of node v.

    On the CPU the index arrays are not copied. Tensors on the device are used in place, without a detour by the host.

    Args:
        indptr: (N + 1,) offsets of each node's in-neighbours: an array, or an int32 tensor on the device.
        indices: (E,) in-neighbours, of the same kind.
        weights: (E,) edge weights; None for weights of 1.
        rows: range of the nodes whose rows are kept; None for all.
        columns: number of possible in-neighbours, M; None for N.
        backend: ``dgl`` or ``torch`` (see :func:`dtdg_lab.kernels.backend_choice.choose_backend`).
        dtype: type of the products.
        device: device of the products.
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
        all_rows = range(len(indptr) - 1)
        rows = all_rows if rows is None else rows
        # reading offsets would wait for the device
        first, last = (0, len(indices)) if rows == all_rows else (int(indptr[rows.start]), int(indptr[rows.stop]))
        self.shape = (len(rows), len(all_rows) if columns is None else columns)
        self.num_edges = last - first
        self.backend, self.dtype, self.device = backend, dtype, device
        offsets, indices = indptr[rows.start : rows.stop + 1] - first, indices[first:last]
        weights = None if weights is None else weights[first:last]
        if isinstance(offsets, Tensor):
            self.indptr, self.indices = offsets, cast(Tensor, indices)
            self.weights = None if weights is None else cast(Tensor, weights).to(dtype)
        else:
            kind = np.int32 if self.num_edges <= _INT32_EDGES else np.int64  # torch needs one type for both
            self.indptr = upload(offsets.astype(kind), device)
            self.indices = upload(np.asarray(indices).astype(kind, copy=False), device)
            self.weights = None if weights is None else upload(np.asarray(weights), device).to(dtype)
        self._block: Any = None
        self._matrix: Tensor | None = None
        self._transposed: Adjacency | None = None

    def multiply(self, x: Tensor) -> Tensor:
        """Return weighted sums over in-neighbours: (M, F) -> (n, F), differentiable in x."""
        product: Tensor = _Product.apply(x, self)
        return product

    def product(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return sums over in-neighbours: (M, F) -> (n, F), without gradient; ``weights`` (E,) replace its own."""
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
        """Return the edges as a DGL block from M to n nodes; cached."""
        if self._block is None:
            # with DGL's own edge numbers, its sum of edge values fails in single precision
            numbers = torch.arange(self.num_edges, dtype=self.indices.dtype, device=self.device)
            csc: tuple[str, tuple[Any, ...]] = ("csc", (self.indptr, self.indices, numbers))
            self._block = import_dgl().create_block(csc, num_src_nodes=self.shape[1], num_dst_nodes=self.shape[0])
        return self._block

    @property
    def matrix(self) -> Tensor:
        """The rows as a torch CSR matrix, (n, M); cached."""
        if self._matrix is None:
            ones = torch.ones(self.num_edges, dtype=self.dtype, device=self.device)
            self._matrix = self._csr(ones if self.weights is None else self.weights)
        return self._matrix

    def _csr(self, weights: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(self.indptr, self.indices, weights, size=self.shape, check_invariants=False)

    def row_sums(self) -> Tensor:
        """Return the weighted in-degree of each row, (n,); without weights its number of in-neighbours."""
        if self.weights is None:
            return self.indptr.diff().to(self.dtype)
        return torch.segment_reduce(self.weights, "sum", offsets=self.indptr.long(), axis=0, initial=0)

    def edge_rows(self) -> Tensor:
        """Return the row of every edge, (E,) int64."""
        return edge_rows(self.indptr, self.num_edges)

    def column_sums(self) -> Tensor:
        """Return the weighted out-degree of each column, (M,); without weights its number of edges."""
        sums = torch.zeros(self.shape[1], dtype=self.dtype, device=self.device)
        ones = torch.ones(1, dtype=self.dtype, device=self.device).expand(self.num_edges)
        return sums.index_add_(0, self.indices, ones if self.weights is None else self.weights)

    def part(self, rows: range) -> Adjacency:
        """Return the matrix of some rows, (len(rows), M)."""
        return self.like(self.indptr, self.indices, self.weights, rows=rows, columns=self.shape[1])

    def transposed_adjacency(self) -> Adjacency:
        """Return the transpose, (M, n): row u lists the nodes that have u as in-neighbour; cached."""
        if self._transposed is None:
            arrays = transposed(self.indptr, self.indices, self.weights, self.shape[1])
            self._transposed = self.like(*arrays, columns=self.shape[0])
        return self._transposed

    def transposed_order(self) -> Tensor:
        """Return the index of each edge of the transpose among the edges, (E,) int64."""
        numbers = torch.arange(self.num_edges, device=self.device)
        order = transposed(self.indptr, self.indices, numbers, self.shape[1])[2]
        assert order is not None
        return order

    def like(self, indptr: Any, indices: Any, weights: Any, **shape: Any) -> Adjacency:
        """Return a matrix with the same backend, type and device; ``rows`` and ``columns`` as in the constructor."""
        return Adjacency(indptr, indices, weights, backend=self.backend, dtype=self.dtype, device=self.device, **shape)


class ScaledOperator:
    """Operator diag(row_scale) (A + I) diag(column_scale), with or without the identity: graph convolutions and means.

    Args:
        adjacency: A, (n, M).
        row_scale: (n,) scale of each row; None for 1.
        column_scale: (M,) scale of each column; None for 1.
        add_self: whether to add the identity; an existing self-loop counts too.
        first: the node of row 0.
    """

    def __init__(
        self,
        adjacency: Adjacency,
        row_scale: Tensor | None,
        column_scale: Tensor | None,
        *,
        add_self: bool = False,
        first: int = 0,
    ) -> None:
        self._adjacency, self._row_scale, self._column_scale = adjacency, row_scale, column_scale
        self._add_self, self._first = add_self, first
        self._folded: Adjacency | None = None

    def apply(self, x: Tensor) -> Tensor:
        """Return the operator times x, (M, F) -> (n, F), differentiable.

        Scales and identity are folded into edge weights, since torch's weighted sum is as fast as the plain one. DGL's
        weighted sum is several times slower, so there the scales stay outside.
        """
        if self._adjacency.backend == "dgl":
            return self.apply_once(x)
        if self._folded is None:
            self._folded = self._fold()
        return self._folded.multiply(x)

    def apply_once(self, x: Tensor) -> Tensor:
        """Return the same product without folding, for a single use."""
        rows = slice(self._first, self._first + self._adjacency.shape[0])
        x = x if self._column_scale is None else x * self._column_scale.unsqueeze(1)
        y = self._adjacency.multiply(x)
        y = y + x[rows] if self._add_self else y
        return y if self._row_scale is None else y * self._row_scale.unsqueeze(1)

    def _fold(self) -> Adjacency:
        adjacency, first = self._adjacency, self._first
        height, width = adjacency.shape
        row_scale = (
            adjacency.indptr.new_ones(height, dtype=adjacency.dtype) if self._row_scale is None else self._row_scale
        )
        column_scale = (
            adjacency.indptr.new_ones(width, dtype=adjacency.dtype)
            if self._column_scale is None
            else self._column_scale
        )
        scaled = row_scale.index_select(0, adjacency.edge_rows())
        scaled = scaled.mul_(column_scale.index_select(0, adjacency.indices))
        scaled = scaled if adjacency.weights is None else scaled.mul_(adjacency.weights)
        if not self._add_self:
            return adjacency.like(adjacency.indptr, adjacency.indices, scaled, columns=width)
        self_scale = row_scale * column_scale[first : first + height]
        edges = with_self(adjacency.indptr, adjacency.indices, first, scaled, self_scale)
        return adjacency.like(*edges, columns=width)


# Aggregation of the edges that consecutive snapshots share, once for all of them:
#
# Of diag(left_s) (A_s + I) diag(right_s) for S snapshots, the shared edges C are one unscaled matrix. Its product with
# the scaled rows of all snapshots side by side, (M, S F), serves every snapshot. The other edges of each snapshot are a
# small separate product. The scales differ by snapshot and stay outside C.


Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None]  # rows, columns and values of a matrix

# Moving a row or column with fewer shared edges costs more than sharing saves (``benchmarks/kernels.py``).
LEAST_SHARED_IN, LEAST_SHARED_OUT = 3, 2


class SharedAdjacency:
    """A block-diagonal matrix of S snapshots, (S n, S n): y = direct x + scatter common gather x.

    Args:
        like: adjacency with the same backend, type and device.
        snapshots: number of snapshots, S.
        entries: four matrices. gather, (C S, S n), collects the scaled rows of C nodes, ordered by node; common,
            (R, C), has the shared edges; scatter, (S n, R S), distributes the sums, scaled; direct, (S n, S n), has all
            other edges.
        sizes: n, C and R.
    """

    def __init__(
        self,
        like: Adjacency,
        snapshots: int,
        entries: tuple[Entries, Entries, Entries, Entries],
        sizes: tuple[int, int, int],
    ) -> None:
        self._like, self._snapshots, self._sizes = like, snapshots, sizes
        self._entries: tuple[Entries, ...] = entries
        gather, common, scatter, direct = entries
        nodes, sources, targets = (size * snapshots for size in sizes)
        self._gather = self._matrix(gather, sources, nodes)
        self._common = self._matrix(common, sizes[2], sizes[1])
        values = None if direct[2] is None or scatter[2] is None else np.concatenate([direct[2], scatter[2]])
        rest = (np.concatenate([direct[0], scatter[0]]), np.concatenate([direct[1], scatter[1] + nodes]), values)
        self._rest = self._matrix(rest, nodes, nodes + targets)
        self._transposed: SharedAdjacency | None = None

    def multiply(self, x: Tensor) -> Tensor:
        """Return the product, (S n, F) -> (S n, F), differentiable in x."""
        product: Tensor = _Product.apply(x, self)
        return product

    def product(self, x: Tensor) -> Tensor:
        """Return the product, (S n, F) -> (S n, F), without gradient."""
        if not self._sizes[2]:  # no shared edges
            return self._rest.product(x)
        width = x.shape[1]
        rows = self._gather.product(x).view(-1, self._snapshots * width)
        sums = self._common.product(rows).view(-1, width)
        return self._rest.product(torch.cat([x, sums]))

    def transposed_adjacency(self) -> SharedAdjacency:
        """Return the transpose, which has the same form; cached."""
        if self._transposed is None:
            gather, common, scatter, direct = ((columns, rows, values) for rows, columns, values in self._entries)
            nodes, sources, targets = self._sizes
            entries, sizes = (scatter, common, gather, direct), (nodes, targets, sources)
            self._transposed = SharedAdjacency(self._like, self._snapshots, entries, sizes)
            self._transposed._transposed = self
            self._entries = self._transposed._entries = ()  # not needed any more
        return self._transposed

    def _matrix(self, entries: Entries, height: int, width: int) -> Adjacency:
        rows, columns, values = entries
        order = np.argsort(rows, kind="stable")
        indptr = np.searchsorted(rows[order], np.arange(height + 1))
        values = None if values is None else values[order]
        return self._like.like(indptr, columns[order].astype(np.int32), values, columns=width)


class SharedOperator(ScaledOperator):
    """Operator of S stacked snapshots, which aggregates shared edges once.

    An edge is shared if all snapshots have it with equal weight. The result is exact up to the order of sums.

    Args:
        operators: square operators of S >= 2 snapshots of the same n nodes, all with or all without the identity.

    References: the idea of Wang, Sun, Bai 2023, "PiPAD" (PPoPP), to aggregate the overlap of snapshots once.

    Differs from the paper: only this idea is the paper's. Scales outside the shared matrix, the limits by the number of
    shared edges, and the whole backward pass are ours. The paper's pipeline of transfers and its GPU kernels are
    missing.
    """

    def __init__(self, operators: Sequence[ScaledOperator]) -> None:
        self._operators = tuple(operators)
        self._shared: SharedAdjacency | None = None

    @functools.cached_property
    def edges(self) -> tuple[int, int]:
        """Number of shared edges, and of edges of all snapshots together."""
        keys = [_edge_keys(operator._adjacency) for operator in self._operators]
        return len(_shared_keys(self._operators, keys)), sum(map(len, keys))

    def apply(self, x: Tensor) -> Tensor:
        """Return the operator times stacked rows, (S n, F) -> (S n, F), differentiable."""
        if self._shared is None:
            self._shared = _shared_adjacency(self._operators)
        return self._shared.multiply(x)

    def apply_once(self, x: Tensor) -> Tensor:
        """Return the same product snapshot by snapshot, without preparation, for a single use."""
        parts = x.chunk(len(self._operators))
        products = (operator.apply_once(part) for operator, part in zip(self._operators, parts, strict=True))
        return torch.cat(list(products))


def _edge_keys(adjacency: Adjacency) -> NDArray[np.int64]:
    """Return the keys ``row M + column`` of all edges, ascending, (E,)."""
    rows = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr.cpu().numpy()))
    keys: NDArray[np.int64] = rows * adjacency.shape[1] + adjacency.indices.cpu().numpy()
    return keys


def _shared_keys(operators: Sequence[ScaledOperator], keys: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the keys of edges that all operators have with equal weight."""
    shared = functools.reduce(functools.partial(np.intersect1d, assume_unique=True), keys)
    first: NDArray[Any] | None = None
    equal = np.ones(len(shared), bool)
    for operator, edges in zip(operators, keys, strict=True):
        if operator._adjacency.weights is not None:
            weights = operator._adjacency.weights.cpu().numpy()[np.searchsorted(edges, shared)]
            first = weights if first is None else first
            equal &= weights == first
    return shared[equal]


def _shared_adjacency(operators: Sequence[ScaledOperator]) -> SharedAdjacency:
    adjacency = operators[0]._adjacency
    count, nodes, loops = len(operators), adjacency.shape[0], operators[0]._add_self
    keys = [_edge_keys(operator._adjacency) for operator in operators]
    shared = _shared_keys(operators, keys)
    shared = shared[np.bincount(shared // nodes, minlength=nodes)[shared // nodes] >= LEAST_SHARED_IN]
    shared = shared[np.bincount(shared % nodes, minlength=nodes)[shared % nodes] >= LEAST_SHARED_OUT]
    row_scales, column_scales = (
        np.stack([np.ones(nodes) if scale is None else scale.cpu().numpy() for scale in scales])
        for scales in (
            [operator._row_scale for operator in operators],
            [operator._column_scale for operator in operators],
        )
    )
    targets, rows = np.unique(shared // nodes, return_inverse=True)
    has_sums = np.zeros(nodes, bool)
    has_sums[targets] = True
    sources = np.unique(np.concatenate([shared % nodes, targets] if loops else [shared % nodes]))
    columns = np.searchsorted(sources, shared % nodes)
    values = None
    if adjacency.weights is not None:
        values = adjacency.weights.cpu().numpy()[np.searchsorted(keys[0], shared)]
    if loops:  # the identity is shared too
        rows = np.concatenate([rows, np.arange(len(targets))])
        columns = np.concatenate([columns, np.searchsorted(sources, targets)])
        values = None if values is None else np.concatenate([values, np.ones(len(targets), values.dtype)])
    offsets = np.arange(count) * nodes
    gather = (
        np.arange(len(sources) * count),
        np.add.outer(sources, offsets).ravel(),
        column_scales[:, sources].T.ravel(),
    )
    scatter = (
        np.add.outer(targets, offsets).ravel(),
        np.arange(len(targets) * count),
        row_scales[:, targets].T.ravel(),
    )
    alone = np.flatnonzero(~has_sums) if loops else np.empty(0, np.int64)
    direct = []
    for number, (operator, edges) in enumerate(zip(operators, keys, strict=True)):
        unshared = ~np.isin(edges, shared, assume_unique=True)
        v, u = (np.concatenate([ends[unshared], alone]) for ends in (edges // nodes, edges % nodes))
        weights = operator._adjacency.weights
        direct_values = np.ones(len(v)) if weights is None else weights.cpu().numpy()[unshared]
        direct_values = np.concatenate([direct_values, np.ones(len(v) - len(direct_values))])
        scaled = row_scales[number][v] * column_scales[number][u] * direct_values
        direct.append((v + offsets[number], u + offsets[number], scaled))
    joined = tuple(np.concatenate(parts) for parts in zip(*direct, strict=True))
    sizes = (nodes, len(sources), len(targets))
    return SharedAdjacency(adjacency, count, (gather, (rows, columns, values), scatter, cast(Entries, joined)), sizes)


def stacked(snapshots: Sequence[Snapshot | DeviceSnapshot]) -> Snapshot | DeviceSnapshot:
    """Stack S snapshots of N nodes block-diagonally, on their device: node v of snapshot s becomes s N + v."""
    if len(snapshots) == 1:
        return snapshots[0]
    if isinstance(snapshots[0], DeviceSnapshot):
        return stacked_on_device(cast(Sequence[DeviceSnapshot], snapshots))
    return _stacked_on_host(cast(Sequence[Snapshot], snapshots))


def _stacked_on_host(snapshots: Sequence[Snapshot]) -> Snapshot:
    nodes = snapshots[0].num_nodes
    ends = np.cumsum([0, *(snapshot.num_edges for snapshot in snapshots)])
    indptr = np.concatenate([[0], *(part.indptr[1:] + end for part, end in zip(snapshots, ends[:-1], strict=True))])
    indices = np.concatenate([part.indices + np.int32(s * nodes) for s, part in enumerate(snapshots)])
    weights = [part.weights for part in snapshots if part.weights is not None]
    return Snapshot(indptr, indices, np.concatenate(weights) if weights else None)
