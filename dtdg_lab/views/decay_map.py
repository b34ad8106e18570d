"""Heat maps over full snapshots and alpha: loss, memory and time, filled in cell by cell, with a tuner's path on them.

Rows are mappings with ``full_snapshots``, ``alpha``, ``seed`` and what was measured there: ``mse``, ``peak_bytes`` and
``epoch_s``, each absent or None where it is not known. Rows of one (full_snapshots, alpha) are seeds of one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.palette import GRID_COLOUR, HEAT_SCALES, MARK_COLOUR, TEXT_COLOUR
from dtdg_lab.views.partition_maps import colour_bar
from dtdg_lab.views.partition_matrix import byte_unit

Panel = tuple[Figure, str]
Row = Mapping[str, Any]
Setting = tuple[int, float]  # full_snapshots, alpha
NOTHING_YET = "no cell has been measured yet"
_WRITTEN = 42  # cells up to which each has its number written into it
_COLUMNS = 6  # beside each other up to which a number fits into a cell
_DARK = 0.6  # share of the range of colours from which writing is white
_PALE = 0.15  # of the range of values: the least of them is not white, as a cell that is not done is
_BESIDE, _UNDER = 0.41, 0.37  # of a cell: how far from its middle, where the number is, a path runs
_OUTSIDE = 0.45  # of a cell: how far beyond the outermost row an alpha that the map has not is drawn
_FEW_SEEDS = 2  # from which there is a spread


@dataclass(frozen=True, slots=True)
class Measure:
    """What one map shows: column, title, colours, unit of the colours, and how a number is written."""

    column: str
    title: str
    scale: str
    unit: str
    say: Callable[[float], str]


def measures(loss: str = "validation MSE") -> tuple[Measure, ...]:
    """The three maps, named ``mse``, ``peak_bytes`` and ``epoch_s`` after their columns."""
    return (
        Measure("mse", loss[:1].upper() + loss[1:], "halo", loss, lambda value: f"{value:.4g}"),
        Measure("peak_bytes", "Peak memory of a step", "bytes", "bytes", format_bytes),
        Measure("epoch_s", "Time of an epoch", "owned", "s", format_seconds),
    )


@dataclass(frozen=True, slots=True, eq=False)
class DecayMap:
    """The cells of a study, done or not.

    Attributes:
        rows: see the module; as many as are measured so far.
        full_snapshots: across, from few to many.
        alphas: up, from small to large.
        seeds: rows that a cell gets in the end.
        path: settings a tuner went through, in order; drawn over the maps.
        loss: what the column ``mse`` is called.
        baselines: name -> loss of predictions without a model, such as persistence.
    """

    rows: Sequence[Row]
    full_snapshots: tuple[int, ...] = ()
    alphas: tuple[float, ...] = ()
    seeds: int = 1
    path: Sequence[Setting] = ()
    loss: str = "validation MSE"
    baselines: Mapping[str, float] | None = None

    def axes(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """What is across and up: what was asked for, measured, or gone through (K only)."""
        across = {*self.full_snapshots, *(int(row["full_snapshots"]) for row in self.rows), *(k for k, _ in self.path)}
        up = {*self.alphas, *(float(row["alpha"]) for row in self.rows)}
        return tuple(sorted(across)), tuple(sorted(up))

    def values(self, column: str) -> dict[Setting, list[float]]:
        """What was measured of each cell, by seed."""
        found: dict[Setting, list[float]] = {}
        for row in self.rows:
            if row.get(column) is not None:
                found.setdefault((int(row["full_snapshots"]), float(row["alpha"])), []).append(float(row[column]))
        return found


def decay_map_panels(shown: DecayMap) -> dict[str, Panel]:
    """The three maps by the names of their columns, each with a sentence; empty ones are drawn too."""
    return {
        measure.column: (_figure(shown, measure), _words(shown, measure)) for measure in measures(shown.loss)
    }  # fmt: skip


def decay_map_figure(shown: DecayMap, *, title: str = "Full snapshots (K) and alpha") -> Figure:
    """The three maps beside each other, as in Figure 8 of FlareDTDG."""
    _, up = shown.axes()
    asked = {*shown.full_snapshots, *(int(row["full_snapshots"]) for row in shown.rows)}
    done, cells = len(shown.values("mse")), len(asked) * len(up)
    progress = f" · {done} of {cells} cells" if done < cells else ""
    return grid(list(decay_map_panels(shown).values()), title=title + progress, columns=3)


def _figure(shown: DecayMap, measure: Measure) -> Figure:
    across, up = shown.axes()
    layout = frame(measure.title, "full snapshots (K)", "alpha", margin={"l": 56, "r": 14, "t": 34, "b": 56})
    if not across or not up:
        return {"data": [], "layout": with_note(layout, NOTHING_YET)}
    layout["xaxis"] |= _axis([str(k) for k in across])
    layout["yaxis"] |= _axis([f"{alpha:g}" for alpha in up])
    layout["plot_bgcolor"] = GRID_COLOUR  # of cells that are not done
    values = shown.values(measure.column)
    data = [_map(shown, measure, values, across, up)]
    if _has_numbers(across, up):
        layout["annotations"] = _numbers(shown, measure, values, data[0])
    if shown.path:
        data += _path(shown.path, across, up)
    if measure.column == "mse" and values:
        best = _best(values)
        layout["shapes"] = [_outline(across.index(best[0]), up.index(best[1]))]
    return {"data": data, "layout": layout}


def _has_numbers(across: Sequence[int], up: Sequence[float]) -> bool:
    return len(across) <= _COLUMNS and len(across) * len(up) <= _WRITTEN


def _axis(names: list[str]) -> dict[str, Any]:
    return {"tickvals": list(range(len(names))), "ticktext": names, "range": [-0.5, len(names) - 0.5],
            "showgrid": False, "ticks": ""}  # fmt: skip


def _map(
    shown: DecayMap, measure: Measure, values: dict[Setting, list[float]], across: Sequence[int], up: Sequence[float]
) -> dict[str, Any]:
    settings = [[(k, alpha) for k in across] for alpha in up]
    means = [[fmean(values[each]) if each in values else None for each in row] for row in settings]
    known = [each for row in means for each in row if each is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    unit, factor = byte_unit(high) if measure.column == "peak_bytes" else (measure.unit, 1.0)
    low, span = low / factor, (high - low) / factor or abs(low / factor) or 1.0
    written = _has_numbers(across, up)
    trace: dict[str, Any] = {
        "type": "heatmap", "name": measure.title, "x": list(range(len(across))), "y": list(range(len(up))),
        "z": [[None if each is None else round(each / factor, 6) for each in row] for row in means],
        "zmin": low - _PALE * span, "zmax": low + span, "xgap": 2, "ygap": 2,
        "colorscale": [list(stop) for stop in HEAT_SCALES[measure.scale]], "showscale": not written,
        "customdata": [[_told(shown, measure, values, each) for each in row] for row in settings],
        "hovertemplate": "%{customdata}<extra></extra>", "hoverongaps": False,
    }  # fmt: skip
    return trace if written else trace | {"colorbar": colour_bar(unit) | {"tickformat": ".3~g"}}


def _numbers(
    shown: DecayMap, measure: Measure, values: dict[Setting, list[float]], map_: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The number of each cell, as notes: a path runs behind them."""
    across, up = shown.axes()
    span = map_["zmax"] - map_["zmin"]
    return [
        {
            "text": _cell(shown, measure, values[k, alpha]), "x": x, "y": y, "xref": "x", "yref": "y",
            "showarrow": False,
            "font": {"size": 11, "color": "white" if map_["z"][y][x] - map_["zmin"] > _DARK * span else TEXT_COLOUR},
        }
        for y, alpha in enumerate(up) for x, k in enumerate(across) if (k, alpha) in values
    ]  # fmt: skip


