"""Operators of all kinds of pulls from one snapshot or several stacked ones, built on first use."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dtdg_lab.config.model_facts import DIRECTIONS
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels import spmm
from dtdg_lab.kernels.device_memory import USUAL_LIMITS, MemoryLimits
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot, edge_rows
from dtdg_lab.kernels.spmm import Adjacency, ScaledOperator


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Settings of operators, the same for all snapshots of a sequence.

    Attributes:
        backend: ``dgl`` or ``torch`` (see :func:`dtdg_lab.kernels.backend_choice.choose_backend`).
        dtype: type of the products.
        device: device of the products.
        norm: normalisation of ``gcn``, ``in`` or ``in_out``.
        self_loops: whether ``gcn`` adds self-loops.
        limits: bytes that a rank keeps of these operators, of their products, and for backward.
    """

    backend: str = "torch"
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    norm: str = "in"
    self_loops: bool = True
    limits: MemoryLimits = USUAL_LIMITS

    def adjacency(self, indptr: Any, indices: Any, weights: Any, **shape: Any) -> Adjacency:
        """Return an adjacency with these settings; arguments as for :class:`dtdg_lab.kernels.spmm.Adjacency`."""
        return Adjacency(indptr, indices, weights, backend=self.backend, dtype=self.dtype, device=self.device, **shape)


class EdgeSource(Protocol):
    """Edges of n rows and the M columns that they pull from, along two directions.

    Along ``in`` a row pulls from its in-neighbours, along ``out`` from its out-neighbours. The two directions may have
    different columns. Row i is column ``first + i``. Degrees are those of the whole graph, even if only some edges are
    here: sums of weights, or edge counts without weights.

    Attributes:
        first: the column of row 0.
    """

    @property
    def first(self) -> int:
        """The column of row 0."""

    def adjacency(self, direction: str) -> Adjacency:
        """Return the adjacency along which rows pull, (n, M); the same object until ``release``."""

    def row_degrees(self, direction: str) -> Tensor:
        """Return the weighted degree of each row along a direction, (n,)."""

    def column_degrees(self, direction: str) -> Tensor:
        """Return the weighted degree of each column of ``adjacency("in")`` along a direction, (M,)."""

    def sampled_share(self, direction: str) -> Tensor | None:
        """Return the sampled share of each row's neighbours, (n,); None without sampling."""

    def own_weights(self, direction: str) -> Tensor | None:
        """Return the weight of each edge of ``adjacency`` in the graph, (E,); None without weights."""

    def release(self) -> None:
        """Free everything cached; it is rebuilt on demand."""


class SnapshotSource:
    """Edges of some rows of a snapshot (or of several, stacked), with all its nodes as columns.

    Args:
        snapshot: N nodes and E edges; row v lists the edges into v. A device snapshot is not copied.
        rows: the nodes whose rows are computed.
        settings: backend, type and device of the products.
    """

    def __init__(self, snapshot: Snapshot | DeviceSnapshot, rows: range, settings: OperatorSettings) -> None:
        self._snapshot, self._rows, self._settings = snapshot, rows, settings
        self._whole: Adjacency | None = None
        self._parts: dict[str, Adjacency] = {}
        self._degrees: dict[str, Tensor] = {}

    @property
    def first(self) -> int:
        """The column of row 0: its node."""
        return self._rows.start

    def adjacency(self, direction: str) -> Adjacency:
        """Return the adjacency along which rows pull, (n, N).

        Raises:
            UnsupportedError: there is no such direction.
        """
        if direction not in self._parts:
            adjacency = self._all(direction)
            is_complete = len(self._rows) == adjacency.shape[0]
            self._parts[direction] = adjacency if is_complete else adjacency.part(self._rows)
        return self._parts[direction]

    def row_degrees(self, direction: str) -> Tensor:
        """Return the weighted degree of each row along a direction, (n,)."""
        if direction == "in" and direction in self._degrees:
            return self._degrees[direction][self._rows.start : self._rows.stop]
        return self.adjacency(direction).row_sums()

    def column_degrees(self, direction: str) -> Tensor:
        """Return the weighted in-degree or out-degree of every node, (N,).

        Raises:
            UnsupportedError: there is no such direction.
        """
        if direction not in self._degrees:
            edges = self._all("in")
            self._degrees[direction] = edges.row_sums() if checked(direction) == "in" else edges.column_sums()
        return self._degrees[direction]

    def sampled_share(self, direction: str) -> Tensor | None:
        """Return None: neighbours are not sampled."""
        return None

    def own_weights(self, direction: str) -> Tensor | None:
        """Return the weight of each edge, (E,); None without weights."""
        return self.adjacency(direction).weights

    def release(self) -> None:
        """Free everything cached; it is rebuilt on demand."""
        self._whole = None
        self._parts.clear()
        self._degrees.clear()

    def _all(self, direction: str) -> Adjacency:
        checked(direction)
        if self._whole is None:
            snapshot = self._snapshot
            self._whole = self._settings.adjacency(snapshot.indptr, snapshot.indices, snapshot.weights)
        return self._whole if direction == "in" else self._whole.transposed_adjacency()


