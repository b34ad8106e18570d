"""PyTorch Geometric Temporal's cells with copied weights: where they are the paper's function, and where not.

It is an optional package (torch-geometric-temporal 0.56.2 with torch_geometric): without it this file is skipped.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from dtdg_lab.models.base import DynamicModel, make_model
from dtdg_lab.models.dcrnn import DCRNN
from dtdg_lab.models.evolvegcn import EvolveGCNH, EvolveGCNO
from dtdg_lab.models.gcn_lstm import MPNNLSTM
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.models.tgcn import TGCN

MISSING = [name for name in ("torch_geometric", "torch_geometric_temporal") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
N, F, H, T = 10, 3, 4, 4
Edges = tuple[Tensor, Tensor]


@pytest.fixture(scope="module")
def pygt() -> Iterator[types.ModuleType]:
    """Its recurrent cells, in float64 (they make float32 constants), with a stand-in for torch_sparse.

    torch_sparse has no wheel for current torch; the cells only name its SparseTensor in annotations.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script.* is deprecated", category=DeprecationWarning)
        import torch_geometric.nn  # noqa: F401  before the stand-in, which it would take for the real one

        stand_in = types.ModuleType("torch_sparse")
        stand_in.SparseTensor = type("SparseTensor", (), {})
        sys.modules["torch_sparse"] = stand_in
        try:
            from torch_geometric_temporal.nn import recurrent
        finally:
            del sys.modules["torch_sparse"]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield recurrent
    torch.set_default_dtype(before)


def snapshots() -> list[tuple[DenseView, Tensor, Edges]]:
    """Directed and weighted, each node with at least one edge in and out (a ring); without loops.

    PyG keeps a loop that is there already as the node's own (``add_remaining_self_loops``), where A + I adds one.
    """
    draw = torch.Generator().manual_seed(3)
    found = []
    for _ in range(T):
        a = torch.rand(N, N, generator=draw, dtype=torch.float64) * (torch.rand(N, N, generator=draw) < 0.3)
        a = (a + torch.eye(N, dtype=torch.float64).roll(1, 0)) * (1 - torch.eye(N, dtype=torch.float64))
        found.append((DenseView(a), torch.randn(N, F, generator=draw, dtype=torch.float64), edges_of(a)))
    return found


def edges_of(a: Tensor) -> Edges:
    """PyG's edge_index (from, to) and weights of A, whose row v lists the edges into v."""
    to, start = a.nonzero(as_tuple=True)
    return torch.stack([start, to]), a[to, start]


def outputs(model: DynamicModel, given: list[tuple[DenseView, Tensor, Edges]]) -> Tensor:
    """Hidden features of every snapshot, (T, N, H), before the readout."""
    state, found = model.initial_state(N), []
    for space, x, _ in given:
        h, state = model.snapshot(space, x, state)
        found.append(h)
    return torch.stack(found)


def close(mine: Tensor, original: Tensor) -> None:
    torch.testing.assert_close(mine, original, rtol=1e-9, atol=1e-12)


def assert_same_and_backward(mine: Tensor, original: Tensor) -> None:
    close(mine, original)
    labels = torch.linspace(-1, 1, mine.numel(), dtype=torch.float64).view(mine.shape)
    (mine - labels).square().mean().backward()
    (original - labels).square().mean().backward()


def copy(pairs: list[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for mine, original in pairs:
            mine.copy_(original)


def walk(theirs: nn.Module, given: list[tuple[DenseView, Tensor, Edges]]) -> Tensor:
    """A cell of theirs that takes its hidden state, through all snapshots: (T, N, H)."""
    h, found = None, []
    for _, x, edges in given:
        h = theirs(x, *edges, h)
        found.append(h)
    return torch.stack(found)


def shake(module: nn.Module) -> None:
    """No bias left at zero."""
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))


