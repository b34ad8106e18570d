"""A map of two settings: a coloured cell for each pair, its number in it, and an outline of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.visualization.axes import named_axis
from dtdg_lab.visualization.chart import TRANSPARENT, Figure, card
from dtdg_lab.visualization.palette import GRID_COLOUR, HEAT_SCALES, TEXT_COLOUR
from dtdg_lab.visualization.traces import Attributes, box, colour_bar, heat, label

Cell = tuple[int, int]  # column and row
WRITTEN, COLUMNS = 60, 9  # cells, and columns, up to which each cell has its number written into it
DARK = 0.6  # share of the range of colours from which writing is white
PALE = 0.15  # of the range of values: the least of them is not white, as a cell that is not done is


def has_room(columns: int, rows: int) -> bool:
    """Return whether numbers fit into the cells of a map."""
    return columns <= COLUMNS and columns * rows <= WRITTEN


def cell_map(
    title: str,
    axes: tuple[Sequence[str], Sequence[str]],
    values: Mapping[Cell, float],
    *,
    texts: Mapping[Cell, str],
    hover: Mapping[Cell, Any],
    template: str = "%{customdata}<extra></extra>",
    scale: str,
    bar: str,
    best: Cell | None = None,
    marks: Sequence[Attributes] = (),
    **layout: Any,
) -> Figure:
    """Return a map; cells without a value are grey.

    Args:
        title: of the card.
        axes: names of the columns, and of the rows from the bottom.
        values: what is coloured.
        texts: what is written into cells; where there are none, a bar tells the colours.
        hover: data of the cells that have any.
        template: what pointing at a cell shows.
        scale: name of the colours.
        bar: title of the bar.
        best: the outlined cell.
        marks: further traces.
        layout: of the card.
    """
    columns, rows = (range(len(names)) for names in axes)
    low, high = (min(values.values()), max(values.values())) if values else (0.0, 1.0)
    spread = (high - low) or abs(low) or 1.0
    span = (low - PALE * spread, low + spread)
    dark = span[0] + DARK * (span[1] - span[0])
    style: Attributes = {"xgap": 2, "ygap": 2, "hoverongaps": False, "hover": template}
    style["customdata"] = [[hover.get((x, y), "") for x in columns] for y in rows]
    has_bar = bool(values) and not texts
    style |= {"showscale": has_bar} | ({"colorbar": colour_bar(bar, tickformat=".3~g")} if has_bar else {})
    z = [[values.get((x, y)) for x in columns] for y in rows]
    cells = heat(bar, z, columns, rows, HEAT_SCALES[scale], span=span, **style)
    notes = [label(text, *cell, "white" if values[cell] > dark else TEXT_COLOUR) for cell, text in texts.items()]
    drawn_axes = {
        name: {**named_axis(names), "ticks": ""} for name, names in zip(("xaxis", "yaxis"), axes, strict=True)
    }
    shapes = [] if best is None else [_outline(*best)]
    layout |= {"plot_bgcolor": GRID_COLOUR, "annotations": notes, "shapes": shapes, **drawn_axes}
    return card([cells, *marks], title, **layout)


def _outline(x: int, y: int) -> Attributes:
    style: Attributes = {"line": {"color": TEXT_COLOUR, "width": 2.5}, "fillcolor": TRANSPARENT}
    return box((x - 0.48, x + 0.48), (y - 0.48, y + 0.48), **style)
