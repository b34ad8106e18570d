"""Charts of studies: a heat map, a line, a search as it went, and parallel coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_bytes, format_joules, format_seconds, join_words
from dtdg_lab.visualization import palette, traces
from dtdg_lab.visualization.axes import named_axis
from dtdg_lab.visualization.cell_map import cell_map, has_room
from dtdg_lab.visualization.chart import CaptionedFigure, card, trace_keys
from dtdg_lab.visualization.numbers import short
from dtdg_lab.visualization.traces import Attributes

# Heat map of a study over two of its settings: medians over seeds, filled in as runs end; a click opens a run.


CLICKABLE = "clickable"  # entry of layout.meta: clicks send the point's customdata to the page
_CLICKS: Attributes = {"meta": {CLICKABLE: True}}
NOTHING_YET = "no run of the study has ended yet"
_CORNER = 0.34  # of a cell: where the marks of its states stand, from its middle
STATES: Mapping[str, tuple[str, str, str]] = MappingProxyType(  # status -> words, symbol, colour
    {
        "failed": ("failed", "x", palette.WARNING_COLOUR),
        "pruned": ("ended early", "triangle-down", palette.MARK_COLOUR),
        "running": ("under way", "circle-open", palette.TEXT_COLOUR),
    }
)


@dataclass(frozen=True, slots=True)
class StudyCell:
    """Runs of one place of a map.

    Attributes:
        x: across.
        y: up.
        values: of the runs that are done.
        requested: runs that it gets in the end.
        states: status -> how many, of those that are not done.
        run_texts: a line for each run.
        key: of the run that a click opens; empty where there is none.
    """

    x: Any
    y: Any
    values: tuple[float, ...] = ()
    requested: int = 1
    states: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    run_texts: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class MapNames:
    """Names of a map.

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


def study_map(cells: Sequence[StudyCell], names: MapNames) -> CaptionedFigure:
    """Return the heat map and its caption; unfinished cells are grey."""
    across, up = ordered([cell.x for cell in cells]), ordered([cell.y for cell in cells])
    style: Attributes = {"x_title": names.x, "unit": names.y and f"↑ {names.y}", **_CLICKS}
    if not cells:
        return card([], names.title, empty=NOTHING_YET, **style), "Nothing is studied yet."
    grid = {(across.index(cell.x), up.index(cell.y)): cell for cell in cells}
    say = writer(names.measure)
    middle = {position: median(cell.values) for position, cell in grid.items() if cell.values}
    is_written, best = has_room(len(across), len(up)), best_cell(cells, least=names.least_is_best)
    marks = [trace for state in STATES if (trace := _marks(grid, state)) is not None]
    figure = cell_map(
        names.title,
        ([short(value) for value in across], [short(value) for value in up]),
        middle,
        texts={position: say(value) + _done_text(grid[position]) for position, value in middle.items() if is_written},
        hover={position: _hover(cell, names, say) for position, cell in grid.items()},
        template="%{customdata[0]}<extra></extra>",
        scale="owned",
        bar=names.measure,
        best=None if best is None else (across.index(best.x), up.index(best.y)),
        marks=marks,
        keys=trace_keys(marks),
        **style,
    )
    return figure, _map_caption(cells, names, best)


def _done_text(cell: StudyCell) -> str:
    return "" if len(cell.values) >= cell.requested else f"<br>{len(cell.values)} of {cell.requested}"


def _clickable(cells: Sequence[StudyCell], heads: Sequence[str] = ()) -> Attributes:
    """Return hover texts of cells, and the keys of the runs that a click opens."""
    first = [[head] for head in heads] or [[] for _ in cells]
    hover_data = [
        ["<br>".join([*head, *cell.run_texts[:8]]), cell.key] for head, cell in zip(first, cells, strict=True)
    ]
    return {"customdata": hover_data, "hover": "%{customdata[0]}<extra></extra>"}


def _unfinished(cells: Sequence[StudyCell], x_of: Callable[[StudyCell], Any], y: float) -> list[Attributes]:
    """Return marks of cells whose runs gave no number, by their state."""
    markers = []
    for state, (label, symbol, colour) in STATES.items():
        mine = [cell for cell in cells if cell.states.get(state) and not cell.values]
        style: Attributes = {"size": 10, "marker": {"symbol": symbol}, **_clickable(mine)}
        if mine:
            markers.append(traces.points(label, [x_of(cell) for cell in mine], [y] * len(mine), colour, **style))
    return markers


