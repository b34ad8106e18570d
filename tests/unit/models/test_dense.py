"""Every model against its paper's equations, written out in dense float64 matrices with the papers' symbols.

Nothing of the lab is used here but the parameters: a reference takes one layer's parameters, the adjacency matrices
A_t (row v: weights of the edges into v) and inputs X_t of T snapshots, and gives the layer's outputs.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.engine.views.snapshot_view import NeighbourRows, SnapshotView
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource
from dtdg_lab.kernels.spmm import stacked
from dtdg_lab.models.base import DynamicModel, make_model
from dtdg_lab.models.dcrnn import DCRNN
from dtdg_lab.models.evolvegcn import EvolveGCNH, EvolveGCNO
from dtdg_lab.models.gcn_lstm import CDGCN, GATLSTM, MPNNLSTM, WDGCN
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.models.graphsage import GraphSAGE
from dtdg_lab.models.tgcn import TGCN
from dtdg_lab.models.tmgcn import TMGCN
from dtdg_lab.testing.models import run_model, run_stacked, stack_dense

N, F, H, T, OUT = 9, 3, 4, 5, 2
Params = dict[str, Tensor]
Layer = Callable[[Params, list[Tensor], list[Tensor]], list[Tensor]]
sigma, tanh, relu, cat = torch.sigmoid, torch.tanh, torch.relu, torch.cat


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def gcn(a: Tensor) -> Tensor:
    d = torch.diag((1 + a.sum(1)) ** -0.5)
    return d @ (a + torch.eye(N, dtype=torch.float64)) @ d


def row_stochastic(a: Tensor) -> Tensor:
    return torch.diag(torch.nan_to_num(1 / a.sum(1), posinf=0.0)) @ a


def lstm(p: Params, name: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    w, u, b = p[f"{name}.input_gates"], p[f"{name}.state_gates"], p[f"{name}.gate_bias"].split(H)
    i, f, g, o = (x @ w[k] + h @ u[k] + b[k] for k in range(4))
    c = sigma(f) * c + sigma(i) * tanh(g)
    return sigma(o) * tanh(c), c


def tgcn(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """PyG-Temporal's TGCN: gates are linear maps of [conv_g(X) ; H], 2H -> H; H = Z H + (1 - Z) H~."""
    h, out = zeros(N, H), []
    w, b = cat([p["input_gates"], p["state_gates"]], 1), p["gate_bias"].split(H)
    for at, x in zip(a, xs, strict=True):
        v, s = p["convolve.weight"].split(H), p["convolve.bias"].split(H)
        c = [gcn(at) @ x @ v[g].T + s[g] for g in range(3)]
        z, r = (sigma(cat([c[g], h], 1) @ w[g] + b[g]) for g in range(2))
        h = z * h + (1 - z) * tanh(cat([c[2], r * h], 1) @ w[2] + b[2])
        out.append(h)
    return out


