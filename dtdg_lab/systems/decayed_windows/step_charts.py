"""Charts of decayed windows over steps: rows, phases, the time of cutting, and predicted times of tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtdg_lab.config.record_tables import PHASES
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.decayed_windows import captions
from dtdg_lab.systems.decayed_windows.step_windows import (
    RECENT,
    facts_now,
    has_decay,
    has_halo,
    has_windows,
    held_share,
    is_sampled,
    mean_rows,
    step_windows,
)
from dtdg_lab.systems.decayed_windows.window_picture import DECAYED, FULL
from dtdg_lab.visualization.axes import FROM_ZERO
from dtdg_lab.visualization.changes.marks import over_steps
from dtdg_lab.visualization.chart import NOTHING_YET, STEPS_TITLE, Chart, ChartOptions, Figure, Key, card, trace_keys
from dtdg_lab.visualization.numbers import percent_text, seconds_text
from dtdg_lab.visualization.palette import BASELINE_COLOUR, PHASE_COLOURS, series_colour
from dtdg_lab.visualization.runs.step_time import OTHER, PHASE_NAMES, merge_small, step_times
from dtdg_lab.visualization.traces import Attributes, bars, line, points

EXACT = 500  # steps that are drawn one by one
PHASE_STEPS = 40  # steps that the phases are drawn of
WINDOWS = Rollup("batches", sums=("rows", "first", "target", "shrink_s"), least=("step",), most=("step",))


# Means of windows over the whole run


@dataclass(frozen=True, slots=True)
class WindowMeans:
    """Windows over steps, the newest one by one and older ones in means of some steps.

    Attributes:
        steps: number of the step; of a mean, that in the middle.
        rows: node rows of a step, all ranks together.
        lengths: snapshots of a window.
        cutting_s: seconds that a rank took to cut its window out of the graph, or to sample it.
    """

    steps: Array
    rows: Array
    lengths: Array
    cutting_s: Array


def window_means(tables: RunTables) -> WindowMeans:
    """Return what windows were like over the run, at most ``EXACT`` steps one by one."""
    return tables.once("means of windows", lambda: _window_means(tables))


def _window_means(tables: RunTables) -> WindowMeans:
    exact = windows_by_step(tables)
    newest = WindowMeans(*(values[-EXACT:] for values in (exact.steps, exact.rows, exact.lengths, exact.cutting_s)))
    first = int(newest.steps.min(initial=0))
    if first <= 0:
        return newest
    old = tables.rollup(WINDOWS)
    old = old.where(old["step_least"] < first)
    count, middle = old["rows_known"], (old["step_least"] + np.minimum(old["step_most"], first - 1)) / 2
    lengths = (old["target"] - old["first"]) / count + 1
    means = (middle, old["rows"] / count * tables.ranks, lengths, old["shrink_s"] / count)
    newest_columns = (newest.steps, newest.rows, newest.lengths, newest.cutting_s)
    return WindowMeans(*(np.concatenate(pair) for pair in zip(means, newest_columns, strict=True)))


def windows_by_step(tables: RunTables) -> WindowMeans:
    """Return the windows of the recent steps that all ranks have recorded, one by one."""

    def by_step() -> WindowMeans:
        rows = tables.rows("batches")
        steps, numbers, ranks = np.unique(rows["step"], return_inverse=True, return_counts=True)
        is_complete = ranks >= tables.ranks
        sums = {name: np.bincount(numbers, rows[name], len(steps))[is_complete] for name in WINDOWS.sums}
        ranks = ranks[is_complete]
        lengths = (sums["target"] - sums["first"]) / ranks + 1
        return WindowMeans(steps[is_complete], sums["rows"], lengths, sums["shrink_s"] / ranks)

    return tables.once("windows by step", by_step)


# Rows per step


def rows_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the rows of windows over steps, and what they would be if all snapshots were full."""
    means, facts = window_means(tables), facts_now(tables)
    colour = DECAYED if has_decay(tables) or is_sampled(tables) else FULL
    keys: list[Key] = [("in the window", colour, "line")]
    title, unit = "Rows per step", "node rows, all ranks"
    if not len(means.steps):
        return card([], title, unit=unit, x_title=STEPS_TITLE)
    x, hover = means.steps.tolist(), "step %{x:.0f}: %{y:,.0f} rows"
    data = [line("in the window", x, means.rows.round(1).tolist(), colour, hover)]
    if facts is not None and has_decay(tables):
        full_rows = (facts.nodes * means.lengths).round(1).tolist()
        data.insert(0, line("if all were full", x, full_rows, BASELINE_COLOUR, hover, width=1, dash="dot"))
        keys.append(("if all were full", BASELINE_COLOUR, "dash"))
    axis: Attributes = {**FROM_ZERO, "nticks": 4, "tickformat": "~s"}
    figure = card(data, title, unit=unit, keys=keys, x_title=STEPS_TITLE, yaxis=axis)
    return over_steps(figure, tables, means.steps[0], means.steps[-1])


