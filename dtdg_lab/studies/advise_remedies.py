"""What would make a system fit the memory: the first change of its settings, or number of ranks, that does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.studies.advise_count import count_work
from dtdg_lab.studies.advise_rates import Rates

# layout -> options and by what each is multiplied, again and again; blocks grow, the others shrink
_CHANGES: Mapping[str, tuple[tuple[str, float], ...]] = MappingProxyType(
    {
        "snapshot": (("blocks", 2.0),), "halo_vertex": (("blocks", 2.0),),
        "snapshot_group": (("group_window", 0.5),), "halo_window": (("window", 0.5),),
        "sampled_window": (("window", 0.5), ("fanout", 0.5)), "remote_feature": (("batch_size", 0.5),),
    }
)  # fmt: skip
_TIMES, _MOST_RANKS = 5, 64


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that makes it fit.

    Attributes:
        changes: option -> value.
        memory_bytes: predicted with it.
        epoch_s: likewise.
    """

    changes: Mapping[str, Any]
    memory_bytes: float
    epoch_s: float

    def __str__(self) -> str:
        return ", ".join(f"{name}={value:g}" for name, value in self.changes.items())


def remedy(config: RunConfig, graph: DynamicGraph, rates: Rates, budget_bytes: float) -> Remedy | None:
    """The first of some changes with which a system's memory is within the budget; None where none is."""
    for changes in _candidates(config):
        try:
            work, facts = count_work(config.replace(**changes), graph)
        except LabError:  # beyond what the graph allows
            continue
        told = rates.predict(work, facts, None)
        if told.memory_bytes <= budget_bytes:
            return Remedy(MappingProxyType(changes), told.memory_bytes, told.epoch_s)
    return None


def _candidates(config: RunConfig) -> Iterator[dict[str, Any]]:
    of = catalogue.system(config.system).parts
    changes = _CHANGES.get(of["parallel"], ())
    if of["parallel"] == "cached_vertex" and "batching" in of and config["adjuster"] == "none":
        changes = (("batch_vertices", 0.5), ("batch_snapshots", 0.5))
    for name, factor in changes:
        value = config[name]
        for _ in range(_TIMES):
            value = max(value, 1) * factor if factor > 1 else value * factor
            if not isinstance(config[name], float):
                value = int(value)
            if value <= 0 or (name == "window" and value < config["full_snapshots"] and "alpha" in config.flat):
                break
            yield {name: value}
    if of["parallel"] != "single":
        ranks = config.ranks * 2
        while ranks <= max(_MOST_RANKS, config.ranks * 4):
            yield {"ranks": ranks, "parts": ranks}
            ranks *= 2
