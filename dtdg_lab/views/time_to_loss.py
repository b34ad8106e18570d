"""How long runs took to one common loss: what a comparison of systems comes down to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dtdg_lab.core.units import format_seconds

if TYPE_CHECKING:
    from dtdg_lab.views.window import RunWindow


def loss_points(window: RunWindow) -> list[tuple[float, float]]:
    """Seconds of the run and validation loss (training where there is none) of its evaluations."""
    points = window.loss.splits[window.loss.judged].points
    return [(point.seconds, point.value) for point in points if point.value is not None]


def common_loss(windows: Sequence[RunWindow]) -> float | None:
    """The least loss that every run has reached; None where one of them was never evaluated."""
    least = [min((loss for _, loss in loss_points(window)), default=None) for window in windows]
    known = [loss for loss in least if loss is not None]
    return max(known) if known and len(known) == len(least) else None


def seconds_to(window: RunWindow, loss: float) -> float | None:
    """Wall seconds until a run's loss was as low for the first time; None where it never was."""
    return next((seconds for seconds, found in loss_points(window) if found <= loss), None)


def time_to_loss_words(seconds: Mapping[str, float], loss: float) -> str:
    """Who was first at a loss, and how many times longer the others took."""
    if not seconds:
        return "No run has been evaluated yet."
    order = sorted(seconds, key=lambda label: seconds[label])
    first = order[0]
    text = f"To loss {loss:.4g}, which all reach, {first} took {format_seconds(seconds[first])}"
    for label in order[1:]:
        times = f", {seconds[label] / seconds[first]:.3g} times as long" if seconds[first] > 0 else ""
        text += f"; {label} {format_seconds(seconds[label])}{times}"
    return f"{text}."