def _cell(shown: DecayMap, measure: Measure, found: list[float]) -> str:
    """What is written into a cell: the mean, and the spread of the losses or how many seeds are done."""
    if not found:
        return ""
    text = measure.say(fmean(found))
    if len(found) < shown.seeds:
        return f"{text}<br>{len(found)} of {shown.seeds}"
    spread = measure.column == "mse" and len(found) >= _FEW_SEEDS
    return f"{text}<br>± {stdev(found):.2g}" if spread else text


def _told(shown: DecayMap, measure: Measure, values: dict[Setting, list[float]], setting: Setting) -> str:
    found = values.get(setting, [])
    if not found:
        return ""
    each = join_words([measure.say(value) for value in found])
    return f"K = {setting[0]}, alpha {setting[1]:g}: {each} ({len(found)} of {shown.seeds} seeds)"


def _path(path: Sequence[Setting], across: Sequence[int], up: Sequence[float]) -> list[dict[str, Any]]:
    """The way of a tuner, from a circle by arrows to a star; beside the numbers."""
    x = [across.index(k) + _BESIDE for k, _ in path]
    y = [place(alpha, up) - _UNDER for _, alpha in path]
    said = [f"K = {k}, alpha {alpha:g}" for k, alpha in path]
    common = {
        "type": "scatter", "name": "path of the tuner", "showlegend": False, "opacity": 0.75,
        "hovertemplate": "%{customdata}<extra>tuner</extra>",
    }  # fmt: skip
    line = {"color": MARK_COLOUR, "width": 2}
    ends = [0, -1] if len(path) > 1 else [-1]
    return [
        {
            **common, "mode": "lines+markers", "x": x, "y": y, "customdata": said, "line": line,
            "marker": {"symbol": "arrow", "angleref": "previous", "size": 10, "color": MARK_COLOUR},
        },
        {
            **common, "mode": "markers", "x": [x[at] for at in ends], "y": [y[at] for at in ends],
            "customdata": [said[at] for at in ends],
            "marker": {"symbol": ["circle", "star"][-len(ends):], "size": [9, 14][-len(ends):], "color": "white",
                       "line": line},
        },
    ]  # fmt: skip


