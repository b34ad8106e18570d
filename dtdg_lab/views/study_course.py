"""A search as it went: every combination's number, and the best so far."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import series_colour
from dtdg_lab.views.study_map import CLICKABLE, NOTHING_YET, STATES, MapNames, StudyCell, writer

Panel = tuple[Figure, str]


def study_course(cells: Sequence[StudyCell], names: MapNames) -> Panel:
    """Combinations over their numbers, which are their ``x``, and the best of those before as a step line."""
    layout = frame(names.title, "trial", names.measure)
    layout["meta"] = {CLICKABLE: True}
    done = sorted((cell for cell in cells if cell.values), key=lambda cell: cell.x)
    if not done:
        return {"data": [], "layout": with_note(layout, NOTHING_YET)}, f"{NOTHING_YET[:1].upper()}{NOTHING_YET[1:]}."
    middle = [median(cell.values) for cell in done]
    best: list[float] = []
    for value in middle:
        better = min if names.least_is_best else max
        best.append(better([*best[-1:], value]))
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "markers", "name": "trial", "x": [cell.x for cell in done], "y": middle,
            "marker": {"size": 8, "color": series_colour(0)},
            "customdata": [["<br>".join(cell.told), cell.key] for cell in done],
            "hovertemplate": "%{customdata[0]}<extra></extra>",
        },
        {
            "type": "scatter", "mode": "lines", "name": "best so far", "x": [cell.x for cell in done], "y": best,
            "line": {"color": series_colour(1), "width": 2, "shape": "hv"}, "hoverinfo": "skip",
        },
    ]  # fmt: skip
    for state, (words, symbol, colour) in STATES.items():
        of = [cell for cell in cells if cell.states.get(state) and not cell.values]
        if of:
            data.append({
                "type": "scatter", "mode": "markers", "name": words, "x": [cell.x for cell in of],
                "y": [max(middle)] * len(of), "marker": {"symbol": symbol, "size": 9, "color": colour},
                "customdata": [["<br>".join(cell.told), cell.key] for cell in of],
                "hovertemplate": "%{customdata[0]}<extra></extra>",
            })  # fmt: skip
    say, last = writer(names.measure), max(place for place, value in enumerate(middle) if value == best[-1])
    since = len(done) - 1 - last
    text = f"Best so far {say(best[-1])}, found by trial {done[last].x}; {since} have ended since without a better one."
    return {"data": data, "layout": layout}, text
