"""What benchmarks/models.py compares is one function: equal losses from equal weights, on a small graph."""

from __future__ import annotations

import hashlib
import importlib
import math
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
W0 = "5d6a8a7e2b6f6ce3"  # of edges and features, as the definition shared with other measurements has them


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("peers")
    for name in [name for name in sys.modules if name.partition(".")[0] == "peers"]:
        del sys.modules[name]


@pytest.fixture
def tiny(peers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two thousand nodes, four snapshots."""
    module = importlib.import_module("peers.workload")
    monkeypatch.setitem(module.SIZES, "tiny", (2_000, 4, 2_000))
    return module.make("tiny")


def _losses(contender: str, case: Any, workload: Any) -> list[float]:
    module = importlib.import_module(f"peers.{contender}")
    epoch = module.prepare(case, module.load(workload))
    return [epoch() for _ in range(3)]


@pytest.mark.usefixtures("peers")
def test_workloads_are_the_bits_they_have_always_been() -> None:
    made = importlib.import_module("peers.workload").make("W0")
    digest = hashlib.sha256(b"".join(pair.tobytes() for pair in made.edges) + made.features.tobytes()).hexdigest()
    assert digest[:16] == W0
    assert (made.snapshots, made.nodes, made.targets.shape) == (10, 2000, (10, 2000))


def test_a_workload_is_what_was_saved(tiny: Any, tmp_path: Path) -> None:
    tiny.save(tmp_path)
    again = type(tiny).load("tiny", tmp_path)
    assert np.array_equal(again.edges, tiny.edges)
    assert np.array_equal(again.features, tiny.features)


@pytest.mark.slow
def test_plain_ports_have_the_lab_s_losses(tiny: Any) -> None:
    """Three steps of Adam, so that gradients are compared as well."""
    ported = [case for case in importlib.import_module("peers.case").CASES if case.peer == "port"]
    assert {case.model for case in ported} == set(importlib.import_module("peers.port").PORTS)
    for case in ported:
        assert _losses("lab", case, tiny) == pytest.approx(_losses("port", case, tiny), rel=1e-4), case.name


def test_pyg_temporal_has_the_lab_s_losses(tiny: Any) -> None:
    pyg_temporal = importlib.import_module("peers.pyg_temporal")
    if not pyg_temporal.is_installed():
        pytest.skip("torch_geometric_temporal is not installed")
    (case,) = (case for case in importlib.import_module("peers.case").CASES if case.peer == "pyg-temporal")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = _losses("pyg_temporal", case, tiny)
    assert _losses("lab", case, tiny) == pytest.approx(peer, rel=1e-4)


def test_the_floor_has_the_products_of_a_gru_s_equations(tiny: Any) -> None:
    """T snapshots of N nodes; those of weights alone are left out."""
    floor, lab = (importlib.import_module(f"peers.{name}") for name in ("floor", "lab"))
    (case,) = (case for case in importlib.import_module("peers.case").CASES if case.name == "gcn-in-gru")
    epoch = lab.prepare(case, floor.load(tiny))
    epoch()
    with floor.ProductLog() as log:
        epoch()
    factors = [(left[0], right[0]) for left, right, _ in log.products]
    counted = sum(math.prod(left) * right[-1] for left, right in factors if tiny.nodes in (*left, *right))
    t, n, f, h = 4, tiny.nodes, 2, 32
    forward = 3 * h * (h + 1 + f) * t
    of_weights = 3 * h * (h + 1 + f) * t
    of_states = h * h * t + 2 * h * h * (t - 1)  # the first gates' state needs no gradient
    readout = 3 * h * t
    assert counted == n * (forward + of_weights + of_states + readout)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_the_floor_repeats_sparse_products(tiny: Any) -> None:
    floor = importlib.import_module("peers.floor")
    (case,) = (case for case in importlib.import_module("peers.case").CASES if case.name == "evolvegcn-o")
    matrix, x = torch.eye(3).to_sparse_csr(), torch.randn(3, 2)
    with floor.ProductLog() as log:
        _ = matrix @ x
        torch.embedding_bag(x, matrix.col_indices(), matrix.crow_indices(), False, 0, False, matrix.values(), True)
    assert [product[1:] for product in log.products] == [((3, 2), torch.float32)] * 2
    for product in log.products:
        by_csr, by_bags = floor._sparse_ways(log.matrices[product[0]], *product[1:])
        assert torch.equal(by_csr(), by_bags()[0])
    assert math.isnan(floor.prepare(case, floor.load(tiny))())


def test_an_unknown_row_is_named(
    peers: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["models.py", "--only", "lstm"])
    assert runpy.run_path(str(BENCHMARKS / "models.py"))["main"]() == 2
    said = capsys.readouterr().out
    assert "no row is called lstm; rows: " in said
    assert "gcn-in-lstm" in said
