"""Every kind of pull against its dense definition, forward and gradient; stacked snapshots; attention."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as draws
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.operators import (
    KINDS,
    AttentionOperator,
    Operators,
    OperatorSettings,
    SharedOperators,
    SnapshotSource,
    edge_products,
)
from dtdg_lab.kernels.spmm import Adjacency, stacked
from tests.backends import backends, places
from tests.factories import snapshot_of_matrix

NODES = 13
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
shares = pytest.mark.parametrize("rows", [range(NODES), range(3, 10), range(5, 5)], ids=str)


def _weights(weighted: bool, *, seed: int = 3, share: float = 0.2) -> Tensor:
    """(N, N) weight of the edge u -> v at [v, u]; node 0 hears nobody, nobody hears 1, 2 and 4 have a loop."""
    draw = np.random.default_rng(seed)
    edges = draw.random((NODES, NODES)) < share
    edges[[2, 4], [2, 4]] = True
    edges[0], edges[:, 1] = False, False
    values = draw.random((NODES, NODES)).astype(np.float32) + 0.5 if weighted else np.ones((NODES, NODES), np.float32)
    return torch.from_numpy(np.where(edges, values, 0).astype(np.float32)).double()


def _snapshot(dense: Tensor, weighted: bool) -> Snapshot:
    return snapshot_of_matrix(dense.numpy(), weighted=weighted)


def _operators(snapshot: Snapshot, rows: range, settings: OperatorSettings) -> Operators:
    return Operators(SnapshotSource(snapshot, rows, settings), settings)


def _or_zero(numbers: Tensor) -> Tensor:
    return torch.where(numbers > 0, 1 / numbers, 0)


def _dense_operator(a: Tensor, kind: str, norm: str, self_loops: bool) -> Tensor:
    into, out = a.sum(1), a.sum(0)
    if kind in {"mean", "diffusion-in"}:
        return _or_zero(into)[:, None] * a
    if kind == "diffusion-out":
        return _or_zero(out)[:, None] * a.T
    one = float(self_loops)
    right = into if norm == "in" else out
    left_scale, right_scale = _or_zero((into + one).sqrt()), _or_zero((right + one).sqrt())
    return left_scale[:, None] * (a + one * torch.eye(NODES, dtype=a.dtype)) * right_scale[None]


def _random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device, dtype)


CONVOLUTIONS = [("gcn", norm, loops) for norm in ("in", "in_out") for loops in (True, False)]
OTHERS = [(kind, "in", True) for kind in ("mean", "diffusion-in", "diffusion-out")]


@places
@dtypes
@shares
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "norm", "self_loops"), CONVOLUTIONS + OTHERS)
def test_a_kind_is_its_definition(
    backend: str, device: str, dtype: torch.dtype, rows: range, weighted: bool, kind: str, norm: str, self_loops: bool
) -> None:
    a = _weights(weighted)
    settings = OperatorSettings(backend, dtype, device, norm, self_loops)
    operator = _operators(_snapshot(a, weighted), rows, settings).scaled(kind)
    matrix = _dense_operator(a, kind, norm, self_loops)[rows.start : rows.stop]
    x = _random(NODES, 5, dtype=dtype, device=device).requires_grad_()
    seed = _random(len(rows), 5, seed=1, dtype=dtype, device=device)
    for apply in (operator.apply, operator.apply_once, operator.apply):
        y = apply(x)
        (gradient,) = torch.autograd.grad(y, x, seed)
        close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
        torch.testing.assert_close(y.detach().cpu().double(), matrix @ x.detach().cpu().double(), **close)
        torch.testing.assert_close(gradient.cpu().double(), matrix.T @ seed.cpu().double(), **close)


def test_flaredtdg_s_norm_by_hand() -> None:
    """Edges 0 -> 1 of weight 3, 0 -> 2 of weight 1, 2 -> 1 of weight 1: w / sqrt(in(v) out(u))."""
    snapshot = Snapshot(np.array([0, 0, 2, 3]), np.array([0, 2, 0], np.int32), np.array([3, 1, 1], np.float32))
    settings = OperatorSettings(dtype=torch.float64, norm="in_out", self_loops=False)
    matrix = _operators(snapshot, range(3), settings).scaled("gcn").apply(torch.eye(3, dtype=torch.float64))
    expected = [[0, 0, 0], [3 / np.sqrt(4 * 4), 0, 1 / np.sqrt(4 * 1)], [1 / np.sqrt(1 * 4), 0, 0]]
    torch.testing.assert_close(matrix, torch.tensor(expected, dtype=torch.float64))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"'sum'.*gcn, mean, diffusion-in, diffusion-out, attention"):
        _operators(_snapshot(_weights(False), False), range(NODES), OperatorSettings()).scaled("sum")


def test_operators_are_made_once_and_again_after_release() -> None:
    operators = _operators(_snapshot(_weights(True), True), range(NODES), OperatorSettings(dtype=torch.float64))
    first, x = operators.scaled("gcn"), _random(NODES, 2)
    assert operators.scaled("gcn") is first
    assert operators.scaled("mean") is operators.scaled("diffusion-in")
    before = first.apply(x)
    operators.release()
    assert operators.scaled("gcn") is not first
    assert torch.equal(operators.scaled("gcn").apply(x), before)


# stacked snapshots


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_stacked_snapshots_are_each_by_itself(weighted: bool, kind: str) -> None:
    alone = [
        _snapshot(_weights(weighted, seed=seed, share=share), weighted) for seed, share in ((1, 0.2), (2, 0), (3, 1))
    ]
    settings, heads = OperatorSettings(dtype=torch.float64), 2
    x, scores = _random(3, NODES, 4), (_random(3, NODES, heads, seed=1), _random(3, NODES, heads, seed=2))

    def pull(snapshot: Snapshot, x: Tensor, *scores: Tensor) -> Tensor:
        operators = _operators(snapshot, range(len(x)), settings)
        return operators.attention().apply(x, *scores) if kind == "attention" else operators.scaled(kind).apply(x)

    together = pull(stacked(alone), x.flatten(0, 1), *(part.flatten(0, 1) for part in scores))
    for one, *inputs, mine in zip(alone, x, *scores, together.unflatten(0, (3, -1)), strict=True):
        torch.testing.assert_close(mine, pull(one, *inputs), rtol=1e-13, atol=1e-14)
    assert stacked(alone[:1]) is alone[0]


# attention


def _dense_attention(a: Tensor, x: Tensor, scores_from: Tensor, scores_to: Tensor) -> Tensor:
    """(n, heads d), written out; a (n, N) with the node itself in it."""
    raw = torch.nn.functional.leaky_relu(scores_to[:, None] + scores_from[None], 0.2)
    share = torch.softmax(raw.masked_fill(~a[..., None], -torch.inf), dim=1)
    return torch.einsum("vuh,uhd->vhd", share, x.unflatten(1, (scores_from.shape[1], -1))).flatten(1)


def _attention(
    rows: range,
    *,
    backend: str = "torch",
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    weighted: bool = False,
) -> AttentionOperator:
    settings = OperatorSettings(backend, dtype, device)
    return _operators(_snapshot(_weights(weighted), weighted), rows, settings).attention()


@places
@dtypes
@shares
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_attention_is_the_dense_softmax(backend: str, device: str, dtype: torch.dtype, rows: range, heads: int) -> None:
    operator = _attention(rows, backend=backend, dtype=dtype, device=device, weighted=True)
    received = ((_weights(True) != 0) | torch.eye(NODES, dtype=torch.bool))[rows.start : rows.stop]
    x, scores_from = _random(NODES, 2 * heads), _random(NODES, heads, seed=1)
    scores_to, seed = _random(len(rows), heads, seed=2), _random(len(rows), 2 * heads, seed=3)
    mine = [part.to(device, dtype).requires_grad_() for part in (x, scores_from, scores_to)]
    dense = [part.clone().requires_grad_() for part in (x, scores_from, scores_to)]
    y, expected = operator.apply(*mine), _dense_attention(received, *dense)
    close = {"rtol": 2 * TOLERANCE[dtype], "atol": 2 * TOLERANCE[dtype]}
    torch.testing.assert_close(y.detach().cpu().double(), expected.detach(), **close)
    gradients = torch.autograd.grad(y, mine, seed.to(device, dtype))
    for gradient, good in zip(gradients, torch.autograd.grad(expected, dense, seed), strict=True):
        torch.testing.assert_close(gradient.cpu().double(), good, **close)


def test_attention_s_backward_is_right_by_differences() -> None:
    operator = _attention(range(2, 9))
    inputs = [_random(NODES, 4), _random(NODES, 2, seed=1), _random(7, 2, seed=2)]
    assert torch.autograd.gradcheck(operator.apply, [part.requires_grad_() for part in inputs])


@backends
def test_attention_of_enormous_scores_is_finite(backend: str) -> None:
    """The softmax is shifted by each row's largest score, so that a row of very low ones does not vanish either."""
    operator = _attention(range(NODES), backend=backend, dtype=torch.float32)
    x = _random(NODES, 2, dtype=torch.float32).requires_grad_()
    scores = [(1e4 * _random(NODES, 1, seed=seed, dtype=torch.float32)).requires_grad_() for seed in (1, 2)]
    y = operator.apply(x, *scores)
    y.sum().backward()
    assert all(bool(torch.isfinite(part).all()) for part in (y, x.grad, *(score.grad for score in scores)))
    torch.testing.assert_close(operator.apply(torch.ones_like(x), *scores), torch.ones_like(x))


