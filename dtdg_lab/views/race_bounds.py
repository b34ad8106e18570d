"""What each contestant of a race took, beside what it could not go below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_joules, format_seconds
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, as_drawn, frame, join_words, with_note
from dtdg_lab.views.palette import TEXT_COLOUR, series_colour
from dtdg_lab.views.race import Panel

QUANTITIES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "epoch": ("Seconds of an epoch, and what no schedule can beat", "epoch, without evaluation (s)"),
        "moving": ("Seconds standing for exchanges, and copying alone", "exchanges of an epoch (s)"),
        "energy": ("Joules of an epoch, and without waiting for features", "energy of an epoch (J)"),
    }
)
_LOOK: Mapping[str, str] = MappingProxyType(
    {
        "epoch": "A bar that ends at its line is as good as this work on these ranks can be; what is beyond it is "
        "waiting, exchange and control.",
        "moving": "The line is a core copying as many bytes in memory, as measured here. A shorter bar hid its "
        "exchange behind computing; one far beyond pays latency, not bandwidth.",
        "energy": "The line is the clairvoyant's own joules where it takes part: its plan is the best in the cost "
        "model, so that a real run may end before it. Else it is what is left when the joules of standing still for "
        "features are taken off, which no cache can beat.",
    }
)
_LOG_FROM = 50.0
NO_BOUND = "no run has ended yet, or none has such a bound"


@dataclass(frozen=True, slots=True)
class Bound:
    """A measured quantity of a contestant and what it cannot be below.

    Attributes:
        label: of the contestant.
        quantity: of ``QUANTITIES``.
        measured: median over seeds, seconds or joules.
        bound: of the same seeds, in the same unit.
        name: of the bound.
    """

    label: str
    quantity: str
    measured: float
    bound: float
    name: str

    @property
    def over(self) -> float | None:
        """Measured over bound; None where the bound is 0."""
        return self.measured / self.bound if self.bound > 0 else None


def bounds_panels(bounds: Sequence[Bound], labels: Sequence[str]) -> dict[str, Panel]:
    """A panel for every quantity that has a bound, with ``labels`` in their colours; one empty one where none has."""
    shown = [name for name in QUANTITIES if any(each.quantity == name for each in bounds)] or ["epoch"]
    return {name: _panel(name, [each for each in bounds if each.quantity == name], labels) for name in shown}


def bounds_figure(bounds: Sequence[Bound], labels: Sequence[str]) -> Figure:
    """All panels as one figure."""
    return grid(list(bounds_panels(bounds, labels).values()), title="Measured and bound")


def _panel(quantity: str, bounds: Sequence[Bound], labels: Sequence[str]) -> Panel:
    title, x_title = QUANTITIES[quantity]
    layout = frame(
        title, x_title, "", showlegend=True, bargap=0.45, xaxis={"rangemode": "tozero"},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False, "ticksuffix": " "},
    )  # fmt: skip
    if not bounds:
        return {"data": [], "layout": with_note(layout, NO_BOUND)}, _LOOK[quantity]
    names = [as_drawn(each.label) for each in bounds]
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "orientation": "h", "name": "measured", "showlegend": False, "y": names,
            "x": [each.measured for each in bounds],
            "marker": {"color": [series_colour(labels.index(each.label)) for each in bounds], "opacity": 0.75},
            "text": [_times(each) for each in bounds], "textposition": "outside", "cliponaxis": False,
            "hovertemplate": "%{y}: %{x:.4~g}<extra>measured</extra>",
        },
        {
            "type": "scatter", "mode": "markers", "name": join_words(list(dict.fromkeys(each.name for each in bounds))),
            "y": names, "x": [each.bound for each in bounds],
            "marker": {"symbol": "line-ns-open", "size": 22, "color": TEXT_COLOUR, "line": {"width": 2.5}},
            "hovertemplate": "%{y}: %{x:.4~g}<extra>bound</extra>",
        },
    ]  # fmt: skip
    layout["xaxis"] = {**layout["xaxis"], **_axis([value for each in bounds for value in (each.measured, each.bound)])}
    return {"data": data, "layout": layout}, f"{_told(quantity, bounds)} {_LOOK[quantity]}"


def _times(each: Bound) -> str:
    return "" if each.over is None else f"x {_factor(each.over)}"


def _factor(over: float) -> str:
    return f"{over:,.0f}" if over >= 100 else f"{over:.3g}"


def _axis(values: Sequence[float]) -> dict[str, Any]:
    """Logarithmic where bounds are far below what was measured; with room for the words after a bar."""
    largest, least = max(values), min(values)
    if least > 0 and largest / least > _LOG_FROM:
        return {"type": "log", "range": [math.log10(least) - 0.3, math.log10(largest) + 0.7]}
    return {"range": [0, largest * 1.18 or 1.0]}


def _told(quantity: str, bounds: Sequence[Bound]) -> str:
    """Who is closest to its bound."""
    known = [each for each in bounds if each.over is not None]
    if not known:
        return "No bound is above 0."
    closest = min(known, key=lambda each: abs((each.over or 0.0) - 1))
    words = format_joules if quantity == "energy" else format_seconds
    return (
        f"{closest.label} is closest to its bound: {words(closest.measured)}, {_factor(closest.over or 0.0)} times "
        f"{words(closest.bound)} ({closest.name})."
    )
