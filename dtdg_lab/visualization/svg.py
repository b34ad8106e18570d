"""A plotly figure as a picture in SVG: for pages that must show without any script, such as a card in a notebook.

What the lab's views are made of is drawn: bars, lines, points, heat maps, marks, legends, two y axes. Nothing moves.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.visualization.layout import Figure, percent
from dtdg_lab.visualization.palette import (
    BASELINE_COLOUR,
    EDGE_COLOUR,
    GRID_COLOUR,
    PURGE_COLOUR,
    SPLIT_COLOURS,
    TEXT_COLOUR,
    WARNING_COLOUR,
)
from dtdg_lab.visualization.style import coloured, runs_of, shown_indices

# One axis of a picture in SVG: from the values of a plotly figure to pixels, with its ticks.


_TICKS = 6  # about as many
_ROOM = 0.04  # of the span, left free at either end where no range is given


@dataclass(frozen=True, slots=True)
class Scale:
    """Where values lie.

    Attributes:
        low: value at ``start``; of its decimal logarithm where the axis is one.
        high: value at ``stop``.
        start: pixels.
        stop: pixels.
        names: of a category axis, in order; their places are 0, 1, ...
        logarithmic: whether low and high are logarithms.
    """

    low: float
    high: float
    start: float
    stop: float
    names: tuple[str, ...] = ()
    logarithmic: bool = False

    def place(self, value: Any) -> float:
        """The value as a number on the axis."""
        if isinstance(value, str):
            return float(self.names.index(value)) if value in self.names else float(value)
        number = float(value)
        return math.log10(max(number, 1e-300)) if self.logarithmic else number

    def at(self, value: Any) -> float:
        """Its pixel."""
        return self.pixel(self.place(value))

    def pixel(self, place: float) -> float:
        """The pixel of a number that :meth:`place` gave."""
        share = (place - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def share(self, share: float) -> float:
        """The pixel of a share of the axis' length, from its ``start``."""
        return self.start + share * (self.stop - self.start)


def scale_of(axis: Mapping[str, Any], values: Iterable[Any], start: float, stop: float) -> Scale:
    """The scale of a plotly axis.

    Args:
        axis: of the layout.
        values: all that is drawn along it; None is passed over.
        start: pixel of its beginning.
        stop: pixel of its end.
    """
    given = [value for value in values if value is not None]
    texts = dict.fromkeys(value for value in given if isinstance(value, str) and not _number(value))
    names = tuple(texts)
    logarithmic = axis.get("type") == "log"
    found = Scale(0.0, 1.0, start, stop, names, logarithmic)
    if "range" in axis:
        low, high = (float(end) for end in axis["range"])
        return Scale(low, high, start, stop, names, logarithmic)
    if names:
        return Scale(-0.6, len(names) - 0.4, start, stop, names)
    places = [found.place(value) for value in given]
    places = [place for place in places if math.isfinite(place)] or [0.0, 1.0]
    low, high = min(places), max(places)
    room = (high - low) * _ROOM or 0.5
    low, high = (low - room if low else low), high + room
    if axis.get("autorange") == "reversed":
        low, high = high, low
    return Scale(low, high, start, stop, names, logarithmic)


def ticks_of(axis: Mapping[str, Any], scale: Scale) -> list[tuple[float, str]]:
    """Pixel and text of each tick that lies on the axis."""
    if axis.get("showticklabels") is False:
        return []
    if "tickvals" in axis:
        described = axis.get("ticktext") or [_written(value) for value in axis["tickvals"]]
        marks = [(scale.place(value), str(text)) for value, text in zip(axis["tickvals"], described, strict=False)]
    elif scale.names:
        marks = [(float(place), name) for place, name in enumerate(scale.names)]
    elif scale.logarithmic:
        marks = [(float(power), _written(10.0**power)) for power in _whole(scale)]
    else:
        marks = [(value, _written(value)) for value in _even(scale, float(axis.get("dtick") or 0.0))]
    low, high = sorted((scale.low, scale.high))
    slack = 1e-9 * (high - low)
    return [(scale.pixel(place), text) for place, text in marks if low - slack <= place <= high + slack]


