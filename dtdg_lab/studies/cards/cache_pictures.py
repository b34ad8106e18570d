"""Pictures of caches of remote features: a simulated run with a slow link, decided by the system's own policy."""

from __future__ import annotations

import numpy as np

from dtdg_lab.control.cache_cases import CacheCase
from dtdg_lab.control.cache_comparison import always_compared, run_policy
from dtdg_lab.control.cache_dqn import learned_policy
from dtdg_lab.control.cache_episode import CacheEpisode, draw_episode
from dtdg_lab.control.cache_planner import CachePlanner
from dtdg_lab.control.cache_simulator import CacheSimulator
from dtdg_lab.control.clairvoyant import Clairvoyant, best_plan, cost_of
from dtdg_lab.control.shipped_costs import reddit
from dtdg_lab.core.catalogue import System
from dtdg_lab.core.feature_path import CacheActions
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.views.card_pictures import Panel, Span, compared_panel, lanes_panel, windows_chosen_panel
from dtdg_lab.views.layout import percent

PARTS, EPOCHS, STEPS = 4, 12, 25
LATE_S = 0.02
_SLOW = CacheCase("one_slow", "heavy", bytes_per_s=50e6 / 8)
_FROM = "Simulated."
_SHOWN = {
    "epoch_hot": "rapidgnn", "fixed-16": "fixed-window", "threshold": "threshold-window", "double_dqn": "greendygnn",
    "planner": "planner (ours)", "clairvoyant": "clairvoyant",
}  # fmt: skip
_POLICY = {"fixed": "fixed-16"}


def cache_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Windows that the policy chose beside the best plan, and joules of all policies on the same run."""
    path = system.parts["features"]
    if path in ("on_demand", "prefetch"):
        return [_lanes("by turns" if path == "on_demand" else "ahead")]
    own = _SHOWN[_POLICY.get(path, path)]
    episode = draw_episode([reddit()], [_SLOW], number=1, seed=8, epochs=EPOCHS, epoch_steps=STEPS)
    played = _played(episode)
    joules = {name: cost_of(episode, windows) for name, windows in played.items()}
    over = joules[own] / joules["clairvoyant"] - 1
    actions = CacheActions(PARTS)
    lengths = {name: [(first, _length(actions, action, episode)) for first, action in windows]
               for name, windows in played.items()}  # fmt: skip
    shown = {own: lengths[own], "clairvoyant": lengths["clairvoyant"]}
    return [
        windows_chosen_panel(shown, episode.steps, _slow_spans(episode), words=(
            "Shaded: one owner's link has 50 Mbit/s left. Look at what the window does when shading begins; a window "
            f"that was begun is kept to its end. {_FROM}")),
        compared_panel("Joules of one part in this run", "joules", joules, own=own, words=(
            f"{own} takes {percent(over)} more than the best plan of this one run. {_FROM}")),
    ]  # fmt: skip


def _played(episode: CacheEpisode) -> dict[str, list[tuple[int, int]]]:
    always, actions = always_compared(PARTS), CacheActions(PARTS)
    policies = {
        **{name: always[name] for name in ("epoch_hot", "fixed-16", "threshold")},
        "double_dqn": learned_policy(PARTS), "planner": CachePlanner(actions, episode.costs),
        "clairvoyant": Clairvoyant(best_plan([episode]), [episode.number]),
    }  # fmt: skip
    found = {}
    for name, policy in policies.items():
        simulator = CacheSimulator([episode.costs], epoch_steps=STEPS, draw=lambda _: episode)
        found[_SHOWN[name]] = list(run_policy(simulator, policy, number=0).windows[0])
    return found


def _length(actions: CacheActions, action: int, episode: CacheEpisode) -> int:
    """W of a choice; one cache for each epoch is a choice of its own."""
    return actions.window(action) if action < len(actions) else episode.epoch_steps


def _slow_spans(episode: CacheEpisode) -> list[Span]:
    trace = episode.trace
    late = np.any(np.isfinite(trace.bytes_per_s) | (trace.delay_s > 0), axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(late, int)[trace.which], [0]])))
    return [(float(start), float(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _lanes(own: str) -> Panel:
    costs, steps = reddit(), 8
    clean = costs.rpc_s + max(costs.asked) * costs.rows * costs.row_bytes / costs.link_bytes_per_s
    fetch_s = np.where(np.arange(steps) < steps // 2, clean, clean + max(costs.trips, 1.0) * LATE_S)
    figure, words = lanes_panel(fetch_s, costs.base_s, own=own)
    return figure, f"{words} One owner's replies are {1e3 * LATE_S:.0f} ms late there. {_FROM}"
