"""Bars of medians over seeds, with every seed as a point: what a table of a paper becomes when it is run here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, TEXT_COLOUR, series_colour

TELLING = "a difference is told where the seeds of two bars do not overlap"


@dataclass(frozen=True, slots=True)
class SpreadBar:
    """One bar.

    Attributes:
        label: of it.
        values: one for each seed.
        missed: seeds that came to no value.
        paper: what a paper reports of it, in the paper's own unit; None where it does not.
    """

    label: str
    values: tuple[float, ...]
    missed: int = 0
    paper: float | None = None

    @property
    def middle(self) -> float | None:
        """The median over seeds; None without any."""
        return median(self.values) if self.values else None


def spread_bars(bars: Sequence[SpreadBar], title: str, unit: str, *, nothing: str = "no run has ended yet") -> Figure:
    """Horizontal bars in the order given, the first on top; points are seeds.

    Args:
        bars: of any length; those without a value keep their row.
        title: of the figure.
        unit: title of the x axis, with its unit.
        nothing: said in place of bars where none has a value.
    """
    layout = frame(title, unit, "", yaxis={"autorange": "reversed", "type": "category"}, showlegend=False)
    labels = [_labelled(bar) for bar in bars]
    if not any(bar.values for bar in bars):
        return {"data": [], "layout": with_note(layout, nothing)}
    middles = [bar.middle for bar in bars]
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "orientation": "h", "x": middles, "y": labels, "name": "median",
            "marker": {"color": [series_colour(0) if bar.values else BASELINE_COLOUR for bar in bars], "opacity": 0.55},
            "hovertemplate": "%{y}: %{x:.4~g} (median)<extra></extra>",
        },
        {
            "type": "scatter", "mode": "markers", "name": "each seed",
            "x": [value for bar in bars for value in bar.values],
            "y": [label for label, bar in zip(labels, bars, strict=True) for _ in bar.values],
            "marker": {"color": TEXT_COLOUR, "size": 6}, "hovertemplate": "%{y}: %{x:.4~g}<extra></extra>",
        },
    ]  # fmt: skip
    layout["margin"] = {**layout["margin"], "b": 54}
    return {"data": data, "layout": layout}


def _labelled(bar: SpreadBar) -> str:
    return f"{bar.label} ({bar.missed} did not get there)" if bar.missed else bar.label


def apart(first: SpreadBar, second: SpreadBar) -> bool:
    """Whether the seeds of two bars do not overlap, at least two of each."""
    if min(len(first.values), len(second.values)) < 2:
        return False
    return max(first.values) < min(second.values) or max(second.values) < min(first.values)


def order_words(bars: Sequence[SpreadBar], what: str) -> str:
    """Which bar is shortest, and which others cannot be told from it."""
    known = sorted((bar for bar in bars if bar.values), key=lambda bar: (bar.missed, bar.middle or 0.0))
    if not known:
        return f"No run has a {what} yet."
    first, *others = known
    whole = [bar for bar in others if not bar.missed]
    like, missed = [bar.label for bar in whole if not apart(first, bar)], [bar.label for bar in bars if bar.missed]
    told = f"{first.label} has the least {what} (median {first.middle:.4g})"
    if like:
        told += f"; it cannot be told from {join_words(like)}"
    if missed:
        told += f"; not with every seed: {join_words(missed)}"
    return f"{told}. Look whether points overlap: {TELLING}."
