"""The loss view: every step's loss, evaluations by split, what persistence and the mean score, the task's metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median_high
from typing import TYPE_CHECKING, Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import loss_name
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.options import option
from dtdg_lab.core.units import format_seconds
from dtdg_lab.visualization.chart import XAxis
from dtdg_lab.visualization.charts import Drawn, line, points
from dtdg_lab.visualization.layout import Figure, frame, join_words, with_note
from dtdg_lab.visualization.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.visualization.style import words

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables


USUAL_TASK: str = option("task").default
X_TITLES = {"steps": "step (model updates)", "seconds": "time since the start (s)"}


def _evaluated(colour: str) -> dict[str, Any]:
    """The style of a line through evaluations."""
    return {"mode": "lines+markers", "line": {"color": colour, "width": 2}, "marker": {"size": 5}}


# The compare view: validation losses of several runs in one chart, and the metric they share under it.


Labelled = Sequence[tuple[str, "RunTables"]]
NO_LOSS = "no run has been evaluated yet"


def compare_figure(runs: Labelled, x: XAxis = "steps") -> Figure:
    """Validation losses of labelled runs over steps or seconds, with dashes where persistence stands.

    Persistence depends on data set and protocol only, so runs that share its value share one dashed line. Where all
    runs have the same metric, it stands in a panel of its own. Runs of a protocol without validation show the training
    part.
    """
    data = [_line(label, window, index, x) for index, (label, window) in enumerate(runs)] + _baselines(runs, x)
    tasks = {window.loss.task for _, window in runs} or {USUAL_TASK}
    y_title = loss_name(tasks.pop()) if len(tasks) == 1 else "loss (of different tasks)"
    layout = frame(_title(runs), X_TITLES[x], y_title, showlegend=True)
    if not any(trace["x"] for trace in data):
        return {"data": data, "layout": with_note(layout, NO_LOSS)}
    metrics = {window.loss.metric for _, window in runs}
    metric = metrics.pop() if len(metrics) == 1 else None
    if metric is not None:
        data += [_line(label, window, index, x, metric=metric) for index, (label, window) in enumerate(runs)]
        add_panel(layout, words(metric), rangemode="tozero")
    return {"data": data, "layout": layout}


def _title(runs: Labelled) -> str:
    judged = {window.loss.judged for _, window in runs}
    part = "Validation" if "train" not in judged else "Training" if len(judged) == 1 else "Validation or training"
    return f"{part} loss of the last runs"


def _line(label: str, window: RunTables, index: int, x: XAxis, *, metric: str = "") -> dict[str, Any]:
    loss, style = window.loss, _evaluated(series_colour(index))
    if metric:
        style |= {"yaxis": "y2", "showlegend": False, "legendgroup": label}
    series = loss.metrics[loss.judged][metric] if metric else loss.splits[loss.judged]
    return series.line(label, x, style).trace()


def _baselines(runs: Labelled, x: XAxis) -> list[dict[str, Any]]:
    """One dashed line for each value of persistence."""
    found: dict[float, tuple[str, int, float]] = {}
    for index, (label, window) in enumerate(runs):
        loss = window.loss
        value, xs = loss.baseline("persistence", loss.judged), loss.splits[loss.judged].line(label, x, {}).xs
        if value is not None and xs:
            _, _, end = found.get(value, ("", 0, 0.0))
            found[value] = (label, index, max(end, xs[-1]))
    shared = len(found) == 1
    lines = []
    for value, (label, index, end) in found.items():
        name = "persistence" if shared else f"persistence ({label})"
        colour = BASELINE_COLOUR if shared else series_colour(index)
        lines.append(line(name, [0.0, end], [value, value], colour, mode="lines", width=1.5, dash="dash"))
    return lines


def add_panel(layout: dict[str, Any], title: str, *, ends: float = 0.4, begins: float = 0.5, **more: Any) -> None:
    """Room for a second panel under the first, over the same x axis."""
    below = {**layout["yaxis"], "title": {**layout["yaxis"]["title"], "text": title}, "domain": [0.0, ends]}
    layout["yaxis"] = {**layout["yaxis"], "domain": [begins, 1.0]}
    layout["yaxis2"] = {**below, "anchor": "x", **more}
    layout["xaxis"] = {**layout["xaxis"], "anchor": "y2"}


# What the losses of several runs were measured on, in words, from their settings alone.


def ground_words(runs: Sequence[tuple[str, RunTables]]) -> str:
    """Protocol, gap and data of labelled runs where they share them, else that their losses cannot be compared."""
    if not runs:
        return ""
    configs = [window.config for _, window in runs]
    said = []
    if len(protocols := dict.fromkeys(config.protocol for config in configs)) > 1:
        said.append(f"These runs are scored by different protocols ({', '.join(protocols)}).")
    if len({_data(config) for config in configs}) > 1:
        said.append(f"These runs are of different data ({', '.join(dict.fromkeys(of.dataset for of in configs))}).")
    if len(tasks := dict.fromkeys(config["task"] for config in configs)) > 1:
        said.append(f"These runs have different tasks ({', '.join(tasks)}).")
    if said:
        return f"{' '.join(said)} Their losses cannot be compared."
    protocol, life = catalogue.PROTOCOLS[configs[0].protocol], edge_life(configs[0])
    gap = "a purge gap" if life is None else f"{protocol.gap(life)} snapshot{'' if protocol.gap(life) == 1 else 's'}"
    left = "nothing" if protocol.leaky else gap
    return f"Protocol {protocol.name}, {left} left out at each boundary, on {configs[0].dataset}."


def edge_life(config: RunConfig) -> int | None:
    """Base intervals an edge lives; None for a stored graph, which alone knows."""
    if config.dataset.startswith(catalogue.STORED):
        return None
    life: int = config["edge_life"]
    return life


def _data(config: RunConfig) -> tuple[Any, ...]:
    """What decides the data of a run: other settings give other data, for all one knows before they are loaded."""
    generated = "generated_snapshots" in config.flat
    return (config.dataset, *sorted(config.options.get("datasets", {}).items()), config.seed if generated else 0)


# How long runs took to a loss that is nearly the best of all: what a comparison of systems comes down to.


def loss_points(window: RunTables) -> list[tuple[float, float]]:
    """Seconds of the run and validation loss (training where there is none) of its evaluations."""
    points = window.loss.splits[window.loss.judged].points
    return [(point.seconds, point.value) for point in points if point.value is not None]


NEAR = 0.05


def near_best(windows: Sequence[RunTables]) -> float | None:
    """The least loss that any of the runs has reached, and 5 % more; None where one of them was never evaluated.

    What all reach would be what the worst of them reaches: a run that learns something else soon would look quick.
    """
    least = [min((loss for _, loss in loss_points(window)), default=None) for window in windows]
    known = [loss for loss in least if loss is not None]
    return min(known) * (1 + NEAR) if known and len(known) == len(least) else None


def seconds_to(window: RunTables, loss: float) -> float | None:
    """Wall seconds until a run's loss was as low for the first time; None where it never was."""
    return next((seconds for seconds, found in loss_points(window) if found <= loss), None)


