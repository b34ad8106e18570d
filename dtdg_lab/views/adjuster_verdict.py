"""Adjusters of batches against runs with fixed sizes: does choosing beat the best fixed size here?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from dtdg_lab.core import catalogue
from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import join_words
from dtdg_lab.views.time_to_loss import near_best, seconds_to

if TYPE_CHECKING:
    from dtdg_lab.views.window import RunWindow

Labelled = Sequence[tuple[str, "RunWindow"]]
_SIZES = ("batch_snapshots", "batch_vertices")
# in which runs may differ and yet be compared: what steers sizes, the seed, and how long they may go on
_FREE = frozenset({*_SIZES, "system", "seed", "epochs", "name"})


def adjuster_verdict(runs: Labelled) -> str:
    """Whether adjusters come near the least loss of all before the best fixed size does, in hindsight.

    Compared are runs of the same settings, but for sizes, adjusters and seeds; of several that differ in the seed alone
    the median counts. A run whose sizes or adjuster were changed on the way is left out.

    Args:
        runs: labelled windows of runs.

    Returns:
        A sentence for each such comparison; empty where there is none.
    """
    groups: dict[tuple[tuple[str, str], ...], list[RunWindow]] = {}
    for _, window in runs:
        if window.hybrid.unchanged:
            groups.setdefault(_settings(window), []).append(window)
    return " ".join(filter(None, (_verdict(group) for group in groups.values())))


def _verdict(windows: Sequence[RunWindow]) -> str:
    loss = near_best(windows)
    if loss is None:
        return ""
    adjusted: dict[str, list[float]] = {}
    fixed: dict[str, list[float]] = {}
    for window in windows:
        seconds, facts = seconds_to(window, loss), window.hybrid.facts
        if facts is not None:
            into, name = (adjusted, facts.adjuster) if facts.adjusted else (fixed, facts.size.label)
            into.setdefault(name, []).append(math.inf if seconds is None else seconds)
    return verdict_words(_medians(adjusted), _medians(fixed), loss)


def _medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: median(each) for name, each in seconds.items()}


def verdict_words(adjusted: Mapping[str, float], fixed: Mapping[str, float], loss: float) -> str:
    """The verdict on adjusters, by seconds to a loss; empty where there is nothing to compare with.

    Args:
        adjusted: seconds by adjuster; infinite where it did not get there.
        fixed: seconds by fixed size.
        loss: to be reached.
    """
    if not adjusted or not fixed:
        return ""
    if min(fixed.values()) == math.inf:
        there = [name for name in adjusted if adjusted[name] < math.inf]
        got = f"{join_words(sorted(there))} got" if there else "nothing of these got"
        return f"None of {len(fixed)} fixed size{'s' * (len(fixed) > 1)} got to loss {loss:.4g}; {got} there."
    best = min(fixed, key=lambda name: fixed[name])
    text = (
        f"The best of {len(fixed)} fixed size{'s' * (len(fixed) > 1)}, in hindsight, is {best}: "
        f"{format_seconds(fixed[best])} to loss {loss:.4g}."
    )
    ahead = [name for name in adjusted if adjusted[name] < fixed[best]]
    behind = [name for name in adjusted if name not in ahead]
    for names, one, several in ((ahead, "beats", "beat"), (behind, "does not beat", "do not beat")):
        if names:
            told = join_words([f"{name} ({_taken(adjusted[name])})" for name in sorted(names)])
            text += f" {told} {one if len(names) == 1 else several} it here."
    return text


def _taken(seconds: float) -> str:
    return format_seconds(seconds) if seconds < math.inf else "not there"


def _settings(window: RunWindow) -> tuple[tuple[str, str], ...]:
    """What must be the same for times to be compared."""
    steering = {name for entry in catalogue.names("control") for name in catalogue.entry("control", entry).options}
    flat = window.config.flat
    return tuple(sorted((name, repr(value)) for name, value in flat.items() if name not in _FREE | steering))
