"""The Gantt chart of a schedule that nobody has executed yet: its groups take the times it is given."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.bounds import lower_bound_s
from dtdg_lab.views.gantt import Block, Epoch, gantt_figure
from dtdg_lab.views.layout import Figure

_SECOND = 1e9  # nanoseconds
_SHORT = {"group that sets the pace": "sets the pace", "no schedule of these groups ends before": "bound"}


def planned_epoch(schedule: Schedule, times_s: ArrayLike, *, allreduce_s: float = 0.0) -> Epoch:
    """The blocks of an epoch as planned: in each iteration ranks compute, wait for the slowest, and exchange.

    Args:
        schedule: of K groups on R ranks.
        times_s: (K,) seconds of each group.
        allreduce_s: seconds of the exchange that ends an iteration.
    """
    times = np.asarray(times_s, np.float64)
    epoch, begun = Epoch(0, 0), 0.0
    for step, row in enumerate(schedule.assignment):
        ends = begun + max(sum(float(times[group]) for group in groups) for groups in row)
        for rank, groups in enumerate(row):
            now = begun
            for group in groups:
                epoch.add("group", _block(rank, step, now, now + float(times[group]), group))
                now += float(times[group])
            if ends > now:
                epoch.add("wait", _block(rank, step, now, ends))
            if allreduce_s > 0:
                epoch.add("communicate", _block(rank, step, ends, ends + allreduce_s))
        begun = ends + allreduce_s
    return epoch


def planned_figure(
    schedule: Schedule,
    times_s: ArrayLike,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    label: str = "",
    until_s: float | None = None,
) -> Figure:
    """The Gantt chart of a schedule for given times, with the bound that no schedule beats, as a plotly figure dict.

    Args:
        schedule: of K groups on R ranks.
        times_s: (K,) seconds of each group, not all 0.
        per_rank: most groups of a rank in an iteration that the bound allows.
        allreduce_s: seconds of the exchange that ends an iteration.
        label: for the title, such as the scheduler's name.
        until_s: where the time axis ends, so that charts can be compared; at the end of the epoch where not given.

    Raises:
        PlanError: a time is negative or not finite.
    """
    epoch = planned_epoch(schedule, times_s, allreduce_s=allreduce_s)
    bound_s = lower_bound_s(times_s, schedule.parts, per_rank=per_rank, allreduce_s=allreduce_s)
    figure = gantt_figure(epoch, schedule.parts, bound_s=bound_s)
    layout = figure["layout"]
    layout["title"]["text"] = "Planned epoch" + (label and f" · {label}")
    for trace in figure["data"]:  # several stand beside each other
        for long, short in _SHORT.items():
            trace["name"] = trace["name"].replace(long, short)
    if until_s is not None:
        factor = layout["xaxis"]["range"][1] / (1.02 * max(epoch.span_s, bound_s))  # of the axis' unit
        layout["xaxis"]["range"] = [0, 1.02 * until_s * factor]
    return figure


def _block(rank: int, step: int, start_s: float, end_s: float, group: int = -1) -> Block:
    return Block(rank, step, round(start_s * _SECOND), round(end_s * _SECOND), group)