def _even(scale: Scale, step: float) -> Sequence[float]:
    low, high = sorted((scale.low, scale.high))
    if not step or (high - low) / step > 4 * _TICKS:
        rough = (high - low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _whole(scale: Scale) -> range:
    low, high = sorted((scale.low, scale.high))
    return range(math.ceil(low), math.floor(high) + 1)


def _written(value: Any) -> str:
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def _number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdigit()


# The traces of a plotly figure as SVG: bars, lines, points and heat maps, as the views of the lab use them.


DRAWN = ("bar", "scatter", "heatmap")
DASHES = {"dash": "7 5", "dot": "2 3", "dashdot": "7 4 2 4", "longdash": "10 5"}
HATCH = "dl-hatch"
_LETTER = 6.2  # pixels of one of size 10, about


@dataclass(slots=True)
class SvgMarks:
    """Traces on one pair of axes; bars remember what they stand on.

    Attributes:
        x: across.
        y: up.
        stacked: whether bars stand on each other.
    """

    x: Scale
    y: Scale
    stacked: bool = False
    tops: dict[tuple[str, float], float] = field(default_factory=dict)

    def trace(self, trace: dict[str, Any]) -> str:
        """One trace; nothing for a kind that is not drawn."""
        draw = {"bar": self._bars, "scatter": self._line, "heatmap": self._heat}.get(trace.get("type", "scatter"))
        return "".join(draw(trace)) if draw else ""

    def _bars(self, trace: dict[str, Any]) -> Iterator[str]:
        across = trace.get("orientation") == "h"
        places, lengths = (trace["y"], trace["x"]) if across else (trace["x"], trace["y"])
        along, over = (self.x, self.y) if across else (self.y, self.x)
        bases, marker = trace.get("base"), trace.get("marker", {})
        width, texts = trace.get("width", 0.8), trace.get("text") or []
        for number, (place, length) in enumerate(zip(places, lengths, strict=True)):
            if length is None:
                continue
            at = over.place(place)
            base = float(_of(bases, number) or 0.0) if bases is not None else self._base(trace, at, float(length))
            ends = sorted((along.pixel(base), along.pixel(base + float(length))))
            sides = sorted((over.pixel(at - width / 2), over.pixel(at + width / 2)))
            box = (
                (ends[0], sides[0], ends[1] - ends[0], sides[1] - sides[0])
                if across
                else (sides[0], ends[0], sides[1] - sides[0], ends[1] - ends[0])
            )
            yield _rect(box, self._fill(marker, number))
            text = str(_of(texts, number) or "")
            if text and box[2] >= _LETTER * len(text):
                font = trace.get("insidetextfont", {})
                yield text_at(
                    box[0] + box[2] / 2,
                    box[1] + box[3] / 2 + 3.5,
                    text,
                    colour=str(_of(font.get("color", "white"), number)),
                    anchor="middle",
                )

    def _base(self, trace: dict[str, Any], at: float, length: float) -> float:
        if not self.stacked:
            return 0.0
        key = (str(trace.get("offsetgroup", "")), at)
        base = self.tops.get(key, 0.0)
        self.tops[key] = base + length
        return base

    def _fill(self, marker: dict[str, Any], number: int) -> str:
        return f"url(#{HATCH})" if marker.get("pattern") else str(_of(marker.get("color", EDGE_COLOUR), number))

    def _line(self, trace: dict[str, Any]) -> Iterator[str]:
        points = [
            None if x is None or y is None or _odd(x) or _odd(y) else (self.x.at(x), self.y.at(y))
            for x, y in zip(trace.get("x") or (), trace.get("y") or (), strict=False)
        ]
        mode, line, marker = trace.get("mode", "lines"), trace.get("line", {}), trace.get("marker", {})
        colour = line.get("color") or (marker.get("color") if isinstance(marker.get("color"), str) else EDGE_COLOUR)
        path = _path(points, line.get("shape", "linear"))
        if trace.get("fill") == "tozeroy" and path:
            first, last = (next(each for each in order if each) for order in (points, points[::-1]))
            floor = self.y.pixel(max(0.0, min(self.y.low, self.y.high)))
            shade = trace.get("fillcolor", colour)
            yield f'<path d="{path} L{last[0]:.1f} {floor:.1f} L{first[0]:.1f} {floor:.1f} Z" fill="{shade}" \
fill-opacity="0.25"/>'
        if "lines" in mode and path:
            dash = f' stroke-dasharray="{DASHES[line["dash"]]}"' if line.get("dash") in DASHES else ""
            yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{line.get("width", 2)}"{dash}/>'
        if "markers" in mode:
            for number, point in enumerate(points):
                if point:
                    size = float(_of(marker.get("size", 6), number)) / 2
                    fill = _of(marker.get("color", colour), number)
                    yield f'<circle cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="{size:.1f}" fill="{fill}"/>'

    def _heat(self, trace: dict[str, Any]) -> Iterator[str]:
        rows = trace["z"]
        xs, ys = _edges(trace["x"], len(rows[0]), self.x), _edges(trace["y"], len(rows), self.y)
        low, high = float(trace.get("zmin", 0.0)), float(trace.get("zmax", 1.0))
        stops = [(float(stop), str(colour)) for stop, colour in trace["colorscale"]]
        for down, row in enumerate(rows):
            top, bottom = sorted((ys[down], ys[down + 1]))
            for first, last, value in _runs(row):
                left, right = sorted((xs[first], xs[last]))
                colour = colour_of(stops, (float(value) - low) / ((high - low) or 1.0))
                yield _rect((left, top, right - left + 0.3, bottom - top + 0.3), colour)
                if trace.get("texttemplate"):
                    yield text_at(
                        (left + right) / 2, (top + bottom) / 2 + 4, f"{value:g}", colour="white", anchor="middle"
                    )


def colour_of(stops: Sequence[tuple[float, str]], share: float) -> str:
    """The colour at a share of a scale, as ``#rrggbb``; stops in ascending order."""
    share = min(max(share, 0.0), 1.0)
    for (low, first), (high, second) in pairwise(stops):
        if share <= high:
            part = 0.0 if high == low else (share - low) / (high - low)
            mixed = [round(a + part * (b - a)) for a, b in zip(_rgb(first), _rgb(second), strict=True)]
            return "#" + "".join(f"{each:02x}" for each in mixed)
    return stops[-1][1]


def text_at(
    x: float,
    y: float,
    text: str,
    *,
    colour: str = TEXT_COLOUR,
    anchor: str = "start",
    size: int = 10,
    bold: bool = False,
    angle: float = 0.0,
) -> str:
    """A line of escaped text."""
    turned = f' transform="rotate({angle:g} {x:.1f} {y:.1f})"' if angle else ""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{html.escape(colour)}" text-anchor="{anchor}"{weight}'
        f"{turned}>{html.escape(text)}</text>"
    )


