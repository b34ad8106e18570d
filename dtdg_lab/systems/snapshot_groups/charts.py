"""Charts of snapshot groups by epoch and group: imbalance, group times, and where the ranks' time goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtdg_lab.records.rows import Array, Rows, known
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.balance import BALANCE, balance_by_epoch, last_balance
from dtdg_lab.systems.snapshot_groups.group_times import group_times
from dtdg_lab.systems.snapshot_groups.schedule_chart import is_scheduled
from dtdg_lab.visualization.axes import time_unit
from dtdg_lab.visualization.changes.marks import HALF_WIDTH, with_changes
from dtdg_lab.visualization.chart import (
    FIRST_EPOCH,
    NOTHING_YET,
    SECONDS_TITLE,
    STEPS_TITLE,
    Chart,
    ChartOptions,
    Figure,
    Key,
    card,
    trace_keys,
)
from dtdg_lab.visualization.numbers import percent_text, three_digits
from dtdg_lab.visualization.palette import BASELINE_COLOUR, EDGE_COLOUR, PHASE_COLOURS, series_colour
from dtdg_lab.visualization.traces import Attributes, line, points, rule

_MOST_MARKERS = 60  # epochs up to which each has a dot
_MOST_COLOURS = 8  # ranks up to which each has a colour
_MOST_DOTS = 1_500
_LOGARITHMIC = 30.0  # largest over smallest time from which axes are logarithmic


def has_ranks(tables: RunTables) -> bool:
    """Return whether the run schedules groups on more than one rank: one alone is even, and never waits."""
    return is_scheduled(tables) and tables.ranks > 1


def imbalance_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the slowest rank's own work over the mean of all, at the end of each epoch; 1 is even."""
    epochs = balance_by_epoch(tables)
    ratios = np.divide(
        epochs["critical_s"], epochs["own_s"], out=np.full(len(epochs), np.nan), where=epochs["own_s"] > 0
    ).round(5)  # the last bits of sums follow the order in which records are read
    hover = "epoch %{customdata}: %{y:.3f} times the mean"
    data = _over_time(epochs, options, [("slowest rank", ratios, EDGE_COLOUR, hover)])
    top = float(np.nanmax(ratios, initial=1.1)) - 1
    y_axis = {"range": [1 - 0.06 * top, 1 + 1.1 * top]}
    keys: list[Key] = [("even", BASELINE_COLOUR, "dash")]
    figure = card(
        data,
        "Imbalance",
        unit="slowest rank over mean, of whole epochs",
        keys=keys,
        x_title=_x_title(options),
        empty=FIRST_EPOCH,
        yaxis=y_axis,
        shapes=[rule(y=1)] if data else [],
    )
    return _with_changes(figure, tables, options)