def test_tgcn_is_the_same_function(pygt: types.ModuleType) -> None:
    theirs, ours = pygt.TGCN(F, H), make_model(TGCN, F, H, seed=0).double()
    shake(theirs)
    convs, linears = (theirs.conv_z, theirs.conv_r, theirs.conv_h), (theirs.linear_z, theirs.linear_r, theirs.linear_h)

    def pairs(of: str) -> list[tuple[Tensor, Tensor]]:
        value = (lambda p: p.grad) if of == "gradient" else (lambda p: p)
        found = []
        for g, (conv, linear) in enumerate(zip(convs, linears, strict=True)):
            found.append((value(ours.convolve[0].weight).view(3, H, F)[g], value(conv.lin.weight)))
            found.append((value(ours.convolve[0].bias).view(3, H)[g], value(conv.bias)))
            found.append((value(ours.input_gates[0])[g], value(linear.weight)[:, :H].T))
            found.append((value(ours.state_gates[0])[g], value(linear.weight)[:, H:].T))
            found.append((value(ours.gate_bias[0]).view(3, H)[g], value(linear.bias)))
        return found

    copy(pairs("value"))
    assert_same_and_backward(outputs(ours, snapshots()), walk(theirs, snapshots()))
    for mine, original in pairs("gradient"):
        close(mine, original)


def _mpnn_pairs(ours: MPNNLSTM, theirs: nn.Module) -> list[tuple[Tensor, Tensor]]:
    found = [(ours.first[0], theirs._convolution_1.lin.weight.T), (ours.second[0], theirs._convolution_2.lin.weight.T)]
    for mine, original in ((ours.lower[0], theirs._recurrent_1), (ours.upper[0], theirs._recurrent_2)):
        found.append((mine.input_gates, original.weight_ih_l0.view(4, H, -1).transpose(1, 2)))
        found.append((mine.state_gates, original.weight_hh_l0.view(4, H, H).transpose(1, 2)))
        found.append((mine.gate_bias, original.bias_ih_l0 + original.bias_hh_l0))
    return found


def _mpnn_of(pygt: types.ModuleType) -> tuple[nn.Module, Tensor, Edges]:
    """Their model, and T snapshots as it takes them: all rows at once, edges block-diagonal."""
    theirs = pygt.MPNNLSTM(F, H, N, T, 0.0)
    shake(theirs)
    given = snapshots()
    index = torch.cat([edges[0] + t * N for t, (_, _, edges) in enumerate(given)], dim=1)
    return theirs, torch.cat([x for _, x, _ in given]), (index, torch.cat([edges[1] for _, _, edges in given]))


def test_mpnn_lstm_is_the_same_function_but_for_its_norm_and_biases(pygt: types.ModuleType) -> None:
    """Theirs adds a bias to each convolution and batch norm (and dropout) after it, and returns both LSTMs' last hidden
    states beside the raw inputs; ours is the second LSTM's. With the additions set to nothing the rest is equal.
    """
    theirs, x, edges = _mpnn_of(pygt)
    ours = make_model(MPNNLSTM, F, H, seed=0).double()
    with torch.no_grad():
        theirs._convolution_1.bias.zero_()
        theirs._convolution_2.bias.zero_()
    theirs._batch_norm_1 = theirs._batch_norm_2 = nn.Identity()
    copy(_mpnn_pairs(ours, theirs))
    assert_same_and_backward(outputs(ours, snapshots())[-1], theirs(x, *edges)[:, H : 2 * H])
    for mine, conv in ((ours.first[0], theirs._convolution_1), (ours.second[0], theirs._convolution_2)):
        close(mine.grad, conv.lin.weight.grad.T)
    for mine, rnn in ((ours.lower[0], theirs._recurrent_1), (ours.upper[0], theirs._recurrent_2)):
        close(mine.gate_bias.grad, rnn.bias_ih_l0.grad)
        close(mine.state_gates.grad, rnn.weight_hh_l0.grad.view(4, H, H).transpose(1, 2))


