"""Comparison of a batch-size controller with the best fixed size, by runs that are otherwise equal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

from dtdg_lab.config import catalogue
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches import captions
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.visualization.numbers import three_digits

if TYPE_CHECKING:
    from dtdg_lab.visualization.studies.comparison import ComparedRun

_CONTROLLERS: Mapping[str, str] = MappingProxyType(
    {"dqn": "the DQN", "bandit": "the bandit", "law": "the scaling law", "random": "the random controller"}
)
# in which compared runs may differ: the sizes, the seed and the length
_FREE = frozenset({"batch_snapshots", "batch_nodes", "system", "seed", "epochs", "name"})


def controller_verdict(runs: Sequence[ComparedRun], target: float) -> str:
    """Return whether a controller reached a loss before the best fixed size; empty if the runs do not show it.

    Compared runs differ only in sizes, controllers and seeds; the median over seeds counts. A run whose sizes or
    controller changed during training is left out.

    Args:
        runs: runs with the seconds until each reached the loss.
        target: the loss.
    """
    groups: dict[tuple[tuple[str, str], ...], list[tuple[HybridFacts, float]]] = {}
    for run in runs:
        facts = _only_plan(run.tables)
        if facts is not None:
            group = groups.setdefault(_shared_settings(run.tables), [])
            group.append((facts, math.inf if run.seconds is None else run.seconds))
    verdicts = (_verdict(*_medians(group), target) for group in groups.values())
    return next((verdict for verdict in verdicts if verdict), "")


def _only_plan(tables: RunTables) -> HybridFacts | None:
    """Return the hybrid batches of a run; None if it has none, or if they were changed."""
    plans = [facts for _, facts in tables.typed(HybridFacts)]
    kinds = {facts and (facts.sizes, facts.batch_policy, facts.candidates) for facts in plans}
    return plans[-1] if len(kinds) == 1 else None


def _shared_settings(tables: RunTables) -> tuple[tuple[str, str], ...]:
    """Return the settings that must be equal for times to be compared."""
    steering = {name for entry in catalogue.names("control") for name in catalogue.entry("control", entry).options}
    flat = tables.config.flat
    return tuple(sorted((name, repr(value)) for name, value in flat.items() if name not in _FREE | steering))


def _medians(group: Sequence[tuple[HybridFacts, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the median seconds by controller, and by fixed size."""
    seconds_by_name: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for facts, seconds in group:
        name = facts.batch_policy if facts.is_controlled else facts.size.name
        seconds_by_name[facts.is_controlled].setdefault(name, []).append(seconds)
    controllers, sizes = (
        {name: median(seconds) for name, seconds in seconds_by_name[kind].items()} for kind in (True, False)
    )
    return controllers, sizes


def _verdict(controllers: Mapping[str, float], sizes: Mapping[str, float], loss: float) -> str:
    if not controllers or not sizes:
        return ""
    first, size = min(controllers, key=controllers.__getitem__), min(sizes, key=sizes.__getitem__)
    seconds, best_s = controllers[first], sizes[size]
    controller = _CONTROLLERS.get(first, first)
    texts = {"controller": controller, "size": size, "loss": three_digits(loss)}
    if seconds < best_s == math.inf:
        return _sentence(captions.ALONE.format(**texts))
    if seconds < best_s:
        times = three_digits(best_s / seconds) if seconds > 0 else "many"
        return _sentence(captions.AHEAD.format(times=times, **texts))
    return captions.BEHIND.format(**texts) if best_s < math.inf else ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
