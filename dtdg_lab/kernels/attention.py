"""Graph attention: sums over in-neighbours and the node itself, weighted by a softmax of scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dtdg_lab.kernels.spmm import Adjacency, import_dgl, with_self, with_self_edges, without_loops, without_self_edges

SLOPE = 0.2
_EDGES_AT_ONCE = 2**18  # of the gathered rows of edge_products


class AttentionOperator:
    """y_v = sum over u in N(v) and v itself of alpha_vu x_u; alpha = softmax over u of LeakyReLU(from_u + to_v).

    Args:
        adjacency: (n, M); edge weights play no part, and a self loop that is there counts once, as v itself.
        first: the node of row 0.

    References: Velickovic et al. 2018, "Graph attention networks", equations 1 to 4, slope 0.2.
    """

    def __init__(self, adjacency: Adjacency, *, first: int = 0) -> None:
        rows: tuple[Any, ...]
        if adjacency.on_device:
            kept = without_loops(adjacency.indptr, adjacency.indices, first)
            rows = with_self(*kept, first)[:2]
        else:
            indptr, indices, _ = adjacency.arrays
            rows = with_self_edges(*without_self_edges(indptr, indices, first), first)
        self.edges = adjacency.like(rows[0], rows[1], None, columns=adjacency.shape[1])
        self.rows = self.edges.edge_rows().to(self.edges.indices.dtype)
        self.offsets = self.edges.indptr.long()
        self._order: Tensor | None = None

    def apply(self, x: Tensor, scores_from: Tensor, scores_to: Tensor) -> Tensor:
        """Attention of all heads, differentiable in all three: (n, heads d).

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
        ops, block = import_dgl().ops, self.edges.block()
        scores = ops.u_add_v(block, scores_from.unsqueeze(-1), scores_to.unsqueeze(-1))
        share = ops.edge_softmax(block, torch.nn.functional.leaky_relu(scores, SLOPE))
        return ops.u_mul_e_sum(block, x.view(len(x), scores_from.shape[1], -1), share).flatten(1)

    def row_sums(self, values: Tensor) -> Tensor:
        """Sums of edge values by row: (E, heads) -> (n, heads)."""
        return torch.segment_reduce(values, "sum", offsets=self.offsets, axis=0)

    @property
    def transposed_order(self) -> Tensor:
        """Which edge each edge of the transpose is, (E,). Made once."""
        if self._order is None:
            self._order = self.edges.transposed_order().to(self.rows.dtype)
        return self._order


class _Attention(torch.autograd.Function):
    """Forward keeps one share per edge and head; backward needs no (E, F) array on the CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scores_from: Tensor, scores_to: Tensor, operator: AttentionOperator) -> Tensor:
        edges, rows = operator.edges, operator.rows
        scores = scores_from.index_select(0, edges.indices) + scores_to.index_select(0, rows)
        positive = scores > 0
        scores = torch.nn.functional.leaky_relu(scores, SLOPE)
        top = torch.segment_reduce(
            scores, "max", offsets=operator.offsets, axis=0
        )  # no row is empty: v itself is there
        share = torch.exp_(scores.sub_(top.index_select(0, rows)))
        share /= operator.row_sums(share).index_select(0, rows)
        shares = share.t().contiguous()  # (heads, E)
        parts = x.chunk(len(shares), dim=1)
        y = torch.cat([edges.product(part, one) for part, one in zip(parts, shares, strict=True)], dim=1)
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


def edge_products(edges: Adjacency, rows: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """left[v] . right[u] of every edge u -> v: (n, F) and (M, F) -> (E,).

    Args:
        edges: the E edges, (n, M).
        rows: (E,) the row of each.
        left: (n, F).
        right: (M, F).
    """
    if edges.device == "cpu":  # the gradient of embedding_bag by its weights is this product, without gathering rows
        backward = torch.ops.aten._embedding_bag_per_sample_weights_backward
        return backward(left, right, edges.indices, edges.indptr, rows, 0)
    products = [
        (left.index_select(0, v) * right.index_select(0, u)).sum(dim=1)
        for v, u in zip(rows.split(_EDGES_AT_ONCE), edges.indices.split(_EDGES_AT_ONCE), strict=True)
    ]
    return torch.cat(products)
