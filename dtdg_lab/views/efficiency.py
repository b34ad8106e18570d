"""Efficiency over ranks: what of each further rank's time becomes a shorter epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, series_colour


@dataclass(frozen=True, slots=True)
class Efficiency:
    """One system.

    Attributes:
        system: its name.
        seconds: ranks -> seconds of an epoch.
    """

    system: str
    seconds: Mapping[int, float]

    def at(self, ranks: int) -> float | None:
        """Speed-up over one rank, over the ranks; None where either is unknown."""
        one, here = self.seconds.get(1), self.seconds.get(ranks)
        return one / (here * ranks) if one and here else None


def efficiency_figure(systems: Sequence[Efficiency]) -> Figure:
    """A line for each system over ranks; 1 is ideal."""
    layout = frame(
        "Efficiency over ranks", "ranks", "speed-up over ranks (1 is ideal)", showlegend=True,
        xaxis={"type": "log", "tickvals": sorted({count for each in systems for count in each.seconds})},
        yaxis={"rangemode": "tozero"},
    )  # fmt: skip
    data: list[dict[str, Any]] = []
    for index, each in enumerate(systems):
        known = [(count, share) for count in sorted(each.seconds) if (share := each.at(count)) is not None]
        if known:
            data.append(
                {
                    "type": "scatter", "mode": "lines+markers", "name": each.system,
                    "x": [count for count, _ in known], "y": [share for _, share in known],
                    "text": [format_seconds(each.seconds[count]) for count, _ in known],
                    "line": {"color": series_colour(index), "width": 2}, "marker": {"size": 7},
                    "hovertemplate": "%{x} ranks: %{y:.2f}, %{text} an epoch<extra>%{fullData.name}</extra>",
                }
            )  # fmt: skip
    if not data:
        return {"data": [], "layout": with_note(layout, "no system has run on one rank yet")}
    ends = sorted({count for each in systems for count in each.seconds})
    ideal = {"type": "scatter", "mode": "lines", "name": "ideal", "x": [ends[0], ends[-1]], "y": [1, 1],
             "line": {"color": BASELINE_COLOUR, "width": 1, "dash": "dot"}, "hoverinfo": "skip"}  # fmt: skip
    return {"data": [ideal, *data], "layout": layout}


def efficiency_words(systems: Sequence[Efficiency]) -> str:
    """Who keeps most of the largest number of ranks, and who least."""
    most = max((count for each in systems for count in each.seconds), default=1)
    known = sorted(((share, each.system) for each in systems if (share := each.at(most)) is not None), reverse=True)
    if most == 1 or not known:
        return "No system has run on several ranks yet: give a session of two engines or more."
    (best, first), (least, last) = known[0], known[-1]
    look = "Look at what falls: on fewer cores than ranks every line must."
    if len(known) == 1:
        return f"On {most} ranks {first} keeps {percent(best)} of them. {look}"
    return f"On {most} ranks {first} keeps {percent(best)} of them, {last} {percent(least)}. {look}"
