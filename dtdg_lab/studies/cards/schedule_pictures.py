"""Pictures of systems that schedule snapshot groups: what their scheduler makes of a graph that grows."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.catalogue import System
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.units import format_seconds
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.scheduling.bounds import lower_bound_s
from dtdg_lab.scheduling.solve import PSG, solve
from dtdg_lab.views.card_pictures import Panel, compared_panel
from dtdg_lab.views.gantt import gantt_words
from dtdg_lab.views.layout import percent
from dtdg_lab.views.planned import planned_epoch, planned_figure

RANKS, WINDOW = 4, 4
EDGE_S, GROUP_S = 1e-6, 2e-4  # seconds a group takes for an edge, and beside its edges: assumed, not measured
EXCHANGE_S = 1e-4
LIMIT_S = 0.5  # of a solver that searches
_SPREAD = 0.05  # as DyGNeX section 5.4 has noise
_NAMES = {"round_robin": PSG, "consecutive": "blad", "dygnex_greedy": "dygnex-g", "dygnex_ilp": "dygnex-l"}


def group_times_s(graph: DynamicGraph) -> NDArray[np.float64]:
    """(T - 3,) seconds of every group of four snapshots, by their edges: assumed, with 5 % of noise."""
    edges = np.array([snapshot.num_edges for snapshot in graph.snapshots], np.float64)
    sums = np.convolve(edges, np.ones(WINDOW), "valid")
    noise = np.random.default_rng(0).normal(1.0, _SPREAD, len(sums))
    return (GROUP_S + EDGE_S * sums) * noise


def schedule_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """The Gantt chart of the system's schedule of a small epoch, and its length beside those of other systems."""
    times_s, own = group_times_s(graph), system.parts["scheduling"]
    plans = _plans(tuple(times_s.tolist()))
    plan, named = plans[_NAMES[own]], _NAMES[own]
    spans = {name: planned_epoch(each, times_s, allreduce_s=EXCHANGE_S).span_s for name, each in plans.items()}
    bound_s = lower_bound_s(times_s, RANKS, per_rank=2, allreduce_s=EXCHANGE_S)
    gantt = planned_figure(plan, times_s, per_rank=2, allreduce_s=EXCHANGE_S, label=named)
    words = (
        f"The same {len(times_s)} groups on {RANKS} ranks, times assumed from edges. No schedule of at most two groups "
        f"a rank ends before {format_seconds(bound_s)}; {named} is {percent(spans[named] / bound_s - 1)} above that."
    )
    if named == "blad":
        words += " That its two groups run at once, and not one after the other, is not in the prediction."
    return [
        (gantt, gantt_words(planned_epoch(plan, times_s, allreduce_s=EXCHANGE_S))),
        compared_panel("Predicted epoch", "milliseconds", {
            **{name: 1e3 * span for name, span in spans.items()}, "bound": 1e3 * bound_s}, own=named, words=words),
    ]  # fmt: skip


@lru_cache(maxsize=4)
def _plans(times_s: tuple[float, ...]) -> dict[str, Schedule]:
    """Schedules of the same groups by system."""
    return {
        name: solve(
            scheduler, np.array(times_s), RANKS, per_rank=1 if scheduler == "round_robin" else 2,
            allreduce_s=EXCHANGE_S, time_limit_s=LIMIT_S,
        )
        for scheduler, name in _NAMES.items()
    }  # fmt: skip