_NOTHING_SAID = f"{NOTHING_YET[:1].upper()}{NOTHING_YET[1:]}"


def is_numeric(values: Sequence[Any]) -> bool:
    """Return whether all values are numbers."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _is_wide(values: Sequence[Any]) -> bool:
    """Return whether numbers need a logarithmic axis."""
    return is_numeric(values) and min(values) > 0 and max(values) / min(values) >= _DECADES


def ordered(values: Sequence[Any]) -> list[Any]:
    """Return each value once: numbers by size, others as they come."""
    once = list(dict.fromkeys(values))
    return sorted(once) if is_numeric(once) else once


def writer(measure: str) -> Callable[[float], str]:
    """Return the function that writes a number of runs, by the unit in its name."""
    if measure.endswith("_bytes") or measure.startswith("bytes_"):
        return format_bytes
    if measure.endswith("_j"):
        return format_joules
    return format_seconds if measure.endswith("_s") else lambda value: f"{value:.4g}"


def best_cell(cells: Sequence[StudyCell], *, least: bool) -> StudyCell | None:
    """Return the cell with the best median among those with the most finished runs; None before any is."""
    most_runs = max((len(cell.values) for cell in cells), default=0)
    candidates = [cell for cell in cells if cell.values and len(cell.values) == most_runs]
    sign = 1 if least else -1
    return min(candidates, key=lambda cell: sign * median(cell.values), default=None)


def _hover(cell: StudyCell, names: MapNames, say: Callable[[float], str]) -> list[str]:
    """Return the hover text of a cell, and the key of the run that a click opens."""
    lines = [f"{names.x} {short(cell.x)}, {names.y} {short(cell.y)}"]
    if cell.values:
        spread = f", {say(min(cell.values))} to {say(max(cell.values))}" if len(cell.values) > 1 else ""
        lines.append(f"{names.measure}: median {say(median(cell.values))}{spread}")
    lines.append(f"{len(cell.values)} of {cell.requested} runs done")
    remainder = [f"... and {len(cell.run_texts) - 8} more"] if len(cell.run_texts) > 8 else []
    return ["<br>".join([*lines, *cell.run_texts[:8], *remainder]), cell.key]


def _marks(grid: Mapping[tuple[int, int], StudyCell], state: str) -> Attributes | None:
    """Return marks in the corners of cells with such runs, in the middle of cells without others."""
    label, symbol, colour = STATES[state]
    across, up = {"failed": (_CORNER, _CORNER), "pruned": (_CORNER, -_CORNER), "running": (-_CORNER, _CORNER)}[state]
    matching = {position: cell for position, cell in grid.items() if cell.states.get(state)}
    if not matching:
        return None
    alone = [not cell.values and len(cell.states) == 1 for cell in matching.values()]
    x = [x if centred else x + across for (x, _), centred in zip(matching, alone, strict=True)]
    y = [y if centred else y + up for (_, y), centred in zip(matching, alone, strict=True)]
    marker = {"symbol": symbol, "line": {"color": "white", "width": 1}}
    trace_options = _clickable([*matching.values()], [f"{cell.states[state]} {label}" for cell in matching.values()])
    return traces.points(label, x, y, colour, size=11, marker=marker, **trace_options)


def _map_caption(cells: Sequence[StudyCell], names: MapNames, best: StudyCell | None) -> str:
    if best is None:
        return f"{_NOTHING_SAID}: grey cells wait."
    say = writer(names.measure)
    which = "Lowest" if names.least_is_best else "Highest"
    position = f"{names.x} {short(best.x)}, {names.y} {short(best.y)}"
    caption = f"{which} {names.measure} (outlined): {say(median(best.values))} at {position}"
    finished = [cell for cell in cells if cell.values and cell is not best]
    if len(best.values) > 1:
        apart = [
            cell
            for cell in finished
            if (min(cell.values) > max(best.values) if names.least_is_best else max(cell.values) < min(best.values))
        ]
        near = len(finished) - len(apart)
        like = f"{near or 'no'} other cell{'s' * (near != 1)}"
        caption += f", the median of {len(best.values)} runs; the runs of {like} overlap with its."
    else:
        caption += ", of one run: another seed may move it."
    waiting = sum(not cell.values for cell in cells)
    caption += f" {waiting} of {len(cells)} cells are not done (grey)." if waiting else ""
    pooled = f" Each cell is the median over {join_words(names.pooled)} too." if names.pooled else ""
    return caption + pooled + " Click on a cell to open its run."


# A search as it went: every combination's number, and the best so far.


def study_course(cells: Sequence[StudyCell], names: MapNames) -> CaptionedFigure:
    """Return combinations over their numbers, which are their ``x``, with the best so far as a step line."""
    style: Attributes = {"x_title": "trial", "unit": names.measure, **_CLICKS}
    finished = sorted((cell for cell in cells if cell.values), key=lambda cell: cell.x)
    if not finished:
        return card([], names.title, empty=NOTHING_YET, **style), f"{_NOTHING_SAID}."
    middle = [median(cell.values) for cell in finished]
    best = list(accumulate(middle, min if names.least_is_best else max))
    places = [cell.x for cell in finished]
    step = {"color": palette.series_colour(1), "width": 2, "shape": "hv"}
    data = [
        traces.points("trial", places, middle, palette.series_colour(0), size=8, **_clickable(finished)),
        traces.line("best so far", places, best, line=step, mode="lines", hoverinfo="skip"),
        *_unfinished(cells, lambda cell: cell.x, max(middle)),
    ]
    say, last = writer(names.measure), max(index for index, value in enumerate(middle) if value == best[-1])
    since = len(finished) - 1 - last
    text = f"Best so far {say(best[-1])}, found by trial {finished[last].x}; "
    text += f"{since} have ended since without a better one."
    return card(data, names.title, keys=trace_keys(data), **style), text


# A study over one setting: the median over seeds, with the spread from least to most.


_DECADES = 50.0  # most over least value of a setting from which its axis is logarithmic


def study_line(cells: Sequence[StudyCell], names: MapNames, *, joined: bool = True) -> CaptionedFigure:
    """Return the line and its caption.

    Args:
        cells: one for each value of the setting, which is their ``x``.
        names: ``x`` and ``measure`` are used.
        joined: whether neighbours are joined by a line; drawn settings of a search are not.
    """
    values = ordered([cell.x for cell in cells])
    finished = [cell for value in values for cell in cells if cell.x == value and cell.values]
    layout: Attributes = {"x_title": names.x, "unit": names.measure, **_CLICKS}
    best = best_cell(cells, least=names.least_is_best)
    if best is None:
        return card([], names.title, empty=NOTHING_YET, **layout), f"{_NOTHING_SAID}."
    numeric = is_numeric(values)
    ticks = {} if numeric else {"tickvals": list(range(len(values))), "ticktext": [short(value) for value in values]}

    def x_of(cell: StudyCell) -> Any:
        return cell.x if numeric else values.index(cell.x)

    say, middle = writer(names.measure), [median(cell.values) for cell in finished]
    heads = [
        f"{names.x} {short(cell.x)}: median {say(value_at)}" for cell, value_at in zip(finished, middle, strict=True)
    ]
    lowest, highest = [min(cell.values) for cell in finished], [max(cell.values) for cell in finished]
    style: Attributes = {"mode": "lines+markers" if joined and numeric else "markers", "marker": {"size": 8}}
    style["error_y"] = traces.whiskers(lowest, middle, highest, palette.series_colour(0), width=4)
    best_point, circle = ([x_of(best)], [median(best.values)]), {"symbol": "circle-open", "line": {"width": 2}}
    x, hover_options = [x_of(cell) for cell in finished], _clickable(finished, heads)
    data = [
        traces.line("median over seeds", x, middle, palette.series_colour(0), **hover_options, **style),
        *_unfinished(cells, x_of, max(middle)),
        traces.points("best", *best_point, palette.TEXT_COLOUR, size=15, marker=circle, hoverinfo="skip"),
    ]
    x_axis = {"type": "log"} if _is_wide(values) else ticks
    figure = card(data, names.title, keys=trace_keys(data), xaxis=x_axis, **layout)
    return figure, _line_caption(finished, best, names)


def _line_caption(finished: Sequence[StudyCell], best: StudyCell, names: MapNames) -> str:
    say = writer(names.measure)
    which = "Lowest" if names.least_is_best else "Highest"
    text = f"{which} median: {say(median(best.values))} at {names.x} {short(best.x)}."
    lowest, highest = min(best.values), max(best.values)
    near = [
        cell for cell in finished if cell is not best and min(cell.values) <= highest and max(cell.values) >= lowest
    ]
    if len(best.values) > 1:
        values = f"{len(near) or 'no'} other value{'s' * (len(near) != 1)}"
        text += f" Whiskers reach from the least to the most seed; those of {values} overlap with its."
    return text


# Combinations of many settings: a line each through one axis a setting, coloured by what it came to.


MOST_LINES = 200
_BEST, _WORST = (0x08, 0x30, 0x6B), (0xC9, 0xD6, 0xE3)
_TICKS = 6


@dataclass(frozen=True, slots=True)
class Way:
    """One combination.

    Attributes:
        settings: value on each axis, in their order.
        value: what it came to.
        hover_text: the hover text of the cell.
        key: of the run that a click opens.
    """

    settings: tuple[Any, ...]
    value: float
    hover_text: str = ""
    key: str = ""


def study_parallel(
    ways: Sequence[Way], names: Sequence[str], measure: str, *, title: str, least: bool = True
) -> CaptionedFigure:
    """Return the lines, the best last and darkest; of more than ``MOST_LINES``, the best of them.

    Args:
        ways: combinations that are done.
        names: of the settings.
        measure: number by which lines are coloured, which is the last axis.
        title: of the figure.
        least: whether little of it is good.
    """
    style: Attributes = {"margin": {"l": 40, "r": 60, "t": 40}, **_CLICKS}
    if not ways:
        return card([], title, empty=NOTHING_YET, **style), f"{_NOTHING_SAID}."
    best_last = sorted(ways, key=lambda way: way.value, reverse=least)[-MOST_LINES:]
    axes = [_Scale([way.settings[index] for way in ways]) for index in range(len(names))]
    axes.append(_Scale([way.value for way in best_last]))
    heads = [*names, measure]
    ends = {"range": [-0.25, len(heads) - 0.65], "side": "top", "showline": False}
    x_axis = {**named_axis(heads), **ends, "showgrid": True, "gridcolor": "#B8BEC6"}
    beside: Attributes = {"size": 10, "xanchor": "left", "xshift": 4, "bgcolor": "rgba(255,255,255,0.7)"}
    notes = [
        traces.label(text, index, value, **beside) for index, axis in enumerate(axes) for value, text in axis.ticks
    ]
    data = []
    for index, way in enumerate(best_last):
        y = [axis.place(value) for axis, value in zip(axes, (*way.settings, way.value), strict=True)]
        trace_options: Attributes = {"customdata": [[way.hover_text, way.key]] * len(heads), "showlegend": False}
        trace_options |= {
            "hover": "%{customdata[0]}<extra></extra>",
            "width": 3 if index == len(best_last) - 1 else 1.4,
        }
        data.append(
            traces.line("", range(len(heads)), y, _colour(index, len(best_last)), mode="lines", **trace_options)
        )
    best = best_last[-1]
    settings = ", ".join(f"{name} {short(value)}" for name, value in zip(names, best.settings, strict=True))
    remainder = f" The best {MOST_LINES} of {len(ways)} are drawn." if len(ways) > MOST_LINES else ""
    caption = (
        f"{len(ways)} combinations, the darker the better; "
        f"the best (thick) {writer(measure)(best.value)} at {settings}. "
        f"Where dark lines run together on an axis, its value matters.{remainder}"
    )
    y_axis = {"visible": False, "range": [-0.06, 1.06]}
    return card(data, title, xaxis=x_axis, yaxis=y_axis, annotations=notes, **style), caption


class _Scale:
    """Places from 0 to 1 of the values of one axis, and its ticks."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = ordered(values)
        self._numeric, self._log = is_numeric(self._values), _is_wide(self._values)
        if self._numeric and len(self._values) > _TICKS:
            low, high = self._scaled(self._values[0]), self._scaled(self._values[-1])
            marks = [low + (high - low) * step / (_TICKS - 2) for step in range(_TICKS - 1)]
            tick_values: list[Any] = [math.exp(mark) if self._log else mark for mark in marks]
            self.ticks = [(self.place(value), f"{value:.3g}") for value in tick_values]
        else:
            self.ticks = [(self.place(value), short(value)) for value in self._values]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self._log else float(value)

    def place(self, value: Any) -> float:
        if not self._numeric:
            return 0.5 if len(self._values) == 1 else self._values.index(value) / (len(self._values) - 1)
        low, high = self._scaled(self._values[0]), self._scaled(self._values[-1])
        return 0.5 if high == low else (self._scaled(value) - low) / (high - low)


def _colour(index: int, count: int) -> str:
    """Return a colour from pale, the worst, to dark, the best."""
    share = 1.0 if count == 1 else index / (count - 1)
    mixed = [round(worst + (best - worst) * share) for worst, best in zip(_WORST, _BEST, strict=True)]
    return "#" + "".join(f"{part:02X}" for part in mixed)
