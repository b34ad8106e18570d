"""What benchmarks/dynahb.py tells follows from what ranks did, its claims are judged by rows, and its parts run."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from types import ModuleType
from typing import Any

import pytest

from tests.distributed.benchmark_modules import benchmark

CORES = tuple(sorted(os.sched_getaffinity(0)))


hybrid = benchmark("dynahb")


@pytest.fixture
def plan(hybrid: ModuleType) -> Any:
    """A hundred and fifty nodes, thirty snapshots, one timed turn, trainings of a tenth of a second."""
    sizes = importlib.import_module("contenders.hb_plan")
    tiny = sizes.grown(150, 600, 31)
    brief = sizes.Limits(0.1, 10, 5, 0.01, 2.0, 1e-3, 0.01)
    return dataclasses.replace(
        hybrid.QUICK_PLAN,
        trained=(tiny,),
        timed=tiny,
        chosen=(tiny,),
        sized=(tiny,),
        partitioned=(tiny,),
        cut=tiny,
        ranks=(1, 2),
        layers=(1,),
        turns=1,
        steps=3,
        turn_s=0.05,
        repeats=2,
        limits=brief,
        adjusting=brief,
    )


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Leave systems out of a test."""
    for module, known in (("hb_plan", "SYSTEMS"), ("hb_costs", "SYSTEMS")):
        monkeypatch.setattr(importlib.import_module(f"contenders.{module}"), known, names)


def alive(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["system"]: row for row in rows if "failed" not in row}


def a_row(system: str, *curves: list[tuple[float, int, float]], **more: Any) -> dict[str, Any]:
    """A row of trainings with the fields that losses are judged by."""
    best = [min(loss for _, _, loss in curve) for curve in curves]
    return {
        "graph": "g",
        "model": "tgcn",
        "ranks": 1,
        "system": system,
        "curve": list(curves),
        "validation": best,
        "persistence": 0.5,
        "mean": 0.6,
        "test": best,
        **more,
    }


def test_trainings_end_where_nothing_is_better(hybrid: ModuleType) -> None:
    curve = importlib.import_module("contenders.hb_training").Curve()
    described = [curve.add(float(at), at, loss, 0.001) for at, loss in enumerate((0.1, 0.5, 0.4999, 0.499, 0.7))]
    assert described == [False, True, False, True, False]  # training is needed, and a thousandth
    assert (curve.best, curve.at, curve.without) == (0.499, 3, 1)
    unknown = importlib.import_module("contenders.hb_training").Curve()
    assert not unknown.add(0.5, 1, float("inf"), 0.001) and unknown.add(1.0, 1, 2.0, 0.001)


def test_times_to_a_common_loss_are_read_off_the_curves(hybrid: ModuleType) -> None:
    slow = a_row("dbos", [(0.0, 0, 1.0), (4.0, 1, 0.5), (8.0, 2, 0.4)], [(0.0, 0, 1.0), (6.0, 1, 0.42)])
    fast = a_row("dynahb", [(0.0, 0, 0.3), (1.0, 9, 0.41), (2.0, 20, 0.2)], [(0.0, 0, 1.0), (1.5, 9, 0.39)])
    dead = {"graph": "g", "model": "tgcn", "ranks": 1, "system": "adgnn-t", "failed": "too large"}
    slow, dead, fast = hybrid.hb_rows.judged([slow, dead, fast])
    assert slow["common"] == fast["common"] == 0.42  # the worst training's lowest
    assert (slow["common_s"], fast["common_s"]) == ([8.0, 6.0], [1.0, 1.5])  # what was not trained does not count
    assert fast["common_over_rival"] == 8 / 1.5 and slow["common_over_rival"] == 1
    assert fast["near"] == pytest.approx(1.05085 * (0.2 + 0.39) / 2)
    assert (slow["near_s"], fast["near_s"]) == ([None, None], [2.0, None]) and slow["near_over_rival"] is None
    assert hybrid.hb_rows.middle([None, 1.0, 2.0]) == 2.0 and hybrid.hb_rows.middle([None, 1.0]) is None
    first, mean, *_, naive = hybrid.claims.convergence_verdicts([slow, dead, fast])
    assert first.holds == 2 and mean.where == (f"g tgcn: {8 / 1.5:.2f} to the common loss",) and naive.holds == 1