def imbalance_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the imbalance of the last epoch."""
    balance = last_balance(tables)
    if balance is None or balance.imbalance is None:
        return NOTHING_YET
    return f"The slowest rank worked {three_digits(balance.imbalance)} times the mean in epoch {balance.epoch + 1}."


def times_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a dot for each group, predicted across and measured up; on the diagonal both are equal."""
    times, title = group_times(tables), "Group times, predicted and measured"
    groups = np.empty(0, np.int64) if times is None or times.scale is None else np.flatnonzero(times.known)
    if times is None or not len(groups):
        return card([], title, unit="ms measured", x_title="ms predicted", empty=FIRST_EPOCH)
    if len(groups) > _MOST_DOTS:  # evenly over the sizes
        groups = groups[np.argsort(times.predicted_s[groups], kind="stable")][:: -(-len(groups) // _MOST_DOTS)]
    predicted, measured = times.predicted_s[groups], times.seconds[groups]
    low, high = min(predicted.min(), measured.min()), max(predicted.max(), measured.max())
    unit, factor = time_unit(float(high))
    ends = [float(low * factor), float(high * factor)]
    data = [line("equal", ends, ends, width=1, dash="dot", hoverinfo="skip")]
    ranks = times.ranks[groups]
    present = np.unique(ranks).tolist()
    hover = f"group %{{customdata}}: predicted %{{x:.4g}} {unit}, measured %{{y:.4g}} {unit}"
    for rank in present if len(present) <= _MOST_COLOURS else [-1]:
        is_shown = ranks == rank if rank >= 0 else np.ones(len(groups), bool)
        x, y = ((seconds[is_shown] * factor).round(5).tolist() for seconds in (predicted, measured))
        name, colour = (f"rank {rank}", series_colour(rank)) if rank >= 0 else ("group", EDGE_COLOUR)
        style: Attributes = {"size": 6, "marker": {"opacity": 0.75}, "customdata": groups[is_shown].tolist()}
        data.append(points(name, x, y, colour, hover, **style))
    axis: Attributes = {"type": "log", "dtick": 1} if high > _LOGARITHMIC * low else {"rangemode": "tozero"}
    source = {"size": " by size", "linear": " from nodes and edges"}.get(times.schedule.source, "")
    texts: Attributes = {"unit": f"{unit} measured", "keys": trace_keys(data), "x_title": f"{unit} predicted{source}"}
    return card(data, title, **texts, xaxis=axis, yaxis=axis)


def times_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the mean error of predicted times."""
    times = group_times(tables)
    if times is None or times.error is None:
        return NOTHING_YET
    return f"Predicted group times are off by {percent_text(times.error)} on average."


def own_work_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return where the ranks' time goes, by epoch: own groups, waiting, and the rest."""
    epochs = balance_by_epoch(tables)
    time_s = np.maximum(epochs["time_s"], 1e-12)
    working, waiting = epochs["own_s"] / time_s, epochs["wait_s"] / time_s
    kinds: list[tuple[str, Array, str]] = [
        ("own groups", working, PHASE_COLOURS["compute"]),
        ("waiting", waiting, PHASE_COLOURS["wait"]),
        ("exchange and rest", np.maximum(0, 1 - working - waiting), PHASE_COLOURS["communicate"]),
    ]
    hover = "epoch %{customdata}: %{y:.3g}%"
    data = _over_time(epochs, options, [(name, 100 * shares, colour, hover) for name, shares, colour in kinds])
    data = [{**trace, "mode": "lines", "stackgroup": "time", "fillcolor": trace["line"]["color"]} for trace in data]
    keys: list[Key] = [(name, colour, "box") for name, _, colour in kinds]
    axes: dict[str, Any] = {"x_title": _x_title(options), "empty": FIRST_EPOCH, "yaxis": {"range": [0, 100]}}
    figure = card(data, "Where the ranks' time goes", unit="% of their time in whole epochs", keys=keys, **axes)
    return _with_changes(figure, tables, options)


def own_work_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the share of the last epoch that was own work."""
    balance = last_balance(tables)
    if balance is None:
        return NOTHING_YET
    return f"Ranks spent {percent_text(balance.own_share)} of epoch {balance.epoch + 1} on their own groups."


def _over_time(epochs: Rows, options: ChartOptions, curves: list[tuple[str, Array, str, str]]) -> list[Attributes]:
    """Return a line for each curve, with a point at the end of each epoch."""
    if not len(epochs):
        return []
    x = known(epochs["step_most" if options.x == "steps" else "seconds_most"])
    numbers = (epochs["epoch_most"] + 1).astype(np.int64).tolist()
    mode = "lines+markers" if len(x) <= _MOST_MARKERS else "lines"
    style: Attributes = {"mode": mode, "customdata": numbers}
    return [
        line(name, x, known(values.round(5)), colour, hover, **style, marker={"size": 5, "color": colour})
        for name, values, colour, hover in curves
    ]


def _with_changes(figure: Figure, tables: RunTables, options: ChartOptions) -> Figure:
    """Return a chart over the whole run with the marks of changes, from the begin of the run."""
    if not figure["data"]:
        return figure
    end = float(max(figure["data"][0]["x"]))
    figure["layout"]["xaxis"]["range"] = [0.0, 1.01 * end]
    return with_changes(figure, tables, options.x, 0.0, end, width=HALF_WIDTH)


def _x_title(options: ChartOptions) -> str:
    return STEPS_TITLE if options.x == "steps" else SECONDS_TITLE


IMBALANCE = Chart(
    name="imbalance",
    title="Imbalance",
    figure=imbalance_figure,
    caption=imbalance_caption,
    section="supporting",
    applies=has_ranks,
    rollups=(BALANCE,),
    help="Own work of the slowest rank of each iteration over the mean of all ranks. 1 is even.",
)
GROUP_TIMES = Chart(
    name="group_times",
    title="Group times, predicted and measured",
    figure=times_figure,
    caption=times_caption,
    section="supporting",
    applies=is_scheduled,
    help="A dot is a group of snapshots. On the dotted line, it took as long as the scheduler expected.",
)
OWN_WORK = Chart(
    name="own_work",
    title="Where the ranks' time goes",
    figure=own_work_figure,
    caption=own_work_caption,
    section="folded",
    applies=has_ranks,
    rollups=(BALANCE,),
    help="Waiting is the time in which ranks have nothing to do until the slowest of the iteration is done.",
)
