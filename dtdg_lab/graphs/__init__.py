"""Discrete-time dynamic graphs as immutable CSR arrays: cuts, windows, features, splits, storage. No torch."""

from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import IntervalEdges, IntervalStream, cut_edges
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import Split, split
from dtdg_lab.graphs.statistics import GraphStatistics

__all__ = [
    "DynamicGraph",
    "GraphStatistics",
    "IntervalEdges",
    "IntervalStream",
    "Snapshot",
    "Split",
    "build_graph",
    "cut_edges",
    "split",
]
