"""Mt-KaHyPar on the nets of a sequence: as few rows sent between parts as it can find."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.streams import key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.assigned import Assigned
from dtdg_lab.partition.empty_parts import without_empty_parts
from dtdg_lab.partition.fitting import fitting
from dtdg_lab.partition.in_child import in_child, needs_library
from dtdg_lab.partition.nets import merged_nets

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
    """Minimise the rows that are sent in one pass: the connectivity objective km1 over one net for each (t, v).

    The net of v at t holds v and those that pull from v. Over all nets, the sum of (parts that a net touches - 1) is
    the halo rows of the whole sequence, counted exactly; an edge cut counts a row twice where two vertices of one
    part pull it. A vertex weighs 1 plus what it pulls over all snapshots. Runs in a child process.

    Args:
        graph: N vertices in T snapshots.
        parts: P, at most N.
        hops: not read.
        seed: of Mt-KaHyPar, which runs on one thread: then it gives the same parts every time.
        dealing: not read.
        imbalance: how far the heaviest part may be above the mean, as a share.
        partition_file: not read.

    Raises:
        NotAvailableError: mtkahypar is not installed.
        PartitionError: Mt-KaHyPar crashed, failed or hung.

    References: ESDG section 6 (hypergraph vertex partition); Gottesbueren, Heuer, Maas, Sanders, Schlag 2024
    (Mt-KaHyPar).
    Differs from the paper: ESDG uses PaToH; equal nets are merged here, which changes no cost.
    """
    needs_library("mtkahypar")
    pulls = np.ones(graph.num_nodes)
    for snapshot in graph.snapshots:
        pulls += np.diff(snapshot.indptr)
    nets = merged_nets(graph.snapshots)
    if parts == 1 or not len(nets.counts):  # nothing to cut: heaviest first, one after another
        owner = np.empty(graph.num_nodes, np.int32)
        owner[np.argsort(-pulls, kind="stable")] = np.arange(graph.num_nodes) % parts
        return Assigned(owner)
    arrays: dict[str, NDArray[Any]] = {
        "starts": nets.starts,
        "pins": nets.pins,
        "net_weights": fitting(nets.counts),
        "vertex_weights": fitting(pulls),
        "parts": np.array(parts),
        "seed": np.array(key(seed, "partition/hypergraph") & 0x7FFFFFFF),
        "imbalance": np.array(imbalance),
    }
    owner = in_child("hypergraph", arrays, vertices=graph.num_nodes, parts=parts)
    return without_empty_parts(owner, parts, pulls)
