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
_LABELLED = 42  # cells up to which each has its number written into it
_COLUMNS = 6  # beside each other up to which a number fits into a cell
_DARK = 0.6  # share of the range of colours from which writing is white
_PALE = 0.15  # of the range of values: the least of them is not white, as a cell that is not done is
_BESIDE, _UNDER = 0.41, 0.37  # of a cell: how far from its middle, where the number is, a path runs
_OUTSIDE = 0.45  # of a cell: how far beyond the outermost row an alpha that the map has not is drawn
_FEW_SEEDS = 2  # from which there is a spread


@dataclass(frozen=True, slots=True)
class DecayMeasure:
    """One map of a study.

    Attributes:
        column: of the rows.
        title: of the map.
        scale: name of its colours.
        unit: of the colours.
        text: writes a number.
        subject: of the caption.
    """

    column: str
    title: str
    scale: str
    unit: str
    text: Callable[[float], str]
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
        values: dict[Setting, list[float]] = defaultdict(list)
        for row in self.rows:
            if row.get(column) is not None:
                values[int(row["full_snapshots"]), float(row["alpha"])].append(float(row[column]))
        return dict(values)


def decay_map_panels(decay_map: DecayMap) -> dict[str, Panel]:
    """Return the three maps by the names of their columns, each with a caption; empty ones too."""
    return {
        measure.column: (_map_figure(decay_map, measure), _map_caption(decay_map, measure))
        for measure in measures(decay_map.loss)
    }


def decay_map_figure(decay_map: DecayMap, *, title: str = "Full snapshots (K) and alpha") -> Figure:
    """Return the three maps beside each other, as in Figure 8 of FlareDTDG."""
    _, up = decay_map.axes()
    fulls = {*decay_map.full_snapshots, *(int(row["full_snapshots"]) for row in decay_map.rows)}
    measured, cells = len(decay_map.values("mse")), len(fulls) * len(up)
    progress = f" · {measured} of {cells} cells" if measured < cells else ""
    return grid(list(decay_map_panels(decay_map).values()), title=title + progress, columns=3)


def _map_figure(decay_map: DecayMap, measure: DecayMeasure) -> Figure:
    across, up = decay_map.axes()
    titles = (measure.title, "full snapshots (K)", "alpha")
    margin = {"l": 56, "r": 14, "t": 34, "b": 56}
    if not across or not up:
        return chart(*titles, [], empty=NO_CELL, margin=margin)
    values = decay_map.values(measure.column)
    cells = {(k, alpha): (x, y) for y, alpha in enumerate(up) for x, k in enumerate(across)}
    labelled = len(across) <= _COLUMNS and len(cells) <= _LABELLED
    trace = _cells_trace(decay_map, measure, values, labelled)
    dark = trace["zmin"] + _DARK * (trace["zmax"] - trace["zmin"])
    notes = [
        label(
            _cell_text(decay_map, measure, values[cell]),
            x,
            y,
            "white" if trace["z"][y][x] > dark else palette.TEXT_COLOUR,
        )
        for cell, (x, y) in cells.items()
        if labelled and cell in values  # as notes: a path runs behind them
    ]
    shapes = [cell_outline(*cells[_best(values)], width=2.5)] if measure.column == "mse" and values else []
    labels = {"xaxis": across, "yaxis": [f"{alpha:g}" for alpha in up]}
    axes = {axis: {**named_axis(texts), "ticks": ""} for axis, texts in labels.items()}
    layout: Drawn = {
        "margin": margin,
        "plot_bgcolor": palette.GRID_COLOUR,
        "annotations": notes,
        "shapes": shapes,
        **axes,
    }
    path = path_traces(decay_map.path, across, up) if decay_map.path else ()
    return chart(*titles, [trace, *path], **layout)


def cell_outline(x: int, y: int, *, width: float) -> Drawn:
    """Return the outline of a cell of a map."""
    style: Drawn = {"line": {"color": palette.TEXT_COLOUR, "width": width}, "fillcolor": "rgba(0,0,0,0)"}
    return box((x - 0.48, x + 0.48), (y - 0.48, y + 0.48), **style)


def _cells_trace(
    decay_map: DecayMap, measure: DecayMeasure, values: dict[Setting, list[float]], labelled: bool
) -> Drawn:
    across, up = decay_map.axes()
    settings = [[(k, alpha) for k in across] for alpha in up]
    means = {setting: fmean(seeds) for setting, seeds in values.items()}
    low, high = (min(means.values()), max(means.values())) if means else (0.0, 1.0)
    unit, factor = byte_unit(high) if measure.column == "peak_bytes" else (measure.unit, 1.0)
    low, span = low / factor, (high - low) / factor or abs(low / factor) or 1.0
    z = [[round(means[cell] / factor, 6) if cell in means else None for cell in row] for row in settings]
    hover = [[_cell_hover(decay_map, measure, cell, values.get(cell, [])) for cell in row] for row in settings]
    legend = {} if labelled else {"colorbar": colour_bar(unit, tickformat=".3~g")}
    style: Drawn = {
        "xgap": 2,
        "ygap": 2,
        "showscale": not labelled,
        "hoverongaps": False,
        "customdata": hover,
        **legend,
    }
    ends, axes = (low - _PALE * span, low + span), (list(range(len(across))), list(range(len(up))))
    return heat(measure.title, z, *axes, palette.HEAT_SCALES[measure.scale], span=ends, **style)