def _rect(box: tuple[float, float, float, float], fill: str) -> str:
    x, y, width, height = box
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" fill="{fill}"/>'


def _of(values: Any, number: int) -> Any:
    """One of a list, or the one that holds for all."""
    if isinstance(values, list | tuple):
        return values[number] if number < len(values) else None
    return values


def _odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _path(points: Sequence[tuple[float, float] | None], shape: str) -> str:
    text, before = "", None
    for point in points:
        if point is not None:
            corner = f"L{point[0]:.1f} {before[1]:.1f}" if before and shape == "hv" else ""
            text += f"{corner}{'L' if before else 'M'}{point[0]:.1f} {point[1]:.1f}"
        before = point
    return text


def _edges(given: Sequence[Any], count: int, scale: Scale) -> list[float]:
    """Pixels between cells: their edges are given, or their middles."""
    places = [scale.place(each) for each in given]
    if len(places) == count + 1:
        return [scale.pixel(place) for place in places]
    half = (places[1] - places[0]) / 2 if count > 1 else 0.5
    return [scale.pixel(place) for place in (*(each - half for each in places), places[-1] + half)]


def _runs(row: Sequence[Any]) -> Iterator[tuple[int, int, Any]]:
    """First, one past the last, and value of each stretch of equal cells; None is left white."""
    first = 0
    for place in range(1, len(row) + 1):
        if place == len(row) or row[place] != row[first]:
            if row[first] is not None and not _odd(row[first]):
                yield first, place, row[first]
            first = place


