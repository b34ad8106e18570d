"""Step times of a cost model beside measured ones: errors as a map, curves with squares (Figure 8 of GreenDyGNN)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

from dtdg_lab.systems.feature_cache.calibration.report import CellError
from dtdg_lab.visualization.axes import named_axis
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card, trace_keys
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import TEXT_COLOUR, series_colour
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.traces import Attributes, colour_bar, heat, label, line, points

_W = "W (steps between rebuilds)"
_WRITTEN = 120  # cells up to which each has its number
_DARK = 0.6  # share of the darkest colour from which numbers are white
_LEAST_TOP = 5.0  # percent of the darkest colour, at least
_SCALE = ((0.0, "#2166AC"), (0.5, "#FFFFFF"), (1.0, "#B2182B"))
_HOVER = "%{customdata}<extra></extra>"


def model_figure(errors: Sequence[CellError], *, title: str) -> Figure:
    """Return the map of errors and the curves of every data set."""
    panels: list[CaptionedFigure] = []
    for dataset in dict.fromkeys(error.dataset for error in errors):
        cells = [error for error in errors if error.dataset == dataset]
        panels.append((_errors_figure(cells, f"Errors of the model, {dataset}"), errors_caption(cells)))
        curves = _curves_figure(cells, f"Step time, {dataset}")
        panels.append((curves, "Squares were measured, lines are predicted."))
    return sheet(panels, title=title, plot_height=STUDY_HEIGHT)


def live_figure(
    predicted_ms: Sequence[float], measured_ms: Sequence[float], windows: Sequence[int], *, title: str
) -> Figure:
    """Return measured over predicted milliseconds of a step, a colour for each window; on the line both are equal."""
    predicted, measured, served = (list(values) for values in (predicted_ms, measured_ms, windows))
    ends = [min(*predicted, *measured), max(*predicted, *measured)]
    data = [line("equal", ends, ends, hover=_HOVER, dash="dot", customdata=["equal"] * 2)]
    for index, window in enumerate(sorted(set(served))):
        own = [place for place, other in enumerate(served) if other == window]
        x, y = ([round(values[place], 4) for place in own] for values in (predicted, measured))
        texts = [
            f"W {window}: {before:.4g} ms predicted, {ms:.4g} ms measured" for before, ms in zip(x, y, strict=True)
        ]
        data.append(points(f"W {window}", x, y, series_colour(index), _HOVER, customdata=texts))
    figure = card(
        data, "Measured steps", unit="measured step (ms)", keys=trace_keys(data), x_title="predicted step (ms)"
    )
    off = fmean(abs(before / ms - 1) for before, ms in zip(predicted, measured, strict=True))
    caption = f"Predictions are off by {percent_text(off)} on average."
    return sheet([(figure, caption)], title=title, columns=1, plot_height=STUDY_HEIGHT)


def errors_caption(cells: Sequence[CellError]) -> str:
    """Return the mean error and the largest."""
    mean = percent_text(fmean(abs(cell.percent) for cell in cells) / 100)
    worst = max(cells, key=lambda cell: abs(cell.percent))
    largest = f"{percent_text(abs(worst.percent) / 100)} at most, at {worst.condition}, W {worst.window}"
    return f"Predictions are off by {mean} on average, and by {largest}."


def _conditions(cells: Sequence[CellError]) -> list[str]:
    """Return the conditions by family, then by the number in their names; clean links first."""

    def rank(condition: str) -> tuple[bool, str, float]:
        number = re.search(r"_(\d+(?:\.\d+)?)", condition)
        return condition != "clean", condition.split("_", maxsplit=1)[0], float(number[1]) if number else 0.0

    return sorted({cell.condition for cell in cells}, key=rank)


def _errors_figure(cells: Sequence[CellError], title: str) -> Figure:
    """Return a map of errors in percent, white at 0: windows across, conditions down."""
    conditions, windows = _conditions(cells), sorted({cell.window for cell in cells})
    by_place = {(cell.condition, cell.window): cell for cell in cells}
    places = [[by_place.get((condition, window)) for window in windows] for condition in conditions]
    percents = [[None if cell is None else round(cell.percent, 3) for cell in row] for row in places]
    hover_texts = [["" if cell is None else _cell_text(cell) for cell in row] for row in places]
    top = max(_LEAST_TOP, *(abs(cell.percent) for cell in cells))
    bar = colour_bar("error (%)", tickformat=".3~g")
    style: Attributes = {"colorbar": bar, "xgap": 1, "ygap": 1, "hoverongaps": False, "customdata": hover_texts}
    columns, rows = range(len(windows)), range(len(conditions))
    errors = heat(title, percents, columns, rows, _SCALE, span=(-top, top), hover=_HOVER, **style)
    notes = [
        label(format(percent + 0.0, "+.1f"), x, y, "white" if abs(percent) > _DARK * top else TEXT_COLOUR, 9)
        for y, row in enumerate(percents)
        for x, percent in enumerate(row)
        if percent is not None and len(conditions) * len(windows) <= _WRITTEN
    ]
    axes: Attributes = {"xaxis": named_axis(windows), "yaxis": named_axis(conditions, down=True)}
    return card([errors], title, x_title=_W, annotations=notes, **axes)


def _cell_text(cell: CellError) -> str:
    times = f"{cell.predicted_ms:.4g} ms predicted, {cell.measured_ms:.4g} ms measured"
    return f"{cell.condition}, W {cell.window}: {times}"


def _curves_figure(cells: Sequence[CellError], title: str) -> Figure:
    """Return predicted lines and measured squares over W, a colour for each condition."""
    data: list[Attributes] = []
    for index, condition in enumerate(_conditions(cells)):
        of_condition = sorted((cell for cell in cells if cell.condition == condition), key=lambda cell: cell.window)
        data += _condition_traces(condition, series_colour(index), of_condition)
    axes: Attributes = {
        "xaxis": {"type": "log", "tickvals": sorted({cell.window for cell in cells})},
        "yaxis": {"type": "log", "dtick": "D2"},
    }
    return card(data, title, unit="step (ms)", keys=trace_keys(data), x_title=_W, **axes)


def _condition_traces(condition: str, colour: str, cells: Sequence[CellError]) -> list[Attributes]:
    """Return a line and squares; a condition of one window has a dash with its name beside it."""
    windows, is_alone = [cell.window for cell in cells], len(cells) == 1
    style: Attributes = {"mode": "lines", "legendgroup": condition, "showlegend": not is_alone, "hoverinfo": "skip"}
    if is_alone:
        beside = "middle right" if condition.startswith("c4") else "middle left"  # delays right, rates left
        style |= {"mode": "markers+text", "text": [f"  {condition}  "], "textposition": beside}
        style |= {"textfont": {"size": 9, "color": colour}}
        style["marker"] = {"color": colour, "symbol": "line-ew-open", "size": 14}
    square_style: Attributes = {"marker": {"symbol": "square"}, "legendgroup": condition, "showlegend": False}
    square_style["customdata"] = [_cell_text(cell) for cell in cells]
    return [
        line(condition, windows, [round(cell.predicted_ms, 4) for cell in cells], colour, **style),
        points(condition, windows, [round(cell.measured_ms, 4) for cell in cells], colour, _HOVER, **square_style),
    ]
