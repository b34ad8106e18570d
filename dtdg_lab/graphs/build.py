"""Edges in base intervals to a DynamicGraph: the one path all data sets take."""

from __future__ import annotations

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.features import degree_features, next_step_labels
from dtdg_lab.graphs.windows import IntervalEdges, base_snapshots, merge_windows

# raise it when windows, features or labels change, so that graphs cut by older code are not taken from a cache
BUILD_VERSION = 1


def build_graph(
    edges: IntervalEdges,
    *,
    name: str,
    source: str,
    edge_life: int = 1,
    features: str = "log_degrees",
    strict_label: bool = False,
) -> DynamicGraph:
    """Windows, features and labels of edges that are already dealt to B base intervals.

    Returns:
        T = B - edge_life labelled snapshots with F = 2 degree features; the last window is only a label.

    Raises:
        DataError: too few base intervals for ``edge_life``.
        UnknownNameError: ``features`` is neither ``log_degrees`` nor ``degrees``.
    """
    base = base_snapshots(edges)
    windows = merge_windows(base, edge_life)
    targets, persistence = next_step_labels(base, windows, strict_label=strict_label)
    return DynamicGraph(
        name=name, snapshots=windows[:-1], features=degree_features(windows[:-1], features), targets=targets,
        persistence=persistence, source=source, edge_life=edge_life, node_ids=edges.node_ids,
        strict_label=strict_label,
    )  # fmt: skip
