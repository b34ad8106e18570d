"""The traces of a plotly figure as SVG: bars, lines, points and heat maps, as the views of the lab use them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dtdg_lab.views.palette import BASELINE_COLOUR, EDGE_COLOUR, TEXT_COLOUR
from dtdg_lab.views.svg_scale import Scale

DRAWN = ("bar", "scatter", "heatmap")
DASHES = {"dash": "7 5", "dot": "2 3", "dashdot": "7 4 2 4", "longdash": "10 5"}
HATCH = "dl-hatch"
_LETTER = 6.2  # pixels of one of size 10, about


@dataclass(slots=True)
class Marks:
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
            box = (ends[0], sides[0], ends[1] - ends[0], sides[1] - sides[0]) if across else (
                sides[0], ends[0], sides[1] - sides[0], ends[1] - ends[0])  # fmt: skip
            yield _rect(box, self._fill(marker, number))
            text = str(_of(texts, number) or "")
            if text and box[2] >= _LETTER * len(text):
                font = trace.get("insidetextfont", {})
                yield text_at(box[0] + box[2] / 2, box[1] + box[3] / 2 + 3.5, text,
                              colour=str(_of(font.get("color", "white"), number)), anchor="middle")  # fmt: skip

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
                    yield text_at((left + right) / 2, (top + bottom) / 2 + 4, f"{value:g}", colour="white",
                                  anchor="middle")  # fmt: skip


def colour_of(stops: Sequence[tuple[float, str]], share: float) -> str:
    """The colour at a share of a scale, as ``#rrggbb``; stops in ascending order."""
    share = min(max(share, 0.0), 1.0)
    for (low, first), (high, second) in pairwise(stops):
        if share <= high:
            part = 0.0 if high == low else (share - low) / (high - low)
            mixed = [round(a + part * (b - a)) for a, b in zip(_rgb(first), _rgb(second), strict=True)]
            return "#" + "".join(f"{each:02x}" for each in mixed)
    return stops[-1][1]


def text_at(x: float, y: float, text: str, *, colour: str = TEXT_COLOUR, anchor: str = "start", size: int = 10,
            bold: bool = False, angle: float = 0.0) -> str:  # fmt: skip
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