def test_mpnn_lstm_as_released_mixes_vertices_and_snapshots(pygt: types.ModuleType) -> None:
    """Batch norm while training: a snapshot's features change the output of nodes that do not hear of it."""
    theirs, x, edges = _mpnn_of(pygt)
    alone = (edges[0][:, :0], edges[1][:0])  # no edge at all
    other = x.clone()
    other[0] += 1
    changed = (theirs(x, *alone) - theirs(other, *alone)).abs().amax(dim=1)
    assert (changed[1:] > 1e-6).all()


def _dcrnn_copied(theirs: nn.Module, steps: int) -> DCRNN:
    """Ours with theirs' weights; its third term is a Chebyshev one, 2 P (P x) - x, where the paper's is P (P x)."""
    ours = make_model(DCRNN, F, H, diffusion_steps=steps, seed=0).double()
    with torch.no_grad():
        for g, conv in enumerate((theirs.conv_x_z, theirs.conv_x_r, theirs.conv_x_h)):
            w = conv.weight  # (2, K, F + H, H): out- and in-walks; K counts k = 0
            terms = [w[0, 0] + w[1, 0] - (w[0, 2] + w[1, 2] if steps == 2 else 0)]
            for direction in w:
                terms += [direction[1]] + ([2 * direction[2]] if steps == 2 else [])
            both = torch.stack(terms)
            ours.input_gates[0][g] = both[:, :F].flatten(0, 1)
            ours.state_gates[0][g] = both[:, F:].flatten(0, 1)
            ours.gate_bias[0].view(3, H)[g] = conv.bias
    return ours


@pytest.mark.parametrize("steps", [1, 2])
def test_dcrnn_is_the_same_function_on_regular_graphs(pygt: types.ModuleType, steps: int) -> None:
    """Undirected, unweighted, every node of the same degree: there all its normalisations are 1 / degree."""
    theirs = pygt.DCRNN(F, H, steps + 1)
    shake(theirs)
    given = []
    for t, (_, x, _) in enumerate(snapshots()):
        ring = torch.eye(N, dtype=torch.float64).roll(1 + t % 3, 0)
        given.append((DenseView(ring + ring.T), x, edges_of(ring + ring.T)))
    ours = _dcrnn_copied(theirs, steps)
    assert_same_and_backward(outputs(ours, given), walk(theirs, given))
    for g, conv in enumerate((theirs.conv_x_z, theirs.conv_x_r, theirs.conv_x_h)):
        close(ours.gate_bias[0].grad.view(3, H)[g], conv.bias.grad)
        for hop in (0, 1):  # of the out-walk
            close(ours.input_gates[0].grad[g].view(-1, F, H)[hop], conv.weight.grad[0, hop, :F])
            close(ours.state_gates[0].grad[g].view(-1, H, H)[hop], conv.weight.grad[0, hop, F:])


def test_dcrnn_is_another_function_elsewhere(pygt: types.ModuleType) -> None:
    """Its out-walk sends x_u / d_out(u) along edges, where the paper's (D_O^-1 W) x takes means over out-neighbours;
    edge weights count only in degrees; the in-walk's norms are read in the order of the edges before they were turned.
    """
    theirs = pygt.DCRNN(F, H, 2)
    shake(theirs)
    given = snapshots()
    assert (outputs(_dcrnn_copied(theirs, 1), given) - walk(theirs, given)).abs().max() > 1e-2
    space, x, (index, weight) = given[0]
    conv = theirs.conv_x_z
    alone = torch.cat([x, torch.zeros(N, H)], dim=1)
    with torch.no_grad():
        conv.weight[0, 0].zero_(), conv.weight[1].zero_(), conv.bias.zero_()
    sent = (space.adjacency != 0).double() @ (alone / space.adjacency.sum(0)[:, None])
    close(conv(alone, index, weight), sent @ conv.weight[0, 1])
    means = space.adjacency.T / space.adjacency.sum(0)[:, None] @ alone
    assert (sent - means).abs().max() > 0.1