def test_batch_policies_are_held_against_the_best_size_after_fifty_decisions(
    hybrid: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(second: float) -> list[tuple[float, int, float]]:
        return [(0.0, 0, 1.0), (second, 5, 0.1)]

    times = {"0.2 x 0.1": 2.0, "1 x 0.1": 9.0, "random": 4.0, "bandit": 1.0, "dqn": 3.0, "law": 1.5}
    each_s = {"random": 0.08, "bandit": 0.03, "dqn": 0.06, "law": 0.02}  # between two decisions

    def made() -> list[dict[str, Any]]:
        rows = []
        for name, second in times.items():
            decided = [each_s[name] * n for n in range(1, 200)] if name in each_s else []
            rows.append(a_row(name, at(second), at(second), decided_s=[decided, decided]))
        return hybrid.hb_rows.judged(rows)

    monkeypatch.setattr(hybrid.hb_rows, "training_rows", lambda *_, **__: made())
    rows = hybrid.hb_rows.batch_policy_rows(plan, plan.chosen[0], CORES)
    assert {row["system"]: row["regret_s"] for row in rows} == {name: second - 2 for name, second in times.items()}
    assert {row["system"]: row["decisions"] for row in rows if "decisions" in row} == {
        "random": [50, 50],
        "bandit": [33, 33],
        "dqn": [50, 50],
        "law": [75, 75],
    }
    enough, best, random, bandit, *law = hybrid.claims.batch_policy_verdicts(rows)
    assert enough.holds == 3 and enough.where == ("g tgcn, bandit: 33",)
    assert (best.holds, random.holds) == (0, 1) and [each.holds for each in law] == [1, 1, 1]
    assert (bandit.holds, bandit.where) == (0, ()), "one that hardly decided is not compared"
    assert best.where == ("g tgcn, 0.2 x 0.1: 3 s against 2 s",) and "DOES NOT HOLD HERE" in best.text


def test_ratios_have_a_spread_and_count_who_never_arrives(hybrid: ModuleType) -> None:
    def at(*seconds: float | None) -> list[list[tuple[float, int, float]]]:
        return [[(0.0, 0, 1.0), (9.0, 9, 0.2) if each is None else (each, 5, 0.1)] for each in seconds]

    slow = a_row("dbos", *at(4.0, 6.0, 5.0, None, None))
    fast = a_row("dynahb", *at(1.0, 2.0, None, 1.0, None))
    slow, fast = hybrid.hb_rows.judged([slow, fast])
    assert fast["near_over_rivals"] == [4.0, 3.0, 0.0, float("inf"), None]
    assert fast["near_over_rival"] == 6.0 / 2.0 and slow["near_over_rivals"][:3] == [1.0, 1.0, 1.0]
    shown = {**fast, "stays": [True] * 5, "step_s": [0.1] * 5, "metrics": [], "converged_s": [1.0] * 5}
    text = hybrid.words.training_text(shown)
    assert "3.00 (0.00 to inf)" in text and "1.0 s, 2.0 s, never (3 of 5)" in text


def test_systems_are_trained_by_one_rule(hybrid: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "pygt-dist", "adgnn-x", "dbos", "dynahb")
    rows = hybrid.DO["convergence"](plan)
    systems = alive(rows)
    assert set(systems) == {"pygt-dist", "dbos", "dynahb"}
    assert [row["failed"] for row in rows if row["system"] == "adgnn-x"] == ["not built"]
    for name, row in systems.items():
        (curve,), (phases,) = row["curve"], row["phases"]
        assert curve[0][:2] == (0.0, 0)  # untrained
        assert row["validation"][0] * 0.999 <= min(loss for *_, loss in curve[1:]) <= row["validation"][0]
        assert [at for at, *_ in curve] == sorted(at for at, *_ in curve) and row["steps"][0] >= curve[-1][1]
        assert row["persistence"] > 0 and row["test"][0] > 0 and row["step_s"][0] > 0
        assert sum(seconds for what, seconds in phases.items() if what != "rsv") <= row["converged_s"][0]
        assert bool(row["decided_s"][0]) is (name == "dynahb")
        assert ("rl" in phases) is (name == "dynahb")
        assert f"{row['validation'][0]:.5f}" in hybrid.words.training_text(row)
        assert all(
            isinstance(line, str) for line in (hybrid.words.breakdown_text(row), hybrid.words.batch_policy_text(row))
        )
    assert systems["dbos"]["curve"] != systems["pygt-dist"]["curve"]
    assert set(systems["dynahb"]["sources"][0]) <= {"snapshot", "reservoir", "new"}
    json.dumps([rows, [verdict.text for verdict in hybrid.claims.convergence_verdicts(rows)]])


def test_variants_differ_in_what_they_are_named_by(hybrid: ModuleType, plan: Any) -> None:
    sizes = importlib.import_module("contenders.hb_plan")

    def made(variants: Any) -> dict[str, Any]:
        return {name: sizes.config(plan.timed, chosen, "tgcn", ranks=1, parts=2) for name, chosen in variants.items()}

    ablation = made(sizes.variants_of_ablation())
    assert [each["exchange"] for each in ablation.values()] == ["gradients"] * 2 + ["models"] * 3
    assert [each["partitioner"] for each in ablation.values()] == ["metis"] + ["load_aware"] * 4
    assert [each["batch_policy"] for each in ablation.values()] == ["none"] * 3 + ["dqn"] * 2
    assert [each["reservoir"] for each in ablation.values()] == [False] * 4 + [True]
    dqn = made(sizes.variants_of_dqn())
    assert len({each.to_json() for each in dqn.values()}) == len(dqn) == 8
    batch_policies = made(sizes.variants_of_batch_policies(plan))
    assert len({each.to_json() for each in batch_policies.values()}) == len(batch_policies) == 8
    assert batch_policies["1 x 0.1"]["batch_snapshots"] == 1.0 and batch_policies["dqn"]["snapshot_sizes"] == "0.2 1"
    assert made(sizes.variants_of_sizes())["20%"]["batch_nodes"] == 0.2


def test_graphs_are_made_once_and_cut(hybrid: ModuleType, plan: Any) -> None:
    from dtdg_lab.datasets.names import load_dataset

    made = hybrid.stored(dataclasses.replace(plan, classified=plan.timed))
    assert made.timed.dataset.startswith("graph:") and made.trained[0] == made.timed == made.cut
    half, whole = (load_dataset(hybrid.shortened(made.cut, share).dataset) for share in (0.5, 1.0))
    assert (half.num_snapshots, whole.num_snapshots) == (15, 30) and half.num_nodes == whole.num_nodes


def test_plans_are_what_was_asked_for(hybrid: ModuleType) -> None:
    asked = ["--quick", "--only", "grown 800", "--layers", "3", "--seeds", "2", "--seconds", "1"]
    plan = hybrid.planned(hybrid.arguments(asked))
    assert [each.name for each in plan.sized] == ["grown 800"] and plan.trained == ()
    assert (plan.layers, plan.seeds, plan.limits.seconds, plan.adjusting.seconds) == ((3,), 2, 1, 1)
    with pytest.raises(SystemExit, match="no such graph"):
        hybrid.planned(hybrid.arguments(["--only", "grown 9"]))
    assert hybrid.planned(hybrid.arguments(["--quick", "--systems", "dbos", "dynahb"])).systems == ("dbos", "dynahb")
    assert hybrid.FULL_PLAN.seeds == 5
    assert set(hybrid.claims.JUDGES) <= set(hybrid.DO) and all(part in hybrid.__doc__ for part in hybrid.DO)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["partitions", "memory", "reservoir", "slowed", "straggler", "building", "truncation"])
def test_a_part_runs_and_is_judged(hybrid: ModuleType, plan: Any, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "pygt-dist", "dynahb")
    measured = hybrid.measure(part, plan)
    json.dumps(measured)
    assert measured["rows"] and measured["claims"]
