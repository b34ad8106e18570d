"""METIS on the union of all snapshots: few edges between parts, and parts of alike weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.streams import key
from dtdg_lab.graphs.arrays import stored_once
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.assigned import Assigned
from dtdg_lab.partition.in_child import needs_library
from dtdg_lab.partition.union import union_graph
from dtdg_lab.partition.union_cut import cut_union

READS = ("seed", "imbalance")


def assign(
    graph: DynamicGraph,
    parts: int,
    *,
    hops: int = 1,
    seed: int = 0,
    dealing: str = "boustrophedon",
    imbalance: float = 0.03,
    partition_file: str = "",
) -> Assigned:
    """Cut the union graph where fewest snapshots hold the edges, with edges and labelled vertices balanced.

    A pair weighs as much as snapshots hold it. A vertex weighs its share of all edges (in and out, over all
    snapshots) plus its share of all labelled vertices: pymetis takes one weight a vertex, so the two balances that
    METIS could keep apart are kept as their sum. Vertices without a neighbour in any snapshot are not shown to METIS:
    they go, in order, to the parts that then have fewest vertices. METIS runs in a child process.

    Args:
        graph: N vertices in T snapshots; labelled are those with a class at any time, or all where there are none.
        parts: P, at most N.
        hops: not read.
        seed: of METIS.
        dealing: not read.
        imbalance: how far the heaviest part may be above the mean, as a share; METIS does not promise it.
        partition_file: not read.

    Raises:
        NotAvailableError: pymetis is not installed.
        PartitionError: METIS crashed, failed or hung.

    References: Karypis, Kumar 1998 (METIS 5, k-way; recursive bisection up to 8 parts); FlareDTDG section 4.
    """
    needs_library("pymetis")
    solver_seed = key(seed, "partition/metis") & 0x7FFFFFFF
    return cut_union(union_graph(graph.snapshots), vertex_weights(graph), parts, seed=solver_seed, imbalance=imbalance)


def vertex_weights(graph: DynamicGraph) -> NDArray[np.float64]:
    """A vertex's share of all edges, in and out over all snapshots, plus its share of all labelled vertices; (N,)."""
    edges = np.zeros(graph.num_nodes)
    for snapshot in graph.snapshots:
        edges += np.diff(snapshot.indptr)
        edges += np.bincount(snapshot.indices, minlength=graph.num_nodes)
    labelled = np.ones(graph.num_nodes, bool)
    if graph.classes is not None and graph.num_classes:
        labelled[:] = False
        for classes in np.atleast_2d(stored_once(graph.classes)):
            labelled |= classes != -1
    return edges / max(1.0, edges.sum()) + labelled / labelled.sum()
