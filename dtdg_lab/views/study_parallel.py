"""Combinations of many settings: a line each through one axis a setting, coloured by what it came to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import TEXT_COLOUR
from dtdg_lab.views.study_map import CLICKABLE, NOTHING_YET, label, ordered, writer

Panel = tuple[Figure, str]
MOST_LINES = 200
_DECADES = 50.0
_BEST, _WORST = (0x08, 0x30, 0x6B), (0xC9, 0xD6, 0xE3)
_TICKS = 6


@dataclass(frozen=True, slots=True)
class Way:
    """One combination.

    Attributes:
        settings: value on each axis, in their order.
        value: what it came to.
        told: what is shown over it.
        key: of the run that a click opens.
    """

    settings: tuple[Any, ...]
    value: float
    told: str = ""
    key: str = ""


def study_parallel(ways: Sequence[Way], names: Sequence[str], measure: str, *, title: str, least: bool = True) -> Panel:
    """The lines, best drawn last and darkest; where there are more than ``MOST_LINES``, the best of them.

    Args:
        ways: combinations that are done.
        names: of the settings.
        measure: number by which lines are coloured, which is the last axis.
        title: of the figure.
        least: whether little of it is good.
    """
    layout = frame(title, "", "", margin={"l": 40, "r": 60, "t": 54, "b": 40})
    layout["meta"] = {CLICKABLE: True}
    if not ways:
        return {"data": [], "layout": with_note(layout, NOTHING_YET)}, f"{NOTHING_YET[:1].upper()}{NOTHING_YET[1:]}."
    best_last = sorted(ways, key=lambda way: way.value, reverse=least)[-MOST_LINES:]
    axes = [_Scale([way.settings[place] for way in ways]) for place in range(len(names))]
    axes.append(_Scale([way.value for way in best_last]))
    heads = [*names, measure]
    last = len(heads) - 1
    layout["xaxis"] |= {"tickvals": list(range(len(heads))), "ticktext": heads, "side": "top", "showgrid": True,
                        "gridcolor": "#B8BEC6", "range": [-0.25, last + 0.35], "showline": False}  # fmt: skip
    layout["yaxis"] |= {"visible": False, "range": [-0.06, 1.06]}
    layout["annotations"] = [
        {"text": text, "x": place, "y": at, "xref": "x", "yref": "y", "xanchor": "left", "xshift": 4,
         "showarrow": False, "bgcolor": "rgba(255,255,255,0.7)", "font": {"size": 10, "color": TEXT_COLOUR}}
        for place, axis in enumerate(axes) for at, text in axis.ticks
    ]  # fmt: skip
    data = [
        {
            "type": "scatter", "mode": "lines", "showlegend": False, "x": list(range(len(heads))),
            "y": [axis.place(value) for axis, value in zip(axes, (*way.settings, way.value), strict=True)],
            "line": {"color": _colour(place, len(best_last)), "width": 3 if place == len(best_last) - 1 else 1.4},
            "customdata": [[way.told, way.key]] * len(heads), "hovertemplate": "%{customdata[0]}<extra></extra>",
        }
        for place, way in enumerate(best_last)
    ]  # fmt: skip
    best = best_last[-1]
    at = ", ".join(f"{name} {label(value)}" for name, value in zip(names, best.settings, strict=True))
    left = f" The best {MOST_LINES} of {len(ways)} are drawn." if len(ways) > MOST_LINES else ""
    words = (
        f"{len(ways)} combinations, the darker the better; the best (thick) {writer(measure)(best.value)} at {at}. "
        f"Where dark lines run together on an axis, its value matters.{left}"
    )
    return {"data": data, "layout": layout}, words


class _Scale:
    """Places from 0 to 1 of the values of one axis, and its ticks."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = ordered(values)
        self._numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in self._values)
        spread = self._numeric and min(self._values) > 0 and max(self._values) / min(self._values) >= _DECADES
        self._log = spread
        if self._numeric and len(self._values) > _TICKS:
            low, high = self._scaled(self._values[0]), self._scaled(self._values[-1])
            marks = [low + (high - low) * step / (_TICKS - 2) for step in range(_TICKS - 1)]
            shown: list[Any] = [math.exp(mark) if spread else mark for mark in marks]
            self.ticks = [(self.place(value), f"{value:.3g}") for value in shown]
        else:
            self.ticks = [(self.place(value), label(value)) for value in self._values]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self._log else float(value)

    def place(self, value: Any) -> float:
        if not self._numeric:
            return 0.5 if len(self._values) == 1 else self._values.index(value) / (len(self._values) - 1)
        low, high = self._scaled(self._values[0]), self._scaled(self._values[-1])
        return 0.5 if high == low else (self._scaled(value) - low) / (high - low)


def _colour(place: int, count: int) -> str:
    """From pale, the worst, to dark, the best."""
    share = 1.0 if count == 1 else place / (count - 1)
    mixed = [round(worst + (best - worst) * share) for worst, best in zip(_WORST, _BEST, strict=True)]
    return "#" + "".join(f"{part:02X}" for part in mixed)
