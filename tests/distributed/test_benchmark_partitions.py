"""What benchmarks/partitions.py compares is one function, and what it says of bytes is what went over the links."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The benchmark as a module, with a fresh cache."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path))
    yield importlib.import_module("partitions")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("contenders", "partitions")]:
        del sys.modules[name]


@pytest.fixture
def tiny(partitions: ModuleType) -> Any:
    """Sixty nodes, ten snapshots, one timed epoch."""
    options = {"generated_nodes": 60, "generated_edges": 200, "generated_snapshots": 20}
    return partitions.Workload("tiny", "powerlaw", options, turns=1, makings=1)


@pytest.fixture
def found(partitions: ModuleType, tiny: Any, capsys: pytest.CaptureFixture[str]) -> Iterator[list[dict[str, Any]]]:
    """The second table of the tiny graph, which is printed as well."""
    rows = partitions.layout_rows(tiny, "tgcn", 2, weighed=("pygt-dist/2",))
    assert capsys.readouterr().out.count("tgcn 2") == len(rows)
    yield rows


def test_contenders_are_one_function(found: list[dict[str, Any]]) -> None:
    """Losses of three steps of Adam, so that gradients are compared as well; every node is trained once."""
    assert found[0]["name"] == "single/1"
    assert all(row["equal_losses"] for row in found), [(row["name"], row["loss_apart"]) for row in found]
    assert len({row["vertex_snapshots"] for row in found}) == 1
    assert [row["processes"] for row in found] == [1, 1, 1, 2, 2, 2]
    assert found[0]["ratio"] == (1, 1, 1)
    assert [row["name"] for row in found if "peak_bytes" in row] == ["pygt-dist/2"]
    assert found[-1]["peak_bytes"] > 0
    # bytes are told before anything is sent, and only ADGNN-T on two processes sends rows
    assert [row["name"] for row in found if row["rows_bytes"]] == ["adgnn-t/2", "adgnn-t reuse/2"]
    assert all(row["rows_bytes"] == row["predicted_bytes"] for row in found)
    plain, reused = found[3]["rows_bytes"], found[4]["rows_bytes"]
    assert reused < plain
    json.dumps(found)


def test_a_partition_is_told_whole(partitions: ModuleType, tiny: Any) -> None:
    graph = partitions.load_for(partitions.config(tiny, system="single"))
    rows = [partitions.partition_row(tiny, graph, name, 2) for name in ("hash", "load_aware")]
    for row in rows:
        assert 0 < row["cut_share"] < 1
        assert row["halo_rows"] > 0
        assert row["replicated_rows"] >= row["halo_rows"]
        assert min(row["imbalance"].values()) >= 1
        assert row["made_s"][0] <= row["made_s"][1] <= row["made_s"][2]
        assert f"{row['halo_rows']:,}" in partitions.partition_text(row)


def test_data_that_is_not_here_is_named(
    partitions: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = [
        dataclasses.replace(known, on_this_machine=known.name == "powerlaw") for known in partitions.list_datasets()
    ]
    monkeypatch.setattr(partitions, "list_datasets", lambda: nowhere)
    chosen = partitions.chosen_workloads(partitions.arguments([]))
    assert [workload.name for workload in chosen] == ["million"]
    said = capsys.readouterr().out
    assert "collegemsg: not here" in said
    assert "mathoverflow: not here" in said


def test_an_unknown_graph_is_named() -> None:
    command = [sys.executable, str(BENCHMARKS / "partitions.py"), "--only", "cora"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ})
    assert ended.returncode == 2
    assert "cora" in ended.stdout
    assert "mathoverflow" in ended.stdout
