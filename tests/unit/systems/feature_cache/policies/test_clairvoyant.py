"""The clairvoyant plan is optimal, and live plans begin as it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdg_lab.core.errors import PlanError
from dtdg_lab.network.patterns import make_pattern
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import reddit
from dtdg_lab.systems.feature_cache.policies.baselines import FixedWindow
from dtdg_lab.systems.feature_cache.policies.clairvoyant import (
    STRETCH,
    Clairvoyant,
    ForeseenWindows,
    best_plan,
    clairvoyant_of,
    cost_of,
)
from dtdg_lab.systems.feature_cache.policies.interface import CacheView
from dtdg_lab.systems.feature_cache.simulation.cases import (
    CacheCase,
    LinkTrace,
    comparison_cases,
    trace_of_pattern,
    training_cases,
)
from dtdg_lab.systems.feature_cache.simulation.comparison import always_compared, run_policy
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode, CacheNoise, draw_episode, replayed_episode
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator
from dtdg_lab.systems.feature_cache.simulation.training import training_costs

PRODUCTS, REDDIT = training_costs(4)


def regret_of(episode: CacheEpisode, windows: Sequence[tuple[int, int]]) -> float:
    """Joules that windows cost beyond the best plan."""
    return cost_of(episode, windows) - float(best_plan([episode]).totals[0])


def drawn(count: int, *, parts: int = 4, seed: int = 3, epochs: int = 8, epoch_steps: int = 10) -> list[CacheEpisode]:
    cases = training_cases()[::7]
    return [
        draw_episode(training_costs(parts), cases, number, seed=seed, epochs=epochs, epoch_steps=epoch_steps)
        for number in range(count)
    ]


def simulator_of(episodes: list[CacheEpisode]) -> CacheSimulator:
    return CacheSimulator(
        [episodes[0].costs],
        episodes=len(episodes),
        epoch_steps=episodes[0].epoch_steps,
        draw=lambda number: episodes[number],
    )


def every_order(windows: list[int], steps: int, first: int = 0) -> Iterator[tuple[tuple[int, int], ...]]:
    """All that can be chosen from a step on; of the choices that reach the end, each is one."""
    for choice, window in enumerate(windows):
        if first + window >= steps:
            yield ((first, choice),)
        else:
            for rest in every_order(windows, steps, first + window):
                yield ((first, choice), *rest)


def test_the_best_plan_is_that_of_brute_force() -> None:
    episodes = [
        draw_episode(
            training_costs(2),
            [CacheCase("one_fast", "x", 0.03), CacheCase("oscillating", "x", 0.02)],
            number,
            seed=1,
            epochs=5,
            epoch_steps=1,
            noise=CacheNoise(step=0.5),
        )
        for number in range(2)
    ]
    plan = best_plan(episodes)
    orders = list(every_order(plan.choices.windows.tolist(), 5))
    assert len(orders) > 1000
    for run, episode in enumerate(episodes):
        costs = [cost_of(episode, order) for order in orders]
        assert plan.totals[run] == pytest.approx(min(costs), rel=1e-12)
        mine = cost_of(episode, plan.windows(run))
        assert mine == pytest.approx(min(costs), rel=1e-12)
        assert max(costs) > 1.02 * min(costs)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_the_simulator_charges_a_plan_what_it_promises(parts: int) -> None:
    episodes = drawn(9, parts=parts)
    plan = best_plan(episodes)
    policy = Clairvoyant(plan, [episode.number for episode in episodes])
    runs = run_policy(simulator_of(episodes), policy, number=0)
    np.testing.assert_allclose(runs.joules, plan.totals, rtol=1e-10)
    assert [list(run) for run in runs.windows] == [plan.windows(run) for run in range(len(episodes))]


@pytest.mark.slow
@settings(max_examples=3)  # each plans for every policy
@given(seed=st.integers(0, 2**32), parts=st.sampled_from([2, 3, 4]))
def test_no_policy_beats_it(seed: int, parts: int) -> None:
    episodes = drawn(6, parts=parts, seed=seed, epochs=3)
    plan = best_plan(episodes)
    actions = CacheActions(parts)
    biased = {f"biased-{window}": FixedWindow(actions, window, parts - 2) for window in WINDOWS}
    simulator = simulator_of(episodes)
    for policy in (always_compared(parts) | biased).values():
        runs = run_policy(simulator, policy, number=0)
        assert (runs.joules >= plan.totals * (1 - 1e-10)).all()
        regrets = [regret_of(episode, run) for episode, run in zip(episodes, runs.windows, strict=True)][:2]
        np.testing.assert_allclose(regrets, (runs.joules - plan.totals)[:2], rtol=1e-6, atol=1e-6)


def test_many_runs_are_planned_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = drawn(9)
    whole = best_plan(episodes)
    monkeypatch.setattr("dtdg_lab.systems.feature_cache.policies.clairvoyant.AT_ONCE", 4)
    parted = best_plan(episodes)
    for name in ("to_go", "best", "lengths"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parted, name))


def test_the_best_plan_abandons_windows_when_links_change() -> None:
    """And what is planned then costs less than with whole windows alone, by what the simulator charges."""
    which = np.repeat([0, 1, 0], [40, 90, 70])
    trace = LinkTrace(np.zeros((2, 3)), np.array([[np.inf] * 3, [np.inf, np.inf, 6.25e6]]), which)
    episode = replayed_episode(trace, REDDIT, epoch_steps=25)
    plan, whole = best_plan([episode]), best_plan([episode], only_actions=True)
    windows = plan.windows()
    assert cost_of(episode, windows) == pytest.approx(plan.totals[0], rel=1e-12)
    assert plan.totals[0] <= whole.totals[0]
    early = [(first, choice) for first, choice in windows if first + plan.choices.windows[choice] > 200]
    late = cost_of(episode, [(0, windows[0][1]), (3, windows[0][1]), *[(s, c) for s, c in windows[1:] if s > 3]])
    assert late > plan.totals[0] and early, "three steps of a window cost both rebuilds"


def test_plans_of_actions_only_are_never_better() -> None:
    episodes = drawn(14)
    whole, actions = best_plan(episodes), best_plan(episodes, only_actions=True)
    assert (actions.totals >= whole.totals * (1 - 1e-12)).all()
    assert actions.best.max() < len(actions.choices.actions)


def test_the_live_plan_prefers_an_owner_while_its_link_is_slow() -> None:
    actions = CacheActions(4)
    which = np.repeat([0, 1, 0], 100)
    trace = LinkTrace(np.array([[0.0] * 3, [0.0, 0.0, 0.05]]), np.full((2, 3), np.inf), which)
    policy = clairvoyant_of(trace, REDDIT, epoch_steps=25)
    plan = best_plan([replayed_episode(trace, REDDIT, epoch_steps=25)], only_actions=True)
    for step in range(0, 300, 7):
        view = CacheView(np.zeros(23, np.float32), np.zeros(3), step, 1, 4)
        assert policy.decide(view).action == plan.best[0, step]

    def asked(step: int, previous: int) -> int | None:
        view = CacheView(np.zeros(23, np.float32), np.zeros(3), step, 25 - step % 25, previous)
        return actions.biased(policy.decide(view).action)

    assert asked(100, actions.action(16)) == 2
    assert asked(150, actions.action(16)) == 2
    assert asked(210, actions.action(16)) is None
    assert asked(10_000, actions.action(16)) is None  # beyond the end of the plan
    firsts = [policy.decide(CacheView(np.zeros(23, np.float32), np.zeros(3), step, 1, 4)) for step in (0, 299)]
    assert all(decision.policy == "clairvoyant" and decision.action < len(actions) for decision in firsts)


def test_what_cannot_be_planned_or_charged_is_refused() -> None:
    short, long = drawn(1), drawn(1, epochs=9)
    with pytest.raises(PlanError, match="one size is needed"):
        best_plan([*short, *long])
    with pytest.raises(PlanError, match="one size is needed"):
        best_plan([])
    for windows in ([], [(1, 4)], [(0, 4), (0, 4)], [(0, 4), (80, 4)]):
        with pytest.raises(PlanError, match="must ascend from 0"):
            cost_of(short[0], windows)


def test_a_replay_without_noise_costs_what_the_constants_say() -> None:
    case = comparison_cases(("two_asymmetric",))[2]
    trace = case.draw(np.random.default_rng(5), 4, epochs=20, epoch_steps=25)
    episode = replayed_episode(trace, PRODUCTS, epoch_steps=25)
    actions = CacheActions(4)
    expected = 0.0
    for first in range(0, trace.steps, 64):
        for step in range(first, min(first + 64, trace.steps)):
            at = trace.which[step]
            cost = PRODUCTS.step(64, trace.delay_s[at], trace.bytes_per_s[at], actions.shares(actions.action(64, 1)))
            expected += float(cost.joules)
    windows = [(first, actions.action(64, 1)) for first in range(0, trace.steps, 64)]
    assert cost_of(episode, windows) == pytest.approx(expected, rel=1e-10)


def test_the_best_plan_has_no_regret_and_the_worst_window_has() -> None:
    for episode in drawn(6):
        worst = int(episode.step_costs().sum(axis=1).argmax())
        assert regret_of(episode, best_plan([episode]).windows()) == pytest.approx(0, abs=1e-6)
        assert regret_of(episode, [(0, worst)]) > 0


def view(step: int) -> CacheView:
    return CacheView(np.zeros(23, np.float32), np.zeros(3), step, 25, CacheActions(4).action(16))


def test_stretch_plans_equal_the_whole_plan_at_first() -> None:
    pattern = make_pattern("one_slow", parts=4, seed=3, mbit=80.0, delay_ms=0.0, first_epoch=1, cycle=4, epochs=60)
    policy = ForeseenWindows(pattern, reddit(), part=0, epoch_steps=25)
    epochs = -(-STRETCH // 25)
    whole = clairvoyant_of(trace_of_pattern(pattern, 0, range(25 * epochs), epoch_steps=25), reddit(), epoch_steps=25)
    steps = range(0, STRETCH // 2, 50)
    ours, best = ([each.decide(view(step)).action for step in steps] for each in (policy, whole))
    assert ours == best and len(set(ours)) > 1
    later = policy.decide(view(5 * STRETCH + 7))  # beyond the first plan, at a place where another begins
    assert 0 <= later.action < 32 and later.policy == "clairvoyant"
