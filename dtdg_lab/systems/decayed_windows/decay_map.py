"""Heat maps over full snapshots and alpha: loss, memory and time of a study's cells, with a tuner's path on them.

Rows are mappings with ``full_snapshots``, ``alpha``, ``seed`` and what was measured there: ``mse``, ``peak_bytes`` and
``epoch_s``, each absent or None where it is not known. Rows of one (full_snapshots, alpha) are seeds of one cell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from dtdg_lab.core.units import join_words
from dtdg_lab.systems.decayed_windows import captions
from dtdg_lab.visualization import palette
from dtdg_lab.visualization.axes import byte_unit, named_axis
from dtdg_lab.visualization.chart import NOTHING_YET
from dtdg_lab.visualization.layout import Figure, chart
from dtdg_lab.visualization.numbers import bytes_text, percent_text, seconds_text, three_digits
from dtdg_lab.visualization.panels import Panel, grid
from dtdg_lab.visualization.traces import Drawn, box, colour_bar, heat, label, line

Row = Mapping[str, Any]
Setting = tuple[int, float]  # full_snapshots, alpha
NO_CELL = "Appears with the first cell"
_DECAY_MAP_WRITTEN = 42  # cells up to which each has its number written into it
_COLUMNS = 6  # beside each other up to which a number fits into a cell
_DARK = 0.6  # share of the range of colours from which writing is white
_PALE = 0.15  # of the range of values: the least of them is not white, as a cell that is not done is
_BESIDE, _UNDER = 0.41, 0.37  # of a cell: how far from its middle, where the number is, a path runs
_OUTSIDE = 0.45  # of a cell: how far beyond the outermost row an alpha that the map has not is drawn
_FEW_SEEDS = 2  # from which there is a spread


@dataclass(frozen=True, slots=True)
class DecayMeasure:
    """What one map shows: column, title, colours, unit of the colours, how a number is written, and what needs it."""

    column: str
    title: str
    scale: str
    unit: str
    say: Callable[[float], str]
    subject: str = ""


def measures(loss: str = "validation MSE") -> tuple[DecayMeasure, ...]:
    """Return the three maps, named ``mse``, ``peak_bytes`` and ``epoch_s`` after their columns."""
    return (
        DecayMeasure("mse", loss[:1].upper() + loss[1:], "halo", loss, three_digits),
        DecayMeasure("peak_bytes", "Peak memory of a step", "bytes", "bytes", bytes_text, "A step needs"),
        DecayMeasure("epoch_s", "Time of an epoch", "owned", "s", seconds_text, "An epoch takes"),
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
        """Return the values across and up: those requested or measured, and every K of the path."""
        across = {*self.full_snapshots, *(int(row["full_snapshots"]) for row in self.rows), *(k for k, _ in self.path)}
        up = {*self.alphas, *(float(row["alpha"]) for row in self.rows)}
        return tuple(sorted(across)), tuple(sorted(up))

    def values(self, column: str) -> dict[Setting, list[float]]:
        """Return the measured values of each cell, by seed."""
        found: dict[Setting, list[float]] = defaultdict(list)
        for row in self.rows:
            if row.get(column) is not None:
                found[int(row["full_snapshots"]), float(row["alpha"])].append(float(row[column]))
        return dict(found)


def decay_map_panels(shown: DecayMap) -> dict[str, Panel]:
    """Return the three maps by the names of their columns, each with a caption; empty ones too."""
    maps = measures(shown.loss)
    return {each.column: (_cells_figure(shown, each), _cells_words(shown, each)) for each in maps}


def decay_map_figure(shown: DecayMap, *, title: str = "Full snapshots (K) and alpha") -> Figure:
    """Return the three maps beside each other, as in Figure 8 of FlareDTDG."""
    _, up = shown.axes()
    asked = {*shown.full_snapshots, *(int(row["full_snapshots"]) for row in shown.rows)}
    done, cells = len(shown.values("mse")), len(asked) * len(up)
    progress = f" · {done} of {cells} cells" if done < cells else ""
    return grid(list(decay_map_panels(shown).values()), title=title + progress, columns=3)


def _cells_figure(shown: DecayMap, measure: DecayMeasure) -> Figure:
    across, up = shown.axes()
    titles = (measure.title, "full snapshots (K)", "alpha")
    margin = {"l": 56, "r": 14, "t": 34, "b": 56}
    if not across or not up:
        return chart(*titles, [], empty=NO_CELL, margin=margin)
    values = shown.values(measure.column)
    cells = {(k, alpha): (x, y) for y, alpha in enumerate(up) for x, k in enumerate(across)}
    written = len(across) <= _COLUMNS and len(cells) <= _DECAY_MAP_WRITTEN
    trace = _cells(shown, measure, values, written)
    dark = trace["zmin"] + _DARK * (trace["zmax"] - trace["zmin"])
    notes = [
        label(
            _cell_text(shown, measure, values[cell]), x, y, "white" if trace["z"][y][x] > dark else palette.TEXT_COLOUR
        )
        for cell, (x, y) in cells.items()
        if written and cell in values  # as notes: a path runs behind them
    ]
    shapes = []
    if measure.column == "mse" and values:
        x, y = cells[_best(values)]
        outline: Drawn = {"line": {"color": palette.TEXT_COLOUR, "width": 2.5}, "fillcolor": "rgba(0,0,0,0)"}
        shapes = [box((x - 0.48, x + 0.48), (y - 0.48, y + 0.48), **outline)]
    names = {"xaxis": across, "yaxis": [f"{alpha:g}" for alpha in up]}
    axes = {axis: {**named_axis(each), "ticks": ""} for axis, each in names.items()}
    looks: Drawn = {
        "margin": margin,
        "plot_bgcolor": palette.GRID_COLOUR,
        "annotations": notes,
        "shapes": shapes,
        **axes,
    }
    return chart(*titles, [trace, *(path_traces(shown.path, across, up) if shown.path else ())], **looks)


def _cells(shown: DecayMap, measure: DecayMeasure, values: dict[Setting, list[float]], written: bool) -> Drawn:
    across, up = shown.axes()
    settings = [[(k, alpha) for k in across] for alpha in up]
    known = [fmean(found) for found in values.values()]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    unit, factor = byte_unit(high) if measure.column == "peak_bytes" else (measure.unit, 1.0)
    low, span = low / factor, (high - low) / factor or abs(low / factor) or 1.0
    z = [[round(fmean(values[each]) / factor, 6) if each in values else None for each in row] for row in settings]
    said = [[_cell_words(shown, measure, each, values.get(each, [])) for each in row] for row in settings]
    legend = {} if written else {"colorbar": colour_bar(unit, tickformat=".3~g")}
    looks: Drawn = {"xgap": 2, "ygap": 2, "showscale": not written, "hoverongaps": False, "customdata": said, **legend}
    ends, places = (low - _PALE * span, low + span), (list(range(len(across))), list(range(len(up))))
    return heat(measure.title, z, *places, palette.HEAT_SCALES[measure.scale], span=ends, **looks)


def _cell_text(shown: DecayMap, measure: DecayMeasure, found: list[float]) -> str:
    """Return the text of a cell: the mean, and the spread of the losses or how many seeds are done."""
    text = measure.say(fmean(found))
    if len(found) < shown.seeds:
        return f"{text}<br>{len(found)} of {shown.seeds}"
    spread = measure.column == "mse" and len(found) >= _FEW_SEEDS
    return f"{text}<br>± {stdev(found):.2g}" if spread else text


def _cell_words(shown: DecayMap, measure: DecayMeasure, setting: Setting, found: list[float]) -> str:
    if not found:
        return ""
    each = join_words([measure.say(value) for value in found])
    return f"K = {setting[0]}, alpha {setting[1]:g}: {each} ({len(found)} of {shown.seeds} seeds)"


def path_traces(path: Sequence[Setting], across: Sequence[int], up: Sequence[float]) -> list[Drawn]:
    """Return the path of a tuner, from a circle by arrows to a star; beside the numbers."""
    x = [across.index(k) + _BESIDE for k, _ in path]
    y = [place(alpha, up) - _UNDER for _, alpha in path]
    said = [f"K = {k}, alpha {alpha:g}" for k, alpha in path]
    ends = [0, -1] if len(path) > 1 else [-1]
    arrow = {"symbol": "arrow", "angleref": "previous", "size": 10, "color": palette.MARK_COLOUR}
    symbols, sizes = ["circle", "star"][-len(ends) :], [9, 14][-len(ends) :]
    marks = {"symbol": symbols, "size": sizes, "color": "white", "line": {"color": palette.MARK_COLOUR, "width": 2}}
    drawn = []
    for mode, marker, at in (("lines+markers", arrow, range(len(path))), ("markers", marks, ends)):
        looks: Drawn = {"mode": mode, "marker": marker, "customdata": [said[i] for i in at], "opacity": 0.75}
        places = ([x[i] for i in at], [y[i] for i in at])
        hover = "%{customdata}<extra>tuner</extra>"
        drawn.append(line("path of the tuner", *places, palette.MARK_COLOUR, hover, showlegend=False, **looks))
    return drawn


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


def _cells_words(shown: DecayMap, measure: DecayMeasure) -> str:
    values = shown.values(measure.column)
    if not values:
        return NOTHING_YET
    return _best_cell_words(shown, values) if measure.column == "mse" else _range_words(measure, values)


def _best_cell_words(shown: DecayMap, values: Mapping[Setting, Sequence[float]]) -> str:
    """Return the best cell, and how many cells are within its spread."""
    best = _best(values)
    lowest, persistence = fmean(values[best]), (shown.baselines or {}).get("persistence")
    loss = three_digits(lowest)
    if persistence:
        difference = 1 - lowest / persistence
        loss += f", {percent_text(abs(difference))} {'below' if difference >= 0 else 'above'} persistence,"
    known = {"loss": loss, "full": best[0], "alpha": f"{best[1]:g}"}
    if len(values[best]) < _FEW_SEEDS:
        return captions.LOWEST.format(**known)
    near = sum(fmean(losses) <= lowest + stdev(values[best]) for losses in values.values()) - 1
    cells = f"{near or 'no'} other cell{' is' if near == 1 else 's are'}"
    return captions.LOWEST_NEAR.format(**known, cells=cells)


def _range_words(measure: DecayMeasure, values: Mapping[Setting, Sequence[float]]) -> str:
    """Return the cells of the least and the largest value."""
    means = {setting: fmean(values[setting]) for setting in sorted(values)}
    least, most = min(means, key=lambda cell: means[cell]), max(means, key=lambda cell: means[cell])
    known = {"subject": measure.subject, "least": measure.say(means[least])}
    if means[least] == means[most]:
        return captions.SAME_IN_CELLS.format(**known)
    cells = {"full": least[0], "alpha": f"{least[1]:g}", "most_full": most[0], "most_alpha": f"{most[1]:g}"}
    return captions.RANGE_OF_CELLS.format(**known, most=measure.say(means[most]), **cells)
