"""Several charts as the panels of one figure, each with its title, its legend and a sentence under it."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dtdg_lab.visualization.chart import CaptionedFigure, Figure
from dtdg_lab.visualization.layout import LEGEND, SHEET, chart, text_at
from dtdg_lab.visualization.palette import EDGE_COLOUR, VERTEX_COLOUR
from dtdg_lab.visualization.traces import Drawn, bars, level_bars

PANEL_HEIGHT = 362  # pixels; the space under the axis includes:
_TITLE, _LEGEND, _SENTENCE, _FOOT = 42, 38, 60, 124
_TOP_MARGIN, _BOTTOM_MARGIN = 30, 4
_GAP = 0.12  # between columns, share of the width: room for the axes of both sides
_LINE = 136  # characters of a sentence on a line as wide as the figure
_NO_TRACE: dict[str, Any] = {"type": "scatter", "x": [None], "y": [None], "showlegend": False}
_BAR = 0.075  # share of the width that a legend of colours takes from its panel
_AXES = 0.72  # share of a panel's width that its axes take where the legend is beside them


def grid(
    panels: Sequence[tuple[Figure, str]],
    *,
    title: str,
    columns: int = 2,
    wide: Collection[int] = (),
    beside: bool = False,
) -> Figure:
    """Return one figure of several, ``columns`` panels a row, from left to right.

    Args:
        panels: figures, each with a sentence to stand under it.
        title: of the whole.
        columns: panels a row.
        wide: places in ``panels`` of those that have a row to themselves.
        beside: whether legends stand at the right of their panels, which many names need, not under them.
    """
    places = _places(len(panels), columns, wide)
    rows = 1 + max(row for row, _, _ in places)
    first = panels[0][0]["layout"]
    margin = {"l": 58, "r": 24, "t": _TOP_MARGIN, "b": _BOTTOM_MARGIN}
    layout: dict[str, Any] = {
        "title": {**first["title"], "text": title, "y": 0.995, "font": {"size": 15}},
        "font": first["font"],
        **SHEET,
        "height": PANEL_HEIGHT * rows + _TOP_MARGIN + _BOTTOM_MARGIN,
        "margin": margin,
        "shapes": [],
        "annotations": [],
    }
    modes = {figure["layout"]["barmode"] for figure, _ in panels if "barmode" in figure["layout"]}
    if modes:  # one for the whole figure; bars with a base of their own, as in a timeline, are never stacked
        layout |= {"barmode": "stack" if "stack" in modes else modes.pop(), "bargap": 0.35}
    data: list[dict[str, Any]] = []
    axes = 0
    for index, (figure, caption) in enumerate(panels):
        row, column, across = places[index]
        width, pixel = (1 - _GAP * (across - 1)) / across, 1 / (PANEL_HEIGHT * rows)
        left, top = column * (width + _GAP), 1 - row / rows
        bottom = top - (PANEL_HEIGHT - _FOOT) * pixel
        bar = any("colorbar" in trace for trace in figure["data"])
        right = left + (_AXES * width if beside else width - _BAR * bar)
        room = _Room(index, axes, (left, right), (bottom, top - _TITLE * pixel), pixel, beside=beside)
        data += room.traces(figure["data"])
        room.place(figure["layout"], layout, textwrap.wrap(caption, _LINE // across))
        axes += room.used
    return {"data": data, "layout": layout}


def _places(panels: int, columns: int, wide: Collection[int]) -> list[tuple[int, int, int]]:
    """Return row, column and number of columns for each panel; a wide panel has a row to itself."""
    places: list[tuple[int, int, int]] = []
    row, column = 0, 0
    for index in range(panels):
        if column and (column == columns or index in wide):
            row, column = row + 1, 0
        places.append((row, column, 1 if index in wide else columns))
        column = columns if index in wide else column + 1
    return places


class _Room:
    """The place of one panel: its part of the paper, and the numbers its axes and legend get."""

    def __init__(
        self, index: int, axes: int, x: tuple[float, float], y: tuple[float, float], pixel: float, *, beside: bool
    ) -> None:
        self._legend, self._beside_axes = "legend" + _number(index), beside
        self._axes, self._x, self._y, self._pixel = axes, x, y, pixel
        self.used = 2  # a panel may have two y axes, so numbers go up by two

    def _axis(self, name: str) -> str:
        """Return the figure's axis for an axis of the panel: ``x``, ``y`` or ``y2``."""
        return name[0] + _number(self._axes + name.endswith("2"))

    def traces(self, traces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the panel's traces on its own axes and legend; a panel without any still shows its axes."""
        moved_traces = []
        for trace in traces or (_NO_TRACE,):
            legend = {"colorbar": self._beside(trace["colorbar"])} if "colorbar" in trace else {"legend": self._legend}
            axes = {"xaxis": self._axis("x"), "yaxis": self._axis(trace.get("yaxis", "y"))}
            moved_traces.append({**trace, **axes, **legend})
        return moved_traces

    def _beside(self, bar: dict[str, Any]) -> dict[str, Any]:
        """Return a legend of colours at the right of the panel, as high as it."""
        (_, right), (bottom, top) = self._x, self._y
        position = {"x": right, "xanchor": "left", "xpad": 6, "y": (bottom + top) / 2, "yanchor": "middle", "ypad": 0}
        return {**bar, **position, "len": top - bottom, "lenmode": "fraction"}

    def place(self, panel_layout: dict[str, Any], layout: dict[str, Any], caption: list[str]) -> None:
        """Add the panel's axes, title, legend, marks and sentence to the layout of the whole."""
        (left, right), (bottom, top) = self._x, self._y
        x, y = self._axis("x"), self._axis("y")
        layout[f"xaxis{x[1:]}"] = {**panel_layout["xaxis"], "domain": [left, right], "anchor": y}
        layout[f"yaxis{y[1:]}"] = {**panel_layout["yaxis"], "domain": [bottom, top], "anchor": x}
        if "yaxis2" in panel_layout:
            layout[f"yaxis{self._axis('y2')[1:]}"] = {**panel_layout["yaxis2"], "anchor": x, "overlaying": y}
        legend_position = {"x": left, "y": bottom - _LEGEND * self._pixel, "orientation": "h", "traceorder": "normal"}
        legend_position = {"x": right + 0.015, "y": top} if self._beside_axes else legend_position
        layout[self._legend] = {**LEGEND, "xanchor": "left", "yanchor": "top", **legend_position}
        layout["shapes"] += [self._moved(shape) for shape in panel_layout["shapes"]]
        layout["annotations"] += [self._moved(note) for note in panel_layout["annotations"]]
        title = {
            "text": f"<b>{panel_layout['title']['text']}</b>",
            "x": left,
            "y": top,
            "yanchor": "bottom",
            "yshift": 15,
        }
        text = {"text": "<br>".join(caption), "x": left, "y": bottom, "yanchor": "top"}
        layout["annotations"] += [text_at(title, 13), text_at({**text, "yshift": -_SENTENCE}, 11)]

    def _moved(self, mark: dict[str, Any]) -> dict[str, Any]:
        """Return a shape or annotation of the panel, moved to its axes in the figure."""
        moved = dict(mark)
        for letter in "xy":
            reference = mark.get(f"{letter}ref", "paper")
            axis = self._axis(letter)
            moved[f"{letter}ref"] = f"{axis} domain" if reference == "paper" else self._axis(reference)
        return moved


def _number(index: int) -> str:
    """Return what plotly appends to the name of axis or legend number ``index``."""
    return "" if index == 0 else str(index + 1)


STEPS = "step (model updates)"
_OTHER_COLOUR = "#A9B4C0"


def compared_panel(
    title: str, unit: str, values: Mapping[str, float], *, highlighted: str, caption: str
) -> CaptionedFigure:
    """Return a bar for each of several methods, the highlighted one in blue, the lowest on top.

    Args:
        title: of the chart.
        unit: of the values.
        values: by name.
        highlighted: the name that is coloured.
        caption: the sentence under it.
    """
    order = sorted(values, key=lambda name: -values[name])
    numbers = [round(values[name], 4) for name in order]
    style: Drawn = {
        "showlegend": False,
        "width": 0.7,
        "marker": {
            "color": [EDGE_COLOUR if name == highlighted else _OTHER_COLOUR for name in order],
            "line": {"width": 0},
        },
        "text": [f"{number:,.0f}" if number >= 1000 else f"{number:.4g}" for number in numbers],
        "insidetextfont": {"size": 10, "color": ["white" if name == highlighted else "#24292F" for name in order]},
    }
    data = [level_bars(highlighted, order, numbers, None, "%{y}: %{x:,.4~g} " + unit + "<extra></extra>", **style)]
    margin = {"l": 120, "r": 14, "t": 34, "b": 58}
    return chart(title, unit, "", data, yaxis={"showgrid": False}, margin=margin), caption


def stacked_panel(
    title: str, axes: tuple[str, str], parts: Mapping[str, Sequence[float]], *, caption: str
) -> CaptionedFigure:
    """Return bars at 0, 1, ... of up to three layers, the first at the bottom.

    Args:
        title: of the chart.
        axes: titles of both.
        parts: heights by layer.
        caption: the sentence under it.
    """
    colours = (EDGE_COLOUR, _OTHER_COLOUR, VERTEX_COLOUR)
    count = len(next(iter(parts.values())))
    data = []
    for (name, heights), colour in zip(parts.items(), colours, strict=False):
        y, marker = [round(float(height), 3) for height in heights], {"color": colour, "line": {"width": 0}}
        data.append(bars(name, range(count), y, None, "%{x}: %{y:,.4~g}", marker=marker))
    ticks = {"dtick": max(1, count // 12), "showgrid": False, "range": [-0.6, count - 0.4]}
    return chart(title, *axes, data, xaxis=ticks, barmode="stack", bargap=0.12), caption
