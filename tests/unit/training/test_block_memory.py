"""The number of blocks of time: as asked for, or the fewest whose step fits the memory that may be taken."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError, PlanError, UnsupportedError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training import block_memory
from dtdg_lab.training.block_memory import BlockMemory, block_cost
from dtdg_lab.training.build import build
from tests.thinning import thinned

GIB = 1 << 30
SMALL: dict[str, Any] = {
    "dataset": "powerlaw",
    "generated_nodes": 800,
    "generated_edges": 3000,
    "generated_snapshots": 100,
    "layers": 2,
    "hidden": 16,
    "device": "cpu",
    "threads": 1,
}


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return load_for(RunConfig(**SMALL))


def _config(**settings: Any) -> RunConfig:
    return RunConfig(**{**SMALL, "system": "esdg", **settings})


@pytest.mark.parametrize("model", thinned(["cdgcn", "tmgcn", "evolvegcn-h"]))
def test_the_fewest_blocks_that_fit_are_taken_and_the_peak_is_as_estimated(graph: DynamicGraph, model: str) -> None:
    whole = block_cost(_config(model=model, blocks=1), graph, steps=1).peak_bytes
    budget = 0.6 * whole
    built = build(_config(model=model, blocks=0, memory_gib=budget / GIB), graph, SoloGroup())
    chosen = built.strategy.plan.blocks
    assert chosen > 1
    peak = block_cost(_config(model=model, blocks=chosen), graph, steps=1).peak_bytes
    predicted = built.strategy.block_memory.peak_bytes(built.strategy.plan.blocks)
    assert predicted <= budget
    assert peak == pytest.approx(predicted, rel=0.15)
    assert built.strategy.block_memory is not None and built.strategy.block_memory.peak_bytes(chosen - 1) > budget
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in built.model.parameters())


@pytest.mark.parametrize("request_", ["cuda", "cuda_shared"])
def test_a_step_is_measured_on_the_gpu_that_the_config_asks_for(
    request_: str, graph: DynamicGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = mock.Mock(side_effect=DataError("there is none"))
    monkeypatch.setattr(block_memory, "build", measured)
    with pytest.raises(DataError, match="there is none"):
        block_cost(_config(device=request_), graph)
    assert measured.call_args.kwargs["device"] == "cuda:0"


@pytest.mark.slow
def test_a_large_budget_takes_one_block_and_a_tiny_one_says_what_is_needed(graph: DynamicGraph) -> None:
    config = _config(model="cdgcn", blocks=0)
    built = build(config, graph, SoloGroup())
    assert built.strategy.plan is not None and built.strategy.plan.blocks == 1
    with pytest.raises(DataError, match=r"they need at least 0\.\d+ GiB, with blocks=\d+") as refused:
        build(config.replace(memory_gib=1e-5), graph, SoloGroup())
    least = float(str(refused.value).split("they need at least ")[1].split(" GiB")[0])
    enough = build(config.replace(memory_gib=1.02 * least), graph, SoloGroup())
    assert enough.strategy.plan is not None and enough.strategy.plan.blocks > 1


@pytest.mark.slow
def test_vertex_parts_choose_too(graph: DynamicGraph) -> None:
    config = _config(system="adgnn-t", partitioner="hash", model="tgcn", blocks=0, memory_gib=0.01)
    built = build(config, graph, SoloGroup())
    assert built.strategy.plan is not None and built.strategy.plan.blocks > 1
    assert built.split.train == built.strategy.plan.snapshots


def test_measuring_leaves_the_model_as_it_was(graph: DynamicGraph) -> None:
    one, other = (build(_config(model="tgcn", blocks=blocks), graph, SoloGroup()) for blocks in (0, 1))
    for mine, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"blocks": 31}, PlanError, r"blocks=31 of 30 snapshots: from 1 block"),
        ({"blocks": 2, "row_ranks": 2}, UnsupportedError, r"row_ranks=2 does not divide ranks=1"),
    ],
)
def test_what_cannot_be_planned_is_said(
    graph: DynamicGraph, settings: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        build(_config(model="tgcn", **settings), graph, SoloGroup())


def test_more_ranks_than_vertices_are_refused() -> None:
    from dtdg_lab.core.plans import SnapshotBlocks

    with pytest.raises(PlanError, match=r"ranks=5 for 4 nodes.*Set ranks to 4 or fewer"):
        SnapshotBlocks(range(6), 1, 5, 4)


def test_a_line_of_memory_is_followed() -> None:
    memory = BlockMemory(fixed_bytes=100, snapshot_bytes=10, state_bytes=5, snapshots=12)
    assert [memory.peak_bytes(blocks) for blocks in (1, 2, 5, 12)] == [220, 165, 150, 165]
    assert memory.fewest(165) == 2
    assert memory.fewest(1000) == 1
    with pytest.raises(DataError, match="with blocks=4"):
        memory.fewest(144)