def rows_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how much of their rows recent windows held."""
    rows, share, steps = mean_rows(tables), held_share(tables), steps_text(len(step_windows(tables)))
    if rows is None:
        return NOTHING_YET
    if share is None:
        return captions.SAMPLED_ROWS.format(rows=f"{rows:,.0f}", steps=steps)
    return captions.ROWS.format(share=percent_text(share), steps=steps)


def steps_text(count: int) -> str:
    """Return a number of steps in words."""
    return f"{count} steps" if count != 1 else "step"


# Phases by step


def phases_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a stacked bar for each of the newest steps."""
    rows, title, unit = tables.last("steps", PHASE_STEPS), "Phases by step", "ms, mean of ranks"
    rows = rows.where(rows["step"] <= tables.common_step)
    if not len(rows):
        return card([], title, unit=unit, x_title=STEPS_TITLE)
    steps, numbers, ranks = np.unique(rows["step"], return_inverse=True, return_counts=True)
    columns = {phase: np.nan_to_num(rows[f"{phase}_s"].astype(np.float64)) for phase in PHASES}
    seconds = {phase: np.bincount(numbers, column, len(steps)) / ranks for phase, column in columns.items()}
    named = merge_small({title: {phase: float(step_s.sum()) for phase, step_s in seconds.items()}})[title]
    seconds[OTHER] = seconds[OTHER] + sum(step_s for phase, step_s in seconds.items() if phase not in (*named, OTHER))
    data = []
    for phase in PHASES:
        if phase in named:
            marker = {"color": PHASE_COLOURS[phase], "line": {"width": 0}}
            milliseconds = (1e3 * seconds[phase]).round(4).tolist()
            hover = "step %{x}: %{y:.3~g} ms"
            data.append(bars(PHASE_NAMES[phase], steps.tolist(), milliseconds, None, hover, marker=marker))
    layout: Attributes = {"barmode": "stack", "bargap": 0.08, "yaxis": {**FROM_ZERO, "nticks": 4}}
    figure = card(data, title, unit=unit, keys=trace_keys(data), x_title=STEPS_TITLE, **layout)
    return over_steps(figure, tables, steps[0], steps[-1])


def phases_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how long a step took, and how much of it was computing."""
    times = step_times(tables).values()
    total_s = sum(rank.time_s for rank in times)
    if not total_s:
        return NOTHING_YET
    computing_s = sum(rank.phases["compute"] for rank in times)
    return captions.PHASES.format(time=seconds_text(total_s / len(times)), share=percent_text(computing_s / total_s))


# Time of cutting windows out


def cutting_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the time of a step that cutting or sampling its window takes, over steps."""
    means, title = window_means(tables), _cutting_title(tables)
    if not len(means.steps):
        return card([], title, unit="ms per step, mean of ranks", x_title=STEPS_TITLE)
    values = (1e3 * means.cutting_s).round(4).tolist()
    data = [line(title, means.steps.tolist(), values, series_colour(0), "step %{x:.0f}: %{y:.3~g} ms", width=1.5)]
    layout: Attributes = {"yaxis": {**FROM_ZERO, "nticks": 4}}
    figure = card(data, title, unit="ms per step, mean of ranks", x_title=STEPS_TITLE, **layout)
    return over_steps(figure, tables, means.steps[0], means.steps[-1])


