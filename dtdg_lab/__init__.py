"""DTDG Lab: see, steer and understand distributed training of discrete-time dynamic graph neural networks.

Importing this package is light and starts nothing; names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.cluster.local import train
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.core.catalogue import describe
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.dash.app import Dashboard
    from dtdg_lab.datasets.names import datasets, default_dataset, load_dataset
    from dtdg_lab.datasets.own import from_edges
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.open import compare, open_run
    from dtdg_lab.runs.progress import progress

__version__ = "0.1.0"

__all__ = [
    "Dashboard",
    "DynamicGraph",
    "RunConfig",
    "Session",
    "compare",
    "datasets",
    "default_dataset",
    "describe",
    "from_edges",
    "load_dataset",
    "open_run",
    "progress",
    "train",
]

_WHERE = {
    "Dashboard": "dtdg_lab.dash.app",
    "DynamicGraph": "dtdg_lab.graphs.dynamic_graph",
    "RunConfig": "dtdg_lab.core.config",
    "Session": "dtdg_lab.cluster.session",
    "compare": "dtdg_lab.runs.open",
    "datasets": "dtdg_lab.datasets.names",
    "default_dataset": "dtdg_lab.datasets.names",
    "describe": "dtdg_lab.core.catalogue",
    "from_edges": "dtdg_lab.datasets.own",
    "load_dataset": "dtdg_lab.datasets.names",
    "open_run": "dtdg_lab.runs.open",
    "progress": "dtdg_lab.runs.progress",
    "train": "dtdg_lab.cluster.local",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"dtdg_lab has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
