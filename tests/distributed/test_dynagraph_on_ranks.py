"""System dynagraph with a plan of four parts on one, two and four processes: losses, gradients, work and bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.testing.processes import join_group, run_ranks
from dtdg_lab.training.build import build
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
CASES: list[dict[str, Any]] = [
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


def _trained(config: RunConfig, group: Group) -> list[dict[str, Any]]:
    """The first steps of each epoch: every epoch deals and draws anew."""
    built = build(config, _graph(), group)
    found = []
    for epoch in range(EPOCHS):
        for work in built.strategy.epoch(epoch)[:STEPS]:
            built.gradients.zero()
            sent = group.bytes_sent
            computed = built.strategy.compute(work, StepMarks())
            sent = group.bytes_sent - sent
            agreed = built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
            built.optimizer.step()
            (batch,) = built.strategy.rows()["batches"]
            found.append(
                {
                    "loss": agreed.loss_sum / agreed.groups,
                    "gradient": built.gradients.gradients.clone().numpy(),
                    "own_loss": computed.loss_sum,
                    "work": computed.vertex_snapshots,
                    "sent": sent,
                    "edges": batch[5],
                }
            )
    return found


def _on_rank(rank: int, ranks: int, address: str, cases: list[int]) -> dict[int, list[dict[str, Any]]]:
    group = join_group(rank, ranks, address)
    found = {case: _trained(_config(CASES[case], ranks=group.size), group) for case in cases}
    group.close()
    return found


@cache
def _alone(case: int) -> list[dict[str, Any]]:
    return _trained(_config(CASES[case]), SoloGroup())


@pytest.fixture(scope="module", params=[2, 4], ids=lambda ranks: f"{ranks} processes")
def ranks(request: pytest.FixtureRequest) -> list[dict[int, list[dict[str, Any]]]]:
    return run_ranks(_on_rank, request.param, [case for (case,) in values_that_run(request, "case")])


@each_case
def test_one_plan_on_several_processes(ranks: list[dict[int, list[dict[str, Any]]]], case: int) -> None:
    assert len(_alone(case)) == EPOCHS * STEPS
    for step, wanted in enumerate(_alone(case)):
        each = [found[case][step] for found in ranks]
        largest = np.abs(wanted["gradient"]).max()
        assert largest > 0
        for found in each:
            assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-10)
            assert np.abs(found["gradient"] - wanted["gradient"]).max() <= 1e-10 * largest
            assert found["sent"] == 0  # nothing before gradients
            assert 0 < found["own_loss"] < wanted["loss"]
        assert sum(found["work"] for found in each) == wanted["work"] == NODES * min(step % STEPS + 1, WINDOW)
        assert sum(found["edges"] for found in each) == wanted["edges"] > 0


@each_case
def test_parts_do_not_matter_on_one_process(case: int) -> None:
    """What is drawn for a node is the same whoever owns it: one part of all nodes has the same losses."""
    whole = _trained(_config(CASES[case], parts=1), SoloGroup())
    for found, wanted in zip(_alone(case), whole, strict=True):
        assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-10)
    assert len({found["loss"] for found in whole}) == len(whole)