def checked(direction: str) -> str:
    """Return the direction after checking it.

    Raises:
        UnsupportedError: there is no such direction.
    """
    if direction not in DIRECTIONS:
        raise UnsupportedError(
            f"direction={direction!r} is unknown: rows pull along {' or '.join(DIRECTIONS)}. Choose one of them."
        )
    return direction


KEPT_BYTES = 1 << 30  # of freed memory; a constant, since it saves time and does not grow with what a run keeps
_LARGEST_FROM_HEAP = 32 << 20  # glibc's maximum
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # M_TRIM_THRESHOLD and so on, of malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Make glibc return freed memory only beyond ``KEPT_BYTES``, process-wide; return False on other C libraries.

    By default glibc maps large arrays with mmap and unmaps them when freed. Clearing every page again took up to half
    the time of an epoch. Threads share one heap, because per-thread heaps are small and always returned.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    settings = ((_MMAP_THRESHOLD, _LARGEST_FROM_HEAP), (_TRIM_THRESHOLD, KEPT_BYTES), (_ARENA_MAX, 1))
    return all([library.mallopt(name, value) == 1 for name, value in settings])


SLOPE = 0.2
_EDGES_AT_ONCE = 2**18  # chunk size of edge_products, in edges


class AttentionOperator:
    """Graph attention, y_v = sum of alpha_vu x_u over u in N(v) and v; alpha = softmax_u LeakyReLU(from_u + to_v).

    Args:
        adjacency: (n, M); edge weights are ignored, and an existing self-loop counts once.
        first: the node of row 0.

    References: Velickovic et al. 2018, "Graph attention networks", equations 1 to 4, slope 0.2.
    """

    def __init__(self, adjacency: Adjacency, *, first: int = 0) -> None:
        indptr, indices = adjacency.indptr, adjacency.indices
        self._loops: Tensor | None = None
        if adjacency.device == "cpu" or adjacency.backend == "dgl":
            indptr, indices, _ = spmm.with_self(*spmm.without_loops(indptr, indices, first), first)
        else:  # to drop edges, the host would wait for their number
            loops, added = indices == edge_rows(indptr, len(indices)) + first, indptr.new_zeros(len(indptr) - 1)
            indptr, indices, self._loops = spmm.with_self(indptr, indices, first, loops, added)
        self.edges = adjacency.like(indptr, indices, None, columns=adjacency.shape[1])
        self.rows = self.edges.edge_rows().to(self.edges.indices.dtype)
        self.offsets = self.edges.indptr.long()
        self._order: Tensor | None = None

    def apply(self, x: Tensor, scores_from: Tensor, scores_to: Tensor) -> Tensor:
        """Return the attention of all heads, differentiable in all three: (n, heads d).

        Args:
            x: (M, heads d), the heads side by side.
            scores_from: (M, heads).
            scores_to: (n, heads).
        """
        if self.edges.backend == "dgl":
            return self._dgl_attention(x, scores_from, scores_to)
        y: Tensor = _Attention.apply(x, scores_from, scores_to, self)
        return y

    def _dgl_attention(self, x: Tensor, scores_from: Tensor, scores_to: Tensor) -> Tensor:
        ops, block = spmm.import_dgl().ops, self.edges.block()
        scores = ops.u_add_v(block, scores_from.unsqueeze(-1), scores_to.unsqueeze(-1))
        share = ops.edge_softmax(block, torch.nn.functional.leaky_relu(scores, SLOPE))
        return ops.u_mul_e_sum(block, x.view(len(x), scores_from.shape[1], -1), share).flatten(1)

    def without_loops(self, scores: Tensor) -> Tensor:
        """Write minus infinity, so no weight, to scores of edges that double an added self-loop: (E, heads)."""
        return scores if self._loops is None else scores.masked_fill_(self._loops.unsqueeze(1), -torch.inf)

    def row_sums(self, values: Tensor) -> Tensor:
        """Sum edge values by row: (E, heads) -> (n, heads)."""
        return torch.segment_reduce(values, "sum", offsets=self.offsets, axis=0)

    @property
    def transposed_order(self) -> Tensor:
        """Index of each edge of the transpose among the edges, (E,); cached."""
        if self._order is None:
            self._order = self.edges.transposed_order().to(self.rows.dtype)
        return self._order


