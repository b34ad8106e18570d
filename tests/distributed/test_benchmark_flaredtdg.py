"""What benchmarks/flaredtdg.py tells follows from what ranks did, its claims are judged by rows, and its parts run."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.distributed.benchmark_modules import benchmark

CORES = tuple(sorted(os.sched_getaffinity(0)))


flare = benchmark("flaredtdg")


@pytest.fixture
def plan(flare: ModuleType) -> Any:
    """Two hundred nodes, 24 snapshots, windows of eight, one timed turn, one model."""
    sizes = importlib.import_module("contenders.flare_plan")
    tiny = sizes.generated("tiny", "powerlaw", 200, 800, 24, **sizes.WHOLE)
    split = sizes.generated("split", "powerlaw", 120, 500, 41)
    return dataclasses.replace(
        flare.QUICK_PLAN,
        trained=(split,),
        measured=(tiny,),
        timed=(tiny,),
        overlapped=tiny,
        spread=tiny,
        mapped=(split,),
        seeds=1,
        ranks=(1, 2),
        turns=1,
        steps=4,
        breakdown_epochs=1,
        full_snapshots=(2,),
        alphas=(1.0,),
        limits=sizes.Limits(1, 0.2, 8, 0.01),
        map_limits=sizes.Limits(1, 0.1, 8, 0.01),
        delay_s=0.01,
    )


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["system"]: row for row in rows}


def only(monkeypatch: pytest.MonkeyPatch, flare: ModuleType, *names: str) -> None:
    """Leave systems out of a test: each takes processes of its own."""
    known = flare.flare_rows.SYSTEMS
    monkeypatch.setattr(flare.flare_rows, "SYSTEMS", {name: known[name] for name in names})


@pytest.mark.slow
def test_systems_are_trained_beside_their_baselines(
    flare: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, flare, "esdg", "dynahb", "recent-only", "flaredtdg")
    rows = flare.DO["training"](plan)
    systems = by_name(rows)
    alive = {name for name, row in systems.items() if "failed" not in row}
    assert alive == {"esdg", "recent-only", "flaredtdg"}
    for name in alive:
        row = systems[name]
        assert len(row["mse"]) == plan.seeds and row["persistence"] > 0 and row["mean"] > 0
        assert row["updates"][0] >= row["converged_updates"][0] > 0
        assert row["validation"][0] == min(loss for _, _, loss in row["curve"][0])
        described = flare.words.training_text(row)
        assert f"{row['mse'][0]:.5f}" in described and f"{row['persistence']:.5f}" in described
    assert len({tuple(systems[name]["mse"]) for name in alive}) == len(alive)  # each batch its own
    assert all(systems[name]["persistence"] == systems["esdg"]["persistence"] for name in alive)
    missing = systems["dynahb"]
    assert "benchmarks/dynahb.py" in missing["failed"] and missing["failed"] in flare.words.training_text(missing)
    json.dumps([rows, [verdict.text for verdict in flare.claims.training_verdicts(rows)]])


def test_memory_is_judged_where_batches_make_a_difference(flare: ModuleType) -> None:
    def rows(model: str) -> list[dict[str, Any]]:
        sizes = {"full-history": (800, 900, 1000), "flaredtdg": (300, 600, 280), "esdg": (700, 700, None)}
        return [
            {"graph": "g", "model": model, "system": system, "whole_bytes": whole, "peak_bytes": peak, "rows": kept}
            for system, (whole, peak, kept) in sizes.items()
        ]

    judge = flare.flare_rows.judged_memory
    full, ours, rival = judge(rows("tgcn"))
    assert (full["within"], rival["within"], rival["kept"]) == (None, None, None)
    assert (ours["share"], ours["kept"], ours["within"]) == (0.375, 0.28, False)
    assert ours["any_share"] == pytest.approx(2 / 3)
    assert judge(rows("evolvegcn-o"))[1]["within"] is False  # its loss is at all snapshots, so all are computed
    least, less, within = flare.claims.memory_verdicts([full, ours, rival])
    assert least.holds == 1 and "62.5% less in whole windows, 33.3% over all steps" in less.text
    assert within.where == ("g tgcn, flaredtdg: 37.5% of bytes for 28.0%",)
    missing = {"graph": "g", "model": "tgcn", "system": "full-history", "failed": "too large"}
    assert [row["share"] for row in judge([missing, ours])] == [None, None]


def test_peaks_of_steps_are_read_off_a_trace(flare: ModuleType) -> None:
    from dtdg_lab.training.memory import MemoryTrace

    steps = importlib.import_module("contenders.flare_steps")
    marks = ((0.0, 0, "step"), (2.0, 1, "step"), (3.0, 2, "step"))
    trace = MemoryTrace(9, (0.0, 1.0, 2.0, 2.5, 4.0), (0, 9, 4, 7, 5), marks)
    assert steps.peak_of_steps(trace) == [9, 7, 5]


def test_remaps_cut_out_the_same_edges(flare: ModuleType) -> None:
    """Both ways, counted by hand on a ring of six: three nodes of the order hold two edges."""
    from dtdg_lab.graphs.snapshot import Snapshot
    from dtdg_lab.systems.decayed_windows.shrinking import SurvivalOrder
    from dtdg_lab.systems.decayed_windows.window import Window

    naive = importlib.import_module("contenders.flare_naive")
    ring = Snapshot(np.arange(7), np.roll(np.arange(6, dtype=np.int32), 1))
    order = SurvivalOrder(np.array([1, 2, 3, 5, 0, 4]), np.zeros(6, np.int32), np.array([0, 3, 6]))
    batches = [Window(1, range(0, 2), 1, (1,))]
    described = [naive.cut_out([ring, ring], order, batches, naive=way) for way in (True, False)]
    assert [each["edges"] for each in described] == [2, 2]
    assert all(len(each["seconds"]) == 1 and each["peak_bytes"] > 0 for each in described)


def test_a_run_s_seconds_are_shared_out(flare: ModuleType, plan: Any) -> None:
    work = importlib.import_module("contenders.flare_work")
    epoch = {
        "seconds": 10.0,
        "batch_s": 2.0,
        "backward_s": 3.0,
        "communicate_s": 1.0,
        "update_s": 0.5,
        "transfer": {"wall": 0.5},
    }
    described = work.parts_of([epoch, epoch], chunking_s=4.0, shuffle_s=1.0)
    assert described == {
        "chunking": 4.0,
        "shuffle": 1.0,
        "remap": 3.0,
        "forward": 6.0,
        "backward": 6.0,
        "communicate": 2.0,
        "transfer": 1.0,
        "update": 1.0,
    }
    assert sum(described.values()) == 4.0 + 20.0
    (row,) = work.breakdown_rows(plan, plan.timed[0], "tgcn", 1, CORES)
    assert sum(row["shares"].values()) == pytest.approx(1) and min(row["shares"].values()) >= 0
    assert row["shares"]["backward"] > 0 and row["shares"]["chunking"] > 0
    assert f"{row['shares']['remap']:.2%}" in flare.words.breakdown_text(row)


def test_steps_are_timed_beside_full_history_a_port_and_a_full_batch(flare: ModuleType, plan: Any) -> None:
    work = importlib.import_module("contenders.flare_work")
    asked = []

    class Stub:
        def __init__(self, name: str, *_: Any, **settings: Any) -> None:
            assert settings == {"threads": 2, "device": "cpu"}
            asked.append(name)
            times = {"hybrid-steps": 1.0, "hybrid-steps:full-history": 2.0, "flare-port": 1.5}
            self.epochs = [{"seconds": times.get(name, 5.0), "peak_bytes": 1 << 20}]

        def run(self) -> bool:
            self.epochs.append(self.epochs[0])
            return True

        def close(self) -> None:
            """Nothing is held."""

    (row,) = work.step_rows(plan, Stub)
    assert asked[:3] == ["hybrid-steps", "hybrid-steps:full-history", "flare-port"]
    ratios = [row[name][1] for name in ("of_full_history", "port_over_hybrid", "of_full_batch")]
    assert (ratios, row["steps"]) == ([0.5, 1.5, 0.2], 9)
    assert row["missed"] == ["port over 2.0"] and "port over 2.0" in flare.words.step_text(row)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hybrid_steps", "flare_port"])
def test_hybrid_steps_are_an_epoch_of_windows(name: str, flare: ModuleType) -> None:
    from contenders.case import CASES
    from contenders.workload import make

    contender = importlib.import_module(f"contenders.{name}")
    for case in (case for case in CASES if case.name in ("tgcn", "mpnn-lstm")):
        epoch = contender.prepare(case, contender.load(make("W0")))
        first, second = epoch(), epoch()
        assert 0 < second < first  # mean losses over nine updates


def training_row(system: str, *mse: float, **more: Any) -> dict[str, Any]:
    return {
        "graph": "g",
        "model": "m",
        "system": system,
        "mse": list(mse),
        "persistence": 0.5,
        "mean": 0.9,
        "converged_s": [1.0] * len(mse),
        **more,
    }


def test_claims_that_do_not_hold_are_told(flare: ModuleType) -> None:
    judge = flare.claims.training_verdicts
    rows = [
        training_row("esdg", 0.30, 0.30),
        training_row("recent-only", 0.25, 0.15),
        training_row("full-history", 0.2, 0.2),
        training_row("flaredtdg", 0.21, 0.20, converged_s=[0.5, 0.5]),
        {"graph": "g", "model": "m", "system": "dynagraph", "failed": "not built"},
    ]
    best, sooner, recent, full, seconds, baseline = judge(rows)
    assert (best.holds, best.where) == (1, ()) and "holds: 1 of 1" in best.text
    assert sooner.holds == seconds.holds == baseline.holds == 1
    assert recent.holds == 0 and "DOES NOT HOLD HERE" in recent.text  # better with one seed of two only
    assert "0.205 against 0.2" in full.text and full.holds == 0
    none = judge([rows[-1]])
    assert all("Nothing here speaks of it" in verdict.text for verdict in none)


def test_maps_are_judged_by_their_corner_and_their_slopes(flare: ModuleType) -> None:
    def cells(*errors: float) -> list[dict[str, Any]]:
        places = [(full, alpha) for full in (1, 2, 3) for alpha in (0.1, 1.0)]
        return [
            {"graph": "g", "full_snapshots": full, "alpha": alpha, "mse": [error, error], "peak_bytes": 10 * full}
            for (full, alpha), error in zip(places, errors, strict=True)
        ]

    corner, memory, smooth = flare.claims.decay_verdicts(cells(9, 8, 7, 6, 5, 4))
    assert corner.holds == memory.holds == smooth.holds == 1
    corner, _, smooth = flare.claims.decay_verdicts(cells(1, 8, 9, 6, 5, 4))
    assert corner.holds == 0 and "best at K=1, alpha=0.1" in corner.text
    assert smooth.holds == 0 and "(2, 0.1)" in smooth.text


def test_failures_of_a_system_are_rows_and_errors_of_ours_are_not(
    flare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dtdg_lab.core.errors import UnsupportedError
    from dtdg_lab.testing.processes import RanksError

    def refuse() -> dict[str, Any]:
        raise UnsupportedError("cannot carry it")

    def die() -> dict[str, Any]:
        raise RanksError({0: "died with exit code -9"})

    def break_() -> dict[str, Any]:
        raise RanksError({0: "raised"}) from KeyError("rows")

    rows = flare.flare_rows
    assert "cannot carry it" in rows.attempted("esdg", refuse)["failed"]
    assert "out of memory" in rows.attempted("esdg", die)["failed"]
    assert "not timed here" in rows.attempted("dynahb", break_)["failed"]
    with pytest.raises(RanksError):
        rows.attempted("esdg", break_)


def test_backward_is_timed_whoever_calls_it(flare: ModuleType) -> None:
    import torch

    clock = importlib.import_module("contenders.flare_backward").BackwardClock()
    real = torch.autograd.grad
    x = torch.ones(3, requires_grad=True)
    with clock:
        (x * 2).sum().backward()
        first = clock.seconds
        torch.autograd.grad((x * 2).sum(), x)
        assert 0 < first < clock.seconds
    assert torch.autograd.grad is real


@pytest.mark.slow
@pytest.mark.parametrize("part", ["memory", "shrinking", "overlap", "ranks", "decay"])
def test_a_part_runs_and_is_judged(flare: ModuleType, plan: Any, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, flare, "full-history", "esdg", "dynagraph", "dynahb", "flaredtdg")
    measured = flare.measure(part, plan)
    json.dumps(measured)
    assert measured["rows"] and measured["claims"]
    assert {row.get("losses_apart", 0) for row in measured["rows"]} == {0}