def tgcn_two(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """T-GCN as printed: f(A, X) = sigma(A~ ReLU(A~ X W0) W1), then equations 3 to 6 on [f(A, X) ; h]."""
    h, out = zeros(N, H), []
    w, b = cat([p["input_gates"], p["state_gates"]], 1), p["gate_bias"].split(H)
    for at, x in zip(a, xs, strict=True):
        inner = relu(gcn(at) @ x @ p["first.weight"].T + p["first.bias"])
        f = sigma(gcn(at) @ inner @ p["second.weight"].T + p["second.bias"])
        u, r = (sigma(cat([f, h], 1) @ w[g] + b[g]) for g in range(2))
        h = u * h + (1 - u) * tanh(cat([f, r * h], 1) @ w[2] + b[2])
        out.append(h)
    return out


def wdgcn(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    h, c, out = zeros(N, H), zeros(N, H), []
    for at, x in zip(a, xs, strict=True):
        h, c = lstm(p, "lstm", relu(gcn(at) @ x @ p["convolve"]), h, c)
        out.append(h)
    return out


def cdgcn(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """ESDG 5.1: Y0 = A~ X, Y1 = Y0 W, Y = act([Y0 ; Y1])."""
    h, c, out = zeros(N, H), zeros(N, H), []
    for at, x in zip(a, xs, strict=True):
        y0 = gcn(at) @ x
        h, c = lstm(p, "lstm", relu(cat([y0, y0 @ p["convolve"]], 1)), h, c)
        out.append(h)
    return out


def gatlstm(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """Velickovic et al. 2018, equations 1 to 4: softmax over N_v and v itself of LeakyReLU(a^T [W h_v || W h_u])."""
    h, c, out = zeros(N, H), zeros(N, H), []
    heads, d = p["from_score"].shape
    for at, x in zip(a, xs, strict=True):
        mask, y = ((at != 0) | torch.eye(N, dtype=torch.bool)).double(), []
        for k in range(heads):
            z = x @ p["project"][:, k * d : (k + 1) * d]
            e = torch.nn.functional.leaky_relu((z @ p["to_score"][k])[:, None] + (z @ p["from_score"][k])[None, :], 0.2)
            y.append(torch.nn.functional.elu((mask * e.exp()) / (mask * e.exp()).sum(1, keepdim=True) @ z))
        h, c = lstm(p, "lstm", cat(y, 1), h, c)
        out.append(h)
    return out


def mpnn_lstm(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """Panagopoulos et al. 2021: H1 = f(A~ X W1), H2 = f(A~ H1 W2), two LSTMs over [H1 ; H2]."""
    h1, c1, h2, c2, out = zeros(N, H), zeros(N, H), zeros(N, H), zeros(N, H), []
    for at, x in zip(a, xs, strict=True):
        m1 = relu(gcn(at) @ x @ p["first"])
        m2 = relu(gcn(at) @ m1 @ p["second"])
        h1, c1 = lstm(p, "lower", cat([m1, m2], 1), h1, c1)
        h2, c2 = lstm(p, "upper", h1, h2, c2)
        out.append(h2)
    return out


def tmgcn(w: int) -> Layer:
    """ESDG 5.3: Y x_1 M, M[t, k] = 1 / min(w, t) for max(1, t - w + 1) <= k <= t (t from 1)."""

    def layer(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
        y = torch.stack([relu(gcn(at) @ x @ p["convolve"]) for at, x in zip(a, xs, strict=True)])
        m = [[1 / min(w, t) if max(1, t - w + 1) <= k <= t else 0.0 for k in range(1, T + 1)] for t in range(1, T + 1)]
        return list(torch.einsum("tk,knh->tnh", torch.tensor(m, dtype=torch.float64), y))

    return layer


def evolvegcn_o(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """Pareja et al. 2020, section 3.3: gates sigma(W X + U H + B) with the input X and the past output H both W_t."""
    w, out = p["first_weights"], []
    c, v, u, b = torch.zeros_like(w), p["input_gates"], p["state_gates"], p["gate_bias"].reshape(4, *w.shape)
    for at, x in zip(a, xs, strict=True):
        i, f, o, g = (v[k] @ w + u[k] @ w + b[k] for k in range(4))
        c = sigma(f) * c + sigma(i) * tanh(g)
        w = sigma(o) * tanh(c)
        out.append(relu(gcn(at) @ x @ w))
    return out


def evolvegcn_h(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """Pareja et al. 2020, section 3.3: summarize(X, k = columns of W), then the matrix GRU."""
    w, out = p["first_weights"], []
    v, u, b = p["input_gates"], p["state_gates"], p["gate_bias"].reshape(3, *w.shape)
    for at, x in zip(a, xs, strict=True):
        y = (x @ p["scorer"])[:, 0] / p["scorer"].square().sum().sqrt()
        best = sorted(range(N), key=lambda row: -y[row].item())
        best = (best + [best[-1]] * w.shape[1])[: w.shape[1]]  # too few nodes: the last one again
        s = (x[best] * tanh(y[best])[:, None]).T
        z, r = (sigma(v[k] @ s + u[k] @ w + b[k]) for k in range(2))
        w = (1 - z) * w + z * tanh(v[2] @ s + u[2] @ (r * w) + b[2])
        out.append(relu(gcn(at) @ x @ w))
    return out


def dcrnn(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """Li et al. 2018, equations 2 and 3, W = A^T: (D_O^-1 W)^k and (D_I^-1 W^T)^k of [X ; H], k = 0 .. K."""
    h, out, b = zeros(N, H), [], p["gate_bias"].split(H)
    terms = p["state_gates"].shape[1] // H
    theta = cat([p["input_gates"].reshape(3, terms, -1, H), p["state_gates"].reshape(3, terms, H, H)], 2)
    for at, x in zip(a, xs, strict=True):
        walks = [torch.linalg.matrix_power(row_stochastic(m), k) for m in (at.T, at) for k in range(terms // 2 + 1)]
        del walks[terms // 2 + 1]  # one k = 0 for both directions
        conv = [lambda z, g=g: sum(s @ z @ t for s, t in zip(walks, theta[g], strict=True)) + b[g] for g in range(3)]  # noqa: B023
        u, r = sigma(conv[0](cat([x, h], 1))), sigma(conv[1](cat([x, h], 1)))
        h = u * h + (1 - u) * tanh(conv[2](cat([x, r * h], 1)))
        out.append(h)
    return out


def graphsage(p: Params, a: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    pairs = zip(a, xs, strict=True)
    return [relu(cat([x, row_stochastic(at) @ x], 1) @ p["combine.weight"].T + p["combine.bias"]) for at, x in pairs]


CASES: dict[str, tuple[type[DynamicModel], dict[str, Any], Layer]] = {
    "tgcn": (TGCN, {}, tgcn),
    "tgcn of two convolutions": (TGCN, {"gc_layers": 2}, tgcn_two),
    "wdgcn": (WDGCN, {}, wdgcn),
    "cdgcn": (CDGCN, {}, cdgcn),
    "gatlstm of one head": (GATLSTM, {"heads": 1}, gatlstm),
    "gatlstm of four heads": (GATLSTM, {"heads": 4}, gatlstm),
    "mpnn-lstm": (MPNNLSTM, {}, mpnn_lstm),
    "tmgcn": (TMGCN, {"transform_window": 3}, tmgcn(3)),
    "tmgcn of a long window": (TMGCN, {"transform_window": 8}, tmgcn(8)),
    "tmgcn that forgets": (TMGCN, {"transform_window": 1}, tmgcn(1)),
    "evolvegcn-o": (EvolveGCNO, {}, evolvegcn_o),
    "evolvegcn-h": (EvolveGCNH, {}, evolvegcn_h),
    "dcrnn of one hop": (DCRNN, {"diffusion_steps": 1}, dcrnn),
    "dcrnn of three hops": (DCRNN, {"diffusion_steps": 3}, dcrnn),
    "graphsage": (GraphSAGE, {}, graphsage),
}


def sequence() -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Weighted, directed, with loops; two nodes of each snapshot are isolated, one hears but is not heard, one
    snapshot has no edge."""
    draw = torch.Generator().manual_seed(11)
    random = lambda *shape: torch.rand(shape, generator=draw, dtype=torch.float64)  # noqa: E731
    # weights as snapshots hold them, in float32
    a = [torch.where(random(N, N) < 0.4, random(N, N) + 0.5, 0.0).float().double() for _ in range(T)]
    for t, at in enumerate(a):
        at[[t, t + 1]] = 0
        at[:, [t, t + 1, (t + 2) % N]] = 0
    a[3] = zeros(N, N)
    xs = [torch.randn(N, F, generator=draw, dtype=torch.float64) for _ in range(T)]
    return a, xs, torch.randn(T, N, OUT, generator=draw, dtype=torch.float64)


def shaken(model: DynamicModel) -> DynamicModel:
    """The model in float64 with biases that are not zero, so that a forgotten one shows."""
    draw = torch.Generator().manual_seed(4)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return model


def dense(layer_of: Layer, params: Params, layers: int) -> Tensor:
    a, xs, _ = sequence()
    for layer in range(layers):
        mine = [name for name in params if f".{layer}" in name]  # lstm.0.gate_bias -> lstm.gate_bias
        xs = layer_of({name.replace(f".{layer}", "", 1): params[name] for name in mine}, a, xs)
    return torch.stack([h @ params["readout_layer.weight"].T + params["readout_layer.bias"] for h in xs])


def one_by_one(model: DynamicModel) -> Tensor:
    return run_model(model, [(DenseView(at), x) for at, x in zip(*sequence()[:2], strict=True)])[0]


def together(model: DynamicModel) -> Tensor:
    given = [(DenseView(at), x) for at, x in zip(*sequence()[:2], strict=True)]
    return run_stacked(model, given, stack_dense(given))[0]


def sparse(model: DynamicModel, backend: str, *, stack: bool) -> Tensor:
    """The same on the spaces that training uses."""

    def view(some: list[Snapshot], x: Tensor) -> SnapshotView:
        settings = OperatorSettings(backend, torch.float64)
        operators = Operators(SnapshotSource(stacked(some), range(len(x)), settings), settings)
        return SnapshotView(
            operators, range(len(some)), x, NeighbourRows(), num_nodes=len(x) // len(some), may_keep=lambda _: True
        )

    a, xs, _ = sequence()
    snapshots = []
    for at in a:
        to, start = (index.numpy() for index in at.nonzero(as_tuple=True))
        weights = at[to, start].numpy().astype(np.float32)
        offsets = np.append(0, np.cumsum(np.bincount(to, minlength=N)))
        snapshots.append(Snapshot(offsets, start.astype(np.int32), weights))
    spaces = [view([one], x) for one, x in zip(snapshots, xs, strict=True)]
    given = [(one, one.inputs) for one in spaces]
    return (run_stacked(model, given, view(snapshots, torch.cat(xs))) if stack else run_model(model, given))[0]


def assert_is_dense(model: DynamicModel, layer_of: Layer, run: Callable[..., Tensor] = one_by_one) -> None:
    params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    wanted = dense(layer_of, params, model.layers)
    found, labels = run(model), sequence()[2]
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    (found - labels).square().mean().backward()
    (wanted - labels).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(parameter.grad, params[name].grad, rtol=1e-10, atol=1e-13, msg=name)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_model_is_its_paper_s_equations(case: str, layers: int) -> None:
    make, options, layer_of = CASES[case]
    assert_is_dense(shaken(make_model(make, F, H, layers, outputs=OUT, seed=2, **options)), layer_of)


NO_DGL = pytest.mark.skipif(importlib.util.find_spec("dgl") is None, reason="dgl is not installed")


@pytest.mark.parametrize("backend", ["torch", pytest.param("dgl", marks=NO_DGL)])
@pytest.mark.parametrize("case", CASES)
def test_model_is_its_paper_s_equations_on_sparse_snapshots(case: str, backend: str) -> None:
    make, options, layer_of = CASES[case]
    for stack in (False, True) if make is not DCRNN else (False,):
        model = shaken(make_model(make, F, H, 2, outputs=OUT, seed=2, **options))
        assert_is_dense(model, layer_of, functools.partial(sparse, backend=backend, stack=stack))


@pytest.mark.parametrize("run", [one_by_one, together])
def test_evolvegcn_h_repeats_the_last_vertex_where_there_are_too_few(run: Callable[..., Any]) -> None:
    assert N < 12
    assert_is_dense(shaken(make_model(EvolveGCNH, F, 12, 2, outputs=OUT, seed=2)), evolvegcn_h, run)


def test_the_references_tell_the_models_apart() -> None:
    found = []
    for make, options, layer_of in CASES.values():
        model = shaken(make_model(make, F, H, 1, outputs=OUT, seed=2, **options))
        found.append(dense(layer_of, dict(model.named_parameters()), 1))
    for one in range(len(found)):
        assert all((found[one] - other).abs().max() > 1e-3 for other in found[:one])
