"""Memory of a rank in a step, predicted from its work, and changes of settings that lower it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.workload import EpochWork, Facts, Numbers, count_work

ASSUMED_MEMORY = 4.0  # bytes per stored value of float32, if no run tells
TRIES = 5  # changes tried per option
ENOUGH = 0.5  # share of the memory that a change is to leave


@dataclass(frozen=True, slots=True)
class MemoryRemedy:
    """A change of settings that lowers the memory of a rank.

    Attributes:
        changes: option -> value.
        before_bytes: predicted memory of the rank that needs most, its step and its data.
        after_bytes: the same with the change.
    """

    changes: Mapping[str, Any]
    before_bytes: float
    after_bytes: float

    @property
    def is_live(self) -> bool:
        """True if a run can be resumed with the change."""
        return all(OPTIONS[name].live != "no" for name in self.changes)

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value:g}" for name, value in self.changes.items())
        return (
            f"{settings} lowers the predicted memory of a rank from {format_bytes(self.before_bytes)} to "
            f"{format_bytes(self.after_bytes)}"
        )


def stored_values(work: EpochWork, facts: Facts) -> Numbers:
    """Return how many values each rank keeps for the backward pass in its largest step, (R,)."""
    return np.asarray(work.alive @ np.array([facts.row_numbers, facts.edge_numbers], np.float64))


def setting_changes(config: RunConfig) -> Iterator[dict[str, Any]]:
    """Yield changes of one setting each that lower a rank's memory, smaller ones first for each option."""
    family = catalogue.family(catalogue.system(config.system).family)
    for name, factor in family.memory_changes(config):
        value = config[name]
        for _ in range(TRIES):
            value = max(value, 1) * factor if factor > 1 else value * factor
            if not isinstance(config[name], float):
                value = int(value)
            if value <= 0 or (name == "window" and value < config["full_snapshots"] and "alpha" in config.flat):
                break
            yield {name: value}


def lower_memory(config: RunConfig, graph: DynamicGraph) -> MemoryRemedy | None:
    """Return the first change that halves the predicted memory, else the best one; None if no change lowers it.

    Raises:
        LabError: the memory of the config cannot be predicted.
    """
    before_bytes, best = _predict_bytes(config, graph), None
    for changes in setting_changes(config):
        try:
            after_bytes = _predict_bytes(config.replace(**changes), graph)
        except LabError:  # the graph does not allow these settings
            continue
        if after_bytes < (before_bytes if best is None else best.after_bytes):
            best = MemoryRemedy(MappingProxyType(changes), before_bytes, after_bytes)
            if after_bytes <= ENOUGH * before_bytes:
                break
    return best


def _predict_bytes(config: RunConfig, graph: DynamicGraph) -> float:
    """Return the memory of the rank that needs most, as ``forecast`` predicts it without measured runs."""
    work, facts = count_work(config, graph)
    return float((stored_values(work, facts) * ASSUMED_MEMORY * (facts.itemsize / 4) + work.held_bytes).max())
