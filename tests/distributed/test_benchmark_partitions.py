"""What benchmarks/partitions.py compares is one function, and what it says of bytes is what went over the links."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.distributed.benchmark_modules import benchmark

partitions = benchmark("partitions")


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