def time_to_loss_words(seconds: Mapping[str, float], loss: float, missed: Sequence[str] = ()) -> str:
    """Who was first at a loss, how many times longer the others took, and who did not get there."""
    if not seconds:
        return "No run has been evaluated yet."
    order = sorted(seconds, key=lambda label: seconds[label])
    first = order[0]
    text = f"To loss {loss:.4g}, {NEAR:.0%} above the least of all, {first} took {format_seconds(seconds[first])}"
    for label in order[1:]:
        times = f", {seconds[label] / seconds[first]:.3g} times as long" if seconds[first] > 0 else ""
        text += f"; {label} {format_seconds(seconds[label])}{times}"
    did_not = f" {join_words(list(missed))} did not get there." if missed else ""
    return f"{text}.{did_not}"


def near_by_seed_words(windows: Mapping[str, Sequence[RunTables]]) -> str:
    """Seconds to a loss 5 % above the least of all, over runs that differ in their seeds alone.

    Args:
        windows: by label, a run for each seed.

    Returns:
        A line for each label with the least, the median and the most, and how many runs never got there: these count
        as longest. Empty where a run was never evaluated.
    """
    loss = near_best([window for several in windows.values() for window in several])
    if loss is None:
        return ""
    lines = [f"seconds to loss {loss:.4g}, {NEAR:.0%} above the least of all: least, median, most over the seeds"]
    for label, several in windows.items():
        found = [seconds_to(window, loss) for window in several]
        took = sorted(math.inf if seconds is None else seconds for seconds in found)
        three = (took[0], median_high(took), took[-1])
        described = "  ".join(format_seconds(each) if each < math.inf else "never" for each in three)
        lines.append(f"  {label}: {described}  ({found.count(None)} of {len(found)} never)")
    return "\n".join(lines)


