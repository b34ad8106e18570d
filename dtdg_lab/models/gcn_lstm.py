"""GNN followed by an LSTM: WD-GCN, CD-GCN, GAT-LSTM and MPNN-LSTM."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.kernels.recurrence import carried, lstm_sequence
from dtdg_lab.models.base import GlorotModel, State, side_by_side
from dtdg_lab.models.graph_view import GraphView

Memory = tuple[Tensor, Tensor]


class VertexLSTM(nn.Module):
    """An LSTM over each node's own sequence of inputs, with weights shared by all nodes; rows never mix.

    i, f, o = sigma(x W_g + h U_g + b_g), g = tanh(x W_c + h U_c + b_c), c' = f * c + i * g, h' = o * tanh(c').

    References: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000; no peepholes.

    Args:
        width: width of the input, C.
        hidden: width of the output, H. Gates are in the order i, f, g, o.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.input_gates = nn.Parameter(torch.empty(4, width, hidden))
        self.state_gates = nn.Parameter(torch.empty(4, hidden, hidden))
        self.gate_bias = nn.Parameter(torch.empty(4 * hidden))

    def forward(self, x: Tensor, memory: Memory, heights: Sequence[int] = ()) -> tuple[Tensor, Memory]:
        """Run S snapshots: x (S, n, C) and (h, c), each (n, H) -> (S, n, H) and the last (h, c); or packed."""
        feed = side_by_side(self.input_gates)
        hs, cell = lstm_sequence(x, *memory, self.state_gates, feed=feed, bias=self.gate_bias, heights=heights)
        return hs, (carried(hs, heights), cell)


class VertexLSTMModel(GlorotModel):
    """A model whose layers run a :class:`VertexLSTM`."""

    remembers = 2  # hidden state and cell


class CDGCN(VertexLSTMModel):
    """Concatenated dynamic GCN, (n, F) -> (n, H) a snapshot.

    With Y0 = Ã x: Y = ReLU([Y0 ; Y0 W]), of width F + H; h = LSTM(Y), node by node.

    References: ESDG section 5.1 (and its two layers); Manessi, Rozza, Manzo 2020, "Dynamic graph convolutional
    networks" (Concatenate Dynamic-GCN).

    Differs from the paper: as in ESDG, the skip connection carries Ã x; in Manessi et al. it carries x. ESDG
    redistributes Y; here the spatial part outputs Y0, which is narrower.
    """

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        widths = [self.width(layer) for layer in range(layers)]
        self.convolve = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.lstm = nn.ModuleList(VertexLSTM(width + hidden, hidden) for width in widths)
        self.reset_parameters()

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Return Y0 = Ã x: (n, width) -> (n, width)."""
        return graph.gcn(x)

    def temporal_sequence(
        self, layer: int, x: Tensor, state: State, heights: Sequence[int] = ()
    ) -> tuple[Tensor, State]:
        """Run Y and the LSTM of each node: (S, n, width) -> (S, n, H)."""
        y = torch.relu(torch.cat([x, x @ self.convolve[layer]], dim=2))
        hs, memory = self.lstm[layer](y, state.layers[layer], heights)
        return hs, state.with_layer(layer, memory)


class GATLSTM(VertexLSTMModel):
    """Graph attention followed by an LSTM, (n, F) -> (n, H) a snapshot.

    With z = x W, ``heads`` slices of it of width H / heads, and for each head e[v, u] = LeakyReLU(a . [z_v ; z_u]):
    y_v = ELU(sum over u of softmax_u(e[v, u]) z_u), u over the in-neighbours of v and v itself, heads side by side;
    h = LSTM(y), node by node.

    References: Velickovic et al. 2018, "Graph attention networks", equations 1 to 5, with the slope 0.2 of section 2.1
    and ELU; paired with an LSTM as in DyGNeX section 5.1 (GAT-LSTM, there after Wu et al. 2018).

    Differs from the paper: no dropout. Attention ignores edge weights.
    """

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1, heads: int = 2) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        if heads < 1 or hidden % heads:
            raise ConfigError(f"hidden={hidden} must be divisible by heads={heads}.")
        self.heads = heads
        widths = [self.width(layer) for layer in range(layers)]
        self.project = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.from_score = nn.ParameterList(nn.Parameter(torch.empty(heads, hidden // heads)) for _ in widths)
        self.to_score = nn.ParameterList(nn.Parameter(torch.empty(heads, hidden // heads)) for _ in widths)
        self.lstm = nn.ModuleList(VertexLSTM(hidden, hidden) for _ in widths)
        self.reset_parameters()

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Attend to in-neighbours: (n, width) -> (n, H)."""
        z = x @ self.project[layer]
        by_head = z.unflatten(1, (self.heads, -1))
        scores = ((by_head * self.from_score[layer]).sum(2), (by_head * self.to_score[layer]).sum(2))
        return graph.attention(z, *scores)

    def temporal_sequence(
        self, layer: int, x: Tensor, state: State, heights: Sequence[int] = ()
    ) -> tuple[Tensor, State]:
        """Run ELU and the LSTM of each node: (S, n, H) -> (S, n, H)."""
        hs, memory = self.lstm[layer](nn.functional.elu(x), state.layers[layer], heights)
        return hs, state.with_layer(layer, memory)


class MPNNLSTM(VertexLSTMModel):
    """Message passing and LSTM, (n, F) -> (n, H) a snapshot; one layer is the paper's whole network.

    H1 = ReLU(Ã x W_1), H2 = ReLU(Ã H1 W_2), y = [H1 ; H2] of width 2H; a first LSTM runs over y, a second LSTM over the
    hidden state of the first, node by node; h is the hidden state of the second.

    References: Panagopoulos, Nikolentzos, Vazirgiannis 2021, "Transfer graph neural networks for pandemic forecasting",
    MPNN+LSTM.

    Differs from the paper: no batch norm and no dropout after the convolutions, since losses must not depend on how a
    sequence is cut. The readout is one linear map of the second LSTM's state; the authors' code has two layers over
    both LSTMs' states and the inputs. PyG-Temporal's version has the norm, the dropout and a bias in each convolution.
    """

    remembers = 4  # hidden states and cells of both LSTMs: h1, c1, h2, c2

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        widths = [self.width(layer) for layer in range(layers)]
        self.first = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.second = nn.ParameterList(nn.Parameter(torch.empty(hidden, hidden)) for _ in widths)
        self.lower = nn.ModuleList(VertexLSTM(2 * hidden, hidden) for _ in widths)
        self.upper = nn.ModuleList(VertexLSTM(hidden, hidden) for _ in widths)
        self.reset_parameters()

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Return [H1 ; Ã H1]: (n, width) -> (n, 2H)."""
        first = (graph.gcn(x) @ self.first[layer]).relu_()
        return torch.cat([first, graph.gcn(first)], dim=1)

    def temporal_sequence(
        self, layer: int, x: Tensor, state: State, heights: Sequence[int] = ()
    ) -> tuple[Tensor, State]:
        """Finish the second convolution and run both LSTMs of each node: (S, n, 2H) -> (S, n, H)."""
        first, pulled = x.split(self.hidden, dim=-1)
        y = torch.cat([first, torch.relu(pulled @ self.second[layer])], dim=2)
        h1, c1, h2, c2 = state.layers[layer]
        hs, lower = self.lower[layer](y, (h1, c1), heights)
        hs, upper = self.upper[layer](hs, (h2, c2), heights)
        return hs, state.with_layer(layer, (*lower, *upper))


class WDGCN(VertexLSTMModel):
    """Waterfall dynamic GCN, (n, F) -> (n, H) a snapshot: h = LSTM(ReLU(Ã x W)), node by node.

    References: Manessi, Rozza, Manzo 2020, "Dynamic graph convolutional networks" (Waterfall Dynamic-GCN);
    DyGNeX section 5.1 uses two such layers.

    Differs from the paper: the readout is one linear map of h at each snapshot, and layers may be stacked.
    """

    def __init__(self, features: int, hidden: int, layers: int = 1, *, outputs: int = 1) -> None:
        super().__init__(features, hidden, layers, outputs=outputs)
        widths = [self.width(layer) for layer in range(layers)]
        self.convolve = nn.ParameterList(nn.Parameter(torch.empty(width, hidden)) for width in widths)
        self.lstm = nn.ModuleList(VertexLSTM(hidden, hidden) for _ in widths)
        self.reset_parameters()

    def spatial(self, layer: int, graph: GraphView, x: Tensor, state: State) -> Tensor:
        """Return Ã x: (n, width) -> (n, width)."""
        return graph.gcn(x)

    def temporal_sequence(
        self, layer: int, x: Tensor, state: State, heights: Sequence[int] = ()
    ) -> tuple[Tensor, State]:
        """Finish the convolution and run the LSTM of each node: (S, n, width) -> (S, n, H)."""
        hs, memory = self.lstm[layer](torch.relu(x @ self.convolve[layer]), state.layers[layer], heights)
        return hs, state.with_layer(layer, memory)
