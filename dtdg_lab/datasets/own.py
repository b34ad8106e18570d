"""The user's own edges as a dynamic graph."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dtdg_lab.core.options import option
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.windows import cut_edges


def from_edges(
    src: ArrayLike,
    dst: ArrayLike,
    time: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    cut: int,
    edge_life: int = 1,
    features: str = "log_degrees",
    strict_label: bool = False,
    name: str = "mine",
) -> DynamicGraph:
    """A dynamic graph from E edges with times, for ``RunConfig(dataset=graph)``.

    Vertices are numbered over all time in the order of their ids, which stay in ``graph.node_ids``.

    Args:
        src: sources, shape (E,): whole numbers or text; arrays, lists or columns of a table.
        dst: targets, shape (E,).
        time: times, shape (E,), in any order: numbers in any unit, or datetimes.
        weight: weights, shape (E,), finite and at least 0; those of equal edges in a window are summed.
        cut: equal base intervals the whole span is cut into.
        edge_life: base intervals an edge lives; ``cut - edge_life`` labelled snapshots result.
        features: ``log_degrees`` or ``degrees``.
        strict_label: count only edges of the newest base interval in the label.
        name: what runs and reports call the graph.

    Raises:
        DataError: vectors do not fit together or hold values of the wrong kind, or too few intervals.
        ConfigError: an option is out of its bounds.
    """
    cut, edge_life = option("cut").check(cut), option("edge_life").check(edge_life)
    features = option("features").check(features)
    edges = cut_edges(src, dst, time, weight=weight, cut=cut)
    return build_graph(
        edges, name=name, source=f"given in memory ({len(edges.src):,} rows)", edge_life=edge_life, features=features,
        strict_label=strict_label,
    )  # fmt: skip