class _Attention(torch.autograd.Function):
    """Attention whose forward saves one share per edge and head; backward needs no (E, F) array on the CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scores_from: Tensor, scores_to: Tensor, operator: AttentionOperator) -> Tensor:
        edges, rows = operator.edges, operator.rows
        scores = scores_from.index_select(0, edges.indices) + scores_to.index_select(0, rows)
        positive = scores > 0
        scores = operator.without_loops(torch.nn.functional.leaky_relu(scores, SLOPE))
        top = torch.segment_reduce(
            scores, "max", offsets=operator.offsets, axis=0
        )  # no row is empty: v itself is there
        share = torch.exp_(scores.sub_(top.index_select(0, rows)))
        share /= operator.row_sums(share).index_select(0, rows)
        shares = share.t().contiguous()  # (heads, E)
        parts = x.chunk(len(shares), dim=1)
        y = torch.cat([edges.product(part, share) for part, share in zip(parts, shares, strict=True)], dim=1)
        ctx.operator = operator
        ctx.save_for_backward(x, shares, positive, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, shares, positive, y = ctx.saved_tensors
        operator: AttentionOperator = ctx.operator
        heads, order = len(shares), operator.transposed_order
        transposed = operator.edges.transposed_adjacency()
        dy = grads[0].contiguous()
        dx, dscores = [], []
        for x_h, y_h, dy_h, share in zip(x.chunk(heads, 1), y.chunk(heads, 1), dy.chunk(heads, 1), shares, strict=True):
            dshare = edge_products(operator.edges, operator.rows, dy_h.contiguous(), x_h.contiguous())
            inner = (dy_h * y_h).sum(dim=1)  # = sum over u of alpha_vu dalpha_vu
            dscores.append(share * (dshare - inner.index_select(0, operator.rows)))
            dx.append(transposed.product(dy_h, share.index_select(0, order)))
        draw = torch.stack(dscores, dim=1)
        draw = torch.where(positive, draw, SLOPE * draw)
        dfrom = torch.segment_reduce(draw.index_select(0, order), "sum", offsets=transposed.indptr.long(), axis=0)
        return torch.cat(dx, dim=1), dfrom, operator.row_sums(draw), None


def edge_products(edges: Adjacency, rows: Tensor, x_rows: Tensor, x_columns: Tensor) -> Tensor:
    """Return the dot product x_rows[v] . x_columns[u] of every edge u -> v: (n, F) and (M, F) -> (E,).

    Args:
        edges: the E edges, (n, M).
        rows: (E,) the row of each edge.
        x_rows: (n, F).
        x_columns: (M, F).
    """
    if edges.device == "cpu":  # the weight gradient of embedding_bag is this product, without gathering rows
        backward = torch.ops.aten._embedding_bag_per_sample_weights_backward
        return backward(x_rows, x_columns, edges.indices, edges.indptr, rows, 0)
    products = [
        (x_rows.index_select(0, v) * x_columns.index_select(0, u)).sum(dim=1)
        for v, u in zip(rows.split(_EDGES_AT_ONCE), edges.indices.split(_EDGES_AT_ONCE), strict=True)
    ]
    return torch.cat(products)


KINDS = ("gcn", "mean", "diffusion-in", "diffusion-out", "attention")


class Operators:
    """Operators of n rows over M columns.

    - ``gcn``: D^-1/2 (A + I) D^-1/2 with D = 1 + weighted in-degree (SYSTEMS.md, notation). ``norm="in_out"`` has the
      sources' out-degrees on the right: w / sqrt(in(v) out(u)). Without self-loops, I and the 1 are left out; a node
      without edges then gets 0.
    - ``mean``, ``diffusion-in``: D_in^-1 A, the weighted mean over in-neighbours; 0 without in-neighbours.
    - ``diffusion-out``: D_out^-1 A^T, the weighted mean over out-neighbours; 0 without out-neighbours.
    - ``attention``: see :class:`dtdg_lab.kernels.operators.AttentionOperator`.

    Args:
        source: edges of the n rows and degrees of the M columns; row v of A lists the edges into v.
        settings: normalisation and self-loops.

    References: ``norm="in_out"`` without self loops: FlareDTDG, released code.
    """

    def __init__(self, source: EdgeSource, settings: OperatorSettings) -> None:
        self._source, self._settings = source, settings
        self._scaled: dict[str, ScaledOperator] = {}
        self._attention: AttentionOperator | None = None

    def scaled(self, kind: str) -> ScaledOperator:
        """Return the operator of a kind, except ``attention``.

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind not in self._scaled:
            if kind == "gcn":
                self._scaled[kind] = self._convolution()
            elif kind in {"mean", "diffusion-in"}:
                self._scaled["mean"] = self._scaled["diffusion-in"] = self._mean("in")
            elif kind == "diffusion-out":
                self._scaled[kind] = self._mean("out")
            else:
                raise UnsupportedError(
                    f"a pull of kind {kind!r} is unknown: the kinds are {', '.join(KINDS)}. Change the model."
                )
        return self._scaled[kind]

    def adjacency(self, direction: str) -> Adjacency:
        """Return the adjacency along a direction, ``in`` or ``out``, (n, M)."""
        return self._source.adjacency(direction)

    def sampled_share(self, direction: str) -> Tensor | None:
        """Return the sampled share of each row's neighbours, (n,); None without sampling."""
        return self._source.sampled_share(direction)

    def own_weights(self, direction: str) -> Tensor | None:
        """Return the weight of each edge in the graph, (E,); None without weights."""
        return self._source.own_weights(direction)

    def attention(self) -> AttentionOperator:
        """Return the attention over in-neighbours and the node itself."""
        if self._attention is None:
            self._attention = AttentionOperator(self._source.adjacency("in"), first=self._source.first)
        return self._attention

    def release(self) -> None:
        """Free everything cached; it is rebuilt on demand."""
        self._attention = None
        self._scaled.clear()
        self._source.release()

    def _mean(self, direction: str) -> ScaledOperator:
        return ScaledOperator(self._source.adjacency(direction), _inverse(self._source.row_degrees(direction)), None)

    def _convolution(self) -> ScaledOperator:
        source, loops = self._source, self._settings.self_loops
        loop_degree, adjacency, first = 1.0 if loops else 0.0, source.adjacency("in"), source.first
        if self._settings.norm == "in":  # rows are columns too
            column_scale = _inverse(torch.sqrt(source.column_degrees("in") + loop_degree))
            row_scale = column_scale[first : first + adjacency.shape[0]]
        else:
            column_scale = _inverse(torch.sqrt(source.column_degrees("out") + loop_degree))
            row_scale = _inverse(torch.sqrt(source.row_degrees("in") + loop_degree))
        return ScaledOperator(adjacency, row_scale, column_scale, add_self=loops, first=first)


