"""Gantt chart of an epoch of snapshot groups: blocks by rank over time, and lines at ends that were predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dtdg_lab.core.plans import Schedule
from dtdg_lab.records.rows import Rows
from dtdg_lab.systems.snapshot_groups.epoch_blocks import EpochBlocks, lengths_ns, planned_epoch
from dtdg_lab.systems.snapshot_groups.schedulers.bounds import lower_bound_s
from dtdg_lab.visualization.axes import time_unit
from dtdg_lab.visualization.chart import Key
from dtdg_lab.visualization.layout import Figure, chart
from dtdg_lab.visualization.numbers import seconds_text
from dtdg_lab.visualization.palette import BASELINE_COLOUR, PHASE_COLOURS, PURGE_COLOUR, TEXT_COLOUR, WARNING_COLOUR
from dtdg_lab.visualization.traces import Drawn, label, level_bars, line, rule

GROUP, PACE, WAITING, EXCHANGE = "group", "group that the others wait for", "waiting", "exchange"
TONES = {GROUP: ("#8CC1E4", "#0072B2"), PACE: ("#F0A878", "#D55E00")}  # by turns: an iteration is seen as one
_PAUSES = {"wait": WAITING, "communicate": EXCHANGE}
_PALE = 0.4  # opacity of what is planned, and of an epoch of the schedule before
_NUMBERED = 12  # ranks up to which a block has room for its number
_DIGIT = 0.0075  # of the width of the chart, that a digit needs
_MIN_PAUSE = 2e-4  # of the width of the chart, below which a pause is not drawn
_NAMED = 32  # ranks up to which each has its name beside its row


class End(NamedTuple):
    """Upright line at an end that is not measured."""

    name: str
    seconds: float
    colour: str
    dash: str


def bound_end(seconds: float, name: str = "no schedule is shorter") -> End:
    """Return the line at the bound of all schedules."""
    return End(name, seconds, WARNING_COLOUR, "dash")


def predicted_end(seconds: float) -> End:
    """Return the line where an epoch ends by its schedule."""
    return End("predicted, without exchanges", seconds, BASELINE_COLOUR, "dot")


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The axis of a Gantt chart.

    Attributes:
        begin_ns: where it is 0.
        unit: of its numbers.
        factor: of a second.
        end: where it ends, in its unit.
    """

    begin_ns: int
    unit: str
    factor: float
    end: float

    def bars(self, rows: Rows) -> tuple[list[float], list[float]]:
        """Return where each block begins and how long it is."""
        starts, lengths = (rows["start_ns"] - self.begin_ns) / 1e9, lengths_ns(rows) / 1e9
        return (starts * self.factor).round(6).tolist(), (lengths * self.factor).round(6).tolist()


def time_axis(blocks: EpochBlocks, ends: Sequence[End] = ()) -> TimeAxis:
    """Return an axis in milliseconds or seconds for blocks and lines."""
    end_s = max([blocks.span_s, *(end.seconds for end in ends)])
    unit, factor = time_unit(end_s)
    return TimeAxis(blocks.begin_ns, unit, factor, end_s * factor)


def gantt_traces(blocks: EpochBlocks, axis: TimeAxis, ranks: int, *, pale: bool = False) -> list[Drawn]:
    """Return bars of groups, of groups that the others wait for, of waiting and of exchanges."""
    traces = _group_bars(blocks, axis, numbered=ranks <= _NUMBERED)
    if ranks > 1:
        traces += _pause_bars(blocks.pauses, axis, hatched=ranks <= _NAMED)
    return [{**trace, "opacity": _PALE} for trace in traces] if pale else traces


def rank_axis(ranks: int) -> Drawn:
    """Return the axis of ranks, the first on top."""
    ticks: Drawn = {"tickvals": [*range(ranks)], "ticktext": [f"rank {rank} " for rank in range(ranks)]}
    if ranks > _NAMED:
        ticks = {"tickvals": [*range(0, ranks, 8)], "ticktext": [f"rank {rank} " for rank in range(0, ranks, 8)]}
    return {"range": [ranks - 0.45, -0.55], "showgrid": False, "zeroline": False, **ticks}


def end_marks(ends: Sequence[End], axis: TimeAxis) -> dict[str, list[Drawn]]:
    """Return an upright line for each end, named above the chart, each name in a row of its own."""
    shapes, notes = [], []
    for row, end in enumerate(ends):
        x = end.seconds * axis.factor
        side = "right" if x > axis.end / 2 else "left"
        shapes.append(rule(x=x, colour=end.colour, width=1.8, dash=end.dash))
        position: Drawn = {"yref": "paper", "xanchor": side, "yanchor": "bottom", "yshift": 14 * row}
        notes.append(label(f"{end.name}: {seconds_text(end.seconds)}", x, 1, end.colour, **position))
    return {"shapes": shapes, "annotations": notes}


def gantt_keys(ranks: int) -> list[Key]:
    """Return the colours of a Gantt chart by their meaning; with one rank nothing waits."""
    keys: list[Key] = [(GROUP, TONES[GROUP][1], "box")]
    if ranks > 1:
        keys += [(PACE, TONES[PACE][1], "box"), (WAITING, PURGE_COLOUR, "hatch")]
        keys += [(EXCHANGE, PHASE_COLOURS["communicate"], "box")]
    return keys


