"""The bench of caches: what a choice does is simulated, drawn and told, and nothing of what is to come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.lessons.widgets import CacheBench
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import reddit
from dtdg_lab.systems.feature_cache.charts.manual_windows import BY_HAND
from dtdg_lab.systems.feature_cache.policies.baselines import FixedWindow, RuleWindows
from dtdg_lab.systems.feature_cache.policies.clairvoyant import best_plan, cost_of
from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase, LinkTrace
from dtdg_lab.systems.feature_cache.simulation.comparison import run_policy
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode, draw_episode, replayed_episode
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator
from tests.feature_world import view_of
from tests.thinning import thinned

ACTIONS = CacheActions(4)
THROTTLED = 50e6 / 8
STEPS, SLOW_FROM, SLOW_TO = 200, 80, 160


def _episode() -> CacheEpisode:
    """Part 2 throttled from step 80 to 159; nothing strays."""
    which = np.zeros(STEPS, dtype=np.int64)
    which[SLOW_FROM:SLOW_TO] = 1
    rates = np.full((2, 3), np.inf)
    rates[1, 1] = THROTTLED
    return replayed_episode(LinkTrace(np.zeros((2, 3)), rates, which), reddit(), epoch_steps=25)


def _to_the_latest(late_ms: Any) -> tuple[int, int | None]:
    latest = max(late_ms, key=late_ms.get)
    return (16, latest) if late_ms[latest] > 10 else (16, None)


@pytest.fixture
def bench() -> CacheBench:
    return CacheBench(_episode(), {"always 4": FixedWindow(ACTIONS, 4)})


def _picture(bench: CacheBench) -> dict[str, Any]:
    return next(value for name, value in bench._picture.outputs[0]["data"].items() if "plotly" in name)


def _names(bench: CacheBench) -> set[str]:
    return {trace["name"] for trace in _picture(bench)["data"] if "name" in trace}


def test_a_choice_that_is_kept_is_the_fixed_window(bench: CacheBench) -> None:
    bench.keep(16)
    simulator = CacheSimulator([bench.episode.costs], draw=lambda _: bench.episode)
    alone = run_policy(simulator, FixedWindow(ACTIONS, 16))
    assert bench.joules == pytest.approx(float(alone.joules[0]), rel=1e-12) and bench.windows == list(alone.windows[0])


@pytest.mark.slow
def test_nobody_beats_the_clairvoyant_and_its_own_choices_reach_it(bench: CacheBench) -> None:
    best = best_plan([bench.episode]).totals[0]
    assert bench.rivals_j["clairvoyant"] == pytest.approx(best, rel=1e-12)
    bench.keep(1)
    assert bench.over_clairvoyant > 0.5
    bench.restart()
    for _, choice in best_plan([bench.episode], only_actions=True).windows():
        bench.choose(*bench._meant(choice))
    assert bench.done and 0 <= bench.over_clairvoyant < 0.01
    fixed = min(cost_of(bench.episode, [(step, w) for step in range(0, STEPS, 2**w)]) for w in range(8))
    assert bench.rivals_j["best fixed"] == pytest.approx(fixed, rel=1e-12)


@pytest.mark.slow
def test_a_choice_holds_from_the_next_boundary_on(bench: CacheBench) -> None:
    bench.choose(16)
    assert bench.windows == [(0, 0 * 8 + 4)] and "Step 0 of 200. Up to step 15 " in bench.words
    bench.choose(64, 2)
    assert bench.windows[1] == (16, ACTIONS.action(64, 1))
    assert "Step 16 of 200. Up to step 79 the cache has W = 64, mostly for partition 2" in bench.words
    assert bench.late_ms == {1: 0.0, 2: 0.0, 3: 0.0} and "Estimated delays: none" in bench.words


def test_what_is_to_come_is_not_shown(bench: CacheBench) -> None:
    bench.choose(64)
    bench.choose(32)  # now at step 64, before the link is slow
    figure = _picture(bench)
    assert not [shape for shape in figure["layout"]["shapes"] if shape.get("fillcolor")]
    assert max(max(trace["x"]) for trace in figure["data"] if trace.get("name") == "always 4") <= 64
    bench.choose(64)  # now at step 96, 16 steps after the link became slow
    assert [shape["x0"] for shape in _picture(bench)["layout"]["shapes"] if shape.get("fillcolor")] == [80.0] * 2
    assert bench.late_ms[2] > 10 > bench.late_ms[1] and "Estimated delays: partition 2" in bench.words
    notes = " ".join(note["text"] for note in _picture(bench)["layout"]["annotations"])
    assert "At step 96: part 2 at 50 Mbit/s." in notes.replace("<br>", " ")


def test_joules_and_rivals_are_told_at_the_end_only(bench: CacheBench) -> None:
    bench.choose(16)
    with pytest.raises(PlanError, match="no total before its end"):
        _ = bench.over_clairvoyant
    bench.follow(_to_the_latest)
    assert (
        bench.over_clairvoyant
        < min(bench.rivals_j[name] for name in ("best fixed", "always 4")) / (bench.rivals_j["clairvoyant"]) - 1
    )
    assert f"Manual choices: {bench.joules / 1e3:.2f} kJ" in repr(bench) and "always 4 " in bench.words
    assert {BY_HAND, "always 4", "best fixed"} <= _names(bench)


def test_going_back_forgets_the_last_choice_and_no_other(bench: CacheBench) -> None:
    for window in (16, 8, 64):
        bench.choose(window)
    known = [list(bench.windows), bench.words]
    bench.choose(2, 1)
    bench.back()
    assert [bench.windows, bench.words] == known
    bench.restart()
    bench.back()
    assert bench.windows == [] and bench.words.startswith("Step 0 of 200. Choose the first cache")


def test_buttons_do_what_calls_do(bench: CacheBench) -> None:
    rebuild, keep, back, again = bench._buttons
    bench._window.value, bench._preferred.value = "32", 3
    rebuild.click()
    assert bench.windows == [(0, ACTIONS.action(32, 2))]
    keep.click()
    assert bench.done and rebuild.disabled and len(bench.windows) == -(-STEPS // 32)
    back.click()
    assert not bench.done and not rebuild.disabled
    again.click()
    assert bench.windows == []


@pytest.mark.parametrize(("window", "preferred"), thinned([(3, None), (16, 0), (16, 4)], [1]))
def test_a_refused_choice_changes_nothing(bench: CacheBench, window: int, preferred: int | None) -> None:
    bench.choose(16)
    with pytest.raises(PlanError):
        bench.choose(window, preferred)
    assert bench.windows == [(0, 4)]


def test_after_the_end_nothing_can_be_chosen(bench: CacheBench) -> None:
    bench.keep(128)
    with pytest.raises(PlanError, match="has ended"):
        bench.choose(16)


def test_a_rule_decides_in_the_simulator_as_on_the_bench(bench: CacheBench) -> None:
    """The same lateness is told to both, and means the same parts."""
    simulator = CacheSimulator([bench.episode.costs], draw=lambda _: bench.episode)
    run = run_policy(simulator, RuleWindows(ACTIONS, _to_the_latest))
    bench.follow(_to_the_latest)
    assert bench.windows == list(run.windows[0])
    assert {ACTIONS.biased(choice) for _, choice in bench.windows} == {None, 1}
    views = simulator.views()
    again = RuleWindows(ACTIONS, lambda late_ms: (8, 1), part=3)
    assert again.decide(view_of(views, 0)).action == again.decide_all(views)[0] == ACTIONS.action(8, 1)


@pytest.mark.parametrize("rule", [lambda late: None, lambda late: 16, lambda late: (16, 0), lambda late: (5, None)])
def test_a_rule_that_gives_no_choice_is_refused(rule: Any) -> None:
    simulator = CacheSimulator([reddit()], [CacheCase("none", "none")], epochs=2)
    with pytest.raises(PlanError):
        run_policy(simulator, RuleWindows(ACTIONS, rule))


def test_a_bench_of_a_drawn_episode_has_its_usual_rivals() -> None:
    case = CacheCase("two_symmetric", "some", 0.02)
    bench = CacheBench(draw_episode([reddit()], [case], 3, seed=1, epochs=8))
    bench.keep(8)
    assert set(bench.rivals_j) == {"threshold", "epoch_hot", "best fixed", "clairvoyant"}
