"""T-GCN: a graph convolution feeds the gates of a GRU that every node runs through time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.kernels.recurrence import carried, gru_sequence
from dtdg_lab.models.base import GlorotModel, State, side_by_side
from dtdg_lab.models.graph_view import GraphView


class TGCN(GlorotModel):
    """Temporal graph convolutional network, (n, F) -> (n, H) a snapshot.

    With c = GC(A, X_t): u = sigma(W_u [c_u ; h] + b_u), r = sigma(W_r [c_r ; h] + b_r),
    n = tanh(W_n [c_n ; r * h] + b_n), h' = u * h + (1 - u) * n. The three convolutions share one product Ã X.

    References: Zhao et al. 2019, "T-GCN", equations 2 to 6 (section III-C).

    Differs from the paper: ``gc_layers=1`` (default) convolves once per gate with its own weights, as PyG-Temporal,
    DynaHB and FlareDTDG do; ``gc_layers=2`` is the paper's f(A, X) = sigma(Ã ReLU(Ã X W_0) W_1), shared by the gates.
    """

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, gc_layers: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        if gc_layers not in (1, 2):
            raise ConfigError(f"gc_layers={gc_layers}: choose 1 (PyG-Temporal's cell) or 2 (the paper's).")
        self.gc_layers = gc_layers
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

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Pull rows for the graph convolution: (n, width) -> (n, width), or (n, H) with two layers."""
        pulled = graph.gcn(x)
        if self.gc_layers == 1:
            return pulled
        return graph.gcn(torch.relu(self.first[layer](pulled)))

    def temporal_sequence(
        self, layer: int, x: Tensor, state: State, heights: Sequence[int] = ()
    ) -> tuple[Tensor, State]:
        """Finish the convolution and run the GRU of each node: (S, n, C) -> (S, n, H), or packed."""
        (h,) = state.layers[layer]
        if self.gc_layers == 2:
            x = torch.sigmoid(self.second[layer](x))
        weights, bias = self._fused(layer)
        hs = gru_sequence(x, h, self.state_gates[layer], feed=weights, bias=bias, heights=heights)
        return hs, state.with_layer(layer, (carried(hs, heights),))

    def states_after(self, layer: int, x: Tensor, h: Tensor, state: State) -> tuple[Tensor, ...]:
        """Return the output, which is the hidden state."""
        return (h.detach(),)

    def _fused(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return weights (C, 3H) and bias (3H,) from pulled features to the gates' inputs.

        With one graph convolution, two linear maps follow each other, c_g = x V_g + a_g and c_g W_g + b_g; they are
        fused to the matrix V_g W_g.
        """
        gates, bias = self.input_gates[layer], self.gate_bias[layer]
        if self.gc_layers == 2:
            return side_by_side(gates), bias
        first, constant = (self.convolve[layer].get_parameter(name) for name in ("weight", "bias"))
        weights = torch.bmm(first.view(3, self.hidden, -1).transpose(1, 2), gates)
        return side_by_side(weights), torch.bmm(constant.view(3, 1, self.hidden), gates).flatten() + bias
