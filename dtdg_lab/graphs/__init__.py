"""Discrete-time dynamic graphs as immutable CSR arrays: windows, features, splits, storage. No torch."""

from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import Split, split

__all__ = ["DynamicGraph", "Snapshot", "Split", "build_graph", "split"]
