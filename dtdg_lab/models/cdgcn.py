"""CD-GCN: a graph convolution beside what it was fed, then an LSTM that every vertex runs through time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import DynamicModel, Space, vertices_last
from dtdg_lab.models.state import State
from dtdg_lab.models.vertex_lstm import VertexLSTM


class CDGCN(DynamicModel):
    """Concatenated dynamic GCN, (n, F) -> (n, H) a snapshot.

    With Y0 = Ã x: Y = ReLU([Y0 ; Y0 W]), of width F + H; h = LSTM(Y), vertex by vertex.

    References: ESDG section 5.1 (and its two layers); Manessi, Rozza, Manzo 2020, "Dynamic graph convolutional
    networks" (Concatenate Dynamic-GCN).

    Differs from the paper: as ESDG does, the skip connection carries Ã x, where Manessi et al. carry x itself. ESDG
    redistributes Y; here what lies between the spatial and the temporal part is Y0, which is narrower.
    """

    memory = "per_vertex"

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, seed: int = 0) -> None:
        super().__init__(features, hidden, layers, outputs=outputs, seed=seed)
        widths = [self.width(layer) for layer in range(layers)]
        self.convolve = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.lstm = nn.ModuleList(VertexLSTM(width + hidden, hidden) for width in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """Zero hidden state and cell, each (rows, H) a layer."""
        return State(tuple((self.zeros(rows, self.hidden),) * 2 for _ in range(self.layers)))

    async def spatial(self, layer: int, space: Space, x: Tensor, state: State) -> Tensor:
        """Y0 = Ã x: (n, width) -> (n, width)."""
        return await space.pull(x, "gcn")

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Y and the LSTM of each vertex: (S, n, width) -> (S, n, H)."""
        convolved = vertices_last(x, self.convolve[layer])
        y = torch.relu(torch.cat([x.transpose(1, 2), convolved.transpose(1, 2)], dim=1)).transpose(1, 2)
        hs, memory = self.lstm[layer](y, state.layers[layer])
        return hs, state.with_layer(layer, memory)
