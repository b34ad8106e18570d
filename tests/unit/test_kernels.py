"""Sparse products against dense references, forward and gradient, on every backend."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.kernels import backend as backend_module
from dtdg_lab.kernels.adjacency import Adjacency
from dtdg_lab.kernels.backend import choose_backend, import_dgl
from dtdg_lab.kernels.gcn import GCNOperator

NODES = 13
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def _has_dgl() -> bool:
    try:
        import_dgl()
    except NotAvailableError:
        return False
    return True


backends = pytest.mark.parametrize(
    "backend", ["torch", pytest.param("dgl", marks=pytest.mark.skipif(not _has_dgl(), reason="dgl is not installed"))]
)


def _dense(kind: str, weighted: bool) -> np.ndarray:
    """(N, N) weights of the edges u -> v at [v, u]: random, without an edge, with loops on every vertex, or full."""
    draw = np.random.default_rng(3)
    mask = {"random": draw.random((NODES, NODES)) < 0.2, "empty": np.zeros((NODES, NODES), bool),
            "loops": np.eye(NODES, dtype=bool) | (draw.random((NODES, NODES)) < 0.1),
            "full": np.ones((NODES, NODES), bool)}[kind]  # fmt: skip
    values = draw.random((NODES, NODES)).astype(np.float32) + 0.5 if weighted else np.ones((NODES, NODES), np.float32)
    return np.where(mask, values, 0).astype(np.float32)


def _adjacency(dense: np.ndarray, weighted: bool, backend: str, dtype: torch.dtype, rows: range | None) -> Adjacency:
    indptr = np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))]).astype(np.int64)
    targets, sources = np.nonzero(dense)
    weights = dense[targets, sources].astype(np.float32) if weighted else None
    for array in (indptr, sources):
        array.setflags(write=False)  # snapshots' arrays are read-only
    return Adjacency(indptr, sources.astype(np.int32), weights, rows=rows, backend=backend, dtype=dtype)


def _product(make: object, x: Tensor, seed_gradient: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    y = make(x)  # type: ignore[operator]
    (gradient,) = torch.autograd.grad(y, x, seed_gradient)
    return y.detach(), gradient


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["random", "empty", "loops", "full"])
@pytest.mark.parametrize("rows", [None, range(4, 9), range(0, 1), range(12, 13), range(5, 5)], ids=str)
def test_products_are_the_dense_ones(
    backend: str, dtype: torch.dtype, weighted: bool, kind: str, rows: range | None
) -> None:
    dense = _dense(kind, weighted)
    adjacency = _adjacency(dense, weighted, backend, dtype, rows)
    mine = slice(None) if rows is None else slice(rows.start, rows.stop)
    matrix = torch.from_numpy(dense).to(dtype)[mine]
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, 6, generator=draw, dtype=torch.float64).to(dtype)
    seed = torch.randn(len(matrix), 6, generator=draw, dtype=torch.float64).to(dtype)
    assert adjacency.shape == tuple(matrix.shape)
    assert adjacency.num_edges == int((matrix != 0).sum())
    y, gradient = _product(adjacency.multiply, x, seed)
    want_y, want_gradient = _product(lambda x: matrix @ x, x, seed)
    assert y.dtype == gradient.dtype == dtype
    torch.testing.assert_close(y, want_y, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    torch.testing.assert_close(gradient, want_gradient, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    torch.testing.assert_close(adjacency.row_sums(), matrix.sum(dim=1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(adjacency.matrix.to_dense(), matrix)
    torch.testing.assert_close(adjacency.transposed.to_dense(), matrix.T)


@backends
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["random", "empty", "loops"])
@pytest.mark.parametrize("rows", [range(NODES), range(3, 10)], ids=str)
def test_the_gcn_operator_is_the_dense_one(backend: str, weighted: bool, kind: str, rows: range) -> None:
    dense = torch.from_numpy(_dense(kind, weighted)).double()
    degrees = 1.0 + dense.sum(dim=1)
    with_self = dense + torch.eye(NODES, dtype=torch.float64)
    operator = torch.diag(degrees**-0.5) @ with_self @ torch.diag(degrees**-0.5)
    whole = _adjacency(dense.numpy(), weighted, backend, torch.float64, None)
    share = _adjacency(dense.numpy(), weighted, backend, torch.float64, rows)
    gcn = GCNOperator(share, whole.row_sums(), rows)
    x = torch.randn(NODES, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    seed = torch.ones(len(rows), 3, dtype=torch.float64)
    y, gradient = _product(gcn.apply, x, seed)
    want_y, want_gradient = _product(lambda x: operator[rows.start : rows.stop] @ x, x, seed)
    torch.testing.assert_close(y, want_y, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(gradient, want_gradient, rtol=1e-12, atol=1e-13)


@backends
def test_a_self_loop_counts_beside_the_identity(backend: str) -> None:
    """A + I, literally: a vertex with a loop and nothing else has A + I = 2 and D = 2, so the operator is 1 there."""
    loop, alone = 0, 1
    adjacency = Adjacency(np.array([0, 1, 1]), np.array([0], np.int32), None, backend=backend, dtype=torch.float64)
    assert adjacency.row_sums().tolist() == [1.0, 0.0]
    eye = torch.eye(2, dtype=torch.float64)
    assert (adjacency.multiply(eye) + eye)[loop, loop] == 2.0
    applied = GCNOperator(adjacency, adjacency.row_sums(), range(2)).apply(eye)
    assert applied[loop, loop].item() == pytest.approx(2.0 / 2.0)
    assert applied[alone, alone].item() == pytest.approx(1.0)


@pytest.mark.skipif(not _has_dgl(), reason="dgl is not installed")
def test_both_backends_give_one_training_signal() -> None:
    dense = _dense("random", False)
    x = torch.randn(NODES, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    results = [
        _product(_adjacency(dense, False, name, torch.float64, None).multiply, x, torch.ones_like(x))
        for name in ("dgl", "torch")
    ]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


# which backend


@pytest.fixture
def no_dgl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``import dgl`` fails, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "dgl", None)
    backend_module.import_dgl.cache_clear()
    yield
    backend_module.import_dgl.cache_clear()


@pytest.mark.skipif(not _has_dgl(), reason="dgl is not installed")
def test_auto_takes_dgl_for_large_unweighted_sums_on_the_cpu_only() -> None:
    assert choose_backend("auto", device="cpu", weighted=False, edges=3000) == "torch"
    assert choose_backend("auto", device="cpu", weighted=False, edges=1_000_000) == "dgl"
    assert choose_backend("auto", device="cpu", weighted=True, edges=1_000_000) == "torch"
    assert choose_backend("auto", device="cuda:0", weighted=False, edges=1_000_000) == "torch"
    assert choose_backend("dgl", device="cpu", weighted=True, edges=1_000_000) == "dgl"
    with pytest.raises(NotAvailableError, match=r"'cuda:1'.*kernel='auto'"):
        choose_backend("dgl", device="cuda:1", weighted=False, edges=1_000_000)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("weighted", [False, True])
def test_torch_is_always_to_be_had(device: str, weighted: bool) -> None:
    assert choose_backend("torch", device=device, weighted=weighted, edges=1_000_000) == "torch"


@pytest.mark.usefixtures("no_dgl")
def test_without_dgl_auto_takes_torch_and_dgl_is_refused() -> None:
    assert choose_backend("auto", device="cpu", weighted=False, edges=1_000_000) == "torch"
    with pytest.raises(NotAvailableError, match="kernel='torch'") as caught:
        choose_backend("dgl", device="cpu", weighted=False, edges=1_000_000)
    assert "dgl==1.1.3" in str(caught.value) or "3.12" in str(caught.value)


@pytest.mark.usefixtures("no_dgl")
def test_without_dgl_a_later_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module.sys, "version_info", (3, 12, 0))
    with pytest.raises(NotAvailableError, match=r"3\.11"):
        import_dgl()
