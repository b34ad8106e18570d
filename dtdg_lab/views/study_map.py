"""Heat map of a study over two of its settings: medians over seeds, filled in as runs end; a click opens a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_bytes, format_joules, format_seconds
from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.palette import GRID_COLOUR, HEAT_SCALES, MARK_COLOUR, TEXT_COLOUR, WARNING_COLOUR
from dtdg_lab.views.partition_maps import colour_bar

Panel = tuple[Figure, str]
CLICKABLE = "clickable"  # entry of layout.meta: the page is told of clicks, with the customdata of the point
NOTHING_YET = "no run of the study has ended yet"
_WRITTEN, _COLUMNS = 60, 9  # cells up to which, and columns up to which, each has its number written into it
_DARK, _PALE = 0.6, 0.15  # as in views.decay_map: from where writing is white, and how far the least is from white
_CORNER = 0.34  # of a cell: where the marks of its states stand, from its middle
STATES: Mapping[str, tuple[str, str, str]] = MappingProxyType(  # status -> words, symbol, colour
    {
        "failed": ("failed", "x", WARNING_COLOUR),
        "pruned": ("ended early", "triangle-down", MARK_COLOUR),
        "running": ("under way", "circle-open", TEXT_COLOUR),
    }
)


@dataclass(frozen=True, slots=True)
class StudyCell:
    """Runs of one place of a map.

    Attributes:
        x: across.
        y: up.
        values: of the runs that are done.
        asked: runs that it gets in the end.
        states: status -> how many, of those that are not done.
        told: a line for each run.
        key: of the run that a click opens; empty where there is none.
    """

    x: Any
    y: Any
    values: tuple[float, ...] = ()
    asked: int = 1
    states: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    told: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class MapNames:
    """What a map is called.

    Attributes:
        title: of the figure.
        x: setting across, with its unit.
        y: setting up, with its unit.
        measure: number that is coloured.
        least_is_best: whether little of it is good.
        pooled: other settings of the study, over which a cell is a median too.
    """

    title: str
    x: str
    y: str
    measure: str
    least_is_best: bool = True
    pooled: tuple[str, ...] = ()


def study_map(cells: Sequence[StudyCell], names: MapNames) -> Panel:
    """The map and what to look for in it; cells that are not done are grey."""
    across, up = ordered([cell.x for cell in cells]), ordered([cell.y for cell in cells])
    layout = frame(names.title, names.x, names.y, margin={"l": 70, "r": 14, "t": 34, "b": 92})
    layout["meta"] = {CLICKABLE: True}
    if not cells:
        return {"data": [], "layout": with_note(layout, NOTHING_YET)}, "Nothing is studied yet."
    layout["xaxis"] |= _axis(across)
    layout["yaxis"] |= _axis(up)
    layout["plot_bgcolor"] = GRID_COLOUR  # of cells that are not done
    grid = {(across.index(cell.x), up.index(cell.y)): cell for cell in cells}
    say = writer(names.measure)
    data = [_map(grid, names, say, (len(across), len(up)))]
    data += [trace for state in STATES if (trace := _marks(grid, state)) is not None]
    if _is_written(across, up):
        layout["annotations"] = _numbers(grid, say, data[0])
    best = best_cell(cells, least=names.least_is_best)
    if best is not None:
        layout["shapes"] = [_outline(across.index(best.x), up.index(best.y))]
    return {"data": data, "layout": layout}, _words(cells, names, best)


def ordered(values: Sequence[Any]) -> list[Any]:
    """Each value once: numbers by size, others as they come."""
    once = list(dict.fromkeys(values))
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in once)
    return sorted(once) if numeric else once


def label(value: Any) -> str:
    """A value on an axis."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def writer(measure: str) -> Callable[[float], str]:
    """How a number of runs is written, by the unit that its name ends in."""
    if measure.endswith("_bytes") or measure.startswith("bytes_"):
        return format_bytes
    if measure.endswith("_j"):
        return format_joules
    return format_seconds if measure.endswith("_s") else lambda value: f"{value:.4g}"


def best_cell(cells: Sequence[StudyCell], *, least: bool) -> StudyCell | None:
    """The cell with the best median of those with the most runs done; None before any is."""
    most = max((len(cell.values) for cell in cells), default=0)
    known = [cell for cell in cells if cell.values and len(cell.values) == most]
    sign = 1 if least else -1
    return min(known, key=lambda cell: sign * median(cell.values), default=None)


def _is_written(across: Sequence[Any], up: Sequence[Any]) -> bool:
    return len(across) <= _COLUMNS and len(across) * len(up) <= _WRITTEN


def _axis(values: Sequence[Any]) -> dict[str, Any]:
    return {"tickvals": list(range(len(values))), "ticktext": [label(value) for value in values],
            "range": [-0.5, len(values) - 0.5], "showgrid": False, "ticks": ""}  # fmt: skip


