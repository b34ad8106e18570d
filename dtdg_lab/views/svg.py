"""A plotly figure as a picture in SVG: for pages that must show without any script, such as a card in a notebook.

What the lab's views are made of is drawn: bars, lines, points, heat maps, marks, legends, two y axes. Nothing moves.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from dtdg_lab.views.layout import Figure
from dtdg_lab.views.palette import EDGE_COLOUR, GRID_COLOUR, PURGE_COLOUR, TEXT_COLOUR
from dtdg_lab.views.svg_marks import DASHES, DRAWN, HATCH, Marks, colour_of, text_at
from dtdg_lab.views.svg_scale import Scale, scale_of, ticks_of

_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 18, 34, 48  # pixels around the axes, without legend and scale of colours
_BAR, _ROW, _LETTER = 74, 16, 5.9
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
    ys = {name: scale_of(layout.get(key, {}), _values(found, "y", stacked), bottom, _TOP) for name, key, found in (
        ("y", "yaxis", first), ("y2", "yaxis2", second))}  # fmt: skip
    left = max(_LEFT, 12 + _LETTER * max((len(text) for _, text in ticks_of(layout["yaxis"], ys["y"])), default=0))
    x = scale_of(axis, _values(traces, "x", stacked), left, right)
    marks = {name: Marks(x, y, stacked) for name, y in ys.items()}
    high = height + _ROW * len(legend)
    title = _plain(layout["title"]["text"])
    pieces = [
        text_at(8, 18, title, size=13, bold=True), _axes(layout, x, ys["y"]),
        *(_shape(shape, x, ys["y"]) for shape in layout.get("shapes", ()) if shape.get("layer") == "below"),
        _clipped((x, ys["y"]), [marks[trace.get("yaxis", "y")].trace(trace) for trace in traces]),
        *(_shape(shape, x, ys["y"]) for shape in layout.get("shapes", ()) if shape.get("layer") != "below"),
        *(_note(note, x, ys["y"]) for note in layout.get("annotations", ())),
        _second(layout, ys["y2"], right) if second else "", _scale_bar(bar, right + 12, (_TOP, bottom)) if bar else "",
        *(_legend_row(row, high - _ROW * (len(legend) - number) + 6) for number, row in enumerate(legend)),
    ]  # fmt: skip
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
        text_at(across, up + drop + number * (size + 2), _plain(line), colour=font.get("color", TEXT_COLOUR),
                anchor=anchor, size=size, bold=line.startswith("<b>"), angle=float(note.get("textangle", 0)))
        for number, line in enumerate(lines)
    )  # fmt: skip


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
        wide = 30 + _LETTER * len(_plain(trace["name"]))
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
