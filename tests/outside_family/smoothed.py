"""A model outside the package: a graph convolution whose outputs are smoothed over time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import State, StepModel
from dtdg_lab.models.graph_view import GraphView


class SmoothedGCN(StepModel):
    """With Y_t = ReLU(Ã_t x W): h_t = a * h_{t-1} + (1 - a) * Y_t, a = sigma(rate) for each column of h; h_0 = 0."""

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        self.convolve = nn.ModuleList(nn.Linear(self.width(i), hidden, bias=False) for i in range(layers))
        self.rate = nn.ParameterList(nn.Parameter(torch.zeros(hidden)) for _ in range(layers))

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Return the convolved features."""
        return graph.gcn(x)

    def step(self, layer: int, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Smooth the activations of each node."""
        share = torch.sigmoid(self.rate[layer])
        h = share * h + (1 - share) * torch.relu(self.convolve[layer](x))
        return h, h
