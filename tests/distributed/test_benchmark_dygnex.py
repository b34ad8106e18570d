"""What benchmarks/dygnex.py tells of schedules follows from what ranks measured, and its parts run alone."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import statistics
from types import ModuleType
from typing import Any

import pytest

from tests.distributed.benchmark_modules import benchmark

TIMES_S = [4.0, 3.0, 2.0, 1.0]
PSG = (((0,), (1,)), ((2,), (3,)))
FOLDED = (((0, 3), (1, 2)),)


dygnex = benchmark("dygnex")


@pytest.fixture
def plan(dygnex: ModuleType) -> Any:
    """Thirty nodes, nine snapshots to train on, one timed epoch, two systems."""
    options = {"generated_nodes": 30, "generated_edges": 120, "generated_snapshots": 31, "churn": 0.0}
    tiny = dygnex.Workload("tiny", "growing", options, seeds=1)
    return dataclasses.replace(dygnex.QUICK_PLAN, workloads=(tiny,), turns=1, ranks=(2,), epochs=2)


def epoch_of(loads: list[list[float]], groups: list[list[int]]) -> list[dict[str, Any]]:
    """What ranks tell of one epoch: own seconds by iteration, and the groups they computed."""
    return [
        {
            "seconds": 10.0 + rank,
            "wall": own,
            "cpu": [2 * each for each in own],
            "loss": 0.5,
            "groups": [(group, TIMES_S[group], 2 * TIMES_S[group]) for group in groups[rank]],
        }
        for rank, own in enumerate(loads)
    ]


def test_epochs_are_joined_over_ranks(dygnex: ModuleType) -> None:
    ranks = [{"epochs": [epoch]} for epoch in epoch_of([[4.0, 2.0], [3.0, 1.0]], [[0, 2], [1, 3]])]
    (wall,) = dygnex.joined(ranks, clock="wall")
    assert wall["seconds"] == 11.0  # the slowest rank's
    assert wall["imbalance"] == pytest.approx(6 / 4)
    assert wall["iteration_imbalance"] == pytest.approx((4 + 2) / (3.5 + 1.5))
    assert wall["groups"] == dict(enumerate(TIMES_S))
    (cpu,) = dygnex.joined(ranks, clock="cpu")
    assert cpu["seconds"] == 2 * (4 + 2)  # the most loaded rank of every iteration, and no wall time
    assert cpu["groups"] == {group: 2 * time for group, time in enumerate(TIMES_S)}


@pytest.mark.parametrize(("assignment", "makespan_s"), [(PSG, 6.0), (FOLDED, 5.0)])
def test_a_schedule_is_judged_by_what_its_groups_took(
    dygnex: ModuleType, assignment: tuple[Any, ...], makespan_s: float
) -> None:
    described = {
        "assignment": assignment,
        "times_s": [1.0] * 4,
        "parts": 2,
        "makespan_s": 2.0,
        "timed_by": "wall",
        "solve_s": 0.1,
        "gap": None,
        "notes": "",
    }
    row = dygnex.replayed(described, [{"groups": dict(enumerate(TIMES_S))}])
    assert row["makespan_s"] == makespan_s
    assert row["over_bound"] == pytest.approx(makespan_s / 5)
    assert row["prediction_error"] == pytest.approx(2 / makespan_s - 1)


def test_rows_of_real_ranks(dygnex: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every schedule computes the same groups once; what is not built says so; means are those of the rows."""
    monkeypatch.setattr(dygnex, "SYSTEMS", {name: dygnex.SYSTEMS[name] for name in ("psg", "dygnex-g", "esdg")})
    monkeypatch.setattr(dygnex, "built", lambda name: name != "esdg")
    rows = dygnex.epoch_rows(plan, plan.workloads[0], "tgcn", 2)
    psg, greedy, missing = rows
    assert [row["system"] for row in rows] == ["psg", "dygnex-g", "esdg"]
    assert dygnex.words.epoch_text(missing).endswith("esdg       not built")
    assert psg["over_psg"] == (1, 1, 1)
    assert psg["clock"] == ("wall" if len(dygnex.cores()) >= 2 else "cpu")
    assert psg["groups"] == greedy["groups"]
    assert 1 <= greedy["iterations"] <= psg["iterations"], "fewer where measured times let groups share an iteration"
    for row in (psg, greedy):
        assert row["over_bound"] >= 1 - 1e-9
        assert row["imbalance"][0] >= 1
        assert 0 < row["slowest_s"][1] <= row["epoch_s"][1]
        assert f"{row['epoch_s'][1]:.4f}" in dygnex.words.epoch_text(row)
    means = dygnex.summary_rows(rows)
    assert [mean["system"] for mean in means] == ["psg", "dygnex-g"]
    assert means[1]["saved_over_psg"] == pytest.approx(1 - 1 / greedy["over_psg"][1])
    assert means[1]["paper_imbalance"] == 1.08
    json.dumps(rows)


