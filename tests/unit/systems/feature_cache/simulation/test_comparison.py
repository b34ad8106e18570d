"""Comparison of policies: means, distances, and what the shipped ones reach on held-out cases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import products, reddit
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.baselines import FixedWindow
from dtdg_lab.systems.feature_cache.policies.interface import ManyPolicy
from dtdg_lab.systems.feature_cache.policies.learned import DOUBLE_DQN, DOUBLE_DQN_PLUS, learned_policy
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.simulation.cases import (
    ARCHETYPES,
    STEADY,
    CacheCase,
    cases_of,
    comparison_cases,
    training_cases,
)
from dtdg_lab.systems.feature_cache.simulation.comparison import (
    SEED,
    ComparedPolicy,
    compare,
    run_policy,
)
from dtdg_lab.systems.feature_cache.simulation.episode import draw_episode
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator
from dtdg_lab.systems.feature_cache.simulation.training import training_costs

COSTS = training_costs(4)
ACTIONS = CacheActions(4)


def simulator(**settings: object) -> CacheSimulator:
    return CacheSimulator(COSTS[:1], comparison_cases()[::7], episodes=6, epochs=6, **settings)  # type: ignore[arg-type]


def test_a_policy_s_runs_are_summed_from_the_first_window_to_the_last_step() -> None:
    runs = run_policy(simulator(), FixedWindow(ACTIONS, 64), number=3)
    for run, number in enumerate(range(3, 9)):
        alone = CacheSimulator(COSTS[:1], comparison_cases()[::7], epochs=6)
        alone.reset(number=number)
        (episode,) = alone.running
        assert runs.joules[run] == pytest.approx(episode.step_costs()[ACTIONS.action(64)].sum())
        seconds = episode.tables.step_s[ACTIONS.action(64), episode.trace.which] * episode.noise
        assert runs.seconds[run] == pytest.approx(seconds.sum())
    with pytest.raises(ConfigError, match="restart=False"):
        run_policy(simulator(restart=True), FixedWindow(ACTIONS))


CASES = (CacheCase("none", "x"), CacheCase("one_slow", "bad", 0.02), CacheCase(STEADY, "slow", 0.0, 2e7))


@pytest.fixture(scope="module")
def compared() -> list[ComparedPolicy]:
    preferring = {"preferring 1": FixedWindow(ACTIONS, 64, 0)}
    return compare(preferring, COSTS, CASES, episodes=3, epochs=12)


@pytest.mark.slow
def test_distances_are_what_they_say(compared: list[ComparedPolicy]) -> None:
    by_name = {(row.costs, row.case, row.policy): row for row in compared}
    for (costs, case, _), row in by_name.items():
        for other, over in (
            ("clairvoyant", row.over_clairvoyant),
            ("best fixed", row.over_best_fixed),
            ("epoch_hot", row.over_epoch_hot),
        ):
            assert over == pytest.approx(row.joules / by_name[costs, case, other].joules - 1)
        fixed = [by_name[costs, case, f"fixed-{window}"].joules for window in WINDOWS]
        assert by_name[costs, case, "best fixed"].joules == min(fixed)
        assert row.over_clairvoyant >= -1e-10
        assert row.seconds > 0
    worst = by_name[COSTS[1].name, "one_slow/bad/delay", "fixed-1"]
    assert worst.over_best_fixed > 0
    assert worst.decisions == 12 * 25 - 1


def test_a_case_s_figures_are_the_means_of_its_own_episodes(compared: list[ComparedPolicy]) -> None:
    for place, case in enumerate(CASES):
        episodes = [
            draw_episode(COSTS[1:], CASES, number, seed=SEED, epochs=12) for number in (place, place + 3, place + 6)
        ]
        assert {episode.case for episode in episodes} == {case}
        expected = np.mean([episode.step_costs()[ACTIONS.action(32)].sum() for episode in episodes])
        (row,) = (
            row for row in compared if (row.costs, row.case, row.policy) == (COSTS[1].name, case.name, "fixed-32")
        )
        assert row.joules == pytest.approx(expected)


def test_a_comparison_of_nothing_is_refused() -> None:
    for costs, cases, episodes in (((), None, 1), (COSTS, (), 1), (COSTS, None, 0)):
        with pytest.raises(ConfigError, match="at least one of each"):
            compare({}, costs, cases, episodes=episodes)


EPISODES = {2: 4, 3: 4, 4: 8}  # of each case, by P
ACCEPTANCE_SEED = 20_000_003  # of no training, and of no choice
HELD_OUT_SEVERITIES = (("slight", 9.0, 600.0), ("marked", 19.0, 150.0), ("grave", 35.0, 60.0))


def acceptance_cases(archetypes: tuple[str, ...] = ARCHETYPES) -> tuple[CacheCase, ...]:
    """Severities that neither training nor comparison has."""
    return cases_of(archetypes, HELD_OUT_SEVERITIES, 0.05)


def accepted(costs: Sequence[CacheCosts], cases: Sequence[CacheCase], episodes: int) -> list[ComparedPolicy]:
    """Each data set's planner knows its constants."""
    rows = []
    for known in costs:
        deciding: dict[str, ManyPolicy] = {
            "planner": CachePlanner(CacheActions(known.parts), known),
            **{name: learned_policy(known.parts, name) for name in (DOUBLE_DQN, DOUBLE_DQN_PLUS)},
        }
        rows += compare(deciding, [known], cases, episodes=episodes, seed=ACCEPTANCE_SEED)
    return rows


