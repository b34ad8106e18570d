"""EvolveGCN-O and EvolveGCN-H: GCN weights that a recurrent unit evolves over snapshots."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.models.base import GlorotModel, State, apply_weights
from dtdg_lab.models.graph_view import GraphView


class EvolveGCNH(GlorotModel):
    """Evolving graph convolutional network, version H, (n, F) -> (n, H) a snapshot.

    Per layer, with a scorer p (width,) and W_t (width, H): y = x p / |p|; Z_t (width, H) holds, as columns, the rows
    x_v tanh(y_v) of the H nodes with the largest y, largest first; then W_t = GRU(Z_t, W_{t-1}), column by column:
    u, r = sigma(V_g Z_t + U_g W_{t-1} + B_g), c = tanh(V_c Z_t + U_c (r * W_{t-1}) + B_c),
    W_t = (1 - u) * W_{t-1} + u * c; then h = ReLU(Ã_t x W_t). W_0 is learned.

    References: Pareja et al. 2020, "EvolveGCN", section 3.2 (weight evolution, -H) with the summary and the matrix GRU
    of section 3.4.

    Differs from the paper: if a snapshot has fewer than H nodes, the last chosen node is repeated, as in the authors'
    code (the paper does not say); ties go to the lower node. PyG-Temporal's version evolves the rows of W, has vectors
    as biases, multiplies r with U_c W instead of W, and applies no activation.
    """

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        widths = [self.width(layer) for layer in range(layers)]
        self.first_weights = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.scorer = nn.ParameterList(nn.Parameter(torch.empty(width, 1)) for width in widths)
        self.input_gates = nn.ParameterList(nn.Parameter(torch.empty(3, width, width)) for width in widths)
        self.state_gates = nn.ParameterList(nn.Parameter(torch.empty(3, width, width)) for width in widths)
        self.gate_bias = nn.ParameterList(nn.Parameter(torch.empty(3 * width * hidden)) for width in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """Return the learned first weights (width, H), for any number of rows."""
        return State(tuple((first,) for first in self.first_weights), per_vertex=False)

    def evolve(self, layer: int, graph: GraphView, x: Tensor, state: State) -> State:
        """Step the GRU: x (n, width), W_{t-1} -> W_t, (width, H)."""
        return self.advance(layer, self.summary(layer, graph, x), state)

    def advance(self, layer: int, summary: Tensor, state: State) -> State:
        """Step the GRU: Z_t (width, H), W_{t-1} -> W_t, (width, H)."""
        (weights,) = state.layers[layer]
        bias = self.gate_bias[layer].view(3, *weights.shape)
        fed = torch.matmul(self.input_gates[layer], summary) + bias
        u_update, u_reset, u_candidate = self.state_gates[layer]
        update = torch.sigmoid(fed[0] + u_update @ weights)
        reset = torch.sigmoid(fed[1] + u_reset @ weights)
        candidate = torch.tanh(fed[2] + u_candidate @ (reset * weights))
        return state.with_layer(layer, ((1 - update) * weights + update * candidate,))

    def summary(self, layer: int, graph: GraphView, x: Tensor) -> Tensor:
        """Return Z_t: the H best nodes' features times tanh of their scores, as columns, (width, H)."""
        scorer = self.scorer[layer]
        rows, scores = graph.top(x, (x @ (scorer / scorer.norm())).squeeze(1), self.hidden)
        missing = self.hidden - len(rows)
        columns = (rows * torch.tanh(scores).unsqueeze(1)).T
        return torch.cat([columns, columns[:, -1:].expand(-1, missing)], dim=1) if missing else columns

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Return ReLU(Ã x W_t): (n, width) -> (n, H)."""
        weights = state.layers[layer][0]
        return apply_weights(graph.gcn(x), weights).relu_()


class EvolveGCNO(GlorotModel):
    """Evolving graph convolutional network, version O, (n, F) -> (n, H) a snapshot.

    Per layer, with W_t (width, H) and cell C_t: i, f, o = sigma(V_g W_{t-1} + U_g W_{t-1} + B_g),
    g = tanh(V_c W_{t-1} + U_c W_{t-1} + B_c), C_t = f * C_{t-1} + i * g, W_t = o * tanh(C_t); then h = ReLU(Ã_t x W_t).
    W_0 is learned, C_0 is zero. V acts on the LSTM's input and U on its last output, which are the same here; both are
    parameters, as in the paper: 4 (2 width^2 + width H) + width H numbers a layer.

    References: Pareja et al. 2020, "EvolveGCN", section 3.2 (weight evolution, -O) with the matrix LSTM of section 3.5.

    Differs from the paper: not known to. The authors' code evolves W by the GRU of -H, with W as its input too.
    PyG-Temporal's version does so over the rows of W, has vectors as biases, and applies no activation.
    """

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        widths = [self.width(layer) for layer in range(layers)]
        self.first_weights = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.state_gates = nn.ParameterList(nn.Parameter(torch.empty(4, width, width)) for width in widths)
        self.gate_bias = nn.ParameterList(nn.Parameter(torch.empty(4 * width * hidden)) for width in widths)
        self.input_gates = nn.ParameterList(nn.Parameter(torch.empty(4, width, width)) for width in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """Return the learned first weights (width, H) and a zero cell, for any number of rows."""
        return State(tuple((first, torch.zeros_like(first)) for first in self.first_weights), per_vertex=False)

    def evolve(self, layer: int, graph: GraphView, x: Tensor, state: State) -> State:
        """Step the LSTM: W_{t-1}, C_{t-1} -> W_t, C_t, each (width, H); it does not read the snapshot."""
        weights, cell = state.layers[layer]
        bias = self.gate_bias[layer].view(4, *weights.shape)
        pre = torch.matmul(self.input_gates[layer] + self.state_gates[layer], weights) + bias
        input_gate, forget_gate, output_gate = torch.sigmoid(pre[:3])
        cell = forget_gate * cell + input_gate * torch.tanh(pre[3])
        return state.with_layer(layer, (output_gate * torch.tanh(cell), cell))

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Return ReLU(Ã x W_t): (n, width) -> (n, H)."""
        weights = state.layers[layer][0]
        return apply_weights(graph.gcn(x), weights).relu_()
