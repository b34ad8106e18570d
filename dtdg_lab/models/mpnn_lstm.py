"""MPNN-LSTM: two graph convolutions, both kept, then two stacked LSTMs that every vertex runs through time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import DynamicModel, Space, vertices_last
from dtdg_lab.models.state import State
from dtdg_lab.models.vertex_lstm import VertexLSTM


class MPNNLSTM(DynamicModel):
    """Message passing and LSTM, (n, F) -> (n, H) a snapshot; one layer is the whole of the paper's network.

    H1 = ReLU(Ã x W_1), H2 = ReLU(Ã H1 W_2), y = [H1 ; H2] of width 2H; a first LSTM runs over y, a second one over the
    hidden state of the first, vertex by vertex; h is the second one's.

    References: Panagopoulos, Nikolentzos, Vazirgiannis 2021, "Transfer graph neural networks for pandemic forecasting",
    MPNN+LSTM.

    Differs from the paper: no batch norm and no dropout after the convolutions, since losses must not depend on how a
    sequence is cut; the readout is one linear map of the second LSTM's state, where the authors' code has two layers
    over both LSTMs' states and the inputs. PyG-Temporal's has the norm, the dropout and a bias in each convolution.
    """

    memory = "per_vertex"
    hops_per_layer = 2

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, seed: int = 0) -> None:
        super().__init__(features, hidden, layers, outputs=outputs, seed=seed)
        widths = [self.width(layer) for layer in range(layers)]
        self.first = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.second = nn.ParameterList(nn.Parameter(torch.empty(hidden, hidden)) for _ in widths)
        self.lower = nn.ModuleList(VertexLSTM(2 * hidden, hidden) for _ in widths)
        self.upper = nn.ModuleList(VertexLSTM(hidden, hidden) for _ in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """Zero hidden states and cells of both LSTMs (h1, c1, h2, c2), each (rows, H) a layer."""
        return State(tuple((self.zeros(rows, self.hidden),) * 4 for _ in range(self.layers)))

    async def spatial(self, layer: int, space: Space, x: Tensor, state: State) -> Tensor:
        """H1 beside Ã H1: (n, width) -> (n, 2H)."""
        first = (await space.pull(x, "gcn") @ self.first[layer]).relu_()
        return torch.cat([first, await space.pull(first, "gcn")], dim=1)

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Finish the second convolution and run both LSTMs of each vertex: (S, n, 2H) -> (S, n, H)."""
        first, pulled = x.split(self.hidden, dim=-1)
        second = torch.relu(vertices_last(pulled, self.second[layer]))
        y = torch.cat([first.transpose(1, 2), second.transpose(1, 2)], dim=1).transpose(1, 2)
        h1, c1, h2, c2 = state.layers[layer]
        hs, lower = self.lower[layer](y, (h1, c1))
        hs, upper = self.upper[layer](hs, (h2, c2))
        return hs, state.with_layer(layer, (*lower, *upper))
