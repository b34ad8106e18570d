"""DTDG Lab: see, steer and understand distributed training of discrete-time dynamic graph neural networks.

Importing this package is light and starts nothing; names are loaded when first used. What most notebooks use is
here; the rest is in groups: ``lab.datasets.load``, ``lab.runs.compare``, ``lab.estimate.advise``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab import congestion, control, datasets, estimate, inspect, partition, races, runs, studies, testing
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
    from dtdg_lab.studies.runner import run_study
    from dtdg_lab.studies.sweep import Sweep

__version__ = "0.1.0"

__all__ = [
    "Dashboard",
    "DynamicGraph",
    "RunConfig",
    "Session",
    "StopRule",
    "Sweep",
    "card",
    "congestion",
    "control",
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

__getattr__, __dir__ = lazy_namespace(__name__)
