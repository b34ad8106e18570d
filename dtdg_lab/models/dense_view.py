"""A snapshot as one dense matrix: the reference of models, and their test bench."""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.models.graph_view import GraphView, check_pull


class DenseView(GraphView):
    """A snapshot, or several stacked block-diagonally (``torch.block_diag``), as one (N, N) matrix.

    Args:
        adjacency: (N, N); row v holds the weights of the edges into v.
    """

    def __init__(self, adjacency: Tensor) -> None:
        self.adjacency = adjacency

    def layer(self, number: int) -> DenseView:
        """Return the view: all layers see the same."""
        return self

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.adjacency)

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return one hop of neighbours' rows combined, (N, F) -> (N, F)."""
        check_pull(kind, scores)
        if scores is not None:
            return _attention(self.adjacency, x, *scores)
        if kind == "gcn":
            return dense_gcn(self.adjacency) @ x
        return _row_mean(self.adjacency.T if kind == "diffusion-out" else self.adjacency) @ x

    def columns(self, x: Tensor, direction: str) -> Tensor:
        """Return the rows themselves: all nodes are here."""
        return x

    def edges(self, direction: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return source, target and weight of every edge."""
        received = self.adjacency if direction == "in" else self.adjacency.T
        target, source = received.nonzero(as_tuple=True)
        return source, target, received[target, source].unsqueeze(1)

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest scores and their rows, ties to the lower node."""
        if scores.shape != x.shape[:1]:
            raise UnsupportedError(f"graph.top got scores of {tuple(scores.shape)} for {len(x)} nodes: give (n,).")
        top_rows = torch.sort(scores, descending=True, stable=True).indices[:k]
        return x[top_rows], scores[top_rows]


def dense_gcn(adjacency: Tensor) -> Tensor:
    """Return D^-1/2 (A + I) D^-1/2 with D = 1 + weighted in-degree, (N, N), written out."""
    scale = (1.0 + adjacency.sum(dim=1)).pow(-0.5)
    return scale[:, None] * (adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)) * scale[None, :]


def _row_mean(weights: Tensor) -> Tensor:
    total = weights.sum(dim=1, keepdim=True)
    return torch.where(total != 0, weights / torch.where(total != 0, total, 1.0), 0.0)


def _attention(adjacency: Tensor, x: Tensor, from_score: Tensor, to_score: Tensor) -> Tensor:
    received = (adjacency != 0) | torch.eye(len(adjacency), dtype=torch.bool)
    scores = torch.nn.functional.leaky_relu(to_score[:, None] + from_score[None], 0.2)  # (N to, N from, heads)
    shares = torch.softmax(scores.masked_fill(~received[..., None], -torch.inf), dim=1)
    return torch.einsum("vuh,uhd->vhd", shares, x.unflatten(1, (from_score.shape[1], -1))).flatten(1)
