"""Neighbour sums against dense references, forward and gradient, on every backend."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.kernels import spmm as backend_module
from dtdg_lab.kernels.spmm import (
    Adjacency,
    has_bag_kernel,
    import_dgl,
    transposed,
    with_self,
    without_loops,
)
from tests.backends import backends

NODES = 13
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def _dense(kind: str, weighted: bool) -> np.ndarray:
    """(N, N) weights of the edges u -> v at [v, u]: random, without an edge, with loops on every node, or full."""
    draw = np.random.default_rng(3)
    mask = {
        "random": draw.random((NODES, NODES)) < 0.2,
        "empty": np.zeros((NODES, NODES), bool),
        "loops": np.eye(NODES, dtype=bool) | (draw.random((NODES, NODES)) < 0.1),
        "full": np.ones((NODES, NODES), bool),
    }[kind]
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
    y = make(x)
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
    torch.testing.assert_close(adjacency.transposed_adjacency().matrix.to_dense(), matrix.T)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [None, range(4, 9), range(5, 5)], ids=str)
def test_a_transpose_is_an_adjacency_and_its_order_finds_edges(weighted: bool, rows: range | None) -> None:
    dense = _dense("loops", weighted)
    adjacency = _adjacency(dense, weighted, "torch", torch.float64, rows)
    mine = slice(None) if rows is None else slice(rows.start, rows.stop)
    matrix = torch.from_numpy(dense).double()[mine]
    transposed = adjacency.transposed_adjacency()
    assert transposed.shape == tuple(matrix.T.shape)
    assert transposed is adjacency.transposed_adjacency()
    torch.testing.assert_close(transposed.matrix.to_dense(), matrix.T)
    torch.testing.assert_close(adjacency.column_sums(), matrix.sum(dim=0))
    torch.testing.assert_close(transposed.row_sums(), matrix.sum(dim=0))
    numbers = torch.arange(adjacency.num_edges)
    edge_numbers = {
        (int(v), int(u)): int(e) for e, v, u in zip(numbers, adjacency.edge_rows(), adjacency.indices, strict=True)
    }
    order = adjacency.transposed_order()
    for e, u, v in zip(order, transposed.edge_rows(), transposed.indices, strict=True):
        assert edge_numbers[int(v), int(u)] == e


@pytest.mark.parametrize("rows", [range(NODES), range(3, 10), range(5, 5)], ids=str)
def test_a_part_has_the_rows_asked_for(rows: range) -> None:
    dense = _dense("random", True)
    part = _adjacency(dense, True, "torch", torch.float64, None).part(rows)
    torch.testing.assert_close(part.matrix.to_dense(), torch.from_numpy(dense).double()[rows.start : rows.stop])


@pytest.mark.skipif(not has_bag_kernel("cpu", torch.float32), reason="this torch has no FBGEMM")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3, 16, 33, 130])
def test_bags_are_the_csr_product(monkeypatch: pytest.MonkeyPatch, weighted: bool, width: int) -> None:
    """Single precision on the CPU goes through embedding_bag; for rows of a wider matrix and transposed ones too."""
    adjacency = _adjacency(_dense("random", weighted), weighted, "torch", torch.float32, range(2, 12))
    wide = torch.randn(NODES, 2 * width, generator=torch.Generator().manual_seed(4))
    for x in (wide[:, :width], wide[:, ::2], wide.t().contiguous().t()[:, :width]):
        by_bags = adjacency.product(x)
        with monkeypatch.context() as patch:
            patch.setattr("dtdg_lab.kernels.spmm.has_bag_kernel", lambda device, dtype: False)
            torch.testing.assert_close(by_bags, adjacency.product(x), rtol=1e-5, atol=1e-6)


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_give_the_same_bits_again(backend: str, dtype: torch.dtype) -> None:
    x = torch.randn(NODES, 32, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    actual = [
        _product(_adjacency(_dense("full", True), True, backend, dtype, None).multiply, x, torch.ones_like(x))
        for _ in range(2)
    ]
    assert all(torch.equal(one, second) for one, second in zip(*actual, strict=True))


def test_a_gradient_that_is_a_view_is_taken() -> None:
    """As a sum gives it: one number, expanded."""
    adjacency = _adjacency(_dense("random", False), False, "torch", torch.float32, None)
    x = torch.randn(NODES, 4, generator=torch.Generator().manual_seed(6), requires_grad=True)
    adjacency.multiply(x).sum().backward()
    torch.testing.assert_close(x.grad, adjacency.column_sums().unsqueeze(1).expand(-1, 4))


def test_index_arrays_are_used_in_place() -> None:
    """Whole snapshots, memory-mapped or not, are not copied on the CPU."""
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0], np.int32)
    indices.setflags(write=False)
    assert Adjacency(indptr, indices, None).indices.data_ptr() == indices.ctypes.data


# imports of DGL, and kernels of torch


@pytest.fixture
def no_dgl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``import dgl`` fails, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "dgl", None)
    backend_module.import_dgl.cache_clear()
    yield
    backend_module.import_dgl.cache_clear()


def test_bags_are_for_single_precision_on_the_cpu() -> None:
    assert not has_bag_kernel("cpu", torch.float64)
    assert not has_bag_kernel("cuda:0", torch.float32)


@pytest.mark.usefixtures("no_dgl")
def test_without_dgl_a_later_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module.sys, "version_info", (3, 12, 0))
    with pytest.raises(NotAvailableError, match=r"3\.11"):
        import_dgl()


# memory


@pytest.mark.slow
def test_freed_memory_is_not_handed_out_anew() -> None:
    """Page faults of large arrays made and freed again and again, before and after, in a process of its own."""
    code = """