@pytest.mark.slow
def test_runs_are_scored_beside_psg(dygnex: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dygnex, "SYSTEMS", {name: dygnex.SYSTEMS[name] for name in ("psg", "blad pairs")})
    monkeypatch.setattr(dygnex, "cores", lambda: (min(os.sched_getaffinity(0)),))  # four parts on one process
    psg, pairs = dygnex.accuracy_rows(plan, plan.workloads[0], "tgcn")
    assert psg["apart_from_psg"] == (0, 0, 0)
    assert pairs["apart_from_psg"][1] == pytest.approx(pairs["test_loss"][1] / psg["test_loss"][1] - 1)
    assert pairs["updates"] < psg["updates"]  # fewer, larger ones
    assert f"{pairs['test_loss'][1]:.5f}" in dygnex.words.accuracy_text(pairs)


def test_cores_are_shared_out(dygnex: ModuleType) -> None:
    share = importlib.import_module("contenders.snapshot_groups").share
    assert [share(rank, 2, (0, 1, 4, 5, 7)) for rank in range(2)] == [{0, 1}, {4, 5}]
    assert [share(rank, 4, (3, 6)) for rank in range(4)] == [{3}, {6}, {3}, {6}]


def test_solving_stands_beside_the_paper(dygnex: ModuleType) -> None:
    pytest.importorskip("ortools")
    (greedy, *ours) = dygnex.tables.greedy_rows([100], "linear")
    assert greedy["paper_s"] == 0.0041
    assert [row["paper_s"] for row in ours] == [None, None]
    easy, hard = dygnex.tables.ilp_rows([100], [0.10, 1e-6], "linear", limit_s=0.3)
    assert (easy["paper_s"], easy["how"]) == (1.96, "bound")
    assert (hard["paper_has_it"], hard["how"]) == (False, "limit")
    assert "not told" in dygnex.tables.ilp_text(hard)
    assert "1.96" in dygnex.tables.ilp_text(easy)


@pytest.mark.slow
def test_simulation_stands_beside_the_paper(dygnex: ModuleType) -> None:
    _, rows = dygnex.tables.simulated_rows(snapshots=1100, ranks=(4, 512))
    assert {row["paper"] for row in rows if row["scheduler"] == "dygnex_greedy"} == {None, 0.95}
    assert all(row["throughput"] <= row["bound_throughput"] + 1e-9 for row in rows)
    lines = list(dygnex.tables.simulated_text(rows))
    assert sum("95%" in line for line in lines) == 2  # one for each growth curve


def test_throughput_stands_beside_the_number_of_targets(dygnex: ModuleType) -> None:
    rows = dygnex.tables.target_rows(snapshots=300, ranks=(4, 8), tried=(1, 20, 0))
    assert [row["targets"] for row in rows if row["curve"] == "linear"] == [1, 1, 20, 20, 297, 297]
    lines = list(dygnex.tables.target_text(rows))
    assert lines[0] == "| targets | linear, 4 ranks | linear, 8 ranks | exponential, 4 ranks | exponential, 8 ranks |"
    assert lines[-1].startswith("| default | ") and lines[-1].count("(297)") == 4


def test_table_4_gives_the_abstracts_figure(dygnex: ModuleType) -> None:
    """The 24 % that the abstract names are a mean over BLAD, so that ours stand beside them."""
    assert dygnex.paper.saved("dygnex-g", "blad") == pytest.approx(0.24, abs=0.005)
    assert statistics.mean(map(len, dygnex.paper.TABLE_4.values())) == 16