@dtypes
def test_attention_gives_the_same_bits_again_on_the_cpu(dtype: torch.dtype) -> None:
    actual = []
    for _ in range(2):
        inputs = [
            _random(NODES, 8, dtype=dtype),
            _random(NODES, 2, seed=1, dtype=dtype),
            _random(NODES, 2, dtype=dtype),
        ]
        y = _attention(range(NODES), dtype=dtype).apply(*[part.requires_grad_() for part in inputs])
        y.square().sum().backward()
        actual.append([y.detach(), *(part.grad for part in inputs)])
    assert all(torch.equal(one, second) for one, second in zip(*actual, strict=True))


@pytest.mark.parametrize("at_once", [1, 7, 2**18])
def test_products_of_both_ends_are_those_of_gathered_rows(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Also the way that GPUs take, some edges at a time."""
    a = _weights(False)[2:9]
    indptr = np.concatenate([[0], np.cumsum((a != 0).sum(1).numpy())])
    edges = Adjacency(indptr, a.nonzero()[:, 1].numpy(), None, columns=NODES, dtype=torch.float64)
    x_rows, right, rows = _random(7, 3), _random(NODES, 3, seed=1), edges.edge_rows().to(edges.indices.dtype)
    expected = (x_rows[edges.edge_rows()] * right[edges.indices.long()]).sum(1)
    torch.testing.assert_close(edge_products(edges, rows, x_rows, right), expected)
    monkeypatch.setattr("dtdg_lab.kernels.operators._EDGES_AT_ONCE", at_once)
    monkeypatch.setattr(edges, "device", "elsewhere")
    torch.testing.assert_close(edge_products(edges, rows, x_rows, right), expected)


# Edges that several snapshots share, aggregated once.


def _overlapping(seed: int, count: int, share: float, changed: float, weighted: bool) -> list[Snapshot]:
    """Snapshots that have most edges in common; of some of these, the weight changes where there are weights."""
    draw = np.random.default_rng(seed)
    edges, weights = draw.random((NODES, NODES)) < share, draw.random((NODES, NODES)) + 0.5
    actual = []
    for _ in range(count):
        flips, second = draw.random((NODES, NODES)) < changed, draw.random((NODES, NODES)) < changed
        values = np.where(second, draw.random((NODES, NODES)) + 0.5, weights)
        dense = np.where(edges ^ flips, values if weighted else 1.0, 0.0).astype(np.float32)
        actual.append(_snapshot(torch.from_numpy(dense), weighted))
    return actual


@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(
    seed=draws.integers(0, 2**16),
    count=draws.integers(2, 4),
    share=draws.sampled_from([0.0, 0.1, 0.5, 1.0]),
    changed=draws.sampled_from([0.0, 0.02, 0.3]),
    weighted=draws.booleans(),
    kind=draws.sampled_from(["gcn", "mean"]),
    norm=draws.sampled_from(["in", "in_out"]),
    loops=draws.booleans(),
    double=draws.booleans(),
)
def test_shared_edges_give_each_snapshots_product_and_gradient(
    seed: int, count: int, share: float, changed: float, weighted: bool, kind: str, norm: str, loops: bool, double: bool
) -> None:
    dtype, tolerance = (torch.float64, 1e-10) if double else (torch.float32, 1e-6)
    how = OperatorSettings(dtype=dtype, norm=norm, self_loops=loops)
    snapshots = _overlapping(seed, count, share, changed, weighted)
    each = [_operators(snapshot, range(NODES), how) for snapshot in snapshots]
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count * NODES, 5, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()
    seeds = torch.randn(count * NODES, 5, generator=draw, dtype=torch.float64).to(dtype)
    shared = SharedOperators(each).scaled(kind)
    parts = zip(each, x.chunk(count), strict=True)
    expected = torch.cat([operators.scaled(kind).apply(part) for operators, part in parts])
    for actual in (shared.apply(x), shared.apply_once(x)):
        torch.testing.assert_close(
            actual, expected, rtol=tolerance, atol=tolerance * float(expected.detach().abs().max() + 1)
        )
    (of_wanted,) = torch.autograd.grad(expected, x, seeds)
    (of_found,) = torch.autograd.grad(shared.apply(x), x, seeds)
    scale = float(of_wanted.abs().max() + 1)
    torch.testing.assert_close(of_found, of_wanted, rtol=tolerance, atol=tolerance * scale)


def test_edges_that_all_snapshots_have_are_shared() -> None:
    """Of complete graphs every edge is; one that a snapshot lacks, or weighs otherwise, is not."""
    dense = torch.ones(NODES, NODES)
    lacking, heavier = dense.clone(), dense.clone()
    lacking[1, 2], heavier[3, 4] = 0, 2
    how = OperatorSettings()
    snapshots = [_snapshot(of, True) for of in (dense, lacking, heavier)]
    operator = SharedOperators([_operators(of, range(NODES), how) for of in snapshots]).scaled("gcn")
    assert operator.edges == (NODES**2 - 2, 3 * NODES**2 - 1)


def test_attention_is_not_shared() -> None:
    with pytest.raises(UnsupportedError, match="weights differ by snapshot"):
        SharedOperators([]).attention()
