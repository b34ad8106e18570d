"""Charts on the cards of its systems: schedules of a growing graph."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.catalogue import System, entry
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.units import format_seconds, percent
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.snapshot_groups.gantt import planned_epoch, planned_figure
from dtdg_lab.systems.snapshot_groups.schedulers.base import PSG, lower_bound_s, solve
from dtdg_lab.visualization.bar_charts import compared_bars
from dtdg_lab.visualization.chart import CaptionedFigure

RANKS, WINDOW = 4, 4
EDGE_S, GROUP_S = 1e-6, 2e-4  # seconds per edge and fixed seconds per group: assumed, not measured
EXCHANGE_S = 1e-4
LIMIT_S = 0.5  # of a solver that searches
_SPREAD = 0.05  # relative noise of DyGNeX section 5.4
_NAMES = {"round_robin": PSG, "consecutive": "blad", "dygnex_greedy": "dygnex-g", "dygnex_ilp": "dygnex-l"}


def group_times_s(graph: DynamicGraph) -> NDArray[np.float64]:
    """Return (T - 3,) seconds of every group of four snapshots, by their edges: assumed, with 5 % noise."""
    edges = np.array([snapshot.num_edges for snapshot in graph.snapshots], np.float64)
    sums = np.convolve(edges, np.ones(WINDOW), "valid")
    noise = np.random.default_rng(0).normal(1.0, _SPREAD, len(sums))
    return (GROUP_S + EDGE_S * sums) * noise


def schedule_pictures(system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
    """Return the Gantt chart of the system's schedule of a small epoch, and its duration beside other systems'."""
    times_s, scheduler = group_times_s(graph), system.parts["scheduling"]
    plans = _plans(tuple(times_s.tolist()), scheduler, entry("scheduling", scheduler).load())
    name = _NAMES.get(scheduler, scheduler)
    epochs = {label: planned_epoch(plan, times_s, allreduce_s=EXCHANGE_S) for label, plan in plans.items()}
    bound_s = lower_bound_s(times_s, RANKS, per_rank=2, allreduce_s=EXCHANGE_S)
    excess = percent(epochs[name].span_s / bound_s - 1)
    caption = (
        f"The same {len(times_s)} groups on {RANKS} ranks, with times assumed from edges. No schedule of at most two "
        f"groups per rank ends before {format_seconds(bound_s)}; {name} is {excess} above that."
    )
    if name == "blad":
        caption += " The prediction ignores that its two groups run concurrently."
    waiting = (
        "Blocks are groups, one tone an iteration. The others wait for orange ones (hatched): "
        f"{percent(epochs[name].waiting_share(RANKS))} of the ranks' time."
    )
    milliseconds = {label: 1e3 * epoch.span_s for label, epoch in epochs.items()} | {"bound": 1e3 * bound_s}
    return [
        (planned_figure(plans[name], times_s, per_rank=2, allreduce_s=EXCHANGE_S, label=name), waiting),
        compared_bars("Predicted epoch", "milliseconds", milliseconds, highlighted=name, caption=caption),
    ]


@lru_cache(maxsize=4)
def _plans(times_s: tuple[float, ...], scheduler: str, code: Any) -> dict[str, Schedule]:
    """Return schedules of the same groups by system, and by the scheduler of another system.

    Args:
        times_s: of the groups, seconds.
        scheduler: of the other system.
        code: its function, so that another one of that name gets its own schedule.
    """
    return {
        _NAMES.get(name, name): solve(
            name,
            np.array(times_s),
            RANKS,
            per_rank=1 if name == "round_robin" else 2,
            allreduce_s=EXCHANGE_S,
            time_limit_s=LIMIT_S,
        )
        for name in dict.fromkeys((*_NAMES, scheduler))
    }
