"""A snapshot whose neighbours are seen through dense matrices: what models are run in where nothing may be sparse."""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.testing.requirements import require

KINDS = ("gcn", "mean", "diffusion-in", "diffusion-out", "attention")


class DenseSpace:
    """A snapshot, or several stacked block-diagonally (``torch.block_diag``), as one (N, N) matrix.

    Args:
        adjacency: (N, N); row v holds the weights of the edges into v.
    """

    def __init__(self, adjacency: Tensor) -> None:
        self.adjacency = adjacency

    def layer(self, number: int) -> DenseSpace:
        """All layers see the same."""
        return self

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.adjacency)

    async def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """One hop, (N, F) -> (N, F); see :class:`dtdg_lab.models.base.Space`."""
        require(kind in KINDS, f"the model pulls {kind!r}; spaces offer {', '.join(KINDS)}")
        require((scores is not None) == (kind == "attention"), f"a pull of {kind!r} with scores {scores is not None}")
        if scores is not None:
            return _attention(self.adjacency, x, *scores)
        if kind == "gcn":
            return dense_gcn(self.adjacency) @ x
        return _row_mean(self.adjacency.T if kind == "diffusion-out" else self.adjacency) @ x

    async def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k largest scores and their rows, ties to the lower vertex."""
        require(scores.shape == x.shape[:1], f"top: scores of shape {tuple(scores.shape)}, not (n,)")
        chosen = torch.sort(scores, descending=True, stable=True).indices[:k]
        return x[chosen], scores[chosen]


def dense_gcn(adjacency: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 with D = 1 + weighted in-degree, (N, N), written out."""
    scale = (1.0 + adjacency.sum(dim=1)).pow(-0.5)
    return scale[:, None] * (adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)) * scale[None, :]


def _row_mean(weights: Tensor) -> Tensor:
    total = weights.sum(dim=1, keepdim=True)
    return torch.where(total != 0, weights / torch.where(total != 0, total, 1.0), 0.0)


def _attention(adjacency: Tensor, x: Tensor, from_score: Tensor, to_score: Tensor) -> Tensor:
    heard = (adjacency != 0) | torch.eye(len(adjacency), dtype=torch.bool)
    scores = torch.nn.functional.leaky_relu(to_score[:, None] + from_score[None], 0.2)  # (N to, N from, heads)
    shares = torch.softmax(scores.masked_fill(~heard[..., None], -torch.inf), dim=1)
    return torch.einsum("vuh,uhd->vhd", shares, x.unflatten(1, (from_score.shape[1], -1))).flatten(1)