def _cell_text(decay_map: DecayMap, measure: DecayMeasure, values: list[float]) -> str:
    """Return the text of a cell: the mean, and the spread of the losses or how many seeds are done."""
    text = measure.text(fmean(values))
    if len(values) < decay_map.seeds:
        return f"{text}<br>{len(values)} of {decay_map.seeds}"
    has_spread = measure.column == "mse" and len(values) >= _FEW_SEEDS
    return f"{text}<br>± {stdev(values):.2g}" if has_spread else text


def _cell_hover(decay_map: DecayMap, measure: DecayMeasure, setting: Setting, values: list[float]) -> str:
    if not values:
        return ""
    texts = join_words([measure.text(value) for value in values])
    return f"K = {setting[0]}, alpha {setting[1]:g}: {texts} ({len(values)} of {decay_map.seeds} seeds)"


def path_traces(path: Sequence[Setting], across: Sequence[int], up: Sequence[float]) -> list[Drawn]:
    """Return the path of a tuner, from a circle by arrows to a star; beside the numbers."""
    x = [across.index(k) + _BESIDE for k, _ in path]
    y = [row_of(alpha, up) - _UNDER for _, alpha in path]
    texts = [f"K = {k}, alpha {alpha:g}" for k, alpha in path]
    ends = [0, -1] if len(path) > 1 else [-1]
    arrow = {"symbol": "arrow", "angleref": "previous", "size": 10, "color": palette.MARK_COLOUR}
    symbols, sizes = ["circle", "star"][-len(ends) :], [9, 14][-len(ends) :]
    marks = {"symbol": symbols, "size": sizes, "color": "white", "line": {"color": palette.MARK_COLOUR, "width": 2}}
    traces = []
    for mode, marker, steps in (("lines+markers", arrow, range(len(path))), ("markers", marks, ends)):
        style: Drawn = {"mode": mode, "marker": marker, "customdata": [texts[i] for i in steps], "opacity": 0.75}
        points = ([x[i] for i in steps], [y[i] for i in steps])
        hover = "%{customdata}<extra>tuner</extra>"
        traces.append(line("path of the tuner", *points, palette.MARK_COLOUR, hover, showlegend=False, **style))
    return traces


def row_of(alpha: float, up: Sequence[float]) -> float:
    """Return where an alpha lies among rows 0, 1, ... of the map, in between where it has none of its own."""
    if alpha < up[0]:
        return -_OUTSIDE * (1 - alpha / up[0])
    for row, (low, high) in enumerate(pairwise(up)):
        if alpha <= high:
            return row + (alpha - low) / (high - low)
    last = len(up) - 1
    return float(last) if alpha == up[-1] else last + _OUTSIDE * min(1.0, alpha - up[-1])


def _best(values: Mapping[Setting, Sequence[float]]) -> Setting:
    return min(values, key=lambda setting: fmean(values[setting]))


def _map_caption(decay_map: DecayMap, measure: DecayMeasure) -> str:
    values = decay_map.values(measure.column)
    if not values:
        return NOTHING_YET
    return _best_cell_caption(decay_map, values) if measure.column == "mse" else _range_caption(measure, values)


def _best_cell_caption(decay_map: DecayMap, values: Mapping[Setting, Sequence[float]]) -> str:
    """Return the best cell, and how many cells are within its spread."""
    best = _best(values)
    lowest, persistence = fmean(values[best]), (decay_map.baselines or {}).get("persistence")
    loss = three_digits(lowest)
    if persistence:
        difference = 1 - lowest / persistence
        loss += f", {percent_text(abs(difference))} {'below' if difference >= 0 else 'above'} persistence,"
    fields = {"loss": loss, "full": best[0], "alpha": f"{best[1]:g}"}
    if len(values[best]) < _FEW_SEEDS:
        return captions.LOWEST.format(**fields)
    near = sum(fmean(losses) <= lowest + stdev(values[best]) for losses in values.values()) - 1
    cells = f"{near or 'no'} other cell{' is' if near == 1 else 's are'}"
    return captions.LOWEST_NEAR.format(**fields, cells=cells)


def _range_caption(measure: DecayMeasure, values: Mapping[Setting, Sequence[float]]) -> str:
    """Return the cells of the least and the largest value."""
    means = {setting: fmean(values[setting]) for setting in sorted(values)}
    low, high = min(means, key=lambda cell: means[cell]), max(means, key=lambda cell: means[cell])
    fields = {"subject": measure.subject, "least": measure.text(means[low])}
    if means[low] == means[high]:
        return captions.SAME_IN_CELLS.format(**fields)
    cells = {"full": low[0], "alpha": f"{low[1]:g}", "most_full": high[0], "most_alpha": f"{high[1]:g}"}
    return captions.RANGE_OF_CELLS.format(**fields, most=measure.text(means[high]), **cells)
