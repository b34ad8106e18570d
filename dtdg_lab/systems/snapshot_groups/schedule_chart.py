"""The picture of snapshot groups: the Gantt chart of an epoch's schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtdg_lab.core.plans import Schedule
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.balance import balance_of
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.gantt import (
    End,
    EpochBlocks,
    TimeAxis,
    bound_end,
    end_marks,
    gantt_keys,
    gantt_traces,
    measured_bound,
    planned_epoch,
    predicted_end,
    rank_axis,
    shown_epoch,
    time_axis,
)
from dtdg_lab.systems.snapshot_groups.group_times import predicted_seconds
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, card
from dtdg_lab.visualization.numbers import percent_text, seconds_text

MOST_BLOCKS = 900
_ROOM = 1.02  # end of the axis over the end of what is drawn
_MIN_HEIGHT, _MAX_HEIGHT, _MARGIN = 250, 390, 68  # pixels of the chart, and of its margins
_ROW, _MIN_ROW = 22, 5  # pixels of a rank


def is_scheduled(tables: RunTables) -> bool:
    """Return whether the run's system schedules snapshot groups."""
    return "scheduler" in tables.config.flat


def schedule_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the newest epoch as it was executed; before there is one, as it is planned."""
    schedule, blocks = tables.event(ScheduleFacts), shown_epoch(tables)
    if blocks is None:
        return _planned(tables, schedule)
    ranks, is_current = tables.ranks, schedule is not None and blocks.schedule is schedule
    newest = blocks.newest(MOST_BLOCKS)
    title, x_title, ends = f"Schedule of epoch {blocks.epoch + 1}", "since the epoch began", _ends(tables, blocks)
    if newest is not blocks:
        count = len(np.unique(newest.groups["step"]))
        title, x_title, ends = f"{title}, last {count} iterations", f"since the first of {count} iterations began", []
    axis = time_axis(newest, ends)
    return _card(
        newest, title, axis, ranks, x_title=f"{axis.unit} {x_title}", pale=not is_current, **end_marks(ends, axis)
    )


def schedule_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how long ranks waited in the epoch that is drawn, or the planned epoch before."""
    schedule, blocks = tables.event(ScheduleFacts), shown_epoch(tables)
    if blocks is None:
        return NOTHING_YET if schedule is None else _planned_caption(schedule)
    time = seconds_text(epoch_seconds(tables, blocks))
    if tables.ranks == 1:
        return f"The only rank computed {len(blocks.groups):,} groups in {time}."
    balance = balance_of(tables, blocks.epoch)
    share = percent_text(blocks.waiting_share(tables.ranks) if balance is None else balance.waiting_share)
    if not blocks.is_whole:
        return f"Ranks have waited for {share} of their time in epoch {blocks.epoch + 1} so far."
    return f"Ranks waited for {share} of their time in epoch {blocks.epoch + 1}, which took {time}."


def epoch_seconds(tables: RunTables, blocks: EpochBlocks) -> float:
    """Return the wall-clock seconds of an epoch as rank 0 timed it, else of its blocks."""
    seconds = {event["data"]["epoch"]: event["data"].get("time_s") for event in tables.events("epoch")}
    return float(seconds.get(blocks.epoch) or blocks.span_s)


def _planned(tables: RunTables, schedule: ScheduleFacts | None) -> Figure:
    """Return the schedule of the next epoch, pale; in percent of the epoch where it follows from sizes."""
    ranks = tables.ranks
    if schedule is None:
        return card([], "Schedule", **_frame(ranks))
    plan = Schedule(schedule.assignment, schedule.groups)
    unit_s = 1.0 if schedule.in_seconds else 1 / schedule.makespan_s  # of sizes: the whole epoch is 1
    exchange_s = schedule.allreduce_s * unit_s
    blocks = planned_epoch(plan, schedule.times_s * unit_s, allreduce_s=exchange_s, ranks=schedule.ranks)
    title = f"Schedule that epoch {(tables.complete_epoch or 0) + 1} will follow"
    newest = blocks.newest(MOST_BLOCKS)
    axis = time_axis(newest)
    if not schedule.in_seconds:
        axis = TimeAxis(axis.begin_ns, "%", 100.0, 100 * newest.span_s)
    x_title = "since the epoch begins" if schedule.in_seconds else "of the epoch, by the sizes of groups"
    return _card(newest, title, axis, ranks, x_title=f"{axis.unit} {x_title}", pale=True)


def _planned_caption(schedule: ScheduleFacts) -> str:
    size = f"{schedule.groups:,} groups in {schedule.iterations:,} iterations"
    if not schedule.in_seconds:
        return f"This schedule has {size}; it follows from sizes, not times."
    return f"By this schedule, an epoch of {size} takes {seconds_text(schedule.makespan_s)}."


def _ends(tables: RunTables, blocks: EpochBlocks) -> list[End]:
    """Return the bound of an epoch's groups and the predicted end of its schedule, both by the times in that epoch."""
    ends = []
    bound_s = measured_bound(blocks, pipelined=bool(tables.config.flat.get("pipelined")))
    if bound_s is not None and tables.ranks > 1:
        ends.append(bound_end(bound_s, "lower bound with the times of this epoch"))
    predicted_s = predicted_seconds(tables)
    if blocks.is_whole and blocks.schedule is tables.event(ScheduleFacts) and predicted_s is not None:
        ends.append(predicted_end(predicted_s))
    return ends


def _card(blocks: EpochBlocks, title: str, axis: TimeAxis, ranks: int, *, pale: bool, **layout: Any) -> Figure:
    traces = gantt_traces(blocks, axis, ranks, pale=pale)
    return card(traces, title, xaxis={"range": [0, _ROOM * axis.end], "showgrid": False}, **_frame(ranks), **layout)


def _frame(ranks: int) -> dict[str, Any]:
    """Return keys and layout, the same in all states."""
    rows = max(min(_ROW * ranks, _MAX_HEIGHT - _MARGIN), _MIN_ROW * ranks)
    bars = {"yaxis": rank_axis(ranks), "barmode": "overlay", "bargap": 0.22}
    height = max(_MIN_HEIGHT, rows + _MARGIN)
    return {"keys": gantt_keys(ranks), "margin": {"l": 70, "t": 34}, "height": height, **bars}


SCHEDULE = Chart(
    name="schedule",
    title="Schedule",
    figure=schedule_figure,
    caption=schedule_caption,
    section="picture",
    applies=is_scheduled,
    help=(
        "A row is a rank, a block a group of snapshots with its number. Shades alternate by iteration; ranks meet at "
        "the end of each."
    ),
)
