"""Gantt chart of an epoch of snapshot groups: blocks by rank over time, and what they are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.plans import Schedule
from dtdg_lab.records.rows import Array, Rows, as_column
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s
from dtdg_lab.visualization.axes import time_unit
from dtdg_lab.visualization.chart import Figure, Key, card, trace_keys
from dtdg_lab.visualization.numbers import seconds_text
from dtdg_lab.visualization.palette import BASELINE_COLOUR, PHASE_COLOURS, PURGE_COLOUR, TEXT_COLOUR, WARNING_COLOUR
from dtdg_lab.visualization.traces import Attributes, label, level_bars, line, rule

PAUSES = ("wait", "communicate")  # phases that are drawn beside groups
LONG_EPOCH_S = 3.0  # an epoch that takes this long is drawn while it runs, a shorter one when it is over


@dataclass(frozen=True, slots=True, eq=False)
class EpochBlocks:
    """Blocks of time of all ranks in one epoch.

    Attributes:
        epoch: its number, from 0.
        groups: ``rank``, ``step``, ``group``, ``start_ns`` and ``end_ns`` of each group that was computed.
        pauses: ``rank``, ``step``, ``phase``, ``start_ns`` and ``end_ns`` of waiting and of exchanges.
        schedule: the schedule that the epoch follows.
    """

    epoch: int
    groups: Rows
    pauses: Rows
    schedule: ScheduleFacts | None = None

    @property
    def is_whole(self) -> bool:
        """True if all groups of its schedule have been computed."""
        return self.schedule is not None and len(self.groups) == self.schedule.groups

    @property
    def begin_ns(self) -> int:
        """Begin of its first block."""
        return int(min(self.groups["start_ns"].min(), self.pauses["start_ns"].min(initial=2**62)))

    @property
    def span_s(self) -> float:
        """Seconds from its first block to the end of the last."""
        end_ns = max(self.groups["end_ns"].max(), self.pauses["end_ns"].max(initial=0))
        return float(end_ns - self.begin_ns) / 1e9

    @property
    def ranks(self) -> int:
        """Ranks that computed a group."""
        return len(np.unique(self.groups["rank"]))

    def waiting_share(self, ranks: int) -> float:
        """Return the share of all ranks' time in which they waited."""
        waits = self.pauses.where(self.pauses["phase"] == "wait")
        return float(lengths_ns(waits).sum()) / 1e9 / (ranks * self.span_s) if self.span_s > 0 else 0.0

    def times_s(self) -> NDArray[np.float64]:
        """Return the seconds of each group, in order of the groups."""
        seconds: NDArray[np.float64] = lengths_ns(self.groups)[np.argsort(self.groups["group"])] / 1e9
        return seconds

    def pace(self) -> Mapping[int, int]:
        """Return for each step the rank whose groups took longest."""
        steps, ranks = self.groups["step"], self.groups["rank"]
        loads = np.zeros((np.ptp(steps) + 1, ranks.max() + 1), np.int64)
        first = int(steps.min())
        np.add.at(loads, (steps - first, ranks), lengths_ns(self.groups))
        return {first + index: int(rank) for index, rank in enumerate(loads.argmax(axis=1))}

    def newest(self, limit: int) -> EpochBlocks:
        """Return the newest iterations with at most ``limit`` blocks together, and at least one iteration."""
        steps, counts = np.unique(np.concatenate([self.groups["step"], self.pauses["step"]]), return_counts=True)
        iterations = int((np.cumsum(counts[::-1]) <= limit).sum())
        if iterations >= len(steps):
            return self
        first = steps[-max(iterations, 1)]
        groups, pauses = (rows.where(rows["step"] >= first) for rows in (self.groups, self.pauses))
        return EpochBlocks(self.epoch, groups, pauses, self.schedule)

    def follows_schedule(self) -> bool:
        """Return whether every iteration computed the groups that its schedule says."""
        if self.schedule is None or not self.is_whole:
            return False
        computed = [set(rows["group"].tolist()) for rows in self.groups.by("step").values()]
        return computed == [{group for part in row for group in part} for row in self.schedule.assignment]

    def exchange_s(self) -> float:
        """Return the mean seconds of an iteration's exchange, on the rank where it took longest."""
        exchanges = self.pauses.where(self.pauses["phase"] == "communicate")
        if not len(exchanges):
            return 0.0
        longest = [max(lengths_ns(rows).tolist()) for rows in exchanges.by("step").values()]
        return sum(longest) / len(longest) / 1e9


def lengths_ns(rows: Rows) -> Array:
    """Return how long each block took."""
    lengths: Array = rows["end_ns"] - rows["start_ns"]
    return lengths