def _rgb(colour: str) -> list[int]:
    if colour.startswith("#") and len(colour) == 7:
        return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return _rgb(BASELINE_COLOUR)


_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 18, 34, 48  # pixels around the axes, without legend and scale of colours
_BAR, _ROW, _SVG_LETTER = 74, 16, 5.9
_BOX = "#B8BEC6"
_HATCHED = (
    f'<defs><pattern id="{HATCH}" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" '
    f'stroke="{PURGE_COLOUR}" stroke-width="1"/></pattern></defs>'
)


def figure_svg(figure: Figure, *, width: int = 640, height: int = 320, label: str = "") -> str:
    """One chart as an ``<svg>`` element on white.

    Args:
        figure: of one pair of axes, with a second y axis at most.
        width: pixels.
        height: pixels, of all but the legend's rows.
        label: what it shows, for who cannot see it; its title where not given.
    """
    layout = figure["layout"]
    traces = [trace for trace in figure["data"] if trace.get("type", "scatter") in DRAWN]
    bar = next((trace for trace in traces if trace["type"] == "heatmap" and _has_bar(trace)), None)
    second = [trace for trace in traces if trace.get("yaxis") == "y2"]
    right = width - _RIGHT - (_BAR if bar else 0) - (44 if second else 0)
    legend = _legend(traces, right - _LEFT)
    axis = layout["xaxis"]
    lines = max([1, *(str(text).count("<br>") + 1 for text in axis.get("ticktext") or ())])
    bottom = height - _BOTTOM - 13 * (lines - 1)
    stacked = layout.get("barmode") == "stack"
    first = [trace for trace in traces if trace.get("yaxis") != "y2"]
    ys = {
        name: scale_of(layout.get(key, {}), _values(found, "y", stacked), bottom, _TOP)
        for name, key, found in (("y", "yaxis", first), ("y2", "yaxis2", second))
    }
    left = max(_LEFT, 12 + _SVG_LETTER * max((len(text) for _, text in ticks_of(layout["yaxis"], ys["y"])), default=0))
    x = scale_of(axis, _values(traces, "x", stacked), left, right)
    marks = {name: SvgMarks(x, y, stacked) for name, y in ys.items()}
    high = height + _ROW * len(legend)
    title = _plain(layout["title"]["text"])
    pieces = [
        text_at(8, 18, title, size=13, bold=True),
        _axes(layout, x, ys["y"]),
        *(_shape(shape, x, ys["y"]) for shape in layout.get("shapes", ()) if shape.get("layer") == "below"),
        _clipped((x, ys["y"]), [marks[trace.get("yaxis", "y")].trace(trace) for trace in traces]),
        *(_shape(shape, x, ys["y"]) for shape in layout.get("shapes", ()) if shape.get("layer") != "below"),
        *(_note(note, x, ys["y"]) for note in layout.get("annotations", ())),
        _second(layout, ys["y2"], right) if second else "",
        _scale_bar(bar, right + 12, (_TOP, bottom)) if bar else "",
        *(_legend_row(row, high - _ROW * (len(legend) - number) + 6) for number, row in enumerate(legend)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {high + 4}" width="{width}" role="img" '
        f'aria-label="{html.escape(label or title, quote=True)}" style="background:white;max-width:100%;height:auto" '
        f'font-family="Helvetica, Arial, sans-serif">{_HATCHED}{"".join(pieces)}</svg>'
    )


def _clipped(axes: tuple[Scale, Scale], marks: Sequence[str]) -> str:
    """Marks, cut off where the axes end."""
    x, y = axes
    left, top, width, height = x.start, y.stop, x.stop - x.start, y.start - y.stop
    box = f"{left:.1f} {top:.1f} {width:.1f} {height:.1f}"
    place = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<svg {place} viewBox="{box}" preserveAspectRatio="none">{"".join(marks)}</svg>'


def _has_bar(trace: dict[str, Any]) -> bool:
    return bool(trace.get("colorbar")) and trace.get("showscale", True)


def _values(traces: Iterable[dict[str, Any]], axis: str, stacked: bool) -> list[Any]:
    """All that traces have along an axis; of bars also where they begin and end."""
    found: list[Any] = []
    sums: dict[Any, float] = {}
    for trace in traces:
        values = list(trace.get(axis) or ())
        found += values
        across = trace.get("orientation") == "h"
        if trace["type"] == "bar" and across == (axis == "x"):
            bases = trace.get("base") or [0] * len(values)
            found += [0, *((base or 0) + (value or 0) for base, value in zip(bases, values, strict=False))]
            for place, value in zip(trace["y" if across else "x"], values, strict=False):
                sums[place] = sums.get(place, 0.0) + (value or 0.0)
    return [*found, *sums.values()] if stacked else found


def _axes(layout: dict[str, Any], x: Scale, y: Scale) -> str:
    """The box's lines, grid, ticks and titles."""
    parts = []
    for at, text in ticks_of(layout["xaxis"], x):
        if layout["xaxis"].get("showgrid", True):
            parts.append(_line(at, y.start, at, y.stop, GRID_COLOUR))
        for number, line in enumerate(text.split("<br>")):
            bold = line.startswith("<b>")
            parts.append(text_at(at, y.start + 14 + 13 * number, _plain(line), anchor="middle", bold=bold))
    for at, text in ticks_of(layout["yaxis"], y):
        if layout["yaxis"].get("showgrid", True):
            parts.append(_line(x.start, at, x.stop, at, GRID_COLOUR))
        parts.append(text_at(x.start - 6, at + 3.5, _plain(text), anchor="end"))
    parts.append(
        _line(x.start, y.start, x.stop, y.start, "#B8BEC6") + _line(x.start, y.start, x.start, y.stop, "#B8BEC6")
    )
    lines = max([1, *(str(text).count("<br>") + 1 for text in layout["xaxis"].get("ticktext") or ())])
    below = y.start + 31 + 13 * (lines - 1)
    parts.append(text_at((x.start + x.stop) / 2, below, _title(layout["xaxis"]), anchor="middle", size=11))
    parts.append(text_at(14, (y.start + y.stop) / 2, _title(layout["yaxis"]), anchor="middle", size=11, angle=-90))
    return "".join(parts)


def _second(layout: dict[str, Any], y: Scale, right: float) -> str:
    axis = layout.get("yaxis2", {})
    ticks = "".join(text_at(right + 5, at + 3.5, text) for at, text in ticks_of(axis, y))
    return ticks + text_at(right + 40, (y.start + y.stop) / 2, _title(axis), anchor="middle", size=11, angle=90)


def _title(axis: dict[str, Any]) -> str:
    title = axis.get("title") or ""
    return _plain(title["text"] if isinstance(title, dict) else title)


def _shape(shape: dict[str, Any], x: Scale, y: Scale) -> str:
    x0, x1 = (_at(x, shape[key], shape.get("xref", "x")) for key in ("x0", "x1"))
    y0, y1 = (_at(y, shape[key], shape.get("yref", "y")) for key in ("y0", "y1"))
    line = shape.get("line", {})
    if shape.get("type") == "line":
        return _line(x0, y0, x1, y1, line.get("color", TEXT_COLOUR), line.get("width", 1), line.get("dash", ""))
    fill, opacity = shape.get("fillcolor", "none"), shape.get("opacity", 1)
    return (
        f'<rect x="{min(x0, x1):.1f}" y="{min(y0, y1):.1f}" width="{abs(x1 - x0):.1f}" height="{abs(y1 - y0):.1f}" '
        f'fill="{fill}" fill-opacity="{opacity}" stroke="{line.get("color", "none")}" '
        f'stroke-width="{line.get("width", 0)}"/>'
    )


def _note(note: dict[str, Any], x: Scale, y: Scale) -> str:
    across, up = _at(x, note["x"], note.get("xref", "x")), _at(y, note["y"], note.get("yref", "y"))
    anchor = {"left": "start", "right": "end"}.get(note.get("xanchor", "center"), "middle")
    lines = str(note["text"]).split("<br>")
    font = note.get("font", {})
    size = int(font.get("size", 11))
    drop = {"bottom": -4 - (len(lines) - 1) * (size + 2), "top": size}.get(note.get("yanchor", "middle"), size / 3)
    return "".join(
        text_at(
            across,
            up + drop + number * (size + 2),
            _plain(line),
            colour=font.get("color", TEXT_COLOUR),
            anchor=anchor,
            size=size,
            bold=line.startswith("<b>"),
            angle=float(note.get("textangle", 0)),
        )
        for number, line in enumerate(lines)
    )


def _at(scale: Scale, value: Any, reference: str) -> float:
    return scale.share(float(value)) if "paper" in reference or "domain" in reference else scale.at(value)


def _line(x0: float, y0: float, x1: float, y1: float, *look: Any) -> str:  # look: colour, width, dash
    colour, width, dash = (*look, 1, "")[:3] if len(look) < 3 else look[:3]
    dashed = f' stroke-dasharray="{DASHES[dash]}"' if dash in DASHES else ""
    return (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}" '
        f'stroke-width="{width or 1}"{dashed}/>'
    )