def _map(
    grid: Mapping[tuple[int, int], StudyCell], names: MapNames, say: Callable[[float], str], size: tuple[int, int]
) -> dict[str, Any]:
    middle = {place: median(cell.values) for place, cell in grid.items() if cell.values}
    low, high = (min(middle.values()), max(middle.values())) if middle else (0.0, 1.0)
    span = (high - low) or abs(low) or 1.0
    columns, rows = size
    written = columns <= _COLUMNS and columns * rows <= _WRITTEN
    hover = [[_hover(grid.get((x, y)), names, say) for x in range(columns)] for y in range(rows)]
    trace: dict[str, Any] = {
        "type": "heatmap", "name": names.measure, "x": list(range(columns)), "y": list(range(rows)),
        "z": [[middle.get((x, y)) for x in range(columns)] for y in range(rows)],
        "zmin": low - _PALE * span, "zmax": low + span, "xgap": 2, "ygap": 2,
        "colorscale": [list(stop) for stop in HEAT_SCALES["owned"]], "showscale": not written,
        "customdata": hover, "hovertemplate": "%{customdata[0]}<extra></extra>", "hoverongaps": False,
    }  # fmt: skip
    return trace if written else trace | {"colorbar": colour_bar(names.measure) | {"tickformat": ".3~g"}}


def _hover(cell: StudyCell | None, names: MapNames, say: Callable[[float], str]) -> list[str]:
    """What is shown over a cell, and the key of the run that a click opens."""
    if cell is None:
        return ["", ""]
    lines = [f"{names.x} {label(cell.x)}, {names.y} {label(cell.y)}"]
    if cell.values:
        spread = f", {say(min(cell.values))} to {say(max(cell.values))}" if len(cell.values) > 1 else ""
        lines.append(f"{names.measure}: median {say(median(cell.values))}{spread}")
    lines.append(f"{len(cell.values)} of {cell.asked} runs done")
    more = [f"... and {len(cell.told) - 8} more"] if len(cell.told) > 8 else []
    return ["<br>".join([*lines, *cell.told[:8], *more]), cell.key]


def _numbers(
    grid: Mapping[tuple[int, int], StudyCell], say: Callable[[float], str], map_: Mapping[str, Any]
) -> list[dict[str, Any]]:
    span = map_["zmax"] - map_["zmin"]
    notes = []
    for (x, y), cell in grid.items():
        if cell.values:
            shown = map_["z"][y][x]
            part = "" if len(cell.values) >= cell.asked else f"<br>{len(cell.values)} of {cell.asked}"
            colour = "white" if shown - map_["zmin"] > _DARK * span else TEXT_COLOUR
            notes.append({"text": say(shown) + part, "x": x, "y": y, "xref": "x", "yref": "y", "showarrow": False,
                          "font": {"size": 11, "color": colour}})  # fmt: skip
    return notes


def _marks(grid: Mapping[tuple[int, int], StudyCell], state: str) -> dict[str, Any] | None:
    """A mark in the corner of each cell with such runs; in the middle where nothing else is known of it."""
    words, symbol, colour = STATES[state]
    places = [(x, y, cell) for (x, y), cell in grid.items() if cell.states.get(state)]
    if not places:
        return None
    shift = {"failed": (_CORNER, _CORNER), "pruned": (_CORNER, -_CORNER), "running": (-_CORNER, _CORNER)}[state]
    alone = [not cell.values and len(cell.states) == 1 for _, _, cell in places]
    return {
        "type": "scatter", "mode": "markers", "name": words,
        "x": [x + (0 if lone else shift[0]) for (x, _, _), lone in zip(places, alone, strict=True)],
        "y": [y + (0 if lone else shift[1]) for (_, y, _), lone in zip(places, alone, strict=True)],
        "customdata": [
            ["<br>".join([f"{cell.states[state]} {words}", *cell.told[:8]]), cell.key] for _, _, cell in places
        ],
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "marker": {"symbol": symbol, "size": 11, "color": colour, "line": {"color": "white", "width": 1}},
    }  # fmt: skip


def _outline(column: int, row: int) -> dict[str, Any]:
    return {
        "type": "rect", "xref": "x", "yref": "y", "x0": column - 0.48, "x1": column + 0.48, "y0": row - 0.48,
        "y1": row + 0.48, "line": {"color": TEXT_COLOUR, "width": 2.5}, "fillcolor": "rgba(0,0,0,0)",
    }  # fmt: skip


def _words(cells: Sequence[StudyCell], names: MapNames, best: StudyCell | None) -> str:
    if best is None:
        return f"{NOTHING_YET[:1].upper()}{NOTHING_YET[1:]}: grey cells wait."
    say = writer(names.measure)
    which = "Lowest" if names.least_is_best else "Highest"
    middle = median(best.values)
    told = f"{which} {names.measure} (outlined): {say(middle)} at {names.x} {label(best.x)}, {names.y} {label(best.y)}"
    others = [cell for cell in cells if cell.values and cell is not best]
    if len(best.values) > 1:
        apart = [
            cell
            for cell in others
            if (min(cell.values) > max(best.values) if names.least_is_best else max(cell.values) < min(best.values))
        ]
        near = len(others) - len(apart)
        told += f", the median of {len(best.values)} runs; the runs of {near or 'no'} other cell{'s' * (near != 1)} "
        told += "overlap with its."
    else:
        told += ", of one run: another seed may move it."
    waiting = sum(not cell.values for cell in cells)
    told += f" {waiting} of {len(cells)} cells are not done (grey)." if waiting else ""
    pooled = f" Each cell is the median over {join_words(names.pooled)} too." if names.pooled else ""
    return told + pooled + " Click on a cell to open its run."
