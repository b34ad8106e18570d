"""Which library computes sparse products: torch unless DGL is named and computes alike, or is faster on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.kernels import backend_choice, spmm
from dtdg_lab.kernels.backend_choice import Pulls, can_use_dgl, choose_backend, dgl_defect, faster, measure_backends
from dtdg_lab.kernels.operators import OperatorSettings
from tests.backends import needs_dgl
from tests.factories import random_graph

DOUBLE: dict[str, Any] = {"device": "cpu", "dtype": torch.float64}


@pytest.fixture
def no_dgl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``import dgl`` fails, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "dgl", None)
    spmm.import_dgl.cache_clear()
    yield
    spmm.import_dgl.cache_clear()


class _DglError(Exception):
    """As DGL's own, which is no RuntimeError."""


class _TorchAsDgl:
    """A stand-in for DGL whose operators are torch's; a ``defect`` makes one of them wrong or fail."""

    DGLError = _DglError

    def __init__(self, defect: str = "") -> None:
        self.ops = SimpleNamespace(
            copy_u_sum=self.copy_u_sum, u_mul_e_sum=self.u_mul_e_sum, u_add_v=self.u_add_v, edge_softmax=self.softmax
        )
        self._defect = defect

    def create_block(self, csc: Any, *, num_src_nodes: int, num_dst_nodes: int) -> Any:
        if self._defect == "device":
            raise _DglError("Device API cuda is not enabled. Please install the cuda version of dgl.")
        indptr, indices, _ = csc[1]
        rows = torch.repeat_interleave(torch.arange(num_dst_nodes), indptr.long().diff())
        return SimpleNamespace(rows=rows, columns=indices.long(), count=num_dst_nodes)

    def copy_u_sum(self, block: Any, x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(block.count, x.shape[1]).index_add(0, block.rows, x[block.columns])

    def u_mul_e_sum(self, block: Any, x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        values = values.abs().sqrt() if self._defect == "weights" and x.dim() == 2 else values
        products = x[block.columns] * values
        return x.new_zeros(block.count, *products.shape[1:]).index_add(0, block.rows, products)

    def u_add_v(self, block: Any, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return source[block.columns] + target[block.rows]

    def softmax(self, block: Any, scores: torch.Tensor) -> torch.Tensor:
        if self._defect == "gradient":
            scores = scores + (scores - scores.detach())  # the value is right, and its gradient twice as large
        shares = scores.exp()
        sums = shares.new_zeros(block.count, *shares.shape[1:]).index_add(0, block.rows, shares)
        return shares / sums[block.rows]


@pytest.fixture
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A build of DGL with the parametrised defect."""
    fake = _TorchAsDgl(request.param)
    for module in (spmm, backend_choice, sys.modules["dtdg_lab.kernels.operators"].spmm):
        monkeypatch.setattr(module, "import_dgl", lambda: fake)
    dgl_defect.cache_clear()
    yield
    dgl_defect.cache_clear()


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("kernel", ["auto", "torch"])
def test_nothing_but_dgl_by_name_needs_dgl(kernel: str, device: str, no_dgl: None) -> None:
    assert choose_backend(kernel, device=device, dtype=torch.float32) == "torch"
    assert not can_use_dgl(device, torch.float32)


@pytest.mark.usefixtures("no_dgl")
def test_dgl_by_name_is_refused_where_it_cannot_be_imported() -> None:
    with pytest.raises(NotAvailableError, match="kernel='torch'") as caught:
        choose_backend("dgl", **DOUBLE)
    assert "dgl==1.1.3" in str(caught.value) or "3.12" in str(caught.value)


@needs_dgl
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_installed_dgl_computes_as_torch_does(dtype: torch.dtype) -> None:
    assert dgl_defect("cpu", dtype) == "" and can_use_dgl("cpu", dtype)
    assert choose_backend("dgl", device="cpu", dtype=dtype) == "dgl"


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        ("weights", "gcn product or its gradient differs"),
        ("gradient", "attention product or its gradient differs"),
        ("device", "dgl fails there .Device API cuda is not enabled"),
    ],
    indirect=["build"],
)
@pytest.mark.usefixtures("build")
def test_a_build_that_computes_wrongly_or_not_at_all_is_refused_with_the_reason(reason: str) -> None:
    assert not can_use_dgl(**DOUBLE)
    with pytest.raises(NotAvailableError, match=rf"kernel='dgl' is not available on device 'cpu': .*{reason}.*'auto'"):
        choose_backend("dgl", **DOUBLE)


@pytest.mark.parametrize("build", [""], indirect=True)
@pytest.mark.usefixtures("build")
def test_any_build_that_computes_as_torch_does_is_taken() -> None:
    assert dgl_defect(**DOUBLE) == ""
    assert can_use_dgl(**DOUBLE) and choose_backend("dgl", **DOUBLE) == "dgl"


@needs_dgl
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_torch_does_not_find_is_named() -> None:
    with pytest.raises(NotAvailableError, match=r"'cuda:1': torch finds no CUDA device\. Set kernel='auto'"):
        choose_backend("dgl", device="cuda:1", dtype=torch.float32)


def test_dgl_is_not_taken_where_it_runs_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(pulls: Pulls) -> float:
        if pulls.settings.backend == full:
            raise torch.cuda.OutOfMemoryError
        return 1.0

    monkeypatch.setattr(Pulls, "seconds", seconds)
    monkeypatch.delattr(torch, "OutOfMemoryError", raising=False)  # torch 2.4 has none
    given: Any = random_graph().snapshots[0], OperatorSettings(), [("gcn", 4)]
    full = "dgl"
    assert measure_backends(*given) == {"torch": 1.0} and faster({"torch": 1.0}) == "torch"
    full = "torch"
    with pytest.raises(torch.cuda.OutOfMemoryError):
        measure_backends(*given)


def test_noise_does_not_choose_dgl() -> None:
    assert [faster({"torch": 1.0, "dgl": seconds}) for seconds in (0.5, 0.95, 1.0, 2.0)] == ["dgl", *["torch"] * 3]


@pytest.mark.parametrize("build", [""], indirect=True)
@pytest.mark.usefixtures("build")
def test_both_backends_make_the_same_pulls_when_they_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = random_graph().snapshots[0]
    shapes = [("gcn", 4), ("attention", 5), ("diffusion-out", 3), ("messages", 7)]
    results = [Pulls(snapshot, OperatorSettings(backend, torch.float64), shapes)() for backend in ("torch", "dgl")]
    widths = [result.shape[1] for result in results[0]]
    assert widths == [4, 4, 4, 4, 1, 1, 3, 3]  # result and gradients of each; messages have no product
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
    ticks = iter(np.arange(1000.0))
    monkeypatch.setattr(backend_choice.time, "perf_counter", lambda: next(ticks))
    assert measure_backends(snapshot, OperatorSettings(dtype=torch.float64), shapes) == {"torch": 1.0, "dgl": 1.0}
