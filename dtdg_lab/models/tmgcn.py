"""TM-GCN: a graph convolution, then the mean of each node's latest activations, without parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.models.base import GlorotModel, State
from dtdg_lab.models.graph_view import GraphView


class TMGCN(GlorotModel):
    """GCN and M-transform, (n, F) -> (n, H) a snapshot.

    With Y_t = ReLU(Ã_t x W): h_t = (Y_{t-w+1} + ... + Y_t) / w, or the mean over all snapshots so far if they are fewer
    than w, that is M[t, k] = 1 / min(w, t) for max(1, t - w + 1) <= k <= t.

    References: ESDG section 5.3; Malik et al. 2021, "Dynamic graph convolutional networks using the tensor M-product".

    Differs from the paper: as in ESDG, the transform is applied once, after the activation. Malik et al. define the
    layer as sigma(A * X * W) by M-products with an invertible M, which transform graph and features too (here:
    ``smoothing_window`` of the data), and transform back.

    Args:
        features: F, width of the input.
        hidden: H, width of every layer's output.
        layers: number of layers.
        outputs: numbers predicted for each node.
        transform_window: number of averaged snapshots, w.
    """

    def __init__(
        self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, transform_window: int = 5
    ) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        if transform_window < 1:
            raise ConfigError(f"transform_window={transform_window} is below 1. Choose 1 or more.")
        self.window = transform_window
        widths = [self.width(layer) for layer in range(layers)]
        self.convolve = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.reset_parameters()

    def initial_state(self, rows: int) -> State:
        """Return zeros for each layer's last w - 1 activations, (rows, w - 1, H), and snapshot count, (rows, 1)."""
        past = self.zeros(rows, self.window - 1, self.hidden)
        return State(tuple((past, self.zeros(rows, 1)) for _ in range(self.layers)))

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Return Ã x: (n, width) -> (n, width)."""
        return graph.gcn(x)

    def temporal_sequence(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Finish the convolution and average over time: (S, n, width) -> (S, n, H)."""
        past, steps_seen = state.layers[layer]
        sequence = torch.cat([past.transpose(0, 1), torch.relu(x @ self.convolve[layer])])
        steps = torch.arange(1, len(x) + 1, dtype=x.dtype, device=x.device)
        count = (steps_seen + steps.view(-1, 1, 1)).clamp(max=self.window)
        means = sequence.unfold(0, self.window, 1).sum(-1) / count
        window = sequence[len(x) :].transpose(0, 1).contiguous()  # a copy, which frees the sequence
        return means, state.with_layer(layer, (window, steps_seen + len(x)))
