"""Prefixes of decayed snapshots by hand, and how long they are kept."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.systems.decayed_windows.shrinking import Shrinker
from dtdg_lab.systems.decayed_windows.survival import SurvivalOrder
from dtdg_lab.testing.example_graphs import graph_of


def shrinker() -> tuple[Shrinker, SurvivalOrder]:
    graph = graph_of(4, [[(0, 1), (1, 0), (3, 1), (2, 3), (3, 3)]], weighted=True)
    return Shrinker(graph.snapshots), SurvivalOrder(np.array([3, 1, 0, 2]), np.zeros(4, np.int32), np.arange(5))


def test_edges_of_a_prefix_by_hand() -> None:
    made, order = shrinker()
    made.renumber(order)
    edges = made.edges(0, 3)  # rows 3, 1, 0; weights as graph_of deals them: 0<-1 0.5, 1<-0 1, 1<-3 1.5, 3<-2, 3<-3 2.5
    assert edges.indptr.tolist() == [0, 1, 3, 4]
    assert edges.indices.tolist() == [0, 2, 0, 1]
    assert edges.weights is not None
    assert edges.weights.tolist() == [2.5, 1.0, 1.5, 0.5]
    assert edges.degrees.tolist() == [2.5, 2.5, 0.5]
    assert edges.other_degrees.tolist() == [4.0, 0.5, 1.0]
    assert (edges.rows, edges.num_edges) == (3, 4)
    out = made.edges(0, 3, "out")
    assert (out.indptr.tolist(), out.indices.tolist()) == ([0, 2, 3, 4], [0, 1, 2, 1])
    assert (out.degrees.tolist(), out.other_degrees.tolist()) == ([4.0, 0.5, 1.0], [2.5, 2.5, 0.5])


def test_what_was_cut_out_is_given_again_and_cannot_be_changed() -> None:
    made, order = shrinker()
    made.renumber(order)
    edges = made.edges(0, 3)
    assert made.edges(0, 3) is edges
    with pytest.raises(ValueError, match="read-only"):
        edges.indices[0] = 2
    made.keep_only(range(1, 5))
    assert made.edges(0, 3) is not edges
    again = made.edges(0, 3)
    made.keep_only(range(1))
    assert made.edges(0, 3) is again
    made.renumber(order)
    assert made.edges(0, 3) is not again