def _scale_bar(trace: dict[str, Any], left: float, ends: tuple[float, float]) -> str:
    """The scale of a heat map's colours: a stripe in steps, and what its ends mean."""
    bar, (top, bottom) = trace["colorbar"], ends
    stops = [(float(stop), str(colour)) for stop, colour in trace["colorscale"]]
    low, high, steps = float(trace.get("zmin", 0)), float(trace.get("zmax", 1)), 40
    height = (bottom - top) / steps
    stripe = "".join(
        f'<rect x="{left:.1f}" y="{bottom - (number + 1) * height:.1f}" width="10" height="{height + 0.4:.1f}" '
        f'fill="{colour_of(stops, (number + 0.5) / steps)}"/>'
        for number in range(steps)
    )
    scale = Scale(low, high, bottom, top)
    marks = "".join(text_at(left + 14, at + 3.5, text, size=9) for at, text in ticks_of(bar, scale))
    middle, title = (top + bottom) / 2, (bar.get("title") or {}).get("text", "")
    return stripe + marks + text_at(left + 58, middle, _plain(title), anchor="middle", angle=90)


def _legend(traces: Sequence[dict[str, Any]], width: float) -> list[list[tuple[dict[str, Any], float]]]:
    """Rows of traces that have a name to show, each with its pixel."""
    rows: list[list[tuple[dict[str, Any], float]]] = []
    at = 0.0
    for trace in traces:
        if trace["type"] == "heatmap" or not trace.get("name") or trace.get("showlegend") is False:
            continue
        wide = 30 + _SVG_LETTER * len(_plain(trace["name"]))
        if not rows or at + wide > width:
            rows.append([])
            at = 0.0
        rows[-1].append((trace, _LEFT + at))
        at += wide
    return rows


