"""GraphSAGE with the mean aggregator; it has no state between snapshots."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import GlorotModel, State
from dtdg_lab.models.graph_view import GraphView


class GraphSAGE(GlorotModel):
    """GraphSAGE with the mean aggregator, (n, F) -> (n, H): h_v = ReLU([x_v ; mean of x_u over in-neighbours u] W + b).

    References: Hamilton, Ying, Leskovec 2017, "Inductive representation learning on large graphs", Algorithm 1 with the
    mean aggregator of section 3.3.

    Differs from the paper: h is not normalised to length 1 (Algorithm 1, line 7); a bias is added; edge weights weight
    the mean; a node without in-neighbours has mean 0.
    """

    remembers = 0

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        self.combine = nn.ModuleList(nn.Linear(2 * self.width(layer), hidden) for layer in range(layers))
        self.reset_parameters()

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Return [x ; mean over in-neighbours]: (n, width) -> (n, 2 width)."""
        return torch.cat([x, graph.mean(x)], dim=1)

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Compute the dense part of each node and snapshot: (S, n, 2 width) -> (S, n, H)."""
        return torch.relu(self.combine[layer](x)), state
