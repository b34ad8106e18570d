"""GAT-LSTM: graph attention, then an LSTM that every vertex runs through time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.models.base import DynamicModel, Space
from dtdg_lab.models.state import State
from dtdg_lab.models.vertex_lstm import VertexLSTM


class GATLSTM(DynamicModel):
    """Graph attention followed by an LSTM, (n, F) -> (n, H) a snapshot.

    With z = x W, ``heads`` slices of it of width H / heads, and for each head e[v, u] = LeakyReLU(a . [z_v ; z_u]):
    y_v = ELU(sum over u of softmax_u(e[v, u]) z_u), u over the in-neighbours of v and v itself, heads side by side;
    h = LSTM(y), vertex by vertex.

    References: Velickovic et al. 2018, "Graph attention networks", equations 1 to 5, with the slope 0.2 of section 2.1
    and ELU; paired with an LSTM as in DyGNeX section 5.1 (GAT-LSTM, there after Wu et al. 2018).

    Differs from the paper: no dropout. Edge weights have no part in attention.
    """

    memory = "per_vertex"

    def __init__(
        self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, heads: int = 2, seed: int = 0
    ) -> None:
        super().__init__(features, hidden, layers, outputs=outputs, seed=seed)
        if heads < 1 or hidden % heads:
            raise ConfigError(f"hidden={hidden} cannot be shared by heads={heads}: choose heads that divide hidden.")
        self.heads = heads
        widths = [self.width(layer) for layer in range(layers)]
        self.project = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.from_score = nn.ParameterList(nn.Parameter(torch.empty(heads, hidden // heads)) for _ in widths)
        self.to_score = nn.ParameterList(nn.Parameter(torch.empty(heads, hidden // heads)) for _ in widths)
        self.lstm = nn.ModuleList(VertexLSTM(hidden, hidden) for _ in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """Zero hidden state and cell, each (rows, H) a layer."""
        return State(tuple((self.zeros(rows, self.hidden),) * 2 for _ in range(self.layers)))

    async def spatial(self, layer: int, space: Space, x: Tensor, state: State) -> Tensor:
        """Attention over in-neighbours: (n, width) -> (n, H)."""
        z = x @ self.project[layer]
        by_head = z.unflatten(1, (self.heads, -1))
        scores = ((by_head * self.from_score[layer]).sum(2), (by_head * self.to_score[layer]).sum(2))
        return await space.pull(z, "attention", scores)

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """ELU and the LSTM of each vertex: (S, n, H) -> (S, n, H)."""
        hs, memory = self.lstm[layer](nn.functional.elu(x), state.layers[layer])
        return hs, state.with_layer(layer, memory)