def place(alpha: float, up: Sequence[float]) -> float:
    """Where an alpha lies among rows 0, 1, ... of the map, in between where it has none of its own."""
    if alpha < up[0]:
        return -_OUTSIDE * (1 - alpha / up[0])
    for row, (low, high) in enumerate(pairwise(up)):
        if alpha <= high:
            return row + (alpha - low) / (high - low)
    last = len(up) - 1
    return float(last) if alpha == up[-1] else last + _OUTSIDE * min(1.0, alpha - up[-1])


def _best(values: Mapping[Setting, Sequence[float]]) -> Setting:
    return min(values, key=lambda setting: fmean(values[setting]))


def _outline(column: int, row: int) -> dict[str, Any]:
    return {
        "type": "rect", "xref": "x", "yref": "y", "x0": column - 0.48, "x1": column + 0.48, "y0": row - 0.48,
        "y1": row + 0.48, "line": {"color": TEXT_COLOUR, "width": 2.5}, "fillcolor": "rgba(0,0,0,0)",
    }  # fmt: skip


def _words(shown: DecayMap, measure: Measure) -> str:
    values = shown.values(measure.column)
    if not values:
        return f"{measure.title}: nothing measured yet."
    return _loss_words(shown, values) if measure.column == "mse" else _cost_words(measure, values)


def _loss_words(shown: DecayMap, values: Mapping[Setting, Sequence[float]]) -> str:
    """The best cell, which others cannot be told from it, and what needs no model."""
    best = _best(values)
    lowest = fmean(values[best])
    text = f"Lowest (outlined): {lowest:.4g} at K = {best[0]}, alpha {best[1]:g}"
    spread = stdev(values[best]) if len(values[best]) >= _FEW_SEEDS else None
    if spread is None:
        text += ", of one seed: another may move it."
    else:
        near = sum(fmean(found) <= lowest + spread for found in values.values()) - 1
        text += f", ± {spread:.2g} over seeds; {near or 'no'} other cell{'s' if near > 1 else ''} within that."
    told = [f"{name} {value:.4g}" for name, value in (shown.baselines or {}).items()]
    return f"{text} Without a model: {join_words(told)}." if told else text


def _cost_words(measure: Measure, values: Mapping[Setting, Sequence[float]]) -> str:
    """From least to most, and which of the two settings moves it more."""
    means = {setting: fmean(found) for setting, found in values.items()}
    least, most = (choose(means, key=lambda setting: means[setting]) for choose in (min, max))
    text = f"{measure.say(means[least])} (K = {least[0]}, alpha {least[1]:g})"
    if means[most] == means[least]:
        return f"{text} in every cell so far."
    text += f" to {measure.say(means[most])} (K = {most[0]}, alpha {most[1]:g})."
    by_k, by_alpha = _growth(means, 0), _growth(means, 1)
    if by_k is None or by_alpha is None:
        return text
    return f"{text} From least to most K it grows to {by_k:.2f} times, from least to most alpha to {by_alpha:.2f}."


def _growth(means: Mapping[Setting, float], along: int) -> float | None:
    """Last over first along K (0) or alpha (1), the median over the lines that have both ends; None without any."""
    lines: dict[float, dict[float, float]] = {}
    for setting, value in means.items():
        lines.setdefault(setting[1 - along], {})[setting[along]] = value
    ends = (min(setting[along] for setting in means), max(setting[along] for setting in means))
    found = [line[ends[1]] / line[ends[0]] for line in lines.values() if {*ends} <= line.keys() and line[ends[0]]]
    return median(found) if found and ends[0] != ends[1] else None