def schedule_of(tables: RunTables, epoch: int) -> ScheduleFacts | None:
    """Return the schedule that an epoch follows; None where the run has none."""
    schedules = [facts for row, facts in tables.typed(ScheduleFacts) if (row["epoch"] or 0) <= epoch]
    return schedules[-1] if schedules else None


def shown_epoch(tables: RunTables) -> EpochBlocks | None:
    """Return the newest epoch that is over, or the running one where epochs are long; None before the first group."""

    def blocks() -> EpochBlocks | None:
        groups = tables.rows("groups")
        if not len(groups):
            return None
        epochs = groups["epoch"]
        number = newest = int(epochs.max())
        running, previous = groups.where(epochs == newest), groups.where(epochs == newest - 1)
        schedule = schedule_of(tables, newest)
        is_over = schedule is not None and len(running) >= schedule.groups
        if not is_over and len(previous):
            previous_ns = previous["end_ns"].max() - previous["start_ns"].min()
            number = newest - 1 if previous_ns < LONG_EPOCH_S * 1e9 else newest
        phases = tables.rows("phases")
        phases = phases.where(phases["epoch"] == number)
        pauses = phases.where(np.isin(phases["phase"].astype(str), PAUSES))
        return EpochBlocks(number, groups.where(epochs == number), pauses, schedule_of(tables, number))

    return tables.once("shown epoch of groups", blocks)


def measured_bound(blocks: EpochBlocks, *, pipelined: bool) -> float | None:
    """Return the seconds that no schedule of an epoch's groups can beat; None where that is not known.

    Args:
        blocks: of the epoch.
        pipelined: whether a rank's groups overlap, so that their times are no times of their own.
    """
    if pipelined or not blocks.is_whole or blocks.schedule is None:
        return None
    times_s = blocks.times_s()
    if not times_s.all():
        return None
    return _bound_once(times_s.tobytes(), blocks.schedule.ranks, blocks.schedule.rank_groups)


@lru_cache(maxsize=16)
def _bound_once(times_s: bytes, ranks: int, per_rank: int) -> float:
    """Return the bound of an epoch, which is asked for again while the next one runs."""
    return lower_bound_s(np.frombuffer(times_s), ranks, per_rank=per_rank)


def planned_epoch(
    schedule: Schedule, times_s: ArrayLike, *, allreduce_s: float = 0.0, ranks: int | None = None
) -> EpochBlocks:
    """Return an epoch as planned: in each iteration ranks compute, wait for the slowest, and exchange.

    Args:
        schedule: of K groups on P parts.
        times_s: (K,) seconds of each group.
        allreduce_s: seconds of the exchange that ends an iteration.
        ranks: R; each computes P / R parts. P where not given.
    """
    times = np.asarray(times_s, np.float64)
    parts_of_a_rank = schedule.parts // (ranks or schedule.parts)
    groups: list[tuple[Any, ...]] = []
    pauses: list[tuple[Any, ...]] = []
    begin = 0.0
    for step, row in enumerate(schedule.assignment):
        ends: dict[int, float] = {}
        for part, assigned in enumerate(row):
            rank = part // parts_of_a_rank
            ends.setdefault(rank, begin)
            for group in assigned:
                end = ends[rank] + float(times[group])
                groups.append((rank, step, group, ends[rank], end))
                ends[rank] = end
        slowest = max(ends.values())
        pauses += [(rank, step, "wait", end, slowest) for rank, end in ends.items() if end < slowest]
        if allreduce_s > 0:
            pauses += [(rank, step, "communicate", slowest, slowest + allreduce_s) for rank in ends]
        begin = slowest + allreduce_s
    return EpochBlocks(0, _rows(groups, "group"), _rows(pauses, "phase"))


def _rows(blocks: list[tuple[Any, ...]], kind: str) -> Rows:
    """Return blocks, whose ends are seconds, as rows of a table."""
    names = ("rank", "step", kind, "start_ns", "end_ns")
    columns = [list(values) for values in zip(*blocks, strict=True)] or [[]] * len(names)
    columns[3:] = [[round(second * 1e9) for second in seconds] for seconds in columns[3:]]
    empty = {name: np.empty(0, object if name == "phase" else np.int64) for name in names}
    return Rows.of(
        {name: as_column(values) if values else empty[name] for name, values in zip(names, columns, strict=True)}
    )


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


def bound_end(seconds: float, name: str = "lower bound") -> End:
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