# Validation and training loss of several runs over wall seconds, and when each is near the best of all.


def wall_time_figure(runs: Labelled) -> Figure:
    """Losses of labelled runs over seconds since each began: validation above, training below.

    A star is where a run first has the least validation loss that every run reaches. Runs of a protocol without
    validation have their training loss in both. Seconds are all that passed, evaluations and rebuilds among them; time
    between two attempts of a run is not.
    """
    data = [_line_over_seconds(label, window, index, window.loss.judged) for index, (label, window) in enumerate(runs)]
    named = {loss_name(window.loss.task) for _, window in runs} or {loss_name(USUAL_TASK)}
    judged = {window.loss.judged for _, window in runs} or {"validation"}
    title = f"Loss over wall time: {named.pop() if len(named) == 1 else 'of different tasks'}"
    split = "validation or training" if len(judged) > 1 else "training" if judged == {"train"} else "validation"
    layout = frame(title, X_TITLES["seconds"], split, showlegend=True)
    if not any(trace["x"] for trace in data):
        return {"data": data, "layout": with_note(layout, NO_LOSS)}
    below = {"yaxis": "y2", "showlegend": False}
    data += [_line_over_seconds(label, window, index, "train") | below for index, (label, window) in enumerate(runs)]
    data += _reached(runs)
    add_panel(layout, "training", ends=0.42, begins=0.54)
    layout["xaxis"]["rangemode"] = "tozero"
    return {"data": data, "layout": layout}


def wall_time_words(runs: Labelled) -> str:
    """Which run is first near the least loss of all, and what families of systems say of these runs together."""
    look = "Look which line is first at the star's height; a lower line later on is another merit."
    loss = near_best([window for _, window in runs]) if runs else None
    if loss is None:
        return look
    seconds = {label: taken for label, window in runs if (taken := seconds_to(window, loss)) is not None}
    missed = [label for label, _ in runs if label not in seconds]
    compared = [family.comparison(runs) for family in catalogue.families()]
    return " ".join(filter(None, (time_to_loss_words(seconds, loss, missed), look, *compared)))


def _line_over_seconds(label: str, window: RunTables, index: int, split: str) -> dict[str, Any]:
    """Evaluations as points; the loss of each step, thin, where the training split was never evaluated."""
    evaluated = window.loss.splits[split]
    steps = split == "train" and not len(evaluated)
    thin = {"mode": "lines", "line": {"color": series_colour(index), "width": 1}}
    style = thin if steps else _evaluated(series_colour(index))
    found = (window.loss.steps if steps else evaluated).line(label, "seconds", style).trace()
    hover = "%{x:.2f} s: %{y:.4~g}<extra>%{fullData.name}</extra>"
    return {**found, "x": [round(at, 4) for at in found["x"]], "legendgroup": label, "hovertemplate": hover}


def _reached(runs: Labelled) -> list[dict[str, Any]]:
    """A dotted line near the least loss of all, with a star where a run reaches it."""
    loss = near_best([window for _, window in runs])
    if loss is None or len(runs) < 2:
        return []
    seconds = [seconds_to(window, loss) for _, window in runs]
    end = max((taken for taken in seconds if taken is not None), default=0.0)
    dotted: Drawn = {"width": 1.2, "dash": "dot", "mode": "lines", "hoverinfo": "skip"}
    drawn = [line("near the best", [0.0, round(end, 4)], [loss, loss], **dotted)]
    hover = "%{x:.2f} s to a loss near the best<extra>%{fullData.name}</extra>"
    for index, ((label, _), taken) in enumerate(zip(runs, seconds, strict=True)):
        if taken is not None:
            star: Drawn = {"size": 13, "marker": {"symbol": "star"}, "legendgroup": label, "showlegend": False}
            drawn.append(points(label, [round(taken, 4)], [loss], series_colour(index), hover, **star))
    return drawn
