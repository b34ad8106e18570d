"""The LSTM that WD-GCN, CD-GCN, GAT-LSTM and MPNN-LSTM run at every vertex; its weights are shared by all vertices."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dtdg_lab.kernels.recurrence import lstm_sequence
from dtdg_lab.models.base import side_by_side

Memory = tuple[Tensor, Tensor]


class VertexLSTM(nn.Module):
    """An LSTM over each vertex's own sequence of inputs; rows never mix.

    i, f, o = sigma(x W_g + h U_g + b_g), g = tanh(x W_c + h U_c + b_c), c' = f * c + i * g, h' = o * tanh(c').

    References: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000; no peepholes.

    Args:
        width: C, width of the input.
        hidden: H, width of the output. Gates lie in the order i, f, g, o.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.input_gates = nn.Parameter(torch.empty(4, width, hidden))
        self.state_gates = nn.Parameter(torch.empty(4, hidden, hidden))
        self.gate_bias = nn.Parameter(torch.empty(4 * hidden))

    def forward(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """S snapshots: x (S, n, C) and (h, c), each (n, H) -> (S, n, H) and the last (h, c)."""
        feed = side_by_side(self.input_gates)
        hs, cell = lstm_sequence(x, *memory, self.state_gates, feed=feed, bias=self.gate_bias)
        return hs, (hs[-1], cell)
