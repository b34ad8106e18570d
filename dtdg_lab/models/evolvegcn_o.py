"""EvolveGCN-O: the convolution's weights are the output of an LSTM that runs through time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import DynamicModel, Space, apply_weights
from dtdg_lab.models.state import State


class EvolveGCNO(DynamicModel):
    """Evolving graph convolutional network, version O, (n, F) -> (n, H) a snapshot.

    Per layer, with W_t (width, H) and cell C_t: i, f, o = sigma(V_g W_{t-1} + U_g W_{t-1} + B_g),
    g = tanh(V_c W_{t-1} + U_c W_{t-1} + B_c), C_t = f * C_{t-1} + i * g, W_t = o * tanh(C_t); then h = ReLU(Ã_t x W_t).
    W_0 is learned, C_0 is zero. V acts on the LSTM's input and U on its last output, which are one and the same here;
    both are parameters, as in the paper: 4 (2 width^2 + width H) + width H numbers a layer.

    References: Pareja et al. 2020, "EvolveGCN", section 3.2 (weight evolution, -O) with the matrix LSTM of section 3.5.

    Differs from the paper: nothing known. The authors' code evolves W by the GRU of -H, with W as its input too;
    PyG-Temporal's does so over the rows of W, with biases that are vectors, and applies no activation.
    """

    memory = "weights"

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, seed: int = 0) -> None:
        super().__init__(features, hidden, layers, outputs=outputs, seed=seed)
        widths = [self.width(layer) for layer in range(layers)]
        self.first_weights = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.state_gates = nn.ParameterList(nn.Parameter(torch.empty(4, width, width)) for width in widths)
        self.gate_bias = nn.ParameterList(nn.Parameter(torch.empty(4 * width * hidden)) for width in widths)
        self.input_gates = nn.ParameterList(nn.Parameter(torch.empty(4, width, width)) for width in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """The learned first weights (width, H) and a zero cell, whatever the number of rows."""
        return State(tuple((first, torch.zeros_like(first)) for first in self.first_weights), per_vertex=False)

    async def evolve(self, layer: int, space: Space, x: Tensor, state: State) -> State:
        """W_{t-1}, C_{t-1} -> W_t, C_t, each (width, H); the snapshot itself has no part in it."""
        weights, cell = state.layers[layer]
        bias = self.gate_bias[layer].view(4, *weights.shape)
        pre = torch.matmul(self.input_gates[layer] + self.state_gates[layer], weights) + bias
        take, forget, give = torch.sigmoid(pre[:3])
        cell = forget * cell + take * torch.tanh(pre[3])
        return state.with_layer(layer, (give * torch.tanh(cell), cell))

    async def spatial(self, layer: int, space: Space, x: Tensor, state: State) -> Tensor:
        """ReLU(Ã x W_t): (n, width) -> (n, H)."""
        weights = state.layers[layer][0]
        return apply_weights(await space.pull(x, "gcn"), weights).relu_()
