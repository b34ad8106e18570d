"""DCRNN: a GRU whose gates are diffusion convolutions of the input and of the neighbours' hidden states."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.models.base import GlorotModel, State, side_by_side
from dtdg_lab.models.graph_view import GraphView


class DCRNN(GlorotModel):
    """Diffusion convolutional gated recurrent unit, (n, F) -> (n, H) a snapshot.

    The diffusion convolution of Z is [Z ; O Z ; .. ; O^K Z ; I Z ; .. ; I^K Z] Theta, O = D_out^-1 A^T the mean over
    out-neighbours and I = D_in^-1 A the mean over in-neighbours (row v of A lists the edges into v). Then
    u, r = sigma(conv_g([x ; h]) + b_g), c = tanh(conv_c([x ; r * h]) + b_c), h' = u * h + (1 - u) * c.

    K walks each way reach K hops for x and h, and K more for the reset gate's inputs: 2K hops a layer in all.

    References: Li et al. 2018, "Diffusion convolutional recurrent neural network", equations 2 and 3 (section 2.2) and
    the DCGRU of section 2.3.

    Differs from the paper: equation 2 sums k = 0 .. K - 1 with a filter for k = 0 in each direction; here K counts hops
    and one filter for k = 0 stands for both, which act as their sum: 2K + 1 filters, as in the authors' code
    (``max_diffusion_step``). No encoder and decoder: one prediction a snapshot. The authors' code uses the transposes
    of these matrices, and Chebyshev polynomials of them instead of powers. So does PyG-Temporal's, which also ignores
    edge weights; it is the same function only if all degrees are equal.

    Args:
        features: F, width of the input.
        hidden: H, width of every layer's output.
        layers: number of layers.
        outputs: numbers predicted for each node.
        diffusion_steps: K, hops in each direction.
    """

    def __init__(
        self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, diffusion_steps: int = 2
    ) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        if diffusion_steps < 1:
            raise ConfigError(f"diffusion_steps={diffusion_steps} is below 1. Choose 1 or more.")
        self.steps = diffusion_steps
        terms = 2 * diffusion_steps + 1
        widths = [self.width(layer) for layer in range(layers)]
        self.input_gates = nn.ParameterList(nn.Parameter(torch.empty(3, terms * width, hidden)) for width in widths)
        self.state_gates = nn.ParameterList(nn.Parameter(torch.empty(3, terms * hidden, hidden)) for _ in widths)
        self.gate_bias = nn.ParameterList(nn.Parameter(torch.empty(3 * hidden)) for _ in widths)
        self.reset_parameters()

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Compute all diffusions: (n, width) -> (n, 2H), the update gate and the candidate before its tanh."""
        (h,) = state.layers[layer]
        gates = self.state_gates[layer]
        fed = torch.addmm(self.gate_bias[layer], self.diffuse(graph, x), side_by_side(self.input_gates[layer]))
        fed_gates, fed_candidate = fed.split([2 * self.hidden, self.hidden], dim=1)
        sigmoids = torch.sigmoid(torch.addmm(fed_gates, self.diffuse(graph, h), side_by_side(gates[:2])))
        update, reset = sigmoids.chunk(2, dim=1)
        return torch.cat([update, torch.addmm(fed_candidate, self.diffuse(graph, reset * h), gates[2])], dim=1)

    def diffuse(self, graph: GraphView, z: Tensor) -> Tensor:
        """Return rows z beside their K walks over out- and over in-neighbours: (n, C) -> (n, (2K + 1) C)."""
        terms = [z]
        for edges in ("out", "in"):
            walked = z
            for _ in range(self.steps):
                walked = graph.mean(walked, edges)
                terms.append(walked)
        return torch.cat(terms, dim=1)

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the new hidden states of each node: (S, n, 2H) -> (S, n, H)."""
        (h,) = state.layers[layer]
        states = []
        for gates in x:
            update, candidate = gates.chunk(2, dim=1)
            h = update * h + (1 - update) * torch.tanh(candidate)
            states.append(h)
        return torch.stack(states), state.with_layer(layer, (h,))
