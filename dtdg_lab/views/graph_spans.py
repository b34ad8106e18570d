"""Where the parts of a split lie in a chart over snapshots: shaded bands with their names."""

from __future__ import annotations

from typing import Any

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.graphs.split import split
from dtdg_lab.views.palette import PURGE_COLOUR, SPLIT_COLOURS

Span = tuple[str, int, int]  # name, first and last snapshot
PURGE = "purge"
_NARROW = 0.08  # a band of a smaller share of the chart has no room for its name


def spans_of(snapshots: int, edge_life: int, protocol: str) -> tuple[list[Span], str]:
    """The parts of T snapshots under a protocol, with what is purged between them, and why there are none.

    Args:
        snapshots: T.
        edge_life: base intervals an edge lives.
        protocol: a name.

    Returns:
        The spans in order of time, and no words; or no spans, and what is wrong in words.
    """
    try:
        parts = split(snapshots, edge_life, PROTOCOLS[protocol])
    except DataError as error:
        return [], str(error)
    spans: list[Span] = []
    end = 0
    for name in ("train", "validation", "test"):
        part = getattr(parts, name)
        if not len(part):
            continue
        if part.start > end:
            spans.append((PURGE, end, part.start - 1))
        spans.append((name, part.start, part.stop - 1))
        end = part.stop
    return spans, ""


def span_marks(spans: list[Span]) -> dict[str, list[dict[str, Any]]]:
    """Bands and their names as shapes and annotations of a layout; snapshot t covers t - 1/2 .. t + 1/2."""
    whole = spans[-1][2] + 1 if spans else 1
    wide = [span for span in spans if span[2] + 1 - span[1] >= _NARROW * whole]
    return {"shapes": [_band(*span) for span in spans], "annotations": [_name(*span) for span in wide]}


def _colour(name: str) -> str:
    return SPLIT_COLOURS.get(name, PURGE_COLOUR)


def _band(name: str, first: int, last: int) -> dict[str, Any]:
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": first - 0.5, "x1": last + 0.5, "y0": 0, "y1": 1,
        "fillcolor": _colour(name), "opacity": 0.25 if name == PURGE else 0.08, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


def _name(name: str, first: int, last: int) -> dict[str, Any]:
    return {
        "text": name, "x": (first + last) / 2, "xref": "x", "y": 1, "yref": "paper", "yanchor": "bottom",
        "showarrow": False, "font": {"size": 10, "color": _colour(name)},
    }  # fmt: skip