def _legend_row(row: Sequence[tuple[dict[str, Any], float]], y: float) -> str:
    parts = []
    for trace, x in row:
        marker, line = trace.get("marker", {}), trace.get("line", {})
        colour = (
            marker.get("color", EDGE_COLOUR) if trace["type"] == "bar" else line.get("color") or marker.get("color")
        )
        colour = (colour[0] if isinstance(colour, list | tuple) else colour) or EDGE_COLOUR
        if trace["type"] == "bar":
            fill = f"url(#{HATCH})" if marker.get("pattern") else colour
            parts.append(f'<rect x="{x:.1f}" y="{y - 8:.1f}" width="12" height="9" fill="{fill}" stroke="#B8BEC6"/>')
        else:
            parts.append(_line(x, y - 4, x + 16, y - 4, colour, 2, line.get("dash", "")))
        parts.append(text_at(x + 20, y, _plain(trace["name"])))
    return "".join(parts)


def _plain(text: Any) -> str:
    """Without the few tags that plotly's texts have."""
    return html.unescape(re.sub(r"<[^>]+>", " ", str(text))).strip()


# A small picture of a graph over time, as SVG: edges of each snapshot as an area, overlap of neighbours as a line.


WIDTH, HEIGHT = 285, 74  # pixels
_THUMBNAIL_BOX = (
    f"background:{coloured('back')};border:1px solid {coloured('line')};border-radius:4px;box-sizing:border-box"
)
_THUMBNAIL_TOP, _THUMBNAIL_BOTTOM = 4, 70  # of the drawing
_AREA, _LINE = "#56B4E9", "#D55E00"
_STROKE = f'fill="none" stroke="{_LINE}"'