def cutting_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the share of a step that cutting or sampling its window takes."""
    means, times = window_means(tables), step_times(tables)
    total_s = sum(rank.time_s for rank in times.values())
    if not total_s or not len(means.steps):
        return NOTHING_YET
    cutting_s = float(means.cutting_s[-RECENT:].mean())
    template = captions.SAMPLING if is_sampled(tables) else captions.CUTTING
    return template.format(share=percent_text(cutting_s / (total_s / len(times))))


def _cutting_title(tables: RunTables) -> str:
    return "Sampling time" if is_sampled(tables) else "Cutting time"


# The charts


ROWS = Chart(
    name="window_rows",
    title="Rows per step",
    figure=rows_figure,
    caption=rows_caption,
    section="supporting",
    applies=has_windows,
    rollups=(WINDOWS,),
    help="A row is a node in a snapshot. At the start of a segment windows are short, so they hold few rows.",
)


SAMPLING = Chart(
    name="sampling_time",
    title="Sampling time",
    figure=cutting_figure,
    caption=cutting_caption,
    section="supporting",
    applies=is_sampled,
    rollups=(WINDOWS,),
    help="The first step of an epoch also assigns nodes to other parts.",
)


PHASES_BY_STEP = Chart(
    name="window_phases",
    title="Phases by step",
    figure=phases_figure,
    caption=phases_caption,
    section="folded",
    applies=has_windows,
    help="Each bar is one of the last 40 steps.",
)


CUTTING = Chart(
    name="cutting_time",
    title="Cutting time",
    figure=cutting_figure,
    caption=cutting_caption,
    section="folded",
    applies=has_decay,
    rollups=(WINDOWS,),
    help="A decayed snapshot is a prefix of one order of nodes, so little has to be cut.",
)

TASK_STEPS = 40  # steps whose tasks are drawn
MOST_DOTS = 1_500
LEAST_S = 1e-7  # shorter times count as this, as in the predictor
KINDS = {"compute": "computing", "communicate": "exchanges"}


def tasks_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a dot for each task of the newest steps, predicted against measured milliseconds."""
    tasks = tables.last("tasks", TASK_STEPS).sort("step", "rank")  # however they came
    title, unit, x_title = "Predicted task times", "measured, ms", "predicted, ms"
    if not len(tasks):
        return card([], title, unit=unit, x_title=x_title, empty="Appears with the first overlapped exchange")
    tasks = tasks.where(slice(None, None, -(-len(tasks) // MOST_DOTS)))
    predicted, measured = _times_ms(tasks)
    ends = [min(predicted.min(), measured.min()), max(predicted.max(), measured.max())]
    data = [line("equal", ends, ends, width=1, dash="dot", hoverinfo="skip")]
    keys: list[Key] = []
    kinds = tasks["kind"]
    for number, (kind, name) in enumerate(KINDS.items()):
        is_kind = kinds == kind
        if is_kind.any():
            origins = list(zip(tasks["step"][is_kind].tolist(), tasks["rank"][is_kind].tolist(), strict=True))
            style: Attributes = {"size": 5, "marker": {"opacity": 0.6}, "customdata": origins}
            hover = "step %{customdata[0]}, rank %{customdata[1]}: predicted %{x:.3~g} ms, took %{y:.3~g} ms"
            x, y = predicted[is_kind].tolist(), measured[is_kind].tolist()
            data.append(points(name, x, y, series_colour(number), hover, **style))
            keys.append((name, series_colour(number), "dot"))
    axis: Attributes = {"type": "log", "dtick": 1}
    return card(data, title, unit=unit, keys=keys, x_title=x_title, xaxis=axis, yaxis=axis)


def tasks_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the median error of the newest predictions."""
    tasks = tables.last("tasks", TASK_STEPS)
    if not len(tasks):
        return NOTHING_YET
    predicted, measured = _times_ms(tasks)
    return captions.TASK_TIMES.format(share=percent_text(float(np.median(np.abs(predicted / measured - 1)))))


def _times_ms(tasks: Rows) -> tuple[Array, Array]:
    """Return predicted and measured milliseconds, with four digits."""
    times = (1e3 * np.maximum(tasks[name].astype(np.float64), LEAST_S) for name in ("predicted_s", "duration_s"))
    predicted, measured = (np.array([float(f"{ms:.4g}") for ms in column]) for column in times)
    return predicted, measured


TASK_TIMES = Chart(
    name="task_times",
    title="Predicted task times",
    figure=tasks_figure,
    caption=tasks_caption,
    section="folded",
    applies=has_halo,
    help="A dot is a stretch of computing or an exchange. On the dotted line it took what was predicted.",
)