@cache
def whole(parts: int) -> list[ComparedPolicy]:
    """All archetypes, severities and data sets."""
    return accepted([products(parts), reddit(parts)], acceptance_cases(), EPISODES[parts])


def over(rows: Sequence[ComparedPolicy], policy: str, what: str) -> np.ndarray:
    return np.array([getattr(row, what) for row in rows if row.policy == policy])


def by_pattern(rows: list[ComparedPolicy], policy: str, what: str) -> dict[tuple[str, str], float]:
    """Means over the cases of a pattern on a data set."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.policy == policy:
            found.setdefault((row.costs, row.case.split("/")[0]), []).append(getattr(row, what))
    return {of: float(np.mean(values)) for of, values in found.items()}


def holds(rows: list[ComparedPolicy]) -> None:
    """The planner's bar: 2 % over the best fixed window in the mean of any pattern, 5 % in any case; and where the

    clairvoyant leaves 6 % to be saved of RapidGNN's joules, the planner saves 4 % in the mean of these cases.
    """
    assert max(by_pattern(rows, "planner", "over_best_fixed").values()) <= 0.02
    assert over(rows, "planner", "over_best_fixed").max() <= 0.05
    assert over(rows, "planner", "over_clairvoyant").min() > -1e-9
    leaves = over(rows, "clairvoyant", "over_epoch_hot") <= -0.06
    assert leaves.any() and over(rows, "planner", "over_epoch_hot")[leaves].mean() <= -0.04


def test_what_policies_are_accepted_by_was_never_met_before() -> None:
    """Neither severities, as far as they spread, nor the seed."""

    def reach(case: CacheCase) -> tuple[tuple[float, float], tuple[float, float]]:
        less, more = 1 - case.spread, 1 + case.spread
        return (case.delay_s * less, case.delay_s * more), (case.bytes_per_s / more, case.bytes_per_s / less)

    held_out = acceptance_cases()
    assert len({case.name for case in held_out}) == len(held_out) == len(comparison_cases())
    for ours, theirs in product(held_out, (*training_cases(), *comparison_cases())):
        delays, rates = zip(reach(ours), reach(theirs), strict=True)
        for (low, high), (other_low, other_high) in (delays, rates):
            unlimited = low in (0.0, np.inf) or other_low in (0.0, np.inf)  # one is a case of rates, or of delays
            assert unlimited or high < other_low or other_high < low, (ours, theirs)
    assert ACCEPTANCE_SEED not in (SEED, 0)


@pytest.mark.slow
def test_what_the_planner_reaches_for_four_parts() -> None:
    """With 4 episodes of each of the 132 cases: at most 1.1 % over the best fixed window in the mean of any pattern,

    3.3 % in any case, and 15 % in the worst episode (rotating links on Reddit). It is 2.4 % (Products) and 3.9 %
    (Reddit) over the clairvoyant, which may abandon windows too. Where the clairvoyant leaves 6 % of RapidGNN's joules,
    it saves 7.2 % of 14.1 and 12.2 % of 26.2 in the mean; in 11 of these 26 cases (oscillating, rotating and Markov)
    less than 4 %. Constants were chosen by ``comparison_cases`` alone, and left as they were after these had been seen.
    """
    rows = whole(4)
    holds(rows)
    assert over(rows, "planner", "over_clairvoyant").mean() < 0.045
    steady = by_pattern(rows, "planner", "over_clairvoyant")
    assert steady["reddit", "steady"] < 0.03  # 22 % while links slow from the start passed for clean ones


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 3])
def test_what_the_planner_reaches_for_fewer_parts(parts: int) -> None:
    """There is less to allocate, and less to lose."""
    rows = whole(parts)
    assert max(by_pattern(rows, "planner", "over_best_fixed").values()) <= 0.02
    assert over(rows, "planner", "over_best_fixed").max() <= 0.05
    assert over(rows, "planner", "over_clairvoyant").mean() < 0.05


@pytest.mark.slow
def test_double_dqn_plus_does_not_reach_the_bar_on_links_that_rotate() -> None:
    """Its worst pattern is rotating links on Reddit: 5.3 % over the best fixed window in the mean, 22.5 % in a case.

    Elsewhere it holds: 2.2 % at most in the mean of a pattern. Before these patterns joined its training these were
    9.2 % and 32.5 %.
    """
    found = by_pattern(whole(4), DOUBLE_DQN_PLUS, "over_best_fixed")
    assert max(found, key=lambda of: found[of]) == ("reddit", "rotating")
    assert 0.02 < found.pop(("reddit", "rotating")) < 0.09
    assert max(found.values()) < 0.03
