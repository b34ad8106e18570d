"""DTDG Lab: see, steer and understand distributed training of discrete-time dynamic graph neural networks.

Importing this package is light and starts nothing; names are loaded when first used. What most notebooks use is
here; the rest is in groups: ``lab.datasets.load``, ``lab.runs.compare``, ``Forecast.advice``.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab import calibration, congestion, datasets, estimate, inspect, partition, races, runs, studies, testing
    from dtdg_lab.cards.card import card
    from dtdg_lab.cluster.local import train
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.config.description import describe
    from dtdg_lab.config.options import options
    from dtdg_lab.config.registration import register
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.dashboard.app import Dashboard
    from dtdg_lab.export.export import open_saved as open
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.plot import plot
    from dtdg_lab.studies.race import race
    from dtdg_lab.studies.race_plan import StopRule
    from dtdg_lab.studies.run_study import run_study
    from dtdg_lab.studies.sweep import Sweep

__version__ = "0.1.0"

__all__ = [
    "Dashboard",
    "DynamicGraph",
    "RunConfig",
    "Session",
    "StopRule",
    "Sweep",
    "calibration",
    "card",
    "congestion",
    "datasets",
    "describe",
    "estimate",
    "inspect",
    "open",
    "options",
    "partition",
    "plot",
    "race",
    "races",
    "register",
    "run_study",
    "runs",
    "studies",
    "testing",
    "train",
]

_HOMES = {
    "Dashboard": "dtdg_lab.dashboard.app:Dashboard",
    "DynamicGraph": "dtdg_lab.graphs.dynamic_graph:DynamicGraph",
    "RunConfig": "dtdg_lab.config.run_config:RunConfig",
    "Session": "dtdg_lab.cluster.session:Session",
    "StopRule": "dtdg_lab.studies.race_plan:StopRule",
    "Sweep": "dtdg_lab.studies.sweep:Sweep",
    "calibration": "dtdg_lab.calibration",
    "card": "dtdg_lab.cards.card:card",
    "congestion": "dtdg_lab.congestion",
    "datasets": "dtdg_lab.datasets",
    "describe": "dtdg_lab.config.description:describe",
    "estimate": "dtdg_lab.estimate",
    "inspect": "dtdg_lab.inspect",
    "open": "dtdg_lab.export.export:open_saved",
    "options": "dtdg_lab.config.options:options",
    "partition": "dtdg_lab.partition",
    "plot": "dtdg_lab.runs.plot:plot",
    "race": "dtdg_lab.studies.race:race",
    "races": "dtdg_lab.races",
    "register": "dtdg_lab.config.registration:register",
    "run_study": "dtdg_lab.studies.run_study:run_study",
    "runs": "dtdg_lab.runs",
    "studies": "dtdg_lab.studies",
    "testing": "dtdg_lab.testing",
    "train": "dtdg_lab.cluster.local:train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(sorted(_HOMES))}", name=name)
    return resolve_name(_HOMES[name])


def __dir__() -> list[str]:
    return sorted(_HOMES)
