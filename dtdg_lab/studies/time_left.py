"""How long a study still takes, from how long its runs took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dtdg_lab.studies.trials import FINISHED, Trial

Settings = Mapping[str, Any]
MOST = 64  # newest finished runs that are looked at


def time_left(trials: Sequence[Trial], epochs: Mapping[str, int], left: Sequence[tuple[Settings, int]]) -> float | None:
    """Seconds that runs still take; None before one is finished.

    Each takes its epochs times the median seconds an epoch of those finished runs that share most settings with it.

    Args:
        trials: of the study.
        epochs: of the finished ones, by key.
        left: settings and epochs of each run still to be made.
    """
    done = [
        (trial.settings, trial.seconds / epochs[trial.key])
        for trial in trials
        if trial.status == FINISHED and trial.seconds and trial.key in epochs
    ][-MOST:]
    if not done:
        return None
    rates: dict[tuple[Any, ...], float] = {}
    total = 0.0
    for settings, count in left:
        key = tuple(settings.items())
        if key not in rates:
            shared = [sum(settings.get(name) == value for name, value in known.items()) for known, _ in done]
            most = max(shared)
            rates[key] = median(rate for (_, rate), alike in zip(done, shared, strict=True) if alike == most)
        total += rates[key] * count
    return total
