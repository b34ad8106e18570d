"""The union graph, its weights, and METIS on it."""

from __future__ import annotations

import numpy as np

from dtdg_lab.graphs.training_graph import training_graph
from dtdg_lab.partition import metis
from dtdg_lab.partition.metis import union_graph
from dtdg_lab.testing.example_graphs import graph_of
from tests.factories import two_groups


def test_the_union_counts_the_snapshots_of_each_pair() -> None:
    graph = graph_of(4, [[(0, 1), (1, 0), (2, 2)], [(1, 0), (3, 0)], [(0, 3)]])
    union = union_graph(graph.snapshots)
    assert union.indptr.tolist() == [0, 2, 3, 3, 4]
    assert union.indices.tolist() == [1, 3, 0, 0]
    assert union.snapshots.tolist() == [2, 2, 2, 2]


def test_metis_cuts_where_there_is_one_edge() -> None:
    owner = metis.assign_metis(two_groups(), 2).owner
    assert sorted(set(owner[:12].tolist()) | {10 + part for part in owner[12:].tolist()}) in ([0, 11], [1, 10])


def test_a_vertex_weighs_its_edges_and_whether_it_is_labelled() -> None:
    classes = np.array([0, -1, -1, 1], np.int16)
    graph = graph_of(4, [[(0, 1), (2, 1)], [(0, 1)]], classes=classes)
    edges = np.array([2, 3, 1, 0]) / 6
    assert np.allclose(metis.vertex_weights(graph), edges + np.array([0.5, 0, 0, 0.5]))
    assert np.allclose(metis.vertex_weights(graph_of(4, [[(0, 1), (2, 1)], [(0, 1)]])), edges + 0.25)


def test_labels_at_any_time_count() -> None:
    classes = np.array([[0, -1, -1], [-1, -1, 1]], np.int16)
    weights = metis.vertex_weights(graph_of(3, [[], []], classes=classes))
    assert weights.tolist() == [0.5, 0, 0.5]


def test_isolated_vertices_even_out_the_counts() -> None:
    graph = graph_of(40, [[(u, v) for u in range(6) for v in range(u)], [(30, 31)]])
    assigned = metis.assign_metis(graph, 4)
    assert np.bincount(assigned.owner).tolist() == [10, 10, 10, 10]


def test_all_vertices_are_alike_before_the_first_label() -> None:
    classes = np.full((2, 3), -1, np.int16)
    classes[1, 0] = 1
    labelled = graph_of(3, [[], []], classes=classes)
    assert np.allclose(metis.vertex_weights(training_graph(labelled, range(1))), 1 / 3)
