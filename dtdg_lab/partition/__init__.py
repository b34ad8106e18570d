"""Partitioners of nodes, all functions of one signature, and the cost of their partitions."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.partition.base import load_partition as load
    from dtdg_lab.partition.measured_partition import compare_partitions as compare
    from dtdg_lab.partition.measured_partition import partition_graph as partition

__all__ = ["compare", "load", "partition"]

_HOMES = {
    "compare": "dtdg_lab.partition.measured_partition:compare_partitions",
    "load": "dtdg_lab.partition.base:load_partition",
    "partition": "dtdg_lab.partition.measured_partition:partition_graph",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(sorted(_HOMES))}", name=name)
    return resolve_name(_HOMES[name])


def __dir__() -> list[str]:
    return sorted(_HOMES)