class SharedOperators(Operators):
    """Operators of S stacked snapshots, which aggregate shared edges once.

    Args:
        operators: operators of S >= 2 snapshots, over all nodes.

    References: see :class:`dtdg_lab.kernels.spmm.SharedOperator`.
    """

    def __init__(self, operators: Sequence[Operators]) -> None:
        self._operators = operators
        self._scaled: dict[str, ScaledOperator] = {}

    def scaled(self, kind: str) -> ScaledOperator:
        """Return the operator of a kind along in-neighbours, except ``attention``.

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind not in self._scaled:
            self._scaled[kind] = spmm.SharedOperator([operators.scaled(kind) for operators in self._operators])
        return self._scaled[kind]

    def adjacency(self, direction: str) -> Adjacency:
        """Raise, since messages differ by snapshot.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "messages are not supported over shared edges: they differ by snapshot. Choose system='single', or "
            "another model."
        )

    def attention(self) -> AttentionOperator:
        """Raise, since attention weights depend on features.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "attention is not supported over shared edges: its weights differ by snapshot. Choose system='single', or "
            "another model."
        )

    def release(self) -> None:
        """Free everything cached; it is rebuilt on demand."""
        self._scaled.clear()
        for operators in self._operators:
            operators.release()


def _inverse(numbers: Tensor) -> Tensor:
    """Return 1 / x, and 0 where x is 0."""
    return torch.where(numbers > 0, 1.0 / numbers, torch.zeros_like(numbers))
