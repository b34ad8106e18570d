"""Step times of a cost model beside measured ones: errors as a map, curves with squares (Figure 8 of GreenDyGNN)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from dtdg_lab.visualization.axes import named_axis
from dtdg_lab.visualization.layout import Figure, chart
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import TEXT_COLOUR, series_colour
from dtdg_lab.visualization.panels import Panel, grid
from dtdg_lab.visualization.traces import Drawn, colour_bar, heat, label, line, points

if TYPE_CHECKING:
    from dtdg_lab.systems.feature_cache.calibration.report import CellError


# Step times of a model beside measured ones: errors as a map, curves with squares (Figure 8 of GreenDyGNN).
#
# Rows are mappings: ``condition``, ``window``, ``measured_ms`` and ``predicted_ms``; ``dataset`` where there are
# several; ``held_out`` where the model had not seen the measurement.


Without = Literal["", "cell", "condition"]
Row = Mapping[str, Any]
Curves = Mapping[str, Sequence[tuple[int, float]]]  # condition -> (window, predicted ms)
NOTHING = "nothing was measured yet"
_W = "W (steps between rebuilds)"
_WRITTEN = 120  # cells up to which each has its number
_DARK = 0.6
_LEAST_TOP = 5.0  # percent of the darkest colour, at least
_SCALE = ((0.0, "#2166AC"), (0.5, "#FFFFFF"), (1.0, "#B2182B"))
Cells = Sequence[Sequence[float | None]]
_SAID, _MORE = "%{customdata}<extra></extra>", "%{customdata}, %{z:+.2f}%<extra></extra>"


def _map_axes(columns: Sequence[Any], rows: Sequence[str]) -> dict[str, Any]:
    return {"xaxis": named_axis(columns), "yaxis": named_axis(rows, down=True)}


def _signed_map(
    title: str, percents: Cells, hover_texts: Sequence[Sequence[str]], *, top: float, unit: str, hover: str = _SAID
) -> Drawn:
    """Return a map of percentages: white at 0, red above, blue below."""
    rounded = [[None if percent is None else round(percent, 3) for percent in row] for row in percents]
    bar = colour_bar(unit, tickformat=".3~g")
    style = {"colorbar": bar, "xgap": 1, "ygap": 1, "hoverongaps": False, "customdata": hover_texts}
    columns, rows = range(len(percents[0])), range(len(percents))
    return heat(title, rounded, columns, rows, _SCALE, span=(-top, top), hover=hover, **style)


def _written_in(cells: Cells, form: str, is_dark: Callable[[float], bool]) -> list[Drawn]:
    """Return the numbers of a map's cells."""
    return [
        label(format(value + 0.0, form), column, row, "white" if is_dark(value) else TEXT_COLOUR, 9)
        for row, values in enumerate(cells)
        for column, value in enumerate(values)
        if value is not None
    ]


def error_rows(errors: Sequence[CellError], *, without: Without = "") -> list[dict[str, Any]]:
    """Return the result of ``Calibration.errors()`` as rows.

    Args:
        errors: one for each cell.
        without: what the model had not seen of a cell that it predicts: nothing; the ``cell``; or its ``condition``,
            where cells without such a prediction are left out.
    """
    column = f"{without}_out_ms" if without else "predicted_ms"
    rows: list[dict[str, Any]] = [
        {
            "dataset": error.dataset,
            "condition": error.condition,
            "window": error.window,
            "measured_ms": error.measured_ms,
            "predicted_ms": float(getattr(error, column)),
            "held_out": bool(without),
        }
        for error in errors
    ]
    return [row for row in rows if not math.isnan(row["predicted_ms"])]


def model_figure(rows: Sequence[Row], *, title: str = "Model against measurement") -> Figure:
    """Return the map and the curves of every data set."""
    panels = []
    for dataset in list(dict.fromkeys(str(row.get("dataset", "")) for row in rows)) or [""]:
        panels += list(model_panels([row for row in rows if str(row.get("dataset", "")) == dataset]).values())
    return grid(panels, title=title)


def model_panels(rows: Sequence[Row], curves: Curves | None = None) -> dict[str, Panel]:
    """Return ``errors``, a map of conditions by windows, and ``curves``, predicted lines with measured squares.

    Args:
        rows: see the module; of one data set.
        curves: condition -> (window, predicted ms), where lines shall go on between the measurements.
    """
    name = next((str(row["dataset"]) for row in rows if row.get("dataset")), "")
    suffix = f", {name}" if name else ""
    return {
        "errors": (_errors_figure(rows, f"Errors of the model{suffix}"), model_words(rows)),
        "curves": (_curves_figure(rows, curves or {}, f"Step time{suffix}"), _CURVES),
    }


_CURVES = "Squares were measured, lines are predicted; the model had not seen open squares."


def _error(row: Row) -> float:
    return float(row["predicted_ms"]) / float(row["measured_ms"]) - 1


