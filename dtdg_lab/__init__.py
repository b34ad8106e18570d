"""DTDG Lab: see, steer and understand distributed training of discrete-time dynamic graph neural networks.

Importing this package is light and starts nothing; names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.advisor.advise import advise
    from dtdg_lab.advisor.what_if import what_if
    from dtdg_lab.cards.card import card
    from dtdg_lab.cluster.calibrate_here import calibrate_here
    from dtdg_lab.cluster.local import train
    from dtdg_lab.cluster.replay import fork, repeats, replay
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.core.catalogue import describe, register
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.core.options import options
    from dtdg_lab.dashboard.app import Dashboard
    from dtdg_lab.datasets.names import datasets, default_dataset, load_dataset
    from dtdg_lab.datasets.user_data import from_csv, from_dgl, from_edges, from_pandas, from_parquet, from_static
    from dtdg_lab.export.export import export
    from dtdg_lab.export.race import open_race
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.partition.base import load_partition
    from dtdg_lab.partition.metrics import compare_partitions, partition_graph
    from dtdg_lab.runs.calibration import save_congestion
    from dtdg_lab.runs.exports import open_run
    from dtdg_lab.runs.inspect_model import compare_graphs, echo, follow_vertex, trace
    from dtdg_lab.runs.plot import plot
    from dtdg_lab.runs.run import compare, progress
    from dtdg_lab.runs.scaling_study import predict_scaling
    from dtdg_lab.studies.decay import study_decay
    from dtdg_lab.studies.race import race
    from dtdg_lab.studies.runner import run_study
    from dtdg_lab.studies.stop_rule import StopRule
    from dtdg_lab.studies.study import open_study
    from dtdg_lab.studies.sweep import Sweep
    from dtdg_lab.systems.snapshot_blocks.forecast import compare_blocks, compare_transfers, compare_volumes
    from dtdg_lab.systems.snapshot_groups.forecast import simulate_schedules

__version__ = "0.1.0"

__all__ = [
    "Dashboard",
    "DynamicGraph",
    "RunConfig",
    "Session",
    "StopRule",
    "Sweep",
    "advise",
    "calibrate_here",
    "card",
    "compare",
    "compare_blocks",
    "compare_graphs",
    "compare_partitions",
    "compare_transfers",
    "compare_volumes",
    "datasets",
    "default_dataset",
    "describe",
    "echo",
    "export",
    "follow_vertex",
    "fork",
    "from_csv",
    "from_dgl",
    "from_edges",
    "from_pandas",
    "from_parquet",
    "from_static",
    "load_dataset",
    "load_partition",
    "open_race",
    "open_run",
    "open_study",
    "options",
    "partition_graph",
    "plot",
    "predict_scaling",
    "progress",
    "race",
    "register",
    "repeats",
    "replay",
    "run_study",
    "save_congestion",
    "simulate_schedules",
    "study_decay",
    "trace",
    "train",
    "what_if",
]

_WHERE = {
    "repeats": "dtdg_lab.cluster.replay",
    "export": "dtdg_lab.export.export",
    "replay": "dtdg_lab.cluster.replay",
    "fork": "dtdg_lab.cluster.replay",
    "open_race": "dtdg_lab.export.race",
    "card": "dtdg_lab.cards.card",
    "StopRule": "dtdg_lab.studies.stop_rule",
    "Sweep": "dtdg_lab.studies.sweep",
    "open_study": "dtdg_lab.studies.study",
    "run_study": "dtdg_lab.studies.runner",
    "race": "dtdg_lab.studies.race",
    "what_if": "dtdg_lab.advisor.what_if",
    "advise": "dtdg_lab.advisor.advise",
    "Dashboard": "dtdg_lab.dashboard.app",
    "DynamicGraph": "dtdg_lab.graphs.dynamic_graph",
    "RunConfig": "dtdg_lab.core.config",
    "Session": "dtdg_lab.cluster.session",
    "calibrate_here": "dtdg_lab.cluster.calibrate_here",
    "compare": "dtdg_lab.runs.run",
    "compare_blocks": "dtdg_lab.systems.snapshot_blocks.forecast",
    "compare_transfers": "dtdg_lab.systems.snapshot_blocks.forecast",
    "compare_volumes": "dtdg_lab.systems.snapshot_blocks.forecast",
    "compare_graphs": "dtdg_lab.runs.inspect_model",
    "compare_partitions": "dtdg_lab.partition.metrics",
    "datasets": "dtdg_lab.datasets.names",
    "default_dataset": "dtdg_lab.datasets.names",
    "describe": "dtdg_lab.core.catalogue",
    "register": "dtdg_lab.core.catalogue",
    "options": "dtdg_lab.core.options",
    "echo": "dtdg_lab.runs.inspect_model",
    "follow_vertex": "dtdg_lab.runs.inspect_model",
    "from_csv": "dtdg_lab.datasets.user_data",
    "from_dgl": "dtdg_lab.datasets.user_data",
    "from_edges": "dtdg_lab.datasets.user_data",
    "from_pandas": "dtdg_lab.datasets.user_data",
    "from_parquet": "dtdg_lab.datasets.user_data",
    "from_static": "dtdg_lab.datasets.user_data",
    "load_dataset": "dtdg_lab.datasets.names",
    "load_partition": "dtdg_lab.partition.base",
    "open_run": "dtdg_lab.runs.exports",
    "partition_graph": "dtdg_lab.partition.metrics",
    "plot": "dtdg_lab.runs.plot",
    "predict_scaling": "dtdg_lab.runs.scaling_study",
    "progress": "dtdg_lab.runs.run",
    "save_congestion": "dtdg_lab.runs.calibration",
    "simulate_schedules": "dtdg_lab.systems.snapshot_groups.forecast",
    "study_decay": "dtdg_lab.studies.decay",
    "trace": "dtdg_lab.runs.inspect_model",
    "train": "dtdg_lab.cluster.local",
}

_ROOMS = ("control", "studies")  # whose names are used by the room's: lab.control.calibrate(...)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"dtdg_lab.{name}")
    if name not in _WHERE:
        raise AttributeError(f"dtdg_lab has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__version__"])
