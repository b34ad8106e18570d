"""What is added to the links now, owner by requester."""

from __future__ import annotations

from typing import Any

from dtdg_lab.views.congestion_log import Links
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import HEAT_SCALES, TEXT_COLOUR
from dtdg_lab.views.partition_maps import colour_bar, part_axis

Panel = tuple[Figure, str]
_WRITTEN = 8  # parts up to which every cell has room for its numbers
_DARK = 0.55  # share of the largest delay from which writing is white


def congestion_panel(links: Links | None, parts: int) -> Panel:
    """Delay of every link as a colour, with its rate written where it is limited.

    Args:
        links: in force; None where nothing was told.
        parts: P.
    """
    count = links.parts if links is not None else parts
    layout = frame(
        "Links now", "asked by part", "owner",
        xaxis={"dtick": max(1, -(-count // 8)), "showgrid": False, "range": [-0.5, count - 0.5]},
        yaxis=part_axis(count),
    )  # fmt: skip
    if links is None:
        return {"data": [], "layout": with_note(layout, "links are as they are")}, _words(links)
    cells = [[None if owner == other else links.delay_ms[owner][other] for other in range(count)]
             for owner in range(count)]  # fmt: skip
    top = max((each for row in cells for each in row if each is not None), default=0.0)
    trace: dict[str, Any] = {
        "type": "heatmap", "name": "Links now", "x": list(range(count)), "y": list(range(count)), "z": cells,
        "zmin": 0, "zmax": top or 1.0, "colorscale": [list(stop) for stop in HEAT_SCALES["halo"]],
        "colorbar": colour_bar("ms added"), "xgap": 2, "ygap": 2,
        "customdata": [[_told(links, owner, other) for other in range(count)] for owner in range(count)],
        "hovertemplate": "part %{y} to part %{x}: %{customdata}<extra></extra>",
    }  # fmt: skip
    if not top:
        del trace["colorbar"]
        trace["showscale"] = False
    if count <= _WRITTEN:
        layout["annotations"] = _written(links, top)
    return {"data": [trace], "layout": layout}, _words(links)


def _told(links: Links, owner: int, other: int) -> str:
    rate = links.mbit[owner][other]
    return f"{links.delay_ms[owner][other]:.3g} ms" + (", any rate" if rate is None else f", {rate:.4g} Mbit/s")


def _written(links: Links, top: float) -> list[dict[str, Any]]:
    found = []
    for owner in range(links.parts):
        for other in range(links.parts):
            delay, rate = links.delay_ms[owner][other], links.mbit[owner][other]
            said = ([f"{delay:.3g} ms"] if delay else []) + ([] if rate is None else [f"{rate:.4g} Mbit/s"])
            if owner != other:
                found.append({
                    "text": "<br>".join(said or ["free"]), "showarrow": False,
                    "x": other, "y": owner, "xref": "x", "yref": "y",
                    "font": {"size": 10, "color": "white" if delay > _DARK * top else TEXT_COLOUR},
                })  # fmt: skip
    return found


def _words(links: Links | None) -> str:
    reading = "Rows answer, columns ask; replies are late by this much. Gradients go their own way, untouched."
    if links is None:
        return f"Nothing is added to any link. {reading}"
    told = links.words or "nothing is added to any link"
    how = "by the kernel (netem)" if links.by == "netem" else "by who answers"
    return f"Pattern {links.pattern}, since step {links.step}, {how}: {told}. {reading}"