def _square(model: type[DynamicModel]) -> DynamicModel:
    ours = make_model(model, H, H, seed=0).double()
    shake(ours)
    return ours


def test_evolvegcn_h_evolves_the_same_weights_where_the_reset_gate_is_out_of_play(pygt: types.ModuleType) -> None:
    """Theirs is torch's GRU over rows of W, square only; seen from the paper:

    - it evolves W^T (a chosen node's features update a row of W, in the paper a column) and convolves with that;
    - the gates' bias is a vector where the paper's B is a matrix;
    - reset multiplies U h, in the paper h: so this test sets the candidate's U to zero, which takes reset out;
    - its update gate is 1 minus the paper's; there is no ReLU.
    """
    theirs, ours = pygt.EvolveGCNH(N, H), _square(EvolveGCNH)
    shake(theirs)
    gru = theirs.recurrent_layer
    with torch.no_grad():
        gru.weight_hh_l0[2 * H :] = 0
        gru.bias_hh_l0[2 * H :] = 0
        signs = torch.tensor([-1.0, 1.0, 1.0]).view(3, 1, 1)  # ours z, r, c; torch's r, z, n
        for mine, original in ((ours.input_gates[0], gru.weight_ih_l0), (ours.state_gates[0], gru.weight_hh_l0)):
            mine.copy_(original.view(3, H, H)[[1, 0, 2]] * signs)
        vectors = (gru.bias_ih_l0 + gru.bias_hh_l0).view(3, H, 1)[[1, 0, 2]] * signs
        ours.gate_bias[0].copy_(vectors.expand(3, H, H).flatten())
        ours.scorer[0].copy_(theirs.pooling_layer.select.weight.T)
        ours.first_weights[0].copy_(theirs.initial_weight[0].T)
    state = ours.initial_state(N)
    for space, x, edges in snapshots():
        x = torch.cat([x, x[:, :1]], dim=1)
        convolved = theirs(x, *edges)
        state = ours.evolve(0, space, x, state)
        (weights,) = state.layers[0]
        close(weights.T, theirs.weight[0])
        pulled = space.pull(x, "gcn")
        close(pulled @ weights.T, convolved)
    weights.square().sum().backward()
    theirs.weight.square().sum().backward()
    close(ours.first_weights[0].grad.T, theirs.initial_weight.grad[0])
    close(ours.scorer[0].grad.T, theirs.pooling_layer.select.weight.grad)


def test_evolvegcn_o_is_another_function(pygt: types.ModuleType) -> None:
    """Theirs (after the authors' code) has a GRU, where the paper and ours have an LSTM; square only; no ReLU."""
    theirs, ours = pygt.EvolveGCNO(H), _square(EvolveGCNO)
    shake(theirs)
    gru, w = theirs.recurrent_layer, theirs.initial_weight[0]
    for space, x, edges in snapshots()[:2]:
        x = torch.cat([x, x[:, :1]], dim=1)
        (v_r, v_z, v_n), (u_r, u_z, u_n) = gru.weight_ih_l0.split(H), gru.weight_hh_l0.split(H)
        (a_r, a_z, a_n), (b_r, b_z, b_n) = gru.bias_ih_l0.split(H), gru.bias_hh_l0.split(H)
        r = torch.sigmoid(w @ v_r.T + a_r + w @ u_r.T + b_r)  # rows of W, not columns
        z = torch.sigmoid(w @ v_z.T + a_z + w @ u_z.T + b_z)
        w = (1 - z) * torch.tanh(w @ v_n.T + a_n + r * (w @ u_n.T + b_n)) + z * w
        convolved = theirs(x, *edges)
        close(theirs.weight[0], w)
        close(convolved, space.pull(x, "gcn") @ w)
    count = {name: sum(p.numel() for p in m.parameters()) for name, m in (("gru", theirs), ("lstm", ours))}
    assert count == {"gru": H * H + 3 * (2 * H * H + 2 * H), "lstm": H * H + 4 * (2 * H * H + H * H) + H + 1}
