"""The picture of snapshot groups: the Gantt chart of an epoch's schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups import captions
from dtdg_lab.systems.snapshot_groups.balance import balance_of
from dtdg_lab.systems.snapshot_groups.epoch_blocks import EpochBlocks, measured_bound, planned_epoch, shown_epoch
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.gantt import (
    End,
    TimeAxis,
    bound_end,
    end_marks,
    gantt_keys,
    gantt_traces,
    predicted_end,
    rank_axis,
    time_axis,
)
from dtdg_lab.systems.snapshot_groups.group_times import predicted_seconds
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, card
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import percent_text, seconds_text

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

MOST_BLOCKS = 900
_ROOM = 1.02  # end of the axis over the end of what is drawn
_HIGH, _MOST_HIGH, _MARGIN = 250, 390, 68  # pixels: of the chart, and of what is beside its rows
_ROW, _LEAST_ROW = 22, 5  # pixels of a rank


def is_scheduled(tables: RunTables) -> bool:
    """Return whether the run's system schedules snapshot groups."""
    return "scheduler" in tables.config.flat


def schedule_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the newest epoch as it was executed; before there is one, as it is planned."""
    schedule, blocks = tables.event(ScheduleFacts), shown_epoch(tables)
    if blocks is None:
        return _planned(tables, schedule)
    ranks, is_current = tables.ranks, schedule is not None and blocks.schedule is schedule
    shown = blocks.newest(MOST_BLOCKS)
    title, x_title, ends = f"Schedule of epoch {blocks.epoch + 1}", "since the epoch began", _ends(tables, blocks)
    if shown is not blocks:
        count = len(np.unique(shown.groups["step"]))
        title, x_title, ends = f"{title}, last {count} iterations", f"since the first of {count} iterations began", []
    axis = time_axis(shown, ends)
    return _card(
        shown, title, axis, ranks, x_title=f"{axis.unit} {x_title}", pale=not is_current, **end_marks(ends, axis)
    )


def schedule_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how long ranks waited in the epoch that is drawn."""
    schedule, blocks = tables.event(ScheduleFacts), shown_epoch(tables)
    if blocks is None:
        return NOTHING_YET if schedule is None else _planned_caption(schedule)
    time = seconds_text(epoch_seconds(tables, blocks))
    if tables.ranks == 1:
        return captions.ALONE.format(groups=f"{len(blocks.groups):,}", time=time)
    balance = balance_of(tables, blocks.epoch)
    waited = blocks.waiting_share(tables.ranks) if balance is None else balance.waiting_share
    words = captions.WAITED if blocks.is_whole else captions.WAITED_SO_FAR
    return words.format(share=percent_text(waited), epoch=blocks.epoch + 1, time=time)


def epoch_seconds(tables: RunTables, blocks: EpochBlocks) -> float:
    """Return the wall-clock seconds of an epoch: as rank 0 timed it, else of its blocks."""
    ended = {event["data"]["epoch"]: event["data"].get("time_s") for event in tables.events("epoch")}
    return float(ended.get(blocks.epoch) or blocks.span_s)


def _planned(tables: RunTables, schedule: ScheduleFacts | None) -> Figure:
    """Return the schedule that the next epoch will follow, pale; of sizes, in percent of the epoch."""
    ranks = tables.ranks
    if schedule is None:
        return card([], "Schedule", **_frame(ranks))
    plan = Schedule(schedule.assignment, schedule.groups)
    unit_s = 1.0 if schedule.in_seconds else 1 / schedule.makespan_s  # of sizes: the whole epoch is 1
    exchange_s = schedule.allreduce_s * unit_s
    blocks = planned_epoch(plan, schedule.times_s * unit_s, allreduce_s=exchange_s, ranks=schedule.ranks)
    title = f"Schedule that epoch {(tables.complete_epoch or 0) + 1} will follow"
    shown = blocks.newest(MOST_BLOCKS)
    axis = time_axis(shown)
    if not schedule.in_seconds:
        axis = TimeAxis(axis.begin_ns, "%", 100.0, 100 * shown.span_s)
    x_title = "since the epoch begins" if schedule.in_seconds else "of the epoch, by the sizes of groups"
    return _card(shown, title, axis, ranks, x_title=f"{axis.unit} {x_title}", pale=True)


def _planned_caption(schedule: ScheduleFacts) -> str:
    words = captions.PLANNED if schedule.in_seconds else captions.PLANNED_SIZES
    time = seconds_text(schedule.makespan_s)
    return words.format(groups=f"{schedule.groups:,}", iterations=f"{schedule.iterations:,}", time=time)


def _ends(tables: RunTables, blocks: EpochBlocks) -> list[End]:
    """Return the bound of an epoch's groups and the predicted end of its schedule, both by the times in that epoch."""
    ends = []
    bound_s = measured_bound(blocks, pipelined=bool(tables.config.flat.get("pipelined")))
    if bound_s is not None and tables.ranks > 1:
        ends.append(bound_end(bound_s, "no schedule is shorter with the times of this epoch"))
    predicted_s = predicted_seconds(tables)
    if blocks.is_whole and blocks.schedule is tables.event(ScheduleFacts) and predicted_s is not None:
        ends.append(predicted_end(predicted_s))
    return ends


def _card(blocks: EpochBlocks, title: str, axis: TimeAxis, ranks: int, **looks: Any) -> Figure:
    return card(
        gantt_traces(blocks, axis, ranks, pale=looks.pop("pale")),
        title,
        xaxis={"range": [0, _ROOM * axis.end], "showgrid": False},
        **_frame(ranks),
        **looks,
    )


def _frame(ranks: int) -> dict[str, Any]:
    """Return keys and layout, the same in all states."""
    rows = max(min(_ROW * ranks, _MOST_HIGH - _MARGIN), _LEAST_ROW * ranks)
    looks = {"yaxis": rank_axis(ranks), "barmode": "overlay", "bargap": 0.22, "height": max(_HIGH, rows + _MARGIN)}
    return {"keys": gantt_keys(ranks), "margin": {"l": 70, "t": 34}, **looks}


SCHEDULE = Chart(
    name="schedule",
    title="Schedule",
    figure=schedule_figure,
    caption=schedule_caption,
    place="picture",
    shown=is_scheduled,
    help=(
        "A row is a rank, a block a group of snapshots with its number. Shades alternate by iteration; ranks meet at "
        "the end of each."
    ),
)