def thumbnail_svg(edges: NDArray[np.integer], kept: NDArray[np.floating], spans: list[tuple[str, int, int]]) -> str:
    """A picture of T snapshots.

    Args:
        edges: shape (T,): edges of each snapshot; empty ones are marked in red.
        kept: shape (T - 1,): share of a snapshot's edges that the next one still has; NaN where there are none.
        spans: name, first and last snapshot of each part of a split, drawn as strips under the picture.
    """
    count, most = len(edges), max(int(edges.max(initial=0)), 1)
    step = WIDTH / count

    def place(t: float, share: float) -> str:
        return f"{t * step:.1f},{_THUMBNAIL_BOTTOM - share * (_THUMBNAIL_BOTTOM - _THUMBNAIL_TOP):.1f}"

    drawn = shown_indices(edges.astype(np.float64), 2 * WIDTH)
    heights = edges[drawn] / most
    middles = [place(t + 0.5, height) for t, height in zip(drawn, heights, strict=True)]
    area = [place(0, 0), place(0, heights[0]), *middles, place(count, heights[-1]), place(count, 0)]
    shown = shown_indices(kept, 2 * WIDTH)
    shared = [shown[first : last + 1] for first, last in runs_of(np.isfinite(kept[shown]))]
    empty = np.flatnonzero(edges == 0)[: 2 * WIDTH]
    parts = [
        f'<polygon points="{" ".join(area)}" fill="{_AREA}" opacity="0.55"/>',
        *(f'<polyline points="{" ".join(place(t + 1, kept[t]) for t in line)}" {_STROKE}/>' for line in shared),
        *(_strip(t * step, max(step, 1), WARNING_COLOUR) for t in empty),
        *(_strip(first * step, (last + 1 - first) * step, _span_colour(name)) for name, first, last in spans),
    ]
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Edges of {count:,} snapshots, {most:,} at most, and what neighbours share" '
        f'style="{_THUMBNAIL_BOX}">{"".join(parts)}</svg>'
    )


def thumbnail_html(svg: str, words: str) -> str:
    """The picture with its legend and a line of words under it."""
    style = f"font-size:11px;line-height:1.3;color:{coloured('text')}"
    legend = (
        f'<span aria-hidden="true" style="color:{_AREA}">■</span> edges by snapshot &nbsp;'
        f'<span aria-hidden="true" style="color:{_LINE}">━</span> share '
        "kept by the next"
    )
    return f'{svg}<div style="{style}">{legend}<br>{html.escape(words, quote=False)}</div>'


def message_html(words: str) -> str:
    """A line in place of a picture."""
    style = f"font-size:11px;line-height:1.3;color:{coloured('soft')}"
    return f'<div style="{style}">{html.escape(words, quote=False)}</div>'


def thumbnail_words(snapshots: int, nodes: int, edges: int, kept: float) -> str:
    """What the picture is of, in a line."""
    shared = "" if np.isnan(kept) else f", {percent(kept)} shared by neighbours"
    return f"{snapshots:,} snapshots, {nodes:,} nodes, {edges:,} edges at most{shared}"


def _span_colour(name: str) -> str:
    return SPLIT_COLOURS.get(name, PURGE_COLOUR)


def _strip(left: float, width: float, colour: str) -> str:
    return f'<rect x="{left:.1f}" y="{_THUMBNAIL_BOTTOM}" width="{width:.1f}" height="4" fill="{colour}"/>'
