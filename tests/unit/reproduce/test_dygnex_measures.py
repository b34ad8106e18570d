"""What experiments on DyGNeX measure agrees with what schedules and sizes say."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from dtdg_lab.config.run_config import RunConfig

FILE = Path(__file__).resolve().parents[3] / "reproduce" / "dygnex" / "measures.py"
GRAPH = {
    "dataset": "growing",
    "generated_nodes": 30,
    "generated_edges": 200,
    "generated_snapshots": 40,
    "churn": 0.0,
    "growth": 10.0,
    "hidden": 4,
    "model": "evolvegcn-o",
    "profile_epochs": 2,
    "device": "cpu",
    "threads": 1,
}


@pytest.fixture(scope="module")
def measures() -> Iterator[ModuleType]:
    specification = importlib.util.spec_from_file_location("reproduce_dygnex", FILE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["reproduce_dygnex"] = module
    specification.loader.exec_module(module)
    yield module
    del sys.modules["reproduce_dygnex"]


def test_throughput_depends_on_the_seed_and_stays_below_its_bound(measures: ModuleType) -> None:
    settings = {"curve": "exponential", "ranks": 16, "scheduler": "dygnex_greedy", "snapshots": 200, "device": "cpu"}
    first, again, other = (measures.simulate_throughput(settings, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert 0 < first["throughput"] <= first["bound_throughput"] <= 1 + 1e-9
    assert measures.simulate_throughput({**settings, "targets": 3}, 0)["targets"] == 3


def test_every_group_is_timed_with_its_size(measures: ModuleType) -> None:
    nodes, edges, snapshots, times_s = measures.time_groups(RunConfig(system="psg", group_times="size", **GRAPH))
    assert set(snapshots) == {4} and set(nodes) == {4 * 30}
    assert (np.diff(edges) >= 0).all()  # nothing is renewed
    assert len(times_s) == len(edges) and (times_s > 0).all()


def test_errors_are_those_of_groups_outside_the_fit(measures: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = np.arange(100, 2100, 100)
    nodes, snapshots = np.full(20, 50), np.full(20, 4)

    def bent(config: RunConfig) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        return nodes, edges, snapshots, np.where(edges <= 1000, edges, 2 * edges).astype(float)

    def straight(
        config: RunConfig,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        return nodes, edges, snapshots, 3.0 * edges + 7.0 * nodes

    monkeypatch.setattr(measures, "time_groups", straight)
    exact = measures.linear_model_error(GRAPH, 0)
    assert exact["interpolated_worst_error"] == pytest.approx(0, abs=1e-6)
    assert exact["extrapolated_worst_error"] == pytest.approx(0, abs=1e-6)
    assert exact["constant_error"] > 0.1
    monkeypatch.setattr(measures, "time_groups", bent)
    assert measures.linear_model_error(GRAPH, 0)["extrapolated_error"] == pytest.approx(0.5, abs=1e-3)


def test_solving_reports_the_gap_and_the_targets(measures: ModuleType) -> None:
    settings = {"curve": "linear", "groups": 60, "ranks": 4, "device": "cpu"}
    greedy = measures.solve_groups({**settings, "scheduler": "dygnex_greedy", "targets": 5}, 0)
    assert greedy["targets"] == 5 and greedy["solve_s"] > 0 and greedy["gap"] >= 0
    exact = measures.solve_groups({**settings, "scheduler": "dygnex_ilp", "gap": 0.05, "time_limit_s": 5.0}, 0)
    assert exact["gap"] <= 0.05 and exact["is_certified"] in (0, 1)


def test_edges_of_parts_are_all_edges(measures: ModuleType) -> None:
    edges = np.arange(1.0, 21.0)
    for assigned in ("consecutive", "psg", "dygnex_greedy"):
        loads = measures.part_edges(edges, 4, assigned)
        assert loads.shape == (4,)
        assert loads.sum() == sum(edges[first : first + 4].sum() for first in range(17))
    of_offsets = measures.part_edges(edges, 4, "esdg")
    assert (np.diff(of_offsets) == 17).all()  # each takes the snapshot after that of the part before, in 17 groups


def test_uneven_tasks_are_those_of_the_worst_graph(measures: ModuleType) -> None:
    settings = {
        "dataset": "growing",
        "churn": 0.0,
        "growth": 10.0,
        "protocol": "esdg-2021",
        "task": "regression",
        "parts": 4,
        "assigned": "esdg",
        "device": "cpu",
    }
    short, long = [30, 200, 12], [30, 200, 40]
    worst = measures.uneven_tasks({**settings, "graphs": [short, long]}, 0)
    alone = [measures.uneven_tasks({**settings, "graphs": [size]}, 0)["edge_difference"] for size in (short, long)]
    assert worst["edge_difference"] == max(alone) and worst["mean_edge_difference"] == pytest.approx(np.mean(alone))


def test_profiled_epochs_are_told_from_scheduled_ones(measures: ModuleType) -> None:
    chosen = {**GRAPH, "generated_snapshots": 40, "epochs": 6, "evaluate_every": 6, "ranks": 1}
    numbers = measures.train_profiled({**chosen, "system": "dygnex-g", "parts": 2, "profile_epochs": 2}, 0)
    assert 0 < numbers["epoch_s"] < numbers["total_s"]
    assert numbers["overhead_share"] < numbers["profile_share"] < 1 and numbers["groups_per_s"] > 0
    chosen.pop("profile_epochs")
    plain = measures.train_profiled({**chosen, "system": "esdg", "parts": 1}, 0)
    assert plain["profile_share"] == plain["solve_s"] == 0 and plain["groups_per_s"] is None
