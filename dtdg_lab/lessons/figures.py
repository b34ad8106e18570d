"""Figures of lessons: numbers as bars, and chosen panels of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.forecast.rank_curves import RankCurves
from dtdg_lab.runs.charts import chart_of, draw, lock_of
from dtdg_lab.visualization.axes import CATEGORIES, FROM_ZERO, NAMES, log_axis
from dtdg_lab.visualization.chart import CaptionedFigure, ChartOptions, Figure, card, trace_keys
from dtdg_lab.visualization.palette import BASELINE_COLOUR, INK_COLOUR, series_colour
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, run_sheet, sheet
from dtdg_lab.visualization.traces import bars, label, level_bars, points, rule, whiskers

MOST = 4  # maximum number of panels of a figure in a lesson
_WRITTEN = 22  # maximum number of bars that have room for their values
_BEYOND = 1.6  # by which a logarithmic axis goes beyond its bars, so that values have room
_PREFIXED = 1e4  # smallest number that is written with a prefix, such as 12k


def bar_chart(
    title: str,
    unit: str,
    values: Mapping[str, Mapping[str, float]] | Mapping[str, float],
    *,
    log: bool = False,
    digits: str = "",
) -> Figure:
    """Draw numbers as upright bars with their values above; with many bars, values appear when pointing at them.

    Args:
        title: title of the chart.
        unit: title of the axis.
        values: name below a bar -> number; or, for groups of bars, legend entry -> such a mapping.
        log: whether the axis is logarithmic.
        digits: d3-format of the values; by default three digits, with a prefix from 10,000 on.

    Raises:
        ConfigError: there is no bar.
    """
    series: dict[str, Mapping[str, float]] = {
        name: numbers_by_label if isinstance(numbers_by_label, Mapping) else values  # type: ignore[misc]
        for name, numbers_by_label in values.items()
        if isinstance(numbers_by_label, Mapping) or name == next(iter(values))
    }
    if not any(series.values()):
        raise ConfigError(f"bar_chart({title!r}) has no bars. Give it at least one value.")
    grouped = len(series) > 1 or isinstance(next(iter(values.values())), Mapping)
    numbers = [abs(float(value)) for by_label in series.values() for value in by_label.values()]
    digits = digits or (".3~s" if max(numbers) >= _PREFIXED else ".3~g")
    trace_options: dict[str, Any] = {"cliponaxis": False}
    if len(numbers) <= _WRITTEN:
        trace_options |= {"texttemplate": f"%{{y:{digits}}}", "textposition": "outside", "constraintext": "none"}
    traces = []
    for number, (name, by_label) in enumerate(series.items()):
        hover = f"%{{x}}: %{{y:{digits}}}"
        values_of = list(map(float, by_label.values()))
        traces.append(
            bars(
                name if grouped else "",
                list(map(str, by_label)),
                values_of,
                series_colour(number),
                hover,
                **trace_options,
            )
        )
    positive = [number for number in numbers if number]
    axis = log_axis(min(positive) / _BEYOND, max(positive) * _BEYOND) if log else FROM_ZERO
    layout: dict[str, Any] = {"xaxis": {**CATEGORIES, "tickangle": None}, "yaxis": axis}
    layout |= {"barmode": "group", "bargap": 0.35, "margin": {"b": 40}}
    return card(traces, title, unit=unit, keys=trace_keys(traces), **layout)


def losses_chart(
    title: str,
    losses: Mapping[str, Sequence[float]],
    *,
    unit: str = "MSE",
    baselines: Mapping[str, float] | None = None,
) -> Figure:
    """Draw the mean loss of each training as a bar, its seeds as dots, and baselines as dotted lines.

    Args:
        title: title of the chart.
        losses: name -> loss of each seed.
        unit: title of the axis.
        baselines: name -> loss, such as that of persistence.
    """
    figure = bar_chart(title, unit, {name: sum(values) / len(values) for name, values in losses.items()})
    names = [name for name, values in losses.items() for _ in values]
    values = [float(value) for by_seed in losses.values() for value in by_seed]
    figure["data"] = [*figure["data"], points("one seed", names, values, INK_COLOUR, "%{x}: %{y:.3g}", size=6)]
    layout = figure["layout"]
    for name, loss in (baselines or {}).items():
        layout["shapes"] = [*layout.get("shapes", ()), rule(y=loss)]
        note = label(name, 1, loss, xref="paper", xanchor="right", yanchor="bottom")
        layout["annotations"] = [*layout.get("annotations", ()), note]
    return figure


def panels(run: Any, *names: str, title: str = "") -> Figure:
    """Draw one to four charts of a run side by side, each with a sentence about it.

    Args:
        run: an active or a stored run.
        names: names of the charts, such as ``loss``, ``timeline`` or ``schedule``.
        title: title of the figure; by default the run's name.

    Raises:
        ConfigError: there are more than four charts, or none.
        UnknownNameError: the run has no such chart.
    """
    if not 1 <= len(names) <= MOST:
        raise ConfigError(f"{len(names)} panels were given, but a figure of a lesson has 1 to {MOST}.")
    options = ChartOptions(whole_run=True)
    with lock_of(run):
        charts = [chart_of(run.live, name) for name in names]
        cards = {chart: draw(chart, run.live, options) for chart in charts}
    return run_sheet(cards, title=title or f"Run {run.id}")


def forecast_panels(forecast: RankCurves, *quantities: str) -> Figure:
    """Draw some panels of the result of ``Forecast.curves``.

    Raises:
        ConfigError: there are more than four panels, or none.
        UnknownNameError: the forecast has no such quantity.
    """
    if not 1 <= len(quantities) <= MOST:
        raise ConfigError(f"{len(quantities)} panels were given, but a figure of a lesson has 1 to {MOST}.")
    names = {row["quantity"] for row in forecast.rows}
    if missing := [name for name in quantities if name not in names]:
        raise UnknownNameError("quantity of the forecast", missing[0], names)
    return replace(forecast, rows=tuple(row for row in forecast.rows if row["quantity"] in quantities)).figure


def side_by_side(*figures: Figure | CaptionedFigure, title: str, wide: Sequence[int] = ()) -> Figure:
    """Up to four charts as one figure, two in a row; those at the places ``wide`` have a row to themselves.

    Raises:
        ConfigError: there are more than four figures, or none.
    """
    if not 1 <= len(figures) <= MOST:
        raise ConfigError(f"{len(figures)} panels were given, but a figure of a lesson has 1 to {MOST}.")
    pairs = [figure if isinstance(figure, tuple) else (figure, "") for figure in figures]
    return sheet(pairs, title=title, columns=min(2, len(pairs)), wide=wide, plot_height=STUDY_HEIGHT)


# A manual plan of batch sizes against controllers and fixed sizes: time to the target.


BY_HAND = "manual"


def sizes_by_hand_figure(
    hand_s: float, controllers: Mapping[str, Sequence[float]], fixed: Mapping[str, float]
) -> Figure:
    """Draw the seconds to the target as bars, with the fastest on top.

    Args:
        hand_s: seconds with the manual plan.
        controllers: controller -> seconds by seed; the bar is their median, the whisker their range.
        fixed: fixed size -> seconds; the dotted line is the smallest.

    Bars with infinitely many seconds, which never reach the target, are left out.
    """
    rows = [(hand_s, BY_HAND, 1), *((median(seconds), policy, 0) for policy, seconds in controllers.items())]
    rows = sorted(row for row in [*rows, *((seconds, size, 7) for size, seconds in fixed.items())] if row[0] < math.inf)
    # if a seed never reaches the target, whiskers end at the slowest seed that does
    arrived = [
        [arrival_s for arrival_s in controllers.get(name, ()) if arrival_s < math.inf] or [seconds]
        for seconds, name, _ in rows
    ]
    ends = (
        [min(arrivals) for arrivals in arrived],
        [seconds for seconds, *_ in rows],
        [max(arrivals) for arrivals in arrived],
    )
    times = level_bars(
        "",
        [name for _, name, _ in rows],
        [round(seconds, 6) for seconds, _, _ in rows],
        [series_colour(colour) for _, _, colour in rows],
        "%{y}: %{x:.3f} s<extra></extra>",
        text=[f"{seconds:.3g} s" for seconds, _, _ in rows],
        error_x=whiskers(*ends, BASELINE_COLOUR),
        **{"textposition": "inside", "insidetextanchor": "start"},
    )
    return card(
        [times],
        "Seconds to the target",
        x_title="seconds",
        xaxis=FROM_ZERO,
        yaxis=NAMES,
        height=64 + 24 * len(rows),
        shapes=[rule(x=min(fixed.values(), default=0.0))],
    )
