"""Full snapshots' exchanges on a slow network: hidden behind other snapshots, without a changed bit, and no deadlock.

Every exchange takes 50 ms at least, during which the processor is free. Snapshots are large enough for what lies
between two exchanges to take about as long.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.exchange.task_order import TaskTimePredictor
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.decayed_windows.strategy import DecayedWindowStrategy
from dtdg_lab.testing.processes import delayed_group
from dtdg_lab.testing.training import train_in_memory
from dtdg_lab.training.build import build
from tests.distributed.groups import in_groups, take_step
from tests.thinning import thinned

DELAY_S, NODES = 0.05, 6000
BUSY = {
    "system": "flaredtdg",
    "model": "mpnn-lstm",
    "dataset": "powerlaw",
    "generated_nodes": NODES,
    "generated_edges": 12 * NODES,
    "generated_snapshots": 30,
    "hidden": 64,
    "device": "cpu",
    "epochs": 2,
    "dtype": "float64",
    "threads": 1,
    "evaluate_every": 100,
    "window": 6,
    "full_snapshots": 4,
    "decay": "text",
    "alpha": 0.8,
    "chunker": "hash",
    "partitioner": "hash",
    "chunks": 16,
}
SMALL = {**BUSY, "generated_nodes": 80, "generated_edges": 400, "hidden": 6, "layers": 2}


@cache
def _graph(nodes: int) -> DynamicGraph:
    return load_for(RunConfig(**(BUSY if nodes == NODES else SMALL)))


def _slow(group: Group, folder: str) -> dict[bool, dict[str, Any]]:
    network, found = delayed_group(group, DELAY_S), {}
    for overlap in (False, True):
        config = RunConfig(ranks=group.size, overlap=overlap, **BUSY)
        done = train_in_memory(config, _graph(NODES), Path(folder) / "last.pt", group=network)
        whole = {row["step"] for row in done.recorder.tables["batches"] if len(row["chunks"]) == BUSY["window"]}
        spent = [
            (row["in_flight_s"], row["exposed_s"], row["exchanges"], row["step"])
            for row in done.recorder.tables["exchanges"]
            if row["step"] in whole
        ]
        found[overlap] = {"losses": done.losses, "spent": spent, "tasks": done.recorder.tables["tasks"]}
    return found


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> list[dict[bool, dict[str, Any]]]:
    _graph(NODES)
    return in_groups(_slow, 2, str(tmp_path_factory.mktemp("slow")))


@pytest.mark.slow
def test_most_of_the_exchanges_is_hidden(slow: list[dict[bool, dict[str, Any]]]) -> None:
    """What a rank stands still for, of the time in flight of exchanges that it stands still for one after another."""
    for found in slow:
        blocking, overlapped = ([step for step in _steps(found[overlap]["spent"])] for overlap in (False, True))
        assert {step[2] for step in blocking} == {step[2] for step in overlapped}, "the same exchanges"
        assert len(blocking) == len(overlapped) >= 4
        without_s = median(flying_s for flying_s, _, _ in blocking)
        assert without_s > 10 * DELAY_S and median(exposed_s for _, exposed_s, _ in blocking) > 0.9 * without_s
        still_s = median(exposed_s for _, exposed_s, _ in overlapped)
        assert 1 - still_s / without_s >= 0.6, f"stands still {still_s:.3f} s where {without_s:.3f} s were in flight"


def _steps(spent: list[tuple[float, float, int, int]]) -> list[tuple[float, float, int]]:
    by_step: dict[int, tuple[float, float, int]] = {}
    for flying_s, exposed_s, exchanges, step in spent:
        before = by_step.get(step, (0.0, 0.0, 0))
        by_step[step] = (before[0] + flying_s, before[1] + exposed_s, before[2] + exchanges)
    return list(by_step.values())


@pytest.mark.slow
def test_predictions_learn_what_exchanges_take(slow: list[dict[bool, dict[str, Any]]]) -> None:
    for found in slow:
        rows = [row for row in found[True]["tasks"] if row["kind"] == "communicate"]
        off = [abs(np.log(row["predicted_s"] / row["duration_s"])) for row in rows]
        assert np.median(off[-20:]) < np.median(off[:4]) and np.median(off[-20:]) < 0.5


class _Contrary(TaskTimePredictor):
    """Predicts what no other rank does."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._draw = np.random.default_rng(rank)

    def predict(self, features: Any) -> Any:
        return self._draw.exponential(size=len(np.asarray(features)))


def _contrary(group: Group) -> tuple[list[float], list[Any], list[Any]]:
    """Losses with predictors that disagree, the orders that came of them, and losses in time order."""
    losses, orders = {}, []
    for overlap in (True, False):
        built = build(RunConfig(ranks=group.size, overlap=overlap, **SMALL), _graph(80), group)
        assert isinstance(built.strategy, DecayedWindowStrategy)
        built.strategy.pace.predictor = _Contrary(group.rank)
        losses[overlap] = []
        for work in built.strategy.epoch(0):
            losses[overlap].append(take_step(built, group, work).loss)
            if overlap:
                orders.append([built.strategy.pace.order(layer) for layer in range(2)])
    return losses[True], orders, losses[False]


@pytest.mark.parametrize("ranks", thinned([2, 4]))
def test_ranks_that_predict_otherwise_agree_on_an_order(ranks: int) -> None:
    _graph(80)
    found = in_groups(_contrary, ranks)
    for losses, orders, in_time_order in found:
        assert orders == found[0][1] and losses == in_time_order == found[0][0]
    assert len({str(order) for order in found[0][1]}) > 3, "orders follow the predictions"
