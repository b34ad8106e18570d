"""A model outside the package: a graph convolution whose outputs are smoothed over time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import DynamicModel, GraphView, State


class SmoothedGCN(DynamicModel):
    """With Y_t = ReLU(Ã_t x W): h_t = a * h_{t-1} + (1 - a) * Y_t, a = sigma(rate) for each column of h; h_0 = 0."""

    memory = "per_vertex"

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, seed: int = 0) -> None:
        super().__init__(features, hidden, layers, outputs=outputs, seed=seed)
        self.convolve = nn.ParameterList(nn.Parameter(torch.empty(self.width(i), hidden)) for i in range(layers))
        self.rate = nn.ParameterList(nn.Parameter(torch.empty(hidden)) for _ in range(layers))
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """Return zeros."""
        return State(tuple((self.zeros(rows, self.hidden),) for _ in range(self.layers)))

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Return the convolved features."""
        return graph.gcn(x)

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Smooth the activations of each node."""
        (h,), share, steps = state.layers[layer], torch.sigmoid(self.rate[layer]), []
        for y in torch.relu(x @ self.convolve[layer]):
            h = share * h + (1 - share) * y
            steps.append(h)
        return torch.stack(steps), state.with_layer(layer, (h,))
