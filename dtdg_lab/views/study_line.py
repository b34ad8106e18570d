"""A study over one setting: the median over seeds, with the spread from least to most."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import TEXT_COLOUR, series_colour
from dtdg_lab.views.study_map import (
    CLICKABLE,
    NOTHING_YET,
    STATES,
    MapNames,
    StudyCell,
    best_cell,
    label,
    ordered,
    writer,
)

Panel = tuple[Figure, str]
_DECADES = 50.0  # most over least value of a setting from which its axis is logarithmic


def study_line(cells: Sequence[StudyCell], names: MapNames, *, joined: bool = True) -> Panel:
    """The line and what to look for in it.

    Args:
        cells: one for each value of the setting, which is their ``x``.
        names: ``x`` and ``measure`` are used.
        joined: whether neighbours are joined by a line; drawn settings of a search are not.
    """
    values = ordered([cell.x for cell in cells])
    done = [cell for value in values for cell in cells if cell.x == value and cell.values]
    layout = frame(names.title, names.x, names.measure)
    layout["meta"] = {CLICKABLE: True}
    if not done:
        return {"data": [], "layout": with_note(layout, NOTHING_YET)}, f"{NOTHING_YET[:1].upper()}{NOTHING_YET[1:]}."
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numeric and min(values) > 0 and max(values) / min(values) >= _DECADES:
        layout["xaxis"] |= {"type": "log"}
    elif not numeric:
        layout["xaxis"] |= {"tickvals": list(range(len(values))), "ticktext": [label(value) for value in values]}
    say = writer(names.measure)
    place = [cell.x if numeric else values.index(cell.x) for cell in done]
    middle = [median(cell.values) for cell in done]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines+markers" if joined and numeric else "markers",
            "name": "median over seeds", "x": place, "y": middle,
            "line": {"color": series_colour(0), "width": 2}, "marker": {"size": 8},
            "error_y": {
                "type": "data", "symmetric": False, "thickness": 1.2, "width": 4,
                "array": [max(cell.values) - at for cell, at in zip(done, middle, strict=True)],
                "arrayminus": [at - min(cell.values) for cell, at in zip(done, middle, strict=True)],
            },
            "customdata": [
                ["<br>".join([f"{names.x} {label(cell.x)}: median {say(at)}", *cell.told[:8]]), cell.key]
                for cell, at in zip(done, middle, strict=True)
            ],
            "hovertemplate": "%{customdata[0]}<extra></extra>",
        }
    ]  # fmt: skip
    for state, (words, symbol, colour) in STATES.items():
        of = [cell for cell in cells if cell.states.get(state) and not cell.values]
        if of:
            data.append({
                "type": "scatter", "mode": "markers", "name": words, "y": [max(middle)] * len(of),
                "x": [cell.x if numeric else values.index(cell.x) for cell in of],
                "marker": {"symbol": symbol, "size": 10, "color": colour},
                "customdata": [["<br>".join(cell.told[:8]), cell.key] for cell in of],
                "hovertemplate": "%{customdata[0]}<extra></extra>",
            })  # fmt: skip
    best = best_cell(cells, least=names.least_is_best)
    assert best is not None
    data.append({
        "type": "scatter", "mode": "markers", "name": "best", "x": [best.x if numeric else values.index(best.x)],
        "y": [median(best.values)], "hoverinfo": "skip",
        "marker": {"symbol": "circle-open", "size": 15, "color": TEXT_COLOUR, "line": {"width": 2}},
    })  # fmt: skip
    return {"data": data, "layout": layout}, _words(done, best, names)


def _words(done: Sequence[StudyCell], best: StudyCell, names: MapNames) -> str:
    say = writer(names.measure)
    which = "Lowest" if names.least_is_best else "Highest"
    text = f"{which} median: {say(median(best.values))} at {names.x} {label(best.x)}."
    least, most = min(best.values), max(best.values)
    near = [cell for cell in done if cell is not best and min(cell.values) <= most and max(cell.values) >= least]
    if len(best.values) > 1:
        values = f"{len(near) or 'no'} other value{'s' * (len(near) != 1)}"
        text += f" Whiskers reach from the least to the most seed; those of {values} overlap with its."
    return text
