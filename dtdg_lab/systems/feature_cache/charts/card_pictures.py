"""Pictures on the cards of its systems: a simulated run with a slow link, under each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.config.catalogue import System
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import reddit
from dtdg_lab.systems.feature_cache.costs.cache_costs import cache_choices
from dtdg_lab.systems.feature_cache.policies.clairvoyant import Clairvoyant, best_plan, cost_of
from dtdg_lab.systems.feature_cache.policies.learned import learned_policy
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase
from dtdg_lab.systems.feature_cache.simulation.comparison import always_compared, run_policy
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode, draw_episode
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator
from dtdg_lab.visualization.axes import STEPS, counts_axis, named_axis
from dtdg_lab.visualization.bar_charts import compared_bars
from dtdg_lab.visualization.chart import CaptionedFigure, card, trace_keys
from dtdg_lab.visualization.numbers import percent_text, seconds_text
from dtdg_lab.visualization.palette import BASELINE_COLOUR, EDGE_COLOUR, VERTEX_COLOUR, WARNING_COLOUR
from dtdg_lab.visualization.traces import Attributes, box, level_bars, line

PARTS, EPOCHS, EPOCH_STEPS = 4, 12, 25
Span = tuple[float, float]
LATE_S = 0.02
_SLOW = CacheCase("one_slow", "heavy", bytes_per_s=50e6 / 8)
_CARD_NAMES = {
    "epoch_hot": "rapidgnn",
    "fixed-16": "fixed-window",
    "threshold": "threshold-window",
    "double_dqn": "greendygnn",
    "planner": "planner (ours)",
    "clairvoyant": "clairvoyant",
}
_POLICY = {"fixed": "fixed-16"}


def cache_pictures(system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
    """Return the windows of the policy beside the best plan, and the joules of all policies on the same run."""
    path = system.parts["features"]
    if path in ("on_demand", "prefetch"):
        return [_lanes()]
    policy = _CARD_NAMES[_POLICY.get(path, path)]
    windows, joules = windows_beside_best(policy)
    over = joules[policy] / joules["clairvoyant"] - 1
    spent = "the least energy" if policy == "clairvoyant" else f"{percent_text(over)} more energy than the best plan"
    return [
        windows,
        compared_bars(
            "Joules of one partition in this run",
            "joules",
            joules,
            highlighted=policy,
            caption=f"{policy} uses {spent} for this run.",
        ),
    ]


def windows_beside_best(policy: str, case: CacheCase = _SLOW) -> tuple[CaptionedFigure, dict[str, float]]:
    """Return how long a policy keeps its caches beside the best plan, and the joules of all policies on the same run.

    Args:
        policy: its name on a card.
        case: the congestion of the simulated run.
    """
    episode = draw_episode([reddit()], [case], number=1, seed=8, epochs=EPOCHS, epoch_steps=EPOCH_STEPS)
    played = _simulate(episode)
    joules = {name: cost_of(episode, windows) for name, windows in played.items()}
    windows_of = cache_choices(PARTS, episode.epoch_steps).windows
    lengths = {
        name: [(first, int(windows_of[action])) for first, action in windows] for name, windows in played.items()
    }
    slow = _slow_spans(episode)
    mean_length, best = (f"{_mean_length(lengths[name], slow):.0f}" for name in (policy, "clairvoyant"))
    beside = "" if policy == "clairvoyant" else f" and the best plan for {best}"
    compared = {policy: lengths[policy], "clairvoyant": lengths["clairvoyant"]}
    caption = f"While a link is slow, {policy} keeps a cache for {mean_length} steps{beside}."
    return cache_windows_card(compared, episode.steps, slow, caption=caption), joules


def _simulate(episode: CacheEpisode) -> dict[str, list[tuple[int, int]]]:
    always, actions = always_compared(PARTS), CacheActions(PARTS)
    policies = {
        **{name: always[name] for name in ("epoch_hot", "fixed-16", "threshold")},
        "double_dqn": learned_policy(PARTS),
        "planner": CachePlanner(actions, episode.costs),
        "clairvoyant": Clairvoyant(best_plan([episode]), [episode.number]),
    }
    played = {}
    for name, policy in policies.items():
        simulator = CacheSimulator([episode.costs], epoch_steps=EPOCH_STEPS, draw=lambda _: episode)
        played[_CARD_NAMES[name]] = list(run_policy(simulator, policy, number=0).windows[0])
    return played


def _mean_length(windows: Sequence[tuple[int, int]], slow: Sequence[Span]) -> float:
    """Return the mean W of the caches that begin while a link is slow; of all where none does."""
    slow_windows = [window for first, window in windows if any(begin <= first < end for begin, end in slow)]
    return fmean(slow_windows or [window for _, window in windows])


def _slow_spans(episode: CacheEpisode) -> list[Span]:
    trace = episode.trace
    late = np.any(np.isfinite(trace.bytes_per_s) | (trace.delay_s > 0), axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(late, int)[trace.which], [0]])))
    return [(float(start), float(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _lanes() -> CaptionedFigure:
    costs, steps = reddit(), 8
    clean = costs.rpc_s + max(costs.asked) * costs.rows * costs.row_bytes / costs.link_bytes_per_s
    fetch_s = np.where(np.arange(steps) < steps // 2, clean, clean + max(costs.trips, 1.0) * LATE_S)
    return lanes_card(fetch_s, costs.base_s)


def cache_windows_card(
    windows: Mapping[str, Sequence[tuple[int, int]]], steps: int, slow: Sequence[Span], *, caption: str
) -> CaptionedFigure:
    """Return how long each cache serves over the steps of a run, shaded where a link is slow.

    Args:
        windows: (first step, W) of every cache by policy; the first policy is the card's own.
        steps: S of the run.
        slow: from and to, in steps.
        caption: the sentence under it.

    References: GreenDyGNN figure 7, upper half.
    """
    styles = ((EDGE_COLOUR, 3, "solid"), (BASELINE_COLOUR, 1.5, "dash"), (VERTEX_COLOUR, 1.5, "dot"))
    data = []
    for (name, caches), (colour, width, dash) in zip(windows.items(), styles, strict=False):
        x, y = [*(first for first, _ in caches), steps], [*(window for _, window in caches), caches[-1][1]]
        stroke = {"color": colour, "width": width, "dash": dash, "shape": "hv"}
        data.append(line(name, x, y, colour, "from step %{x}: W = %{y}", line=stroke))
    shaded: Attributes = {"layer": "below", "fillcolor": WARNING_COLOUR, "opacity": 0.14, "line": {"width": 0}}
    figure = card(
        data,
        "How long each cache serves",
        unit="W (steps)",
        keys=trace_keys(data),
        x_title=STEPS,
        xaxis={"range": [0, steps]},
        yaxis={**counts_axis(WINDOWS), "range": [-0.1, 2.25]},
        shapes=[box(span, (0, 1), yref="paper", **shaded) for span in slow],
    )
    return figure, caption


def lanes_card(fetch_s: ArrayLike, compute_s: float) -> CaptionedFigure:
    """Return fetching and computing of the same steps, by turns and with each fetch beside the step before.

    Args:
        fetch_s: (S,) seconds that the features of each step take.
        compute_s: seconds of computing in each.

    References: GreenDyGNN section V-A (pipeline), baselines of section VI-A.
    """
    fetches = np.asarray(fetch_s, np.float64).tolist()
    by_turns, ahead = (_spans(fetches, compute_s, ahead=beside) for beside in (False, True))
    lanes = {
        "ahead: compute": ahead[1],
        "ahead: fetch": ahead[0],
        "by turns: compute": by_turns[1],
        "by turns: fetch": by_turns[0],
    }
    data = []
    for kind, colour in (("fetch", VERTEX_COLOUR), ("compute", EDGE_COLOUR)):
        segments = [(lane, *span) for lane, name in enumerate(lanes) if name.endswith(kind) for span in lanes[name]]
        starts = [round(1e3 * start, 3) for _, start, _ in segments]
        edged = {"color": colour, "line": {"width": 1, "color": "white"}}
        style: Attributes = {"base": starts, "width": 0.7, "marker": edged}
        lasted = [round(1e3 * (end - start), 3) for _, start, end in segments]
        data.append(level_bars(kind, [lane for lane, *_ in segments], lasted, None, "%{x:.4g} ms", **style))
    title, y_axis = "The same steps, by turns and ahead", {**named_axis(lanes), "range": [-0.6, 3.6]}
    figure = card(data, title, keys=trace_keys(data), x_title="time (ms)", barmode="overlay", yaxis=y_axis)
    times = f"{seconds_text(by_turns[1][-1][1])} by turns and {seconds_text(ahead[1][-1][1])} ahead"
    return figure, f"{len(fetches)} steps take {times}; one owner is slow from the middle on."


def _spans(fetches: Sequence[float], compute_s: float, *, ahead: bool) -> tuple[list[Span], list[Span]]:
    """Return when each step fetches and computes.

    Ahead, fetches follow each other; by turns, each waits for the step before. A step computes when its features are
    there and the step before is over.
    """
    fetched, computed = [(0.0, 0.0)], [(0.0, 0.0)]
    for took in fetches:
        begin = (fetched if ahead else computed)[-1][1]
        fetched.append((begin, begin + took))
        begin = max(begin + took, computed[-1][1])
        computed.append((begin, begin + compute_s))
    return fetched[1:], computed[1:]
