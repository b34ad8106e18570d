"""T-GCN: a graph convolution feeds the gates of a GRU that every vertex runs through time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import DynamicModel, Space
from dtdg_lab.models.state import State


class TGCN(DynamicModel):
    """Temporal graph convolutional network, (n, F) -> (n, H) a snapshot.

    With c = GC(A, X_t): u = sigma(W_u [c_u ; h] + b_u), r = sigma(W_r [c_r ; h] + b_r),
    n = tanh(W_n [c_n ; r * h] + b_n), h' = u * h + (1 - u) * n. The three convolutions share one product Ã X.

    References: Zhao et al. 2019, "T-GCN", equations 2 to 6 (section III-C).

    Differs from the paper: ``gc_layers=1`` (default) convolves once per gate with its own weights, as PyG-Temporal,
    DynaHB and FlareDTDG do; ``gc_layers=2`` is the paper's f(A, X) = sigma(Ã ReLU(Ã X W_0) W_1), shared by the gates.
    """

    memory = "per_vertex"

    def __init__(self, features: int, hidden: int, layers: int = 1, *, gc_layers: int = 1, seed: int = 0) -> None:
        super().__init__(features, hidden, layers, seed=seed)
        self.gc_layers = self.hops_per_layer = gc_layers
        widths = [self.width(layer) for layer in range(layers)]
        if gc_layers == 1:
            self.convolve = nn.ModuleList(nn.Linear(width, 3 * hidden) for width in widths)
        else:
            self.first = nn.ModuleList(nn.Linear(width, hidden) for width in widths)
            self.second = nn.ModuleList(nn.Linear(hidden, hidden) for _ in widths)
        self.input_gates = nn.ParameterList(nn.Parameter(torch.empty(3, hidden, hidden)) for _ in widths)
        self.state_gates = nn.ParameterList(nn.Parameter(torch.empty(3, hidden, hidden)) for _ in widths)
        self.gate_bias = nn.ParameterList(nn.Parameter(torch.empty(3 * hidden)) for _ in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """Zero hidden state, (rows, H) a layer."""
        like = self.readout_layer.weight
        return State(tuple((like.new_zeros(rows, self.hidden),) for _ in range(self.layers)))

    async def spatial(self, layer: int, space: Space, x: Tensor, state: State) -> Tensor:
        """Graph convolution: (n, width) -> (n, 3H) with one layer, (n, H) with two."""
        pulled = await space.pull(x, "gcn")
        if self.gc_layers == 1:
            return self.convolve[layer](pulled)
        inner = torch.relu(self.first[layer](pulled))
        return torch.sigmoid(self.second[layer](await space.pull(inner, "gcn")))

    def temporal(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The GRU of each vertex: convolved features and h (n, H) -> new h (n, H)."""
        (h,) = state.layers[layer]
        width = self.hidden
        gates = self.input_gates[layer]
        c = x.view(-1, 3, width) if self.gc_layers == 1 else x.unsqueeze(1).expand(-1, 3, width)
        # one product per gate: c_g W_g; as a batched product over the three gates
        fed = torch.einsum("ngh,ghk->gnk", c, gates) + self.gate_bias[layer].view(3, 1, width)
        weights = self.state_gates[layer]
        update = torch.sigmoid(torch.addmm(fed[0], h, weights[0]))
        reset = torch.sigmoid(torch.addmm(fed[1], h, weights[1]))
        candidate = torch.tanh(torch.addmm(fed[2], reset * h, weights[2]))
        new = update * h + (1 - update) * candidate
        return new, state.with_layer(layer, (new,))
