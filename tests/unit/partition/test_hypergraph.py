"""Nets of a sequence, and Mt-KaHyPar on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtdg_lab.partition import hypergraph
from dtdg_lab.partition.hypergraph import merged_nets
from dtdg_lab.testing.example_graphs import graph_of
from tests.factories import two_groups


def test_equal_nets_are_merged_and_lonely_ones_dropped() -> None:
    # node 0 sends to 1 in both snapshots, and 1 to 0 in the second: the same two pins each time
    nets = merged_nets(graph_of(4, [[(0, 1), (2, 2), (3, 0), (3, 1)], [(0, 1), (1, 0)]]).snapshots)
    actual = {frozenset(nets.pins[a:b].tolist()): n for a, b, n in zip(nets.starts, nets.starts[1:], nets.counts)}  # noqa: B905
    assert actual == {frozenset({0, 1}): 3, frozenset({0, 1, 3}): 1}


def test_a_sequence_without_edges_has_no_net() -> None:
    nets = merged_nets(graph_of(3, [[], [(1, 1)]]).snapshots)
    assert (nets.starts.tolist(), len(nets.pins), len(nets.counts)) == ([0], 0, 0)


def test_hypergraph_parts_hold_what_pulls_from_each_other() -> None:
    """Two complete groups and one edge: one row is sent in each of two snapshots, and no partition sends fewer."""
    graph = two_groups()
    owner = hypergraph.assign_hypergraph(graph, 2).owner
    nets = merged_nets(graph.snapshots)
    pins = np.split(owner[nets.pins], nets.starts[1:-1])
    sent = sum(int(count) * (len(set(net.tolist())) - 1) for count, net in zip(nets.counts, pins, strict=True))
    assert np.bincount(owner).tolist() == [12, 12]
    assert sent == sum((12, 0) in pulls(snapshot) for snapshot in graph.snapshots) == 2


def pulls(snapshot: Any) -> set[tuple[int, int]]:
    return set(zip(snapshot.rows().tolist(), snapshot.indices.tolist(), strict=True))