import resource
import numpy as np
from dtdg_lab.kernels.operators import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        arrays = [np.ones(size) for size in (500_000, 2_000_000, 3_900_000)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

by_default, set_here = faults(), keep_freed_memory()
faults()
print(int(set_here), by_default, faults())
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    set_here, by_default, after = map(int, completed.split())
    if not set_here:
        pytest.skip("this C library is not glibc: its memory is left as it is")
    assert after < by_default / 10


@pytest.mark.parametrize("first", [0, 4])
@pytest.mark.parametrize("kind", ["random", "empty", "loops", "full"])
def test_self_loops_and_transposes_are_those_of_lists(kind: str, first: int) -> None:
    rows = _dense(kind, True)[first:]
    targets, sources = np.nonzero(rows)
    indptr, weights = np.searchsorted(targets, np.arange(len(rows) + 1)), rows[targets, sources]
    arrays = [torch.from_numpy(array) for array in (indptr, sources)]
    of_rows = [[u for u in np.flatnonzero(row).tolist() if u != first + i] for i, row in enumerate(rows)]
    offsets, actual = without_loops(*arrays, first)
    assert actual.tolist() == [u for row in of_rows for u in row]
    assert offsets.diff().tolist() == [len(row) for row in of_rows]
    self_values = np.arange(len(rows)) + 10.0
    offsets, actual, both = with_self(*arrays, first, torch.from_numpy(weights), torch.from_numpy(self_values))
    pairs = [[(first + i, self_values[i]), *((u, row[u]) for u in np.flatnonzero(row))] for i, row in enumerate(rows)]
    assert offsets.diff().tolist() == [len(row) for row in pairs]
    assert list(zip(actual.tolist(), both.tolist(), strict=True)) == [pair for row in pairs for pair in row]
    offsets, actual, values = transposed(*arrays, torch.from_numpy(weights), NODES)
    wanted_targets, wanted_sources = np.nonzero(rows.T)
    assert offsets.tolist() == np.searchsorted(wanted_targets, np.arange(NODES + 1)).tolist()
    assert actual.tolist() == wanted_sources.tolist()
    assert values is not None and values.tolist() == rows.T[wanted_targets, wanted_sources].tolist()
