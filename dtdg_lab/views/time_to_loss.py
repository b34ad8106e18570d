"""How long runs took to a loss that is nearly the best of all: what a comparison of systems comes down to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median_high
from typing import TYPE_CHECKING

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import join_words

if TYPE_CHECKING:
    from dtdg_lab.views.window import RunWindow


def loss_points(window: RunWindow) -> list[tuple[float, float]]:
    """Seconds of the run and validation loss (training where there is none) of its evaluations."""
    points = window.loss.splits[window.loss.judged].points
    return [(point.seconds, point.value) for point in points if point.value is not None]


NEAR = 0.05


def near_best(windows: Sequence[RunWindow]) -> float | None:
    """The least loss that any of the runs has reached, and 5 % more; None where one of them was never evaluated.

    What all reach would be what the worst of them reaches: a run that learns something else soon would look quick.
    """
    least = [min((loss for _, loss in loss_points(window)), default=None) for window in windows]
    known = [loss for loss in least if loss is not None]
    return min(known) * (1 + NEAR) if known and len(known) == len(least) else None


def seconds_to(window: RunWindow, loss: float) -> float | None:
    """Wall seconds until a run's loss was as low for the first time; None where it never was."""
    return next((seconds for seconds, found in loss_points(window) if found <= loss), None)


def time_to_loss_words(seconds: Mapping[str, float], loss: float, missed: Sequence[str] = ()) -> str:
    """Who was first at a loss, how many times longer the others took, and who did not get there."""
    if not seconds:
        return "No run has been evaluated yet."
    order = sorted(seconds, key=lambda label: seconds[label])
    first = order[0]
    text = f"To loss {loss:.4g}, {NEAR:.0%} above the least of all, {first} took {format_seconds(seconds[first])}"
    for label in order[1:]:
        times = f", {seconds[label] / seconds[first]:.3g} times as long" if seconds[first] > 0 else ""
        text += f"; {label} {format_seconds(seconds[label])}{times}"
    did_not = f" {join_words(list(missed))} did not get there." if missed else ""
    return f"{text}.{did_not}"


def near_by_seed_words(windows: Mapping[str, Sequence[RunWindow]]) -> str:
    """Seconds to a loss 5 % above the least of all, over runs that differ in their seeds alone.

    Args:
        windows: by label, a run for each seed.

    Returns:
        A line for each label with the least, the median and the most, and how many runs never got there: these count
        as longest. Empty where a run was never evaluated.
    """
    loss = near_best([window for several in windows.values() for window in several])
    if loss is None:
        return ""
    lines = [f"seconds to loss {loss:.4g}, {NEAR:.0%} above the least of all: least, median, most over the seeds"]
    for label, several in windows.items():
        found = [seconds_to(window, loss) for window in several]
        took = sorted(math.inf if seconds is None else seconds for seconds in found)
        three = (took[0], median_high(took), took[-1])
        told = "  ".join(format_seconds(each) if each < math.inf else "never" for each in three)
        lines.append(f"  {label}: {told}  ({found.count(None)} of {len(found)} never)")
    return "\n".join(lines)
