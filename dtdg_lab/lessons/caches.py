"""Experiments of the lessons on feature caches: calls, costs of windows, runs with a slow link, and policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.user_data import from_static
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.lessons.experiments import shorter
from dtdg_lab.lessons.widgets import CacheBench
from dtdg_lab.network.links import parse_links
from dtdg_lab.network.patterns import make_pattern
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import SHIPPED, reddit
from dtdg_lab.systems.feature_cache.calibration.study import measure
from dtdg_lab.systems.feature_cache.policies.baselines import Rule, RuleWindows
from dtdg_lab.systems.feature_cache.policies.learned import DOUBLE_DQN, DOUBLE_DQN_PLUS, learned_policy
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase, comparison_cases
from dtdg_lab.systems.feature_cache.simulation.comparison import ComparedPolicy, compare
from dtdg_lab.systems.feature_cache.simulation.episode import draw_episode

PARTS, SLOW_MBIT, SLOW_FROM = 4, 12.0, 2  # of the runs with a slow link
FREE = 1e12  # bytes per second of a link without limit
StepCosts = dict[str, dict[tuple[int, int | None], float]]  # condition -> (W, prioritised part) -> ms of a step


def call_times(links: str, *, rows: Sequence[int] = (1, 30, 1000)) -> dict[str, dict[str, float]]:
    """Return number of rows -> owner -> median milliseconds of a call for rows of 1 KB.

    Args:
        links: what slows the owners' replies, such as ``"2 delay=20; 3 rate=200"``.
        rows: of a call.
    """
    seconds: dict[tuple[int, int], list[float]] = {}
    for call in measure(rows, features=256, repeats=shorter(15, 3), links=parse_links(links, parts=PARTS)):
        if not call["concurrent"]:
            seconds.setdefault((call["rows"], call["owner"]), []).append(1e3 * call["rtt_s"])
    owners = sorted({owner for _, owner in seconds})
    return {
        f"{count:,} row{'s' * (count != 1)}": {f"part {owner}": median(seconds[count, owner]) for owner in owners}
        for count in rows
    }


def window_costs(conditions: Mapping[str, tuple[float, float]]) -> StepCosts:
    """Return the milliseconds of a step by the formula fitted to the authors' cluster, for every cache.

    Args:
        conditions: name -> delay in seconds and bytes per second of part 1's link.

    Returns:
        name -> (W, prioritised part or None) -> milliseconds.
    """
    law, actions = SHIPPED.costs("reddit"), CacheActions(PARTS)
    costs: StepCosts = {}
    for name, (delay_s, rate) in conditions.items():
        seconds = law.of_actions([delay_s, 0, 0], [rate, FREE, FREE]).seconds
        places = [actions.biased(action) for action in range(len(seconds))]
        owners = [None if place is None else place + 1 for place in places]
        keys = [(actions.window(action), owners[action]) for action in range(len(seconds))]
        costs[name] = dict(zip(keys, (1e3 * seconds).tolist(), strict=True))
    return costs


def by_window(costs: StepCosts, part: int | None = None) -> dict[str, dict[str, float]]:
    """Return condition -> window -> milliseconds, for an even cache or one with most of it for a part."""
    return {name: {f"W = {window}": by_cache[window, part] for window in WINDOWS} for name, by_cache in costs.items()}


def popular_graph(nodes: int = 4000, seed: int = 8) -> DynamicGraph:
    """Return a static graph with classes and a few popular nodes, whose rows a cache can keep."""
    nodes, draw = shorter(nodes, nodes // 2), generator(seed, "lesson")
    source = (nodes * draw.random(8 * nodes) ** 3).astype(int)
    features = {node: draw.standard_normal(256).astype("float32") for node in range(nodes)}
    classes = {node: int(row[:5].argmax()) for node, row in features.items()}
    return from_static(source, draw.integers(nodes, size=len(source)), features=features, labels=classes)


def slow_link_config() -> RunConfig:
    """Return the settings of a run on two ranks and four parts, one of whose links has 12 Mbit/s from epoch 2 on."""
    graph = popular_graph()
    return RunConfig(
        system="fixed-window",
        dataset=graph,
        model="graphsage",
        task="classification",
        layers=2,
        hidden=16,
        fanouts="5 5",
        parts=PARTS,
        ranks=2,
        batch_size=24,
        cache_rows=graph.num_nodes // 7,
        epochs=shorter(8, 3),
        evaluate_every=1000,
        congestion="one_slow",
        congestion_mbit=SLOW_MBIT,
        congestion_ms=0.0,
        congestion_from=SLOW_FROM,
        congestion_cycle=99,
        device="cpu",
        threads=1,
    )


def slow_owner(config: RunConfig) -> int:
    """Return the part whose link is slow in a run of :func:`slow_link_config`."""
    pattern = make_pattern(
        "one_slow", parts=PARTS, seed=config.seed, mbit=SLOW_MBIT, delay_ms=0.0, first_epoch=SLOW_FROM
    )
    return int(pattern.at(epoch=SLOW_FROM).bytes_per_s.min(axis=1).argmin())


def while_slow(runs: Mapping[str, StoredRun]) -> dict[str, dict[str, float]]:
    """Return, for the epochs in which a link is slow, measure -> run -> number.

    Measures are ``wait_s`` for features, ``mib`` sent for misses, ``hits`` in percent of remote rows, ``calls``, and
    ``joules`` in all and ``stalled_j`` of them while stalled on features.
    """
    names = ("wait_s", "mib", "hits", "calls", "joules", "stalled_j")
    numbers: dict[str, dict[str, float]] = {name: {} for name in names}
    for name, run in runs.items():
        resolved = run.table("resolved").query(f"epoch >= {SLOW_FROM}")
        energy = run.table("phase_energy").query(f"epoch >= {SLOW_FROM}").groupby("phase")["joules"].sum()
        sums = (
            resolved["wait_s"].sum(),
            resolved["bytes"].sum() / 2**20,
            100 * resolved["hits"].map(sum).sum() / resolved["remote"].sum(),
            resolved["rpcs"].sum(),
            energy.sum(),
            energy.get("stall", 0.0),
        )
        for measure_name, number in zip(names, sums, strict=True):
            numbers[measure_name][name] = float(number)
    return numbers


# Policies in the simulator.


def controllers() -> dict[str, Any]:
    """Return the policies that the lessons compare: our planner, and two learned ones."""
    costs = reddit()
    learned = {name: learned_policy(PARTS, name) for name in (DOUBLE_DQN, DOUBLE_DQN_PLUS)}
    return {"planner": CachePlanner(CacheActions(PARTS), costs), **learned}


def controller_bench() -> CacheBench:
    """Return a bench on a simulated run of 12 epochs in which a link has 50 Mbit/s for a while."""
    slow = CacheCase("one_slow", "heavy", bytes_per_s=50e6 / 8)
    return CacheBench(draw_episode([reddit()], [slow], number=1, seed=8, epochs=12), controllers())


def compared_policies() -> list[ComparedPolicy]:
    """Return all policies under 66 cases of congestion, at severities that none was trained with."""
    rows = compare(controllers(), [reddit()], comparison_cases(), episodes=shorter(8, 2))
    return list(rows)


def beyond_best_plan(rows: Sequence[ComparedPolicy], kind: str = "") -> dict[str, float]:
    """Return policy -> joules beyond the best plan, in percent, in the mean over cases.

    Args:
        rows: of :func:`compared_policies`.
        kind: ``delay`` or ``rate`` for half of the cases.
    """
    of_kind = [row for row in rows if row.case.endswith(kind)]
    names = dict.fromkeys(row.policy for row in of_kind)
    return {name: 100 * fmean(row.over_clairvoyant for row in of_kind if row.policy == name) for name in names}


def cases_lost(rows: Sequence[ComparedPolicy]) -> dict[str, int]:
    """Return policy -> number of cases in which it needs over 1 % more joules than the best fixed window."""
    names = dict.fromkeys(row.policy for row in rows)
    return {name: sum(row.policy == name and row.over_best_fixed > 0.01 for row in rows) for name in names}


def rule_beyond_best_plan(rule: Rule) -> float:
    """Return the joules of a learner's rule beyond the best plan, in percent, in the mean over all cases."""
    policy = RuleWindows(CacheActions(PARTS), rule)
    rows = compare({"rule": policy}, [reddit()], comparison_cases(), episodes=shorter(8, 2))
    return beyond_best_plan([row for row in rows if row.policy == "rule"])["rule"]
