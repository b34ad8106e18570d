"""Comparison of policies with each other and with the optimum, on the same simulated runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.baselines import EpochHot, FixedWindow, RandomWindows, ThresholdWindow
from dtdg_lab.systems.feature_cache.policies.clairvoyant import Clairvoyant, best_plan
from dtdg_lab.systems.feature_cache.policies.interface import ManyPolicy, PlansEnds, Reconsiders
from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase, comparison_cases
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode, CacheNoise, draw_episode
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator

SEED = 10_000_019  # not used in training
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PolicyRuns:
    """Results of a policy in B simulated runs.

    Attributes:
        policy: name of the policy.
        joules: (B,) joules of each whole run.
        seconds: (B,) seconds of each whole run.
        windows: (first step, choice) of every window of each run, including the first.
    """

    policy: str
    joules: Floats
    seconds: Floats
    windows: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def decisions(self) -> NDArray[np.int64]:
        """(B,) number of decided windows."""
        return np.array([len(run) - 1 for run in self.windows])


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """One policy in one case on one data set: means over its episodes.

    Attributes:
        costs: name of the data set's costs.
        case: the case, as ``CacheCase.name``.
        policy: name of the policy.
        joules: joules of a run.
        seconds: seconds of a run.
        decisions: decisions of a run.
        over_clairvoyant: joules relative to the best plan, minus 1; never below 0.
        over_best_fixed: joules relative to the fixed window that is best in this case, minus 1.
        over_epoch_hot: joules relative to one cache per epoch (RapidGNN, see
            :class:`dtdg_lab.systems.feature_cache.policies.baselines.EpochHot` for its limits), minus 1.
    """

    costs: str
    case: str
    policy: str
    joules: float
    seconds: float
    decisions: float
    over_clairvoyant: float
    over_best_fixed: float
    over_epoch_hot: float


def run_policy(simulator: CacheSimulator, policy: ManyPolicy, *, number: int | None = None) -> PolicyRuns:
    """Run a policy in B episodes to their ends.

    Args:
        simulator: is reset; must not restart runs.
        policy: makes the decisions.
        number: index of the first episode; by default the next one.

    Raises:
        ConfigError: the simulator restarts runs.
    """
    if simulator.restarts:
        raise ConfigError("a simulator that restarts runs never ends: create it with restart=False.")
    plans = policy if isinstance(policy, PlansEnds) else None
    simulator.reset(policy.first, number=number, length=None if plans is None else plans.first_lengths)
    seconds, joules, *_ = simulator.first_window()
    firsts = np.broadcast_to(np.asarray(policy.first), (simulator.episodes,))
    windows = [[(0, int(first))] for first in firsts]
    while not simulator.done.all():
        views = simulator.views()
        actions = policy.decide_all(views)
        lengths = None if plans is None else plans.lengths_all(views)
        if isinstance(policy, Reconsiders):
            while (alarmed := simulator.look()).any():
                views, steps_left = simulator.alarm_views()
                alternatives, which = policy.reconsider_all(views, actions, steps_left, alarmed)
                which, more_s, more_j = simulator.abandon(alternatives, which)
                seconds, joules, actions = seconds + more_s, joules + more_j, np.where(which, alternatives, actions)
        for run in np.flatnonzero(~simulator.done).tolist():
            windows[run].append((int(simulator.upcoming[run]), int(actions[run])))
        info = simulator.step(actions, lengths)[3]
        joules, seconds = joules + info.joules, seconds + info.seconds
    return PolicyRuns(policy.name, joules, seconds, tuple(tuple(run) for run in windows))


def always_compared(parts: int) -> dict[str, ManyPolicy]:
    """Return the baselines by name: random, every fixed window, threshold, and one cache per epoch."""
    actions = CacheActions(parts)
    fixed: dict[str, ManyPolicy] = {f"fixed-{window}": FixedWindow(actions, window) for window in WINDOWS}
    return {
        "random": RandomWindows(actions),
        **fixed,
        "threshold": ThresholdWindow(actions),
        "epoch_hot": EpochHot(actions),
    }


def compare(
    policies: Mapping[str, ManyPolicy],
    costs: Sequence[CacheCosts],
    cases: Sequence[CacheCase] | None = None,
    *,
    episodes: int = 8,
    seed: int = SEED,
    epochs: int = 30,
    epoch_steps: int = 25,
    noise: CacheNoise | None = None,
) -> list[ComparedPolicy]:
    """Run policies in every case on every data set, all on the same episodes.

    Args:
        policies: policies by name; the baselines, ``best fixed`` and ``clairvoyant`` are added.
        costs: costs of each dataset, all for the same number of parts.
        cases: congestion; by default cases that no policy is trained with.
        episodes: episodes per case.
        seed: seed of the episodes.
        epochs: epochs of an episode.
        epoch_steps: steps of an epoch.
        noise: noise of steps and measurements.

    Raises:
        ConfigError: costs, cases or episodes are missing.
    """
    cases = comparison_cases() if cases is None else cases
    if not costs or not cases or episodes < 1:
        raise ConfigError(f"{len(costs)} costs, {len(cases)} cases, {episodes} episodes: give at least one of each.")
    rows = []
    for dataset_costs in costs:
        drawn_episodes = [
            draw_episode(
                [dataset_costs],
                cases,
                number,
                seed=seed,
                epochs=epochs,
                epoch_steps=epoch_steps,
                noise=noise or CacheNoise(),
            )
            for number in range(len(cases) * episodes)
        ]
        rows += _compare_on({**always_compared(dataset_costs.parts), **policies}, dataset_costs, drawn_episodes, cases)
    return rows


def _compare_on(
    policies: Mapping[str, ManyPolicy], costs: CacheCosts, episodes: list[CacheEpisode], cases: Sequence[CacheCase]
) -> list[ComparedPolicy]:
    """Run all policies on the episodes of one data set; episodes cycle through the cases."""
    simulator = CacheSimulator(
        [costs], episodes=len(episodes), epoch_steps=episodes[0].epoch_steps, draw=lambda number: episodes[number]
    )
    clairvoyant = Clairvoyant(best_plan(episodes), [episode.number for episode in episodes])
    runs = {name: run_policy(simulator, policy, number=0) for name, policy in policies.items()}
    runs["clairvoyant"] = run_policy(simulator, clairvoyant, number=0)

    def mean(values: Floats | NDArray[np.int64], case: int) -> float:
        return float(values[case :: len(cases)].mean())

    rows = []
    for index, case in enumerate(cases):
        best = min((mean(runs[f"fixed-{window}"].joules, index), f"fixed-{window}") for window in WINDOWS)[1]
        for name, run in {**runs, "best fixed": runs[best]}.items():
            joules = mean(run.joules, index)
            rows.append(
                ComparedPolicy(
                    costs=costs.name,
                    case=case.name,
                    policy=name,
                    joules=joules,
                    seconds=mean(run.seconds, index),
                    decisions=mean(run.decisions, index),
                    over_clairvoyant=joules / mean(runs["clairvoyant"].joules, index) - 1,
                    over_best_fixed=joules / mean(runs[best].joules, index) - 1,
                    over_epoch_hot=joules / mean(runs["epoch_hot"].joules, index) - 1,
                )
            )
    return rows
