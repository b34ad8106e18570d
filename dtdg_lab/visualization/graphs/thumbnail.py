"""A small picture of a graph over time, as SVG: edges of each snapshot as an area, overlap of neighbours as a line."""

from __future__ import annotations

import html

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.units import percent
from dtdg_lab.visualization import palette
from dtdg_lab.visualization.graphs.statistics import Floats, split_colour
from dtdg_lab.visualization.theme import coloured
from dtdg_lab.visualization.thinning import runs_of, shown_indices

WIDTH, HEIGHT = 262, 74  # pixels
_BOX = (
    f"background:{coloured('back')};border:1px solid {coloured('line')};border-radius:4px;box-sizing:border-box;"
    "max-width:100%;height:auto"
)

_TOP, _BOTTOM = 4, 70  # of the drawing
_AREA, _LINE = "#56B4E9", "#D55E00"
_STROKE = f'fill="none" stroke="{_LINE}"'


def thumbnail_svg(edges: NDArray[np.integer], kept_shares: Floats, spans: list[tuple[str, int, int]]) -> str:
    """Return a small picture of T snapshots.

    Args:
        edges: shape (T,): edges of each snapshot; empty ones are marked in red.
        kept_shares: shape (T - 1,): share of a snapshot's edges that the next one still has; NaN where there are none.
        spans: name, first and last snapshot of each part of a split, drawn as strips under the picture.
    """
    count, largest = len(edges), max(int(edges.max(initial=0)), 1)
    step = WIDTH / count

    def place(t: float, share: float) -> str:
        return f"{t * step:.1f},{_BOTTOM - share * (_BOTTOM - _TOP):.1f}"

    edge_indices = shown_indices(edges.astype(np.float64), 2 * WIDTH)
    heights = edges[edge_indices] / largest
    middles = [place(t + 0.5, height) for t, height in zip(edge_indices, heights, strict=True)]
    area = [place(0, 0), place(0, heights[0]), *middles, place(count, heights[-1]), place(count, 0)]
    share_indices = shown_indices(kept_shares, 2 * WIDTH)
    share_lines = [share_indices[first : last + 1] for first, last in runs_of(np.isfinite(kept_shares[share_indices]))]
    empty = np.flatnonzero(edges == 0)[: 2 * WIDTH]
    parts = [
        f'<polygon points="{" ".join(area)}" fill="{_AREA}" opacity="0.55"/>',
        *(
            f'<polyline points="{" ".join(place(t + 1, kept_shares[t]) for t in line)}" {_STROKE}/>'
            for line in share_lines
        ),
        *(_strip(t * step, max(step, 1), palette.WARNING_COLOUR) for t in empty),
        *(_strip(first * step, (last + 1 - first) * step, split_colour(name)) for name, first, last in spans),
    ]
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Edges of {count:,} snapshots, {largest:,} at most, and what neighbours share" '
        f'style="{_BOX}">{"".join(parts)}</svg>'
    )


def thumbnail_html(svg: str, caption: str) -> str:
    """Return the picture with its legend and a caption under it."""
    style = f"font-size:11px;line-height:1.3;color:{coloured('text')}"
    legend = (
        f'<span aria-hidden="true" style="color:{_AREA}">■</span> edges by snapshot &nbsp;'
        f'<span aria-hidden="true" style="color:{_LINE}">━</span> share kept by the next'
    )
    return f'{svg}<div style="{style}">{legend}<br>{html.escape(caption, quote=False)}</div>'


def message_html(message: str) -> str:
    """Return a message in place of a picture."""
    style = f"font-size:11px;line-height:1.3;color:{coloured('soft')}"
    return f'<div style="{style}">{html.escape(message, quote=False)}</div>'


def thumbnail_words(snapshots: int, nodes: int, edges: int, kept_share: float) -> str:
    """Return the caption of the picture."""
    shared = "" if np.isnan(kept_share) else f", {percent(kept_share)} shared by neighbours"
    return f"{snapshots:,} snapshots, {nodes:,} nodes, {edges:,} edges at most{shared}"


def _strip(x: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{_BOTTOM}" width="{width:.1f}" height="4" fill="{colour}"/>'
