"""Mt-KaHyPar on the nets of a sequence: a net that spans k parts is a row sent to k - 1 parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.rng import key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.base import Assigned, without_empty_parts
from dtdg_lab.partition.child_process import fitting, in_child, needs_library
from dtdg_lab.partition.simple import mixed


@dataclass(frozen=True, slots=True, eq=False)
class Nets:
    """K distinct nets over N nodes; net k has the nodes ``pins[starts[k]:starts[k + 1]]``.

    Attributes:
        starts: (K + 1,) int64.
        pins: nodes, int32; distinct within a net, at least two per net.
        counts: (K,) int64, the number of (node, snapshot) pairs with this net.
    """

    starts: NDArray[np.int64]
    pins: NDArray[np.int32]
    counts: NDArray[np.int64]


def merged_nets(snapshots: Sequence[Snapshot]) -> Nets:
    """Return a net for each node v and snapshot t, with v and the nodes that aggregate from v at t; equal nets merged.

    Nets of one pin cannot be cut and are dropped; a self-loop adds no pin. Equal nets have equal sums of two 64-bit
    hashes of their pins, which collide once in 2^128 pairs. Costs O(E log E).

    References: ESDG section 6 (hypergraph model of node partition).
    """
    nodes = snapshots[0].num_nodes
    marks = [mixed(np.arange(nodes), salt) for salt in (1, 2)]
    owners, sizes, pullers, sums = [], [], [], []
    for snapshot in snapshots:
        sources, targets = snapshot.indices, snapshot.rows().astype(np.int32)
        is_loop = sources == targets
        sources, targets = sources[~is_loop], targets[~is_loop]
        order = np.argsort(sources, kind="stable")
        sources, targets = sources[order], targets[order]
        first = np.flatnonzero(np.diff(sources, prepend=np.int32(-1)))
        if not len(first):
            continue
        owners.append(sources[first])
        sizes.append(np.diff(first, append=len(sources)))
        pullers.append(targets)
        sums.append(np.stack([np.add.reduceat(mark[targets], first) + mark[sources[first]] for mark in marks]))
    if not owners:
        return Nets(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    size = np.concatenate(sizes)
    nets, counts = _distinct_nets(np.concatenate(sums, axis=1), size)
    starts, pins = _pins(np.concatenate(owners), size, np.concatenate(pullers), nets)
    return Nets(starts, pins, counts)


def _distinct_nets(sums: NDArray[np.uint64], size: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first of each set of equal nets, ascending, and the size of each set; ``sums`` is (2, nets)."""
    order = np.lexsort((sums[1], sums[0], size))
    keys = np.stack([size[order].astype(np.uint64), *sums[:, order]])
    starts = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
    counts = np.diff(starts, append=len(order))
    firsts = order[starts]
    ascending = np.argsort(firsts)
    return firsts[ascending].astype(np.int64), counts[ascending].astype(np.int64)


def _pins(
    owners: NDArray[np.int32], size: NDArray[Any], pullers: NDArray[np.int32], nets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return starts and pins of some nets: first the owner, then the nodes that aggregate from it."""
    begin = np.cumsum(size) - size
    lengths = size[nets] + 1
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    position = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)  # 0 is the owner
    pins = pullers[np.maximum(0, np.repeat(begin[nets], lengths) + position - 1)]
    pins[starts[:-1]] = owners[nets]
    return starts, pins


def assign_hypergraph(graph: DynamicGraph, parts: int, *, seed: int = 0, imbalance: float = 0.03) -> Assigned:
    """Minimise the rows sent in one pass: the connectivity objective km1 with one net for each (t, v).

    The net of v at t contains v and the nodes that aggregate from v. The sum of (parts spanned - 1) over all nets is
    exactly the number of halo rows of the sequence; an edge cut would count a row twice if two nodes of a part need
    it. The weight of a node is 1 plus its in-edges over all snapshots. Mt-KaHyPar runs in a child process.

    Args:
        graph: N nodes in T snapshots.
        parts: P, at most N.
        seed: seed of Mt-KaHyPar, which is deterministic on one thread.
        imbalance: most by which the heaviest part may exceed the mean, as a share of it.

    Raises:
        NotAvailableError: mtkahypar is not installed.
        PartitionError: Mt-KaHyPar crashed, failed or timed out.

    References: ESDG section 6 (hypergraph node partition); Gottesbueren, Heuer, Maas, Sanders, Schlag 2024
    (Mt-KaHyPar).
    Differs from the paper: ESDG uses PaToH; we merge equal nets, which does not change the cost.
    """
    needs_library("mtkahypar")
    pulls = np.ones(graph.num_nodes)
    for snapshot in graph.snapshots:
        pulls += np.diff(snapshot.indptr)
    nets = None if parts == 1 else merged_nets(graph.snapshots)
    if nets is None or not len(nets.counts):  # nothing to cut: round robin, heaviest first
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
