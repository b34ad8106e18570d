"""System dynagraph with a plan of four parts on one, two and four processes: losses, gradients, work and bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.build import build
from tests.distributed.groups import TakenStep, assert_same_steps, in_groups, take_step
from tests.thinning import thinned, values_that_run

PARTS, EPOCHS, STEPS, NODES, WINDOW = 4, 2, 3, 23, 2
SMALL = {
    "system": "dynagraph",
    "dataset": "growing",
    "generated_nodes": NODES,
    "generated_edges": 120,
    "generated_snapshots": 40,
    "hidden": 6,
    "learning_rate": 0.05,
    "device": "cpu",
    "dtype": "float64",
    "optimizer": "sgd",
    "window": WINDOW,
    "fanout": 2,
}
CASES: list[TakenStep] = [
    {"model": "tgcn"},
    {"model": "tgcn", "layers": 2},
    {"model": "gatlstm", "layers": 2},
    {"model": "evolvegcn-o", "layers": 2},
    {"model": "mpnn-lstm", "norm": "in_out"},
    {"model": "graphsage", "layers": 2, "partitioner": "load_aware"},
]
ids = [" ".join(str(value) for value in case.values()) for case in CASES]
each_case = pytest.mark.parametrize("case", thinned(range(len(CASES)), (1, 4, 5)), ids=ids)


def _config(case: dict[str, Any], **more: Any) -> RunConfig:
    return RunConfig(**{**SMALL, "parts": PARTS, **case, **more})


@cache
def _graph() -> DynamicGraph:
    return load_for(_config({}))


def _trained(config: RunConfig, group: Group) -> list[TakenStep]:
    """The first steps of each epoch: every epoch deals and draws anew."""
    built = build(config, _graph(), group)
    works = [work for epoch in range(EPOCHS) for work in built.strategy.epoch(epoch)[:STEPS]]
    return [take_step(built, group, work) for work in works]


def _on_rank(group: Group, cases: list[int]) -> dict[int, list[TakenStep]]:
    return {case: _trained(_config(CASES[case], ranks=group.size), group) for case in cases}


@cache
def _alone(case: int) -> list[TakenStep]:
    return _trained(_config(CASES[case]), SoloGroup())


@pytest.fixture(scope="module", params=[2, 4], ids=lambda ranks: f"{ranks} processes")
def ranks(request: pytest.FixtureRequest) -> list[dict[int, list[TakenStep]]]:
    return in_groups(_on_rank, request.param, [case for (case,) in values_that_run(request, "case")])


def _edges(step: TakenStep) -> int:
    (batch,) = step.rows["batches"]
    return int(batch[5])


@each_case
def test_one_plan_on_several_processes(ranks: list[dict[int, list[TakenStep]]], case: int) -> None:
    assert len(_alone(case)) == EPOCHS * STEPS
    for found in ranks:
        assert_same_steps(found[case], _alone(case))
    for step, wanted in enumerate(_alone(case)):
        each = [found[case][step] for found in ranks]
        for found in each:
            assert found.sent == 0  # nothing before gradients
            assert 0 < found.own_loss < wanted.loss
        assert sum(found.work for found in each) == wanted.work == NODES * min(step % STEPS + 1, WINDOW)
        assert sum(_edges(found) for found in each) == _edges(wanted) > 0


@each_case
def test_parts_do_not_matter_on_one_process(case: int) -> None:
    """What is drawn for a node is the same whoever owns it: one part of all nodes has the same losses."""
    whole = _trained(_config(CASES[case], parts=1), SoloGroup())
    np.testing.assert_allclose([step.loss for step in _alone(case)], [step.loss for step in whole], rtol=1e-10)
    assert len({step.loss for step in whole}) == len(whole)
