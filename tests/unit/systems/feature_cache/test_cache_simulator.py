"""The cache simulator: cases, states, costs against a slow reference, rewards, what is heard, restarts, speed."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.network.patterns import LinkState
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.delay_estimator import DelayEstimator
from dtdg_lab.systems.feature_cache.policies.state import CacheObservation, cache_state, state_bounds, state_size
from dtdg_lab.systems.feature_cache.simulation.cases import (
    ALL_STEADY,
    ARCHETYPES,
    COMPARED_SEVERITIES,
    STEADY,
    TRAINED_SEVERITIES,
    CacheCase,
    comparison_cases,
    training_cases,
)
from dtdg_lab.systems.feature_cache.simulation.episode import NO_NOISE, CacheEpisode, CacheNoise, draw_episode
from dtdg_lab.systems.feature_cache.simulation.link_trace import LinkTrace, trace_of_links, trace_of_pattern
from dtdg_lab.systems.feature_cache.simulation.simulator import REFERENCE, CacheSimulator
from dtdg_lab.systems.feature_cache.simulation.training import training_costs

COSTS = training_costs(4)
ACTIONS = CacheActions(4)
SLOW = CacheCase("one_slow", "bad", 0.02)


def observation(**changes: object) -> CacheObservation:
    measured: dict[str, object] = {
        "delays_s": np.array([0.0, 0.01, 0.2]), "fetch_s": 0.01, "hit_rates": np.array([0.1, 0.2, 0.3]),
        "hit_rate": 0.25, "step_s": 0.2, "base_step_s": 0.1, "step_j": 30.0, "base_step_j": 10.0, "rebuild_share": 0.4,
        "miss_share": 0.5, "left_share": 0.6, "previous": ACTIONS.action(16, 1),
    }  # fmt: skip
    return CacheObservation(**{**measured, **changes})  # type: ignore[arg-type]


# states


def test_a_state_is_what_the_paper_lists() -> None:
    state = cache_state(observation(), ACTIONS)
    late = [0.0, np.log(2), np.log(21)]
    loads = [np.log(2), np.log(3), 0.4, 0.5, 0.6]
    expected = [*late, 0.1, 0.2, 0.3, 0.25, *loads, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    np.testing.assert_allclose(state, expected, rtol=1e-6)
    assert state.dtype == np.float32
    assert len(state) == state_size(4) == 23
    uniform = cache_state(observation(previous=0), ACTIONS)
    assert uniform[12:].tolist() == [1, *[0] * 10]


def test_energy_that_nobody_measures_follows_the_seconds() -> None:
    state = cache_state(observation(step_j=None), ACTIONS)
    assert state[8] == state[7] == pytest.approx(np.log(2))


@pytest.mark.parametrize("parts", [2, 3, 4, 7])
def test_states_of_many_runs_are_those_of_each_and_lie_within_their_bounds(parts: int) -> None:
    actions, random = CacheActions(parts), np.random.default_rng(parts)
    runs = 3 * len(actions)
    values = {
        "delays_s": random.exponential(1.0, (runs, parts - 1)),
        "fetch_s": random.uniform(1e-4, 1, (runs, parts - 1)),
        "hit_rates": random.random((runs, parts - 1)),
        "hit_rate": random.random(runs),
        "step_s": 10 ** random.normal(0, 5, runs),
        "base_step_s": random.uniform(0.1, 1, runs),
        "step_j": random.random(runs),
        "base_step_j": random.uniform(1, 2, runs),
        "rebuild_share": random.uniform(0, 9, runs),
        "miss_share": random.random(runs),
        "left_share": random.random(runs),
        "previous": np.arange(runs) % len(actions),
    }
    many = cache_state(CacheObservation(**values), actions)
    low, high = state_bounds(actions)
    assert many.shape == (runs, 3 * parts + 11)
    assert ((low <= many) & (many <= high)).all()
    assert len(np.unique(many[:, 2 * parts + 4 :], axis=0)) == len(actions)  # what holds can be told from the state
    for run in range(0, runs, 5):
        one = cache_state(CacheObservation(**{name: value[run] for name, value in values.items()}), actions)
        np.testing.assert_array_equal(one, many[run])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delays_s": np.zeros(2)}, "the last must be 3"),
        ({"base_step_s": 0.0}, "must be above 0"),
        ({"fetch_s": np.array([1.0, 0.0, 1.0])}, "must be above 0"),
        ({"hit_rate": np.nan}, "not a number"),
        ({"delays_s": np.array([0.0, 0.0, np.inf])}, "not a number"),
    ],
)
def test_an_observation_that_is_none_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cache_state(observation(**changes), ACTIONS)


# cases


def drawn(case: CacheCase, seed: int, parts: int = 4) -> LinkTrace:
    return case.draw(np.random.default_rng(seed), parts, epochs=30, epoch_steps=20)


def lengths(on: np.ndarray) -> np.ndarray:
    """Steps of every phase of a run of booleans but the last, which the run may have cut."""
    ends = np.flatnonzero(np.diff(on.astype(int))) + 1
    return np.diff([0, *ends])


@pytest.mark.parametrize("seed", range(5))
def test_archetypes_are_what_their_names_say(seed: int) -> None:
    delays = {}
    for name in ARCHETYPES:
        trace = drawn(CacheCase(name, "x", 0.02), seed)
        delays[name] = trace.delay_s[trace.which]
        assert trace.steps == 600
        assert np.isinf(trace.bytes_per_s).all()
        if name not in (STEADY, ALL_STEADY):
            assert not delays[name][: 2 * 20].any()
    slow = {name: (delay > 0).sum(axis=1).max() for name, delay in delays.items()}
    assert slow == {
        "none": 0, "one_slow": 1, "one_fast": 1, "two_symmetric": 2, "two_asymmetric": 2, "oscillating": 2,
        "rotating": 1, "markov": slow["markov"], "all_slow": 3, STEADY: 1, ALL_STEADY: 3,
    }  # fmt: skip
    assert (delays["markov"] > 0).any(axis=0).all()  # each link by itself
    assert len(np.unique(delays["markov"] > 0, axis=0)) > 3
    turns = np.argmax(delays["rotating"][delays["rotating"].any(axis=1)] > 0, axis=1)
    assert (np.diff(turns)[np.diff(turns) != 0] % 3 == np.diff(turns)[np.diff(turns) != 0][0] % 3).all()  # in turn
    phases = lengths(delays["one_slow"].any(axis=1))[1:]  # the first ends with the onset
    assert phases[0::2].min(initial=600) >= 3 * 20
    assert phases.min(initial=600) >= 1 * 20
    assert lengths(delays["one_fast"].any(axis=1))[1:].max() < 20
    assert set(np.unique(delays["two_symmetric"])) == {0, 0.02}
    assert set(np.unique(delays["two_asymmetric"])) == {0, 0.01, 0.02}
    swinging = delays["oscillating"]
    np.testing.assert_allclose(swinging.sum(axis=1)[swinging.any(axis=1)], 0.02)
    assert (delays[STEADY] == delays[STEADY][0]).all()
    assert delays[STEADY].any()


def test_a_rate_is_halved_where_a_delay_is() -> None:
    trace = drawn(CacheCase("two_asymmetric", "x", 0.0, 1e6), 0)
    assert set(np.unique(trace.bytes_per_s)) == {1e6, 2e6, np.inf}
    assert not trace.delay_s.any()


def test_two_links_of_a_part_with_one_other_are_that_one() -> None:
    for name in ("two_symmetric", "oscillating"):
        trace = drawn(CacheCase(name, "x", 0.02), 0, parts=2)
        assert trace.delay_s.shape[1] == 1
        assert trace.delay_s.max() == pytest.approx(0.02)


def test_what_policies_are_compared_under_is_never_trained_with() -> None:
    def worst(cases: tuple[CacheCase, ...]) -> tuple[set[float], set[float]]:
        traces = [drawn(case, seed) for case in cases if case.archetype == "one_slow" for seed in range(60)]
        delays = {trace.delay_s.max() for trace in traces} - {0.0}
        return delays, {trace.bytes_per_s.min() for trace in traces} - {np.inf}

    for trained, compared in zip(worst(training_cases()), worst(comparison_cases()), strict=True):
        near = np.abs(np.subtract.outer(np.log(sorted(trained)), np.log(sorted(compared))))
        assert near.min() > 0.02
    assert len(training_cases()) == len(comparison_cases()) == 11 * 3 * 2
    assert len({case.name for case in comparison_cases()}) == 66
    assert not {name for name, *_ in TRAINED_SEVERITIES} & {name for name, *_ in COMPARED_SEVERITIES}


def test_cases_that_cannot_be_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'one_slow'"):
        CacheCase("one_slo", "x")
    for wrong in ({"delay_s": -1.0}, {"bytes_per_s": 0.0}, {"spread": 1.0}, {"delay_s": np.inf}):
        with pytest.raises(ConfigError, match="0 s or more"):
            CacheCase("none", "x", **wrong)


# traces of links


class Swinging:
    """Owner 1 is late for part 0 in the second half of each epoch."""

    def at(self, epoch: int, share: float) -> LinkState:
        delay_s = np.zeros((3, 3))
        delay_s[1, 0] = 0.01 * (share >= 0.5)
        delay_s[0, 1] = 0.5
        return LinkState(delay_s, np.full((3, 3), np.inf))


def test_a_trace_is_a_part_s_own_links() -> None:
    trace = trace_of_pattern(Swinging(), 0, range(8), epoch_steps=4)
    assert trace.delay_s[trace.which].tolist() == [[0, 0], [0, 0], [0.01, 0], [0.01, 0]] * 2
    assert len(trace.delay_s) == 2
    assert trace_of_pattern(Swinging(), 1, range(4), epoch_steps=4).delay_s.tolist() == [[0.5, 0], [0.5, 0]]
    with pytest.raises(PlanError, match="part 3"):
        trace_of_pattern(Swinging(), 3, range(4), epoch_steps=4)
    with pytest.raises(PlanError, match="none is possible"):
        trace_of_links([], 0)


@pytest.mark.parametrize(
    ("delay_s", "bytes_per_s", "which"),
    [
        (np.zeros((1, 2)), np.ones((1, 3)), np.zeros(3, int)),
        (np.zeros((1, 2)), np.ones((1, 2)), np.ones(3, int)),
        (np.zeros((1, 2)), np.zeros((1, 2)), np.zeros(3, int)),
        (-np.ones((1, 2)), np.ones((1, 2)), np.zeros(3, int)),
        (np.zeros((1, 0)), np.ones((1, 0)), np.zeros(3, int)),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(delay_s: np.ndarray, bytes_per_s: np.ndarray, which: np.ndarray) -> None:
    with pytest.raises(PlanError):
        LinkTrace(delay_s, bytes_per_s, which)


# what runs cost


def slow_cost(episode: CacheEpisode, costs: CacheCosts, order: list[tuple[int, int]]) -> tuple[float, float]:
    """Joules and seconds of windows (first step, action), step by step."""
    joules = seconds = 0.0
    for (first, action), end in zip(order, [*(first for first, _ in order[1:]), episode.steps], strict=True):
        for step in range(first, end):
            at = episode.trace.which[step]
            links = episode.trace.delay_s[at], episode.trace.bytes_per_s[at]
            cost = costs.step(ACTIONS.window(action), *links, ACTIONS.shares(action))
            joules += float(cost.joules) * episode.noise[step]
            seconds += float(cost.seconds) * episode.noise[step]
    return joules, seconds


@pytest.mark.parametrize("case", comparison_cases()[3::7], ids=lambda case: case.name)
def test_windows_cost_what_their_steps_do(case: CacheCase) -> None:
    random = np.random.default_rng(1)
    noise = CacheNoise(step=0.3, constants=0.0)
    simulator = CacheSimulator(COSTS, [case], episodes=2, seed=5, epochs=9, epoch_steps=20, noise=noise)
    simulator.reset()
    orders = [[(0, ACTIONS.action(REFERENCE))] for _ in range(2)]
    sums = simulator.first_window()
    joules, seconds = sums.joules, sums.seconds
    while not simulator.done.all():
        actions = random.integers(0, len(ACTIONS), 2)
        steps = simulator.views().steps
        for run in np.flatnonzero(~simulator.done):
            orders[run].append((int(steps[run]), int(actions[run])))
        info = simulator.step(actions)[3]
        joules, seconds = joules + info.joules, seconds + info.seconds
    for run, (episode, order) in enumerate(zip(simulator.running, orders, strict=True)):
        assert episode.costs == COSTS[run]
        expected_j, expected_s = slow_cost(episode, COSTS[run], order)
        assert joules[run] == pytest.approx(expected_j, rel=1e-9)
        assert seconds[run] == pytest.approx(expected_s, rel=1e-9)
        windows = np.diff([first for first, _ in order])
        assert windows.tolist() == [ACTIONS.window(action) for _, action in order[:-1]]


def test_episodes_depend_on_seed_and_number_alone() -> None:
    def states(episodes: int, seed: int, number: int) -> np.ndarray:
        simulator = CacheSimulator(COSTS, training_cases(), episodes=episodes, seed=seed, epochs=8)
        simulator.reset(number=number)
        for _ in range(4):
            last = simulator.step(np.full(episodes, ACTIONS.action(32)))[0]
        return last

    np.testing.assert_array_equal(states(20, 0, 0)[12:15], states(3, 0, 12))
    assert (states(20, 0, 0) != states(20, 1, 0)).any(axis=1).all()
    one, other = (draw_episode(COSTS, training_cases(), number, seed=0) for number in (4, 4 + len(training_cases())))
    assert one.case == other.case
    assert one.costs != other.costs


def test_rewards_compare_with_the_reference_on_the_same_steps() -> None:
    settings = {"episodes": 12, "seed": 2, "epochs": 10, "penalty": 0.25}
    paper = CacheSimulator(COSTS, training_cases(), **settings)  # type: ignore[arg-type]
    saving = CacheSimulator(COSTS, training_cases(), reward="saved", **settings)  # type: ignore[arg-type]
    paper.reset()
    saving.reset()
    same, biased = np.full(12, ACTIONS.action(16)), np.full(12, ACTIONS.action(8, 2))
    assert paper.step(same)[1] == pytest.approx(-1)
    assert saving.step(same)[1] == pytest.approx(0)
    (_, rewards, _, info), (_, saved, *_) = paper.step(biased), saving.step(biased)
    assert info.changed.all()
    ratio = info.joules / info.reference_j
    np.testing.assert_allclose(rewards, -ratio - 0.25)
    np.testing.assert_allclose(saved, (1 - ratio) * 8 / 16 - 0.25)
    rewards, info = paper.step(biased)[1::2]
    assert not info.changed.any()
    np.testing.assert_allclose(rewards, -info.joules / info.reference_j)
    assert (np.abs(ratio - 1) > 1e-3).all()


def test_what_is_decided_holds_from_the_next_boundary_on() -> None:
    simulator = CacheSimulator(COSTS, [CacheCase("none", "x")], noise=NO_NOISE, epochs=10)
    simulator.reset(ACTIONS.action(4))
    assert simulator.views().steps.tolist() == [4]
    states = simulator.step([ACTIONS.action(128, 1)])[0]
    assert simulator.views().steps.tolist() == [132]
    hits = COSTS[0].step(4, np.zeros(3), np.inf, np.full(3, 1 / 3)).hits
    np.testing.assert_allclose(states[0, 3:6], hits, rtol=1e-6)  # of the window that ended, not of the one decided
    assert states[0, 12:].tolist() == [*[0] * 7, 1, 0, 1, 0]
    states = simulator.step([0])[0]
    np.testing.assert_allclose(states[0, 3:6], COSTS[0].step(128, np.zeros(3), np.inf, ACTIONS.shares(15 + 8)).hits)
    assert states[0, 11] == pytest.approx((25 - 133 % 25) / 25)
    assert simulator.views().steps_left.tolist() == [25 - 133 % 25]


# what is heard


def received(case: CacheCase, noise: CacheNoise = NO_NOISE) -> tuple[np.ndarray, CacheEpisode]:
    """(S, P - 1) delays heard before each step of a run with W = 1."""
    simulator = CacheSimulator(COSTS[:1], [case], seed=4, noise=noise, epochs=16, epoch_steps=20)
    simulator.reset(ACTIONS.action(1))
    delays = [simulator.views().delays_s[0]]
    while not simulator.done[0]:
        simulator.step([ACTIONS.action(1)])
        delays.append(simulator.views().delays_s[0])
    return np.array(delays), simulator.running[0]


def test_a_delay_is_known_two_fetches_after_it_began() -> None:
    """With the median of 30 fetches it took 15."""
    delays, episode = received(SLOW)
    met = episode.trace.delay_s[episode.trace.which]
    onset = int(met.any(axis=1).argmax())
    assert not delays[: onset + 2].any()
    np.testing.assert_allclose(delays[onset + 2 : onset + 60], met[onset : onset + 58], rtol=1e-12)
    assert episode.alarms[onset + 2] and not episode.alarms[: onset + 2].any()
    assert met.max() == pytest.approx(0.02)


@pytest.mark.slow
def test_a_slow_link_is_heard_as_the_delay_of_its_bytes_and_one_slow_from_the_start_as_well() -> None:
    rate = 1e6
    delays, _ = received(CacheCase("one_slow", "x", 0.0, rate))
    shares = np.full(3, 1 / 3)
    misses = COSTS[0].row_bytes * COSTS[0].rows / 3 * (1 - COSTS[0].step(1, np.zeros(3), np.inf, shares).hits[0])
    assert misses > 0 or delays.max() == 0
    assert delays.max() == pytest.approx(misses * (1 / rate - 1 / COSTS[0].link_bytes_per_s))
    for case, owners in ((STEADY, 1), (ALL_STEADY, 3)):
        steady, _ = received(CacheCase(case, "x", 0.05))  # the warm-up was no cleaner: other owners and a probe were
        assert (np.isclose(steady[1:], 0.05, rtol=1e-6).sum(axis=1) == owners).all(), case


def test_the_estimator_of_live_runs_hears_the_same() -> None:
    delays, episode = received(SLOW, CacheNoise(step=0.0, meter=0.0, constants=0.0, baseline=0.0))
    estimator, random = DelayEstimator(3), np.random.default_rng(0)
    met = episode.trace.delay_s[episode.trace.which]
    live = [estimator.delays_s()]
    for step in range(episode.steps - 1):
        for owner in range(3):
            rtt_s = episode.fetch_s[owner] * np.exp(0.2 * random.standard_normal()) + met[step, owner]
            estimator.add(owner, float(rtt_s), 1000.0, epoch=step // 20)
        live.append(estimator.delays_s())
    owner = int(met.any(axis=0).argmax())
    onset = int(met[:, owner].astype(bool).argmax())
    for heard_s in (np.array(live)[:, owner], delays[:, owner]):
        assert heard_s[45 : onset + 1].max() < 0.3 * 0.02
        assert np.median(heard_s[onset + 20 : onset + 60]) == pytest.approx(0.02, rel=0.1)
        assert 2 <= np.argmax(heard_s[onset:] > 0.01) <= 4


def test_the_forecast_is_that_of_the_calibrated_costs() -> None:
    simulator = CacheSimulator(COSTS, training_cases()[:24], episodes=90, epochs=4)
    simulator.reset()
    views = simulator.views()
    delays_s = np.random.default_rng(0).random((90, 3)) * 0.02
    forecast = views.forecast(delays_s)
    for run in (0, 40, 80):
        costs = simulator.running[run].costs
        expected = [
            costs.step_s(ACTIONS.window(action), delays_s[run], np.inf, ACTIONS.shares(action)) for action in range(32)
        ]
        np.testing.assert_allclose(forecast[run], expected)
    assert {simulator.running[0].costs, simulator.running[40].costs} == set(COSTS)


# ends and restarts


def test_runs_that_ended_cost_nothing_more() -> None:
    simulator = CacheSimulator(COSTS, training_cases(), episodes=2, epochs=4)
    simulator.reset()
    while not simulator.done[0]:
        simulator.step([ACTIONS.action(128), ACTIONS.action(1)])
    assert not simulator.done[1]
    states, rewards, done, info = simulator.step([ACTIONS.action(8, 2), 0])
    assert (rewards[0], info.joules[0], info.seconds[0], info.steps[0], info.changed[0]) == (0, 0, 0, 0, False)
    assert done.tolist() == [True, False]
    assert info.joules[1] > 0
    assert np.isfinite(states).all()


def test_places_of_ended_runs_are_given_to_new_ones_that_are_as_without() -> None:
    def followed(restart: bool, episodes: int, most: int) -> dict[int, list[tuple[float, ...]]]:
        """(reward, step, sum of the final state) of every decision of each episode, by its number."""
        simulator = CacheSimulator(COSTS, training_cases(), episodes=episodes, seed=7, epochs=6, restart=restart)
        simulator.reset()
        found: dict[int, list[tuple[float, ...]]] = {}
        for _ in range(most):
            views, live = simulator.views(), ~simulator.done
            actions = (views.runs * 5 + views.steps) % len(ACTIONS)
            _, rewards, _, info = simulator.step(actions)
            for run in np.flatnonzero(live):
                facts = (rewards[run], views.steps[run], float(info.final_states[run].sum()))
                found.setdefault(int(views.runs[run]), []).append(facts)
            if not restart and simulator.done.all():
                break
        return found

    again, once = followed(True, 5, 60), followed(False, 30, 400)
    assert list(again)[:5] == [0, 1, 2, 3, 4]
    assert sorted(again) == list(range(len(again)))
    assert len(again) > 8
    for number, facts in again.items():
        if number < 30:
            assert facts == once[number][: len(facts)]


def test_a_restarted_run_begins_with_the_states_of_a_new_one() -> None:
    simulator = CacheSimulator(COSTS, training_cases(), episodes=2, seed=1, epochs=4, restart=True)
    simulator.reset()
    done = np.zeros(2, dtype=bool)
    while not done.any():
        states, _, done, info = simulator.step([ACTIONS.action(128), ACTIONS.action(1)])
    fresh = CacheSimulator(COSTS, training_cases(), seed=1, epochs=4)
    np.testing.assert_array_equal(states[0], fresh.reset(number=2)[0])
    assert (info.final_states[0] != states[0]).any()
    np.testing.assert_array_equal(info.final_states[1], states[1])


@pytest.mark.slow
def test_episodes_side_by_side_cost_less_than_one_after_another() -> None:
    """Processor seconds of an episode at the nominal window: alone, and as one of 64."""
    best_s = {}
    for episodes, repeats in ((1, 5), (64, 2)):
        simulator = CacheSimulator(COSTS, training_cases(), episodes=episodes)
        taken = []
        for _ in range(repeats):
            begun = time.process_time()
            simulator.reset()
            while not simulator.done.all():
                simulator.step(np.full(episodes, ACTIONS.action(16)))
            taken.append((time.process_time() - begun) / episodes)
        best_s[episodes] = min(taken)
    assert best_s[64] < 0.8 * best_s[1], best_s


def test_the_environment_passes_gymnasium_s_checker() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from dtdg_lab.systems.feature_cache.simulation.gym_env import ENV_ID, CacheEnv, register_env

    register_env()
    register_env()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ENV_ID, epochs=4).unwrapped)
    env = CacheEnv(epochs=4, seed=3)
    with pytest.raises(PlanError, match="reset first"):
        env.step(0)
    states, described = env.reset(options={"number": 5})
    assert described["number"] == 5
    np.testing.assert_array_equal(states, CacheSimulator(COSTS, training_cases(), seed=3, epochs=4).reset(number=5)[0])
    with pytest.raises(PlanError, match="action 32"):
        env.step(32)
    ended = False
    while not ended:
        _, reward, ended, truncated, info = env.step(ACTIONS.action(32))
        assert reward < 0
        assert not truncated
    assert {"joules", "seconds", "steps", "reference_j", "case", "costs"} <= set(info)
    with pytest.raises(PlanError, match="reset first"):
        env.step(0)
    with pytest.raises(ConfigError, match="only number"):
        env.reset(options={"numbre": 1})
    with pytest.raises(ConfigError, match="nothing to decide"):
        CacheEnv(epochs=1, epoch_steps=16)


def test_what_cannot_be_simulated_is_refused() -> None:
    cases = training_cases()
    for wrong, words in (
        ({"episodes": 0}, "at least one episode"), ({"penalty": -1}, "0 or more"), ({"reward": "best"}, "'saved'"),
        ({"change_s": -0.1}, "0 or more"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            CacheSimulator(COSTS, cases, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="without cases"):
        CacheSimulator(COSTS)
    with pytest.raises(ConfigError, match="all equal"):
        CacheSimulator([*COSTS, *training_costs(3)], cases)
    with pytest.raises(ConfigError, match="0 or more"):
        CacheNoise(step=-0.1)
    with pytest.raises(ConfigError, match="at least one of each"):
        draw_episode(COSTS, [], 0, seed=0)
    simulator = CacheSimulator(COSTS, cases, episodes=2)
    with pytest.raises(PlanError, match="call reset first"):
        simulator.step([0, 0])
    simulator.reset()
    for actions in ([0], [0, 33], [-1, 0]):
        with pytest.raises(PlanError, match="one each"):
            simulator.step(actions)
    assert len(WINDOWS) * 4 == 32