def _conditions(rows: Sequence[Row]) -> list[str]:
    """Return the conditions by family, then by the number in their names."""

    def place(condition: str) -> tuple[str, float]:
        number = re.search(r"_(\d+(?:\.\d+)?)", condition)
        return condition.split("_", maxsplit=1)[0], float(number[1]) if number else 0.0

    conditions = dict.fromkeys(str(row["condition"]) for row in rows)
    return sorted(conditions, key=lambda condition: (condition != "clean", *place(condition)))


def _errors_figure(rows: Sequence[Row], title: str) -> Figure:
    if not rows:
        return chart(title, _W, "", [], empty=NOTHING)
    conditions, windows = _conditions(rows), sorted({int(row["window"]) for row in rows})
    cells = {(str(row["condition"]), int(row["window"])): row for row in rows}
    grid_rows = [[cells.get((condition, window)) for window in windows] for condition in conditions]
    percents = [[None if row is None else 100 * _error(row) for row in grid_row] for grid_row in grid_rows]
    top = max(_LEAST_TOP, *(100 * abs(_error(row)) for row in rows))
    hover_texts = [["" if row is None else _cell_words(row) for row in grid_row] for grid_row in grid_rows]
    errors = _signed_map(title, percents, hover_texts, top=top, unit="error (%)")
    figure = chart(title, _W, "", [errors], **_map_axes(windows, conditions))
    if len(conditions) * len(windows) <= _WRITTEN:
        figure["layout"]["annotations"] = _written_in(percents, "+.1f", lambda value: abs(value) > _DARK * top)
    return figure


def _cell_words(row: Row) -> str:
    suffix = " (not seen)" if row.get("held_out") else ""
    return (
        f"{row['condition']}, W {row['window']}: {float(row['predicted_ms']):.4g} ms predicted, "
        f"{float(row['measured_ms']):.4g} ms measured{suffix}"
    )


def _curves_figure(rows: Sequence[Row], curves: Curves, title: str) -> Figure:
    data: list[Drawn] = []
    for index, condition in enumerate(_conditions(rows)):
        measured = sorted((row for row in rows if row["condition"] == condition), key=lambda row: int(row["window"]))
        curve = list(curves.get(condition, ())) or [
            (int(row["window"]), float(row["predicted_ms"])) for row in measured
        ]
        data += _condition_traces(condition, index, measured, curve)
    windows = sorted({int(row["window"]) for row in rows})
    logs = {"xaxis": {"type": "log", "tickvals": windows}, "yaxis": {"type": "log", "dtick": "D2"}} if rows else {}
    return chart(title, _W, "step (ms)", data, empty=NOTHING, showlegend=True, **logs)


def _condition_traces(
    condition: str, index: int, rows: Sequence[Row], curve: Sequence[tuple[int, float]]
) -> list[dict[str, Any]]:
    """Return a line and squares; a condition of one window has a dash with its name beside it."""
    alone, colour = len(curve) == 1, series_colour(index)
    beside = "middle right" if condition.startswith("c4") else "middle left"  # delays on one side, rates on the other
    name: Drawn = {"text": [f"  {condition}  "] * len(curve), "textposition": beside}
    style: Drawn = {"mode": "lines", "legendgroup": condition, "showlegend": not alone, "hoverinfo": "skip"}
    if alone:
        style |= {"mode": "markers+text", **name, "textfont": {"size": 9, "color": colour}}
        style["marker"] = {"color": colour, "symbol": "line-ew-open", "size": 14}
    predicted = [window for window, _ in curve], [round(ms, 4) for _, ms in curve]
    measured = [int(row["window"]) for row in rows], [round(float(row["measured_ms"]), 4) for row in rows]
    squares: Drawn = {"symbol": ["square-open" if row.get("held_out") else "square" for row in rows]}
    hover_style: Drawn = {
        "customdata": [_cell_words(row) for row in rows],
        "legendgroup": condition,
        "showlegend": False,
    }
    return [
        line(condition, *predicted, colour, **style),
        points(condition, *measured, colour, "%{customdata}<extra></extra>", marker=squares, **hover_style),
    ]


def model_words(rows: Sequence[Row]) -> str:
    """Return the mean error, apart for what the model had not seen, or the largest."""
    if not rows:
        return "Nothing measured yet."
    unseen = [row for row in rows if row.get("held_out")]
    mean = percent_text(fmean(abs(_error(row)) for row in rows if not row.get("held_out") or len(unseen) == len(rows)))
    if 0 < len(unseen) < len(rows):
        unseen_mean = percent_text(fmean(abs(_error(row)) for row in unseen))
        return f"Predictions are off by {mean} on average, and by {unseen_mean} where the model had not seen the cell."
    worst = max(rows, key=lambda row: abs(_error(row)))
    cell = f"{worst['condition']}, W {worst['window']}"
    return f"Predictions are off by {mean} on average, and by {percent_text(abs(_error(worst)))} at most, at {cell}."