def _group_bars(blocks: EpochBlocks, axis: TimeAxis, *, numbered: bool) -> list[Drawn]:
    """Return two traces: groups, and those of the rank that sets the pace of its iteration."""
    groups, pace = blocks.groups, blocks.pace() if blocks.ranks > 1 else {}
    sets_pace = np.array([pace.get(step) == rank for step, rank in _pairs(groups, "step", "rank")], bool)
    first = int(groups["step"].min())
    traces = []
    for name, mask in ((GROUP, ~sets_pace), (PACE, sets_pace)):
        if mask.any():
            traces.append(_bars_of_groups(name, groups.where(mask), axis, first, numbered=numbered))
    return traces


def _bars_of_groups(name: str, rows: Rows, axis: TimeAxis, first: int, *, numbered: bool) -> Drawn:
    starts, lengths = axis.bars(rows)
    colours = [TONES[name][(step - first) % 2] for step in rows["step"].tolist()]
    texts = [
        str(group) if numbered and length >= _DIGIT * axis.end * (len(str(group)) + 1) else ""
        for group, length in zip(rows["group"].tolist(), lengths, strict=True)
    ]
    white = TONES[GROUP][1], TONES[PACE][1]
    details = [[group, step - first + 1, step, rank] for group, step, rank in _pairs(rows, "group", "step", "rank")]
    hover = (
        "rank %{customdata[3]}: group %{customdata[0]}, iteration %{customdata[1]} (step %{customdata[2]}), "
        f"%{{x:.4g}} {axis.unit}<extra></extra>"
    )
    style: Drawn = {"marker": {"color": colours, "line": {"width": 1, "color": "white"}}, "width": 0.78}
    style |= {"textposition": "inside", "textangle": 0, "insidetextanchor": "middle", "constraintext": "none"}
    text_colours = ["white" if colour in white else TEXT_COLOUR for colour in colours]
    style["insidetextfont"] = {"size": 11, "color": text_colours}
    return level_bars(
        name, rows["rank"].tolist(), lengths, None, hover, base=starts, text=texts, customdata=details, **style
    )


def _pause_bars(pauses: Rows, axis: TimeAxis, *, hatched: bool) -> list[Drawn]:
    """Return waiting, hatched where rows are high enough, and exchanges."""
    hatch = {"shape": "/", "fgcolor": PURGE_COLOUR, "size": 6, "solidity": 0.22}
    markers: Mapping[str, Drawn] = {
        "wait": {"color": "rgba(0,0,0,0)", "line": {"width": 0.5, "color": PURGE_COLOUR}, "pattern": hatch}
        if hatched
        else {"color": PHASE_COLOURS["wait"], "line": {"width": 0}},
        "communicate": {"color": PHASE_COLOURS["communicate"], "line": {"width": 0}},
    }
    is_visible, traces = lengths_ns(pauses) / 1e9 * axis.factor > _MIN_PAUSE * axis.end, []
    for phase, name in _PAUSES.items():
        rows = pauses.where((pauses["phase"] == phase) & is_visible)
        if len(rows):
            starts, lengths = axis.bars(rows)
            hover = f"rank %{{y}}: {name} %{{x:.4g}} {axis.unit}<extra></extra>"
            bars: Any = level_bars(name, rows["rank"].tolist(), lengths, None, hover, base=starts, width=0.78)
            traces.append({**bars, "marker": markers[phase]})
    return traces


def _pairs(rows: Rows, *names: str) -> list[tuple[int, ...]]:
    return list(zip(*(rows[name].tolist() for name in names), strict=True))


# The Gantt chart of a schedule for given times, on the cards of papers and in lessons.


_ROOM = 1.02  # end of the axis over the end of what is drawn
_SHORT = {PACE: "sets the pace"}  # in legends of charts that stand beside each other


def planned_figure(
    schedule: Schedule,
    times_s: Any,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    label: str = "",
    until_s: float | None = None,
) -> Figure:
    """Return the Gantt chart of a schedule for given times, with the bound of all schedules, as a plotly figure dict.

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
    blocks = planned_epoch(schedule, times_s, allreduce_s=allreduce_s)
    end = bound_end(lower_bound_s(times_s, schedule.parts, per_rank=per_rank, allreduce_s=allreduce_s))
    axis = time_axis(blocks, [end])
    bound = [end.seconds * axis.factor] * 2
    data = [
        {**trace, "name": _SHORT.get(trace["name"], trace["name"])}
        for trace in gantt_traces(blocks, axis, schedule.parts)
    ]
    data.append(
        line(f"{end.name}: {seconds_text(end.seconds)}", bound, [-0.55, schedule.parts - 0.45], end.colour, dash="dash")
    )
    last = axis.end if until_s is None else until_s * axis.factor
    title, x_title = "Planned epoch" + (label and f" · {label}"), f"time since the epoch began ({axis.unit})"
    x_axis = {"range": [0, _ROOM * last], "showgrid": False}
    return chart(
        title,
        x_title,
        "",
        data,
        barmode="overlay",
        bargap=0.25,
        xaxis=x_axis,
        yaxis=rank_axis(schedule.parts),
        margin={"l": 72, "r": 14, "t": 34, "b": 78},
    )
