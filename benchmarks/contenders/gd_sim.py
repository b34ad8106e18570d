"""Policies in the simulator, and what it foretells of runs here; for benchmarks/greendygnn.py."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from contenders.gd_here import costs_here
from contenders.gd_plan import Ground, Plan, config
from dtdg_lab.core.errors import LabError
from dtdg_lab.network.links import BITS
from dtdg_lab.network.patterns import make_pattern
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import shipped_costs
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.baselines import FixedWindow
from dtdg_lab.systems.feature_cache.policies.clairvoyant import Clairvoyant, best_plan
from dtdg_lab.systems.feature_cache.policies.interface import ManyPolicy
from dtdg_lab.systems.feature_cache.policies.learned import (
    DOUBLE_DQN,
    DOUBLE_DQN_PLUS,
    CacheDQN,
    learned_policy,
    save_policy,
    shipped_policy,
)
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.simulation.cases import (
    STEADY,
    CacheCase,
    comparison_cases,
    trace_of_pattern,
    training_cases,
)
from dtdg_lab.systems.feature_cache.simulation.comparison import ComparedPolicy, always_compared, compare, run_policy
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode, replayed_episode
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator

Row = dict[str, Any]
LEARNED = (DOUBLE_DQN, DOUBLE_DQN_PLUS)
AT_ONCE = (1, 256)  # episodes of a simulator whose speed is measured
TIMED_S = 1.0
EPOCHS, BATCHES = 30, {"ogbn-products": 25, "reddit": 20}  # of the campaign's runs, and batches of an epoch
EVEN = "double_dqn w/o cost weights"


def evenly_shared(parts: int, folder: Path) -> Path | None:
    """A file with the shipped policy that prefers no owner; None where none is shipped.

    Each biased action is worth less than the uniform one of its window, so the window is the one whose uniform
    action was rated best.
    """
    try:
        stored = shipped_policy(parts, DOUBLE_DQN)
    except LabError:
        return None
    parameters = stored.parameters.copy()
    hidden, actions = stored.sizes[-2:]
    last = parameters[-(hidden + 1) * actions :].reshape(hidden + 1, actions)  # a view
    last[...] = np.tile(last[:, : len(WINDOWS)], parts)
    last[-1, len(WINDOWS) :] -= 1  # no tie for rounding to break
    path = folder / "evenly_shared.npz"
    save_policy(path, replace(stored, parameters=parameters))
    return path


def policies(parts: int, costs: CacheCosts, folder: Path | None = None) -> tuple[dict[str, ManyPolicy], dict[str, str]]:
    """Those that decide by what they find, by name; and why others are missing."""
    found: dict[str, ManyPolicy] = {"planner": CachePlanner(CacheActions(parts), costs)}
    missing: dict[str, str] = {}
    for name in LEARNED:
        try:
            found[name] = learned_policy(parts, name)
        except LabError as error:
            missing[name] = str(error)
    if folder is not None and (even := evenly_shared(parts, folder)) is not None:
        found[EVEN] = CacheDQN(replace(learned_policy(parts, file=str(even)).stored, name=EVEN))
    return found, missing


def speed_rows(plan: Plan) -> list[Row]:
    """Milliseconds of an episode of 30 epochs, decided by the fixed window of 16, one after another and many at once.

    Beside it those of an episode whose congestion and constants were drawn before.
    """
    rows = []
    for episodes in AT_ONCE:
        simulator = CacheSimulator([shipped_costs(plan.shipped[0])], training_cases(), episodes=episodes)
        policy = FixedWindow(simulator.actions, 16)
        run_policy(simulator, policy)
        began, runs = time.perf_counter(), 0
        while time.perf_counter() - began < TIMED_S or not runs:
            run_policy(simulator, policy)
            runs += episodes
        rows.append({"at_once": episodes, "episode_ms": 1e3 * (time.perf_counter() - began) / runs})
    return rows


def compared_rows(plan: Plan, folder: Path) -> tuple[list[Row], list[Row]]:
    """Every policy in every case on the shipped data sets' costs; and the policies that are missing."""
    cases = comparison_cases(plan.archetypes) if plan.archetypes else comparison_cases()
    rows, missing = [], {}
    for name in plan.shipped:
        costs = shipped_costs(name, parts=plan.parts)
        deciding, gone = policies(plan.parts, costs, folder)
        rows += [_row(each) for each in compare(deciding, [costs], cases, episodes=plan.episodes)]
        missing |= gone
    return rows, [{"policy": name, "failed": why} for name, why in missing.items()]


def campaign_rows(plan: Plan) -> list[Row]:
    """Joules of an epoch of four hosts under steady throttling, as in the authors' campaign.

    Every host is taken to spend as much as the one that asks the throttled owner.
    """
    rows = []
    for name in plan.shipped:
        costs = shipped_costs(name, parts=4)
        deciding, _ = policies(4, costs)
        for described, mbit in (("clean", np.inf), ("200 Mbit/s", 200.0), ("50 Mbit/s", 50.0)):
            # an owner's rate is shared by the three who ask
            case = CacheCase(STEADY, described, 0.0, mbit / BITS / (costs.parts - 1))
            made = compare(deciding, [costs], [case], episodes=1, epochs=EPOCHS, epoch_steps=BATCHES[name])
            rows.append({"costs": name, "condition": described,
                         **{each.policy: each.joules * costs.parts / EPOCHS for each in made}})  # fmt: skip
    return rows


def foretold(plan: Plan, ground: Ground, *, ranks: int) -> dict[tuple[str, str | None], Row]:
    """Joules and seconds of an epoch by pattern and policy, by costs that are counted and timed here.

    Each part is simulated under its own links; a step takes as long as that of the slowest part.
    """
    of = config(plan, ground, {"system": "fixed-window"}, ranks=1, seed=0)
    costs, epoch_steps = costs_here(of, ranks=ranks)
    found: dict[tuple[str, str | None], Row] = {}
    for pattern in plan.patterns:
        links = make_pattern(
            pattern, parts=plan.parts, seed=0, epochs=plan.epochs, first_epoch=plan.first, cycle=plan.cycle,
            table=plan.table, delay_ms=plan.delay_ms, mbit=ground.mbit,
        )  # fmt: skip
        episodes = []
        for part in range(plan.parts):
            trace = trace_of_pattern(links, part, range(plan.epochs * epoch_steps), epoch_steps=epoch_steps)
            episodes.append(replace(replayed_episode(trace, costs, epoch_steps=epoch_steps), number=part))
        for name, (joules, seconds) in _simulated(episodes, costs).items():
            found[pattern, name] = {"foretold_j": joules / plan.epochs, "foretold_s": seconds / plan.epochs}
    return found


def _simulated(episodes: Sequence[CacheEpisode], costs: CacheCosts) -> Mapping[str, tuple[float, float]]:
    simulator = CacheSimulator(
        [costs], episodes=len(episodes), epoch_steps=episodes[0].epoch_steps, draw=lambda number: episodes[number]
    )
    deciding, _ = policies(costs.parts, costs)
    best = Clairvoyant(best_plan(episodes), [episode.number for episode in episodes])
    runs = {name: run_policy(simulator, policy, number=0)
            for name, policy in {**always_compared(costs.parts), **deciding, "clairvoyant": best}.items()}  # fmt: skip
    return {name: (float(run.joules.sum()), float(run.seconds.max())) for name, run in runs.items()}


def _row(each: ComparedPolicy) -> Row:
    return {name: getattr(each, name) for name in ComparedPolicy.__slots__}
