"""WD-GCN: a graph convolution, then an LSTM that every vertex runs through time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import DynamicModel, Space, vertices_last
from dtdg_lab.models.state import State
from dtdg_lab.models.vertex_lstm import VertexLSTM


class WDGCN(DynamicModel):
    """Waterfall dynamic GCN, (n, F) -> (n, H) a snapshot: h = LSTM(ReLU(Ã x W)), vertex by vertex.

    References: Manessi, Rozza, Manzo 2020, "Dynamic graph convolutional networks" (Waterfall Dynamic-GCN);
    DyGNeX section 5.1 uses two such layers.

    Differs from the paper: the readout is one linear map of h at each snapshot, and layers may be stacked.
    """

    memory = "per_vertex"

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, seed: int = 0) -> None:
        super().__init__(features, hidden, layers, outputs=outputs, seed=seed)
        widths = [self.width(layer) for layer in range(layers)]
        self.convolve = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.lstm = nn.ModuleList(VertexLSTM(hidden, hidden) for _ in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """Zero hidden state and cell, each (rows, H) a layer."""
        return State(tuple((self.zeros(rows, self.hidden),) * 2 for _ in range(self.layers)))

    async def spatial(self, layer: int, space: Space, x: Tensor, state: State) -> Tensor:
        """Ã x: (n, width) -> (n, width)."""
        return await space.pull(x, "gcn")

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Finish the convolution and run the LSTM of each vertex: (S, n, width) -> (S, n, H)."""
        hs, memory = self.lstm[layer](torch.relu(vertices_last(x, self.convolve[layer])), state.layers[layer])
        return hs, state.with_layer(layer, memory)
