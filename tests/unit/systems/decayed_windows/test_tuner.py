"""Greedy choice of K and alpha: its neighbours, its budget, and where it ends on maps whose best point is known."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.engine.capabilities import DecisionRow
from dtdg_lab.systems.decayed_windows.tuner import GIB, Setting, candidates, decide, is_due, neighbours, next_setting

WINDOW = 8


def pairs(settings: tuple[Setting, ...]) -> list[tuple[int, float]]:
    return [(setting.full_snapshots, setting.alpha) for setting in settings]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ((2, 0.3), [(1, 0.3), (2, 0.2), (2, 0.4), (3, 0.3)]),
        ((1, 0.3), [(1, 0.2), (1, 0.4), (2, 0.3)]),
        ((2, 0.1), [(1, 0.1), (2, 0.2), (3, 0.1)]),
        ((2, 0.15), [(1, 0.15), (2, 0.1), (2, 0.25), (3, 0.15)]),
        ((2, 1e-4), [(1, 1e-4), (2, 0.1001), (3, 1e-4)]),
        ((2, 0.05), [(1, 0.05), (2, 0.15), (3, 0.05)]),
        ((2, 0.95), [(1, 0.95), (2, 0.85), (2, 1.0), (3, 0.95)]),
        ((2, 1.0), [(1, 1.0), (2, 0.9), (3, 1.0)]),
        ((7, 0.5), [(6, 0.5), (7, 0.4), (7, 0.6), (8, 0.5)]),
        ((8, 0.5), [(7, 0.5)]),
        ((9, 0.5), [(7, 0.5)]),
    ],
)
def test_neighbours_are_one_step_away_and_within_bounds(
    at: tuple[int, float], expected: list[tuple[int, float]]
) -> None:
    assert pairs(neighbours(Setting(*at), window=WINDOW)) == expected


def test_a_window_of_one_snapshot_leaves_nothing_to_choose() -> None:
    assert neighbours(Setting(1, 0.5), window=1) == ()


def test_steps_do_not_add_up_to_other_numbers() -> None:
    at = Setting(2, 0.1)
    for _ in range(9):
        at = neighbours(at, window=WINDOW)[-2]
    assert at == Setting(2, 1.0)
    for _ in range(9):
        at = neighbours(at, window=WINDOW)[1]
    assert at == Setting(2, 0.1)


def test_only_what_is_within_the_budget_is_a_candidate() -> None:
    def predicted(setting: Setting) -> float:
        return 100.0 * setting.full_snapshots + 50.0 * setting.alpha

    def found(at: Setting, most: float) -> list[tuple[int, float]]:
        peaks = {setting: predicted(setting) for setting in (at, *neighbours(at, window=WINDOW))}
        return pairs(candidates(at, peaks, most))

    at = Setting(3, 0.5)  # 325 bytes; its neighbours 225, 320, 330 and 425
    assert found(at, 1000) == [(2, 0.5), (3, 0.4), (3, 0.6), (4, 0.5)]
    assert found(at, 425) == [(2, 0.5), (3, 0.4), (3, 0.6), (4, 0.5)]
    assert found(at, 424) == [(2, 0.5), (3, 0.4), (3, 0.6)]
    assert found(at, 325) == [(2, 0.5), (3, 0.4)]
    assert found(at, 300) == [(2, 0.5)], "over the budget itself: what is within"
    assert found(at, 100) == [(2, 0.5)], "none is within: the one that needs least"
    assert found(Setting(1, 1e-4), 10) == [], "nothing needs less"


@pytest.mark.parametrize(
    ("losses", "must_leave", "expected"),
    [
        ([1.0, 0.9, 0.8, 1.1, 1.2], False, 2),
        ([1.0, 1.1, 1.2, 1.3, 1.4], False, 0),
        ([1.0, 1.0, 0.99995, 1.0, 1.0], False, 0),  # less than a relative 1e-4 better
        ([1.0, 1.0, 0.9998, 1.0, 1.0], False, 2),
        ([-1.0, -0.9, -1.1, -1.0, -1.0], False, 2),
        ([1.0, 0.5, 0.5, 0.5, 0.5], False, 1),  # ties go to less work
        ([0.0, 0.0, 0.0, 0.0, 0.0], False, 0),
        ([1.0, math.nan, 0.9, math.inf, -math.inf], False, 2),
        ([math.nan, 2.0, 1.5, 3.0, math.nan], False, 2),
        ([math.nan] * 5, False, 0),
        ([1.0, 1.3, 1.2, 1.3, 1.4], True, 2),
        ([1.0, math.nan, math.nan, math.nan, math.nan], True, 0),
    ],
)
def test_the_best_neighbour_is_taken_if_it_is_better(losses: list[float], must_leave: bool, expected: int) -> None:
    at = Setting(3, 0.5)
    order = (at, *neighbours(at, window=WINDOW))
    values = dict(zip(order, losses, strict=True))
    assert next_setting(at, values, must_leave=must_leave) == order[expected]


@pytest.mark.slow
@given(
    best=st.tuples(st.integers(1, WINDOW - 1), st.integers(1, 10)),
    start=st.tuples(st.integers(1, WINDOW - 1), st.integers(1, 10)),
    most=st.integers(10, 80),
)
def test_on_a_convex_map_it_ends_at_the_best_point_that_the_budget_allows(
    best: tuple[int, int], start: tuple[int, int], most: int
) -> None:
    """Bytes are 10 K: the budget is a wall across the map. From beyond it, it comes back first, then goes on."""
    expected = Setting(min(best[0], most // 10), best[1] / 10)

    def loss(setting: Setting) -> float:
        return 1.0 + (setting.full_snapshots - best[0]) ** 2 + 10 * (setting.alpha - best[1] / 10) ** 2

    at = Setting(start[0], start[1] / 10)
    for _ in range(2 * WINDOW + 20):
        peaks = {setting: 10.0 * setting.full_snapshots for setting in (at, *neighbours(at, window=WINDOW))}
        around = candidates(at, peaks, most)
        over = 10 * at.full_snapshots > most
        chosen = next_setting(at, {setting: loss(setting) for setting in (at, *around)}, must_leave=over)
        if chosen == at:
            break
        assert chosen in around
        assert over or loss(chosen) < loss(at)
        at = chosen
    assert at == expected


def config_of(**changes: Any) -> RunConfig:
    return RunConfig(**{"system": "flaredtdg", "dataset": "growing", "tune": True, "tune_every": 2, **changes})


class Trials:
    """A validation split whose loss is lowest at K = 4, alpha 0.3, and that remembers the settings tried."""

    def __init__(self) -> None:
        self.settings: list[Setting] = []

    def __call__(self, setting: Setting) -> float:
        self.settings.append(setting)
        return 1.0 + (setting.full_snapshots - 4) ** 2 + (setting.alpha - 0.3) ** 2


@pytest.mark.parametrize(
    ("config", "due"),
    [
        (config_of(), [1, 3, 5]),
        (config_of(tune_every=1), [0, 1, 2, 3, 4, 5]),
        (config_of(tune_every=4), [3]),
        (config_of(tune=False), []),
        (RunConfig(system="single"), []),
    ],
    ids=("every second epoch", "every epoch", "every fourth epoch", "off", "another system"),
)
def test_it_looks_every_few_epochs_where_it_is_on(config: RunConfig, due: list[int]) -> None:
    assert [epoch for epoch in range(6) if is_due(config, epoch)] == due


def decided(trials: Trials, **changes: Any) -> DecisionRow:
    """Return a decision where each full snapshot needs 0.1 GiB."""
    return decide(config_of(**changes), trials, lambda setting: 0.1 * GIB * setting.full_snapshots)


def test_a_decision_tells_what_it_was_made_of() -> None:
    trials = Trials()
    decision = decided(trials, full_snapshots=2, alpha=0.1, tune_memory_gib=0.25)
    assert trials.settings == [(2, 0.1), (1, 0.1), (2, 0.2)], "K=3 would need 0.3 GiB and is not tried"
    assert decision.state == {"full_snapshots": 2, "alpha": 0.1, "bytes": 0.2 * GIB, "most_bytes": 0.25 * GIB}
    settings = [(value["full_snapshots"], value["alpha"]) for value in decision.values]
    assert settings == [*trials.settings, (3, 0.1)]
    assert [value["loss"] is None for value in decision.values] == [False] * 3 + [True]
    assert decision.values[-1]["bytes"] == pytest.approx(0.3 * GIB)
    assert decision.action == {"full_snapshots": 2, "alpha": 0.2}
    assert decision.reward == pytest.approx(0.2**2 - 0.1**2)


def test_it_stays_at_the_best_point() -> None:
    decision = decided(Trials(), full_snapshots=4, alpha=0.3)
    assert (decision.action, decision.reward) == ({"full_snapshots": 4, "alpha": 0.3}, 0.0)


def test_over_the_budget_it_leaves_whatever_the_loss() -> None:
    decision = decided(Trials(), full_snapshots=4, alpha=0.3, tune_memory_gib=0.15)
    assert decision.action == {"full_snapshots": 3, "alpha": 0.3}
    assert decision.reward == pytest.approx(-1.0)


def test_the_path_of_the_paper_leads_from_its_start_to_the_best_point() -> None:
    setting: dict[str, Any] = {}
    path = []
    for _ in range(10):
        setting = decided(Trials(), **setting).action
        path.append((setting["full_snapshots"], setting["alpha"]))
    assert path[:4] == [(3, 0.1), (4, 0.1), (4, 0.2), (4, 0.3)]
    assert set(path[3:]) == {(4, 0.3)}