def gantt_traces(blocks: EpochBlocks, axis: TimeAxis, ranks: int, *, pale: bool = False) -> list[Attributes]:
    """Return bars of groups, of groups that the others wait for, of waiting and of exchanges."""
    traces = _group_bars(blocks, axis, numbered=ranks <= _NUMBERED)
    if ranks > 1:
        traces += _pause_bars(blocks.pauses, axis, hatched=ranks <= _NAMED)
    return [{**trace, "opacity": _PALE} for trace in traces] if pale else traces


def rank_axis(ranks: int) -> Attributes:
    """Return the axis of ranks, the first on top."""
    ticks: Attributes = {"tickvals": [*range(ranks)], "ticktext": [f"rank {rank} " for rank in range(ranks)]}
    if ranks > _NAMED:
        ticks = {"tickvals": [*range(0, ranks, 8)], "ticktext": [f"rank {rank} " for rank in range(0, ranks, 8)]}
    return {"range": [ranks - 0.45, -0.55], "showgrid": False, "zeroline": False, **ticks}


def end_marks(ends: Sequence[End], axis: TimeAxis) -> dict[str, list[Attributes]]:
    """Return an upright line for each end, named above the chart, each name in a row of its own."""
    shapes, notes = [], []
    for row, end in enumerate(ends):
        x = end.seconds * axis.factor
        side = "right" if x > axis.end / 2 else "left"
        shapes.append(rule(x=x, colour=end.colour, width=1.8, dash=end.dash))
        position: Attributes = {"yref": "paper", "xanchor": side, "yanchor": "bottom", "yshift": 14 * row}
        notes.append(label(f"{end.name}: {seconds_text(end.seconds)}", x, 1, end.colour, **position))
    return {"shapes": shapes, "annotations": notes}


def gantt_keys(ranks: int) -> list[Key]:
    """Return the colours of a Gantt chart by their meaning; with one rank nothing waits."""
    keys: list[Key] = [(GROUP, TONES[GROUP][1], "box")]
    if ranks > 1:
        keys += [(PACE, TONES[PACE][1], "box"), (WAITING, PURGE_COLOUR, "hatch")]
        keys += [(EXCHANGE, PHASE_COLOURS["communicate"], "box")]
    return keys


def _group_bars(blocks: EpochBlocks, axis: TimeAxis, *, numbered: bool) -> list[Attributes]:
    """Return two traces: groups, and those of the rank that sets the pace of its iteration."""
    groups, pace = blocks.groups, blocks.pace() if blocks.ranks > 1 else {}
    sets_pace = np.array([pace.get(step) == rank for step, rank in _pairs(groups, "step", "rank")], bool)
    first = int(groups["step"].min())
    traces = []
    for name, mask in ((GROUP, ~sets_pace), (PACE, sets_pace)):
        if mask.any():
            traces.append(_bars_of_groups(name, groups.where(mask), axis, first, numbered=numbered))
    return traces


def _bars_of_groups(name: str, rows: Rows, axis: TimeAxis, first: int, *, numbered: bool) -> Attributes:
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
    style: Attributes = {"marker": {"color": colours, "line": {"width": 1, "color": "white"}}, "width": 0.78}
    style |= {"textposition": "inside", "textangle": 0, "insidetextanchor": "middle", "constraintext": "none"}
    text_colours = ["white" if colour in white else TEXT_COLOUR for colour in colours]
    style["insidetextfont"] = {"size": 11, "color": text_colours}
    return level_bars(
        name, rows["rank"].tolist(), lengths, None, hover, base=starts, text=texts, customdata=details, **style
    )


def _pause_bars(pauses: Rows, axis: TimeAxis, *, hatched: bool) -> list[Attributes]:
    """Return waiting, hatched where rows are high enough, and exchanges."""
    hatch = {"shape": "/", "fgcolor": PURGE_COLOUR, "size": 6, "solidity": 0.22}
    markers: Mapping[str, Attributes] = {
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
    data = gantt_traces(blocks, axis, schedule.parts)
    data.append(
        line(f"{end.name}: {seconds_text(end.seconds)}", bound, [-0.55, schedule.parts - 0.45], end.colour, dash="dash")
    )
    last = axis.end if until_s is None else until_s * axis.factor
    title, x_title = "Planned epoch" + (label and f" · {label}"), f"time since the epoch began ({axis.unit})"
    x_axis = {"range": [0, _ROOM * last], "showgrid": False}
    return card(
        data,
        title,
        keys=trace_keys(data),
        x_title=x_title,
        barmode="overlay",
        bargap=0.25,
        xaxis=x_axis,
        yaxis=rank_axis(schedule.parts),
        margin={"l": 72},
    )
