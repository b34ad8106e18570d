"""Measured seconds and joules of the contestants of a race beside their lower bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_joules, format_seconds, join_words
from dtdg_lab.visualization import traces
from dtdg_lab.visualization.axes import FROM_ZERO, NAMES
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card, trace_keys
from dtdg_lab.visualization.palette import TEXT_COLOUR, series_colour
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.traces import Attributes, escaped

QUANTITIES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "epoch": ("Seconds of an epoch, and what no schedule can beat", "epoch, without evaluation (s)"),
        "moving": ("Seconds standing for exchanges, and copying alone", "exchanges of an epoch (s)"),
        "energy": ("Joules of an epoch, and without waiting for features", "energy of an epoch (J)"),
    }
)

_LOOK: Mapping[str, str] = {
    "epoch": "A bar that ends at its line is as good as this work on these ranks can be; what is beyond it is "
    "waiting, exchange and control.",
    "moving": "The line is a core copying as many bytes in memory, as measured here. A shorter bar hid its "
    "exchange behind computing; one far beyond pays latency, not bandwidth.",
    "energy": "The line is the clairvoyant's own joules where it takes part: its plan is the best in the cost "
    "model, so that a real run may end before it. Otherwise it is the run's joules without those of waiting for "
    "features, which no cache can beat.",
}

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
        raced: whether it was measured, of a contestant.
    """

    label: str
    quantity: str
    measured: float
    bound: float
    name: str
    raced: bool = False

    @property
    def over(self) -> float | None:
        """Measured over bound; None where the bound is 0."""
        return self.measured / self.bound if self.bound > 0 else None


def bounds_cards(bounds: Sequence[Bound], labels: Sequence[str]) -> dict[str, CaptionedFigure]:
    """Return a panel for every quantity that has a bound, or one empty panel."""
    quantities = [name for name in QUANTITIES if any(bound.quantity == name for bound in bounds)] or ["epoch"]
    return {
        name: _bound_card(name, [bound for bound in bounds if bound.quantity == name], labels) for name in quantities
    }


def bounds_figure(bounds: Sequence[Bound], labels: Sequence[str]) -> Figure:
    """Return all panels as one figure."""
    cards = list(bounds_cards(bounds, labels).values())
    return sheet(cards, title="Measured and bound", plot_height=STUDY_HEIGHT)


def _bound_card(quantity: str, bounds: Sequence[Bound], labels: Sequence[str]) -> CaptionedFigure:
    (title, x_title), look = QUANTITIES[quantity], _LOOK[quantity]
    style: Attributes = {"x_title": x_title, "yaxis": NAMES, "bargap": 0.45, "margin": {"r": 30}}
    if not bounds:
        return card([], title, empty=NO_BOUND, xaxis=FROM_ZERO, **style), look
    names = [escaped(bound.label) for bound in bounds]
    colours = [series_colour(labels.index(bound.label)) for bound in bounds]
    above: Attributes = {"textposition": "outside", "cliponaxis": False, "showlegend": False}
    above |= {
        "text": ["" if bound.over is None else f"x {_factor(bound.over)}" for bound in bounds],
        "marker": {"color": colours, "opacity": 0.75},
    }
    measured, limits = [bound.measured for bound in bounds], [bound.bound for bound in bounds]
    of_bounds = join_words(list(dict.fromkeys(bound.name for bound in bounds)))
    mark: Attributes = {"size": 22, "marker": {"symbol": "line-ns-open", "line": {"width": 2.5}}}
    hover = "%{y}: %{x:.4~g}<extra>bound</extra>"
    data = [
        traces.level_bars("measured", names, measured, None, "%{y}: %{x:.4~g}", **above),
        traces.points(of_bounds, limits, names, TEXT_COLOUR, hover, **mark),
    ]
    x_axis = {**FROM_ZERO, **_axis([*measured, *limits])}
    figure = card(data, title, keys=trace_keys(data), xaxis=x_axis, **style)
    return figure, f"{_bound_text(quantity, bounds)} {look}"


def _factor(over: float) -> str:
    return f"{over:,.0f}" if over >= 100 else f"{over:.3g}"


def _axis(values: Sequence[float]) -> dict[str, Any]:
    """Return an axis with room for words after a bar, logarithmic where bounds are far below the bars."""
    largest, smallest = max(values), min(values)
    if smallest > 0 and largest / smallest > _LOG_FROM:
        return {"type": "log", "range": [math.log10(smallest) - 0.3, math.log10(largest) + 0.7]}
    return {"range": [0, largest * 1.18 or 1.0]}


def _bound_text(quantity: str, bounds: Sequence[Bound]) -> str:
    """Return who is closest to its bound."""
    positive = [bound for bound in bounds if bound.over is not None]
    if not positive:
        return "No bound is above 0."
    closest = min(positive, key=lambda bound: abs((bound.over or 0.0) - 1))
    format_value = format_joules if quantity == "energy" else format_seconds
    return (
        f"{closest.label} is closest to its bound: {format_value(closest.measured)}, "
        f"{_factor(closest.over or 0.0)} times {format_value(closest.bound)} ({closest.name})."
    )
