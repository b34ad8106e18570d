"""The bench of batch sizes: what a choice does is simulated, drawn and told, and plans are timed as sizes alone are."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from dtdg_lab.core.errors import ConfigError, LabError, PlanError, UnknownNameError
from dtdg_lab.lessons.figures import BY_HAND, sizes_by_hand_figure
from dtdg_lab.lessons.widgets import MOST_STAGES, BatchBench
from dtdg_lab.systems.hybrid_batches.simulator import BatchSimulator, planned_s

SIZES = tuple(itertools.product((0.1, 0.3), (0.01, 0.1)))
TARGET = 0.3
COSTS = {"fixed_s": 2e-4, "per_snapshot_s": 1e-2, "per_share_s": 0.6}
GROWING = BatchSimulator(sizes=SIZES, **COSTS, noise_share=1.2e-4, growth=60, loss_noise=0.02, progress=0.01)
QUICK: dict[str, Any] = {"policies": ("random",), "seeds": (0, 1)}


def _picture(bench: BatchBench) -> dict[str, Any]:
    return next(value for name, value in bench._picture.outputs[0]["data"].items() if "plotly" in name)


def _bars(figure: dict[str, Any]) -> dict[str, float]:
    return dict(zip(figure["data"][0]["y"], figure["data"][0]["x"], strict=True))


@pytest.mark.parametrize("action", range(len(SIZES)))
@pytest.mark.parametrize("stages", [1, 3])
def test_a_plan_of_one_size_takes_as_long_as_the_size_alone(action: int, stages: int) -> None:
    assert planned_s(GROWING, [action] * stages, TARGET) == pytest.approx(GROWING.fixed_s_to(action, TARGET), rel=1e-12)


def test_a_plan_has_its_sizes_in_their_stages() -> None:
    """Steps of no noise all get equally far: half of the way is half of the steps of each size."""
    simulator = BatchSimulator(sizes=SIZES, noise_share=1e-12, progress=1e-3)
    halves = [simulator.fixed_s_to(action, TARGET) / 2 for action in (0, 3)]
    assert planned_s(simulator, [0, 3], TARGET) == pytest.approx(sum(halves), rel=2e-2)
    assert planned_s(simulator, [0, 0, 0, 3], TARGET) == pytest.approx(1.5 * halves[0] + 0.5 * halves[1], rel=2e-2)


def test_where_the_noise_grows_a_plan_that_grows_beats_every_fixed_size_and_its_mirror_image() -> None:
    best = min(GROWING.fixed_s_to(action, TARGET) for action in range(len(SIZES)))
    assert planned_s(GROWING, [0, 0, 1, 1], TARGET) < 0.98 * best < planned_s(GROWING, [1, 1, 0, 0], TARGET)


@pytest.mark.parametrize(
    ("plan", "target", "error"), [([], TARGET, ConfigError), ([0], 2.0, ConfigError), ([4], TARGET, PlanError)]
)
def test_what_is_no_plan_is_refused(plan: list[int], target: float, error: type[LabError]) -> None:
    with pytest.raises(error):
        planned_s(GROWING, plan, target)


def test_a_bench_tells_and_draws_all_that_compete() -> None:
    bench = BatchBench(GROWING, TARGET, **QUICK)
    bars = _bars(_picture(bench))
    assert set(bars) == {BY_HAND, "random", "10% × 1%", "10% × 10%", "30% × 1%", "30% × 10%"}
    assert [*bars.values()] == sorted(bars.values())
    assert bench.plan == [2] * 4 and bars[BY_HAND] == bars["30% × 1%"] == pytest.approx(bench.seconds, abs=1e-6)
    assert bars["random"] == pytest.approx(median(bench.by_seed_s["random"]), abs=1e-6)
    best = min(bench.fixed_s)
    label = bench.labels[bench.fixed_s.index(best)]
    assert f"{best:.1f} s with the best, {label} (known only in hindsight)" in repr(bench)


def test_a_choice_simulates_anew() -> None:
    bench = BatchBench(GROWING, TARGET, **QUICK)
    before = bench.seconds
    bench._menus[-1].value = 1
    assert bench.plan == [2, 2, 2, 1] and bench.seconds < before
    assert _bars(_picture(bench))[BY_HAND] == pytest.approx(bench.seconds, abs=1e-6)
    bench.set([0, 0, 1, 1])
    assert bench.seconds < min(bench.fixed_s) and [menu.value for menu in bench._menus] == [0, 0, 1, 1]
    assert f"Manual plan: {bench.seconds:.1f} s" in bench._described.value


def test_batch_policies_of_a_bench_are_those_of_the_catalogue() -> None:
    bench = BatchBench(GROWING, TARGET, policies=("dqn", "bandit"), seeds=(3,), stages=1)
    assert set(bench.batch_policy_s) == {"dqn", "bandit"} and min(bench.batch_policy_s.values()) > min(bench.fixed_s)


def test_an_batch_policy_that_never_arrives_is_told_and_not_drawn() -> None:
    slow = replace(GROWING, progress=1e-6)
    bench = BatchBench(slow, 0.99995, **QUICK, stages=1, decide_every=20_000)
    bench.__dict__["by_seed_s"] = {"random": [math.inf, math.inf, 1.0]}
    bench.set([0])
    assert "random never reaches the target" in bench.words and "random" not in _bars(_picture(bench))


def test_whiskers_reach_from_the_least_to_the_most() -> None:
    figure = sizes_by_hand_figure(2.0, {"dqn": [1.0, 4.0, 3.0]}, {"all": 5.0})
    at = figure["data"][0]["y"].index("dqn")
    spread = figure["data"][0]["error_x"]
    assert (figure["data"][0]["x"][at], spread["arrayminus"][at], spread["array"][at]) == (3.0, 2.0, 1.0)
    assert figure["layout"]["shapes"][-1]["x0"] == 5.0


@pytest.mark.parametrize(
    ("live_settings", "error"),
    [
        ({"stages": 0}, ConfigError),
        ({"stages": MOST_STAGES + 1}, ConfigError),
        ({"seeds": ()}, ConfigError),
        ({"policies": ("greedy",)}, UnknownNameError),
    ],
)
def test_what_makes_no_bench_of_sizes_is_refused(live_settings: dict[str, Any], error: type[LabError]) -> None:
    with pytest.raises(error):
        BatchBench(GROWING, TARGET, **{**QUICK, **live_settings})


@pytest.mark.parametrize(("plan", "error"), [([0], ConfigError), ([0, 0, 0, 9], PlanError)])
def test_a_plan_that_does_not_fit_the_menus_is_refused_and_leaves_them(plan: list[int], error: type[LabError]) -> None:
    bench = BatchBench(GROWING, TARGET, **QUICK)
    with pytest.raises(error):
        bench.set(plan)
    assert bench.plan == [2] * 4
