"""Step times of a model beside those that were measured: errors as a map, curves with squares (Figure 8 of GreenDyGNN).

Rows are mappings: ``condition``, ``window``, ``measured_ms`` and ``predicted_ms``; where there are several data sets,
``dataset``; ``held_out`` where the model had not seen the measurement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import TEXT_COLOUR, series_colour
from dtdg_lab.views.partition_maps import colour_bar

if TYPE_CHECKING:
    from dtdg_lab.control.calibration import CellError

Without = Literal["", "cell", "condition"]
Row = Mapping[str, Any]
Panel = tuple[Figure, str]
Curves = Mapping[str, Sequence[tuple[int, float]]]  # condition -> (window, predicted ms)
NOTHING = "nothing was measured yet"
_WRITTEN = 120  # cells up to which each has its number
_DARK = 0.6
_LEAST_TOP = 5.0  # percent of the darkest colour, at least
_SCALE = ((0.0, "#2166AC"), (0.5, "#FFFFFF"), (1.0, "#B2182B"))


def error_rows(errors: Sequence[CellError], *, without: Without = "") -> list[dict[str, Any]]:
    """What ``Calibration.errors()`` gives, as rows.

    Args:
        errors: one for each cell.
        without: what the model had not seen of a cell that it predicts: nothing; the ``cell``; or its ``condition``,
            where cells without such a prediction are left out.
    """
    column = f"{without}_out_ms" if without else "predicted_ms"
    rows: list[dict[str, Any]] = [
        {"dataset": each.dataset, "condition": each.condition, "window": each.window, "measured_ms": each.measured_ms,
         "predicted_ms": float(getattr(each, column)), "held_out": bool(without)}
        for each in errors
    ]  # fmt: skip
    return [row for row in rows if not math.isnan(row["predicted_ms"])]


def model_figure(rows: Sequence[Row], *, title: str = "Model against measurement") -> Figure:
    """Map and curves of every data set."""
    panels = []
    for dataset in list(dict.fromkeys(str(row.get("dataset", "")) for row in rows)) or [""]:
        panels += list(model_panels([row for row in rows if str(row.get("dataset", "")) == dataset]).values())
    return grid(panels, title=title)


def model_panels(rows: Sequence[Row], curves: Curves | None = None) -> dict[str, Panel]:
    """``errors``: a map, windows across and conditions down; ``curves``: predicted lines, measured squares.

    Args:
        rows: see the module; of one data set.
        curves: condition -> (window, predicted ms), where lines shall go on between the measurements.
    """
    name = next((str(row["dataset"]) for row in rows if row.get("dataset")), "")
    of = f", {name}" if name else ""
    return {
        "errors": (_errors_figure(rows, f"Errors of the model{of}"), model_words(rows)),
        "curves": (_curves_figure(rows, curves or {}, f"Step time{of}"), _CURVES),
    }


_CURVES = "Squares were measured, lines are predicted; open squares the model had not seen."


def _errors(rows: Sequence[Row]) -> list[float]:
    return [_error(row) for row in rows]


def _error(row: Row) -> float:
    return float(row["predicted_ms"]) / float(row["measured_ms"]) - 1


def _conditions(rows: Sequence[Row]) -> list[str]:
    """In the order of their families, then of what stands in their names, as numbers."""

    def place(condition: str) -> tuple[str, float]:
        number = re.search(r"_(\d+(?:\.\d+)?)", condition)
        return condition.split("_", maxsplit=1)[0], float(number[1]) if number else 0.0

    found = dict.fromkeys(str(row["condition"]) for row in rows)
    return sorted(found, key=lambda each: (each != "clean", *place(each)))


def _errors_figure(rows: Sequence[Row], title: str) -> Figure:
    layout = frame(title, "W (steps between rebuilds)", "")
    if not rows:
        return {"data": [], "layout": with_note(layout, NOTHING)}
    conditions, windows = _conditions(rows), sorted({int(row["window"]) for row in rows})
    cells = {(str(row["condition"]), int(row["window"])): row for row in rows}
    grid_rows = [[cells.get((condition, window)) for window in windows] for condition in conditions]
    top = max(_LEAST_TOP, *(100 * abs(each) for each in _errors(rows)))
    layout["xaxis"] |= {"tickvals": list(range(len(windows))), "ticktext": list(map(str, windows)), "showgrid": False,
                        "range": [-0.5, len(windows) - 0.5]}  # fmt: skip
    layout["yaxis"] |= {"tickvals": list(range(len(conditions))), "ticktext": conditions, "showgrid": False,
                        "range": [len(conditions) - 0.5, -0.5]}  # fmt: skip
    data = [{
        "type": "heatmap", "name": title, "x": list(range(len(windows))), "y": list(range(len(conditions))),
        "z": [[None if row is None else round(100 * _error(row), 3) for row in line] for line in grid_rows],
        "zmin": -top, "zmax": top, "colorscale": [list(stop) for stop in _SCALE], "hoverongaps": False,
        "colorbar": {**colour_bar("error (%)"), "tickformat": ".3~g"}, "xgap": 2, "ygap": 2,
        "customdata": [["" if row is None else _cell_words(row) for row in line] for line in grid_rows],
        "hovertemplate": "%{customdata}<extra></extra>",
    }]  # fmt: skip
    if len(conditions) * len(windows) <= _WRITTEN:
        layout["annotations"] = [
            {"text": f"{round(100 * _error(row), 1) + 0.0:+.1f}", "x": column, "y": at, "xref": "x", "yref": "y",
             "showarrow": False,
             "font": {"size": 9, "color": "white" if 100 * abs(_error(row)) > _DARK * top else TEXT_COLOUR}}
            for at, line in enumerate(grid_rows) for column, row in enumerate(line) if row is not None
        ]  # fmt: skip
    return {"data": data, "layout": layout}


def _cell_words(row: Row) -> str:
    seen = " (not seen)" if row.get("held_out") else ""
    return (
        f"{row['condition']}, W {row['window']}: {float(row['predicted_ms']):.4g} ms predicted, "
        f"{float(row['measured_ms']):.4g} ms measured{seen}"
    )


def _curves_figure(rows: Sequence[Row], curves: Curves, title: str) -> Figure:
    layout = frame(
        title, "W (steps between rebuilds)", "step (ms)", showlegend=True,
        xaxis={"type": "log", "tickvals": sorted({int(row["window"]) for row in rows})},
        yaxis={"type": "log", "dtick": "D2"},
    )  # fmt: skip
    if not rows:
        plain = {**layout, **{axis: {k: v for k, v in layout[axis].items() if k not in ("type", "tickvals", "dtick")}
                              for axis in ("xaxis", "yaxis")}}  # fmt: skip
        return {"data": [], "layout": with_note(plain, NOTHING)}
    data: list[dict[str, Any]] = []
    for index, condition in enumerate(_conditions(rows)):
        found = sorted((row for row in rows if row["condition"] == condition), key=lambda row: int(row["window"]))
        line = list(curves.get(condition, ())) or [(int(row["window"]), float(row["predicted_ms"])) for row in found]
        data += _condition_traces(condition, index, found, line)
    return {"data": data, "layout": layout}


def _condition_traces(
    condition: str, index: int, found: Sequence[Row], line: Sequence[tuple[int, float]]
) -> list[dict[str, Any]]:
    """A line and squares; a condition of one window has a dash with its name beside it: a legend would be too wide."""
    alone, colour = len(line) == 1, series_colour(index)
    style: dict[str, Any] = {"type": "scatter", "legendgroup": condition, "name": condition}
    beside = "middle right" if condition.startswith("c4") else "middle left"  # delays on one side, rates on the other
    return [
        {
            "mode": "markers+text" if alone else "lines", "x": [at for at, _ in line],
            "y": [round(ms, 4) for _, ms in line], "showlegend": not alone, "line": {"color": colour, "width": 2},
            "marker": {"color": colour, "symbol": "line-ew-open", "size": 14}, "hoverinfo": "skip",
            "text": [f"  {condition}  "] * len(line), "textposition": beside, "textfont": {"size": 9, "color": colour},
            **style,
        },
        {
            "mode": "markers", "x": [int(row["window"]) for row in found],
            "y": [round(float(row["measured_ms"]), 4) for row in found], "showlegend": False,
            "marker": {"color": colour, "size": 7,
                       "symbol": ["square-open" if row.get("held_out") else "square" for row in found]},
            "customdata": [_cell_words(row) for row in found], "hovertemplate": "%{customdata}<extra></extra>", **style,
        },
    ]  # fmt: skip


def model_words(rows: Sequence[Row]) -> str:
    """Mean and largest error, apart for what the model had not seen."""
    if not rows:
        return "How far predicted step times are from those that were measured, in percent of the latter."
    worst = max(rows, key=lambda row: abs(_error(row)))
    seen, kept = ([row for row in rows if bool(row.get("held_out")) is held] for held in (False, True))
    told = [
        f"{100 * fmean(map(abs, _errors(each))):.1f} % over {len(each)} {words}"
        for each, words in ((seen, "cells it was fitted to"), (kept, "it had not seen")) if each
    ]  # fmt: skip
    return (
        f"The mean error is {' and '.join(told)}; the largest, {100 * _error(worst):+.1f} %, at {worst['condition']}, "
        f"W {worst['window']}. Red: predicted too slow."
    )
