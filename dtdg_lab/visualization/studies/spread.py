"""Bars of medians over seeds, with every seed as a point: what a table of a paper becomes when it is run here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dtdg_lab.core.units import join_words
from dtdg_lab.visualization import palette, traces
from dtdg_lab.visualization.axes import NAMES
from dtdg_lab.visualization.chart import Figure, card, trace_keys
from dtdg_lab.visualization.traces import Attributes

TELLING = "two bars differ where their seeds do not overlap"


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


def spread_bars(bars: Sequence[SpreadBar], title: str, unit: str) -> Figure:
    """Return horizontal bars in the order given, the first on top; points are seeds.

    Args:
        bars: of any length; those without a value keep their row.
        title: of the figure.
        unit: title of the x axis, with its unit.
    """
    if not any(bar.values for bar in bars):
        return card([], title, x_title=unit, empty="no run has ended yet", yaxis=NAMES)
    labels = [bar.label + f" ({bar.missed} did not get there)" * bool(bar.missed) for bar in bars]
    colours = [palette.series_colour(0) if bar.values else palette.BASELINE_COLOUR for bar in bars]
    faint: Attributes = {"marker": {"color": colours, "opacity": 0.55}}
    seeds = [(value, name) for name, bar in zip(labels, bars, strict=True) for value in bar.values]
    x, y = [value for value, _ in seeds], [name for _, name in seeds]
    hover, middle = "%{y}: %{x:.4~g}", [bar.middle for bar in bars]
    data = [
        traces.level_bars("median", labels, middle, None, f"{hover} (median)<extra></extra>", **faint),
        traces.points("each seed", x, y, palette.TEXT_COLOUR, f"{hover}<extra></extra>", size=6),
    ]
    return card(data, title, x_title=unit, keys=trace_keys(data), yaxis=NAMES)


def apart(first: SpreadBar, second: SpreadBar) -> bool:
    """Return whether the seeds of two bars do not overlap, with at least two each."""
    if min(len(first.values), len(second.values)) < 2:
        return False
    return max(first.values) < min(second.values) or max(second.values) < min(first.values)


def order_caption(bars: Sequence[SpreadBar], what: str) -> str:
    """Return which bar is shortest, and which others are indistinguishable from it."""
    measured = sorted((bar for bar in bars if bar.values), key=lambda bar: (bar.missed, bar.middle or 0.0))
    if not measured:
        return f"No run has a {what} yet."
    first, *rest = measured
    complete = [bar for bar in rest if not bar.missed]
    like, missed = [bar.label for bar in complete if not apart(first, bar)], [bar.label for bar in bars if bar.missed]
    caption = f"{first.label} has the least {what} (median {first.middle:.4g})"
    if like:
        caption += f"; indistinguishable from it: {join_words(like)}"
    if missed:
        caption += f"; not with every seed: {join_words(missed)}"
    return f"{caption}. Look whether points overlap: {TELLING}."
