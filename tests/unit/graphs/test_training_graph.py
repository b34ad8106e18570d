"""The training split as a graph of its own."""

from __future__ import annotations

import dataclasses

import numpy as np

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import repeats
from dtdg_lab.graphs.training_graph import training_graph
from tests.factories import random_graph

TRAIN = range(4)


def test_it_has_the_training_snapshots_and_all_nodes() -> None:
    graph = random_graph(classes=3)
    part = training_graph(graph, TRAIN)
    assert part.snapshots == graph.snapshots[:4] and part.following == graph.following[:4]  # type: ignore[index]
    assert part.num_nodes == graph.num_nodes and part.num_classes == graph.num_classes
    assert part.num_edges.tolist() == graph.num_edges[:4].tolist()
    for name in ("features", "targets", "persistence", "classes"):
        assert np.array_equal(getattr(part, name), getattr(graph, name)[:4])


def test_its_hash_depends_on_the_graph_and_on_the_snapshots() -> None:
    graph, other = random_graph(), random_graph(seed=4)
    parts = [training_graph(graph, TRAIN), training_graph(graph, range(5)), training_graph(other, TRAIN)]
    assert len({graph.data_hash, *(part.data_hash for part in parts)}) == 4
    assert training_graph(graph, TRAIN).data_hash == parts[0].data_hash


def test_classes_of_other_nodes_than_those_of_training_are_unknown() -> None:
    graph = random_graph(classes=3)
    assert graph.classes is not None
    vertex_split = np.arange(graph.num_nodes, dtype=np.int8) % 3
    for classes in (graph.classes, (np.arange(graph.num_nodes) % 3).astype(np.int16)):
        whole: DynamicGraph = dataclasses.replace(graph, classes=classes, vertex_split=vertex_split)
        part = training_graph(whole, TRAIN)
        assert whole.classes is not None and part.classes is not None
        assert repeats(part.classes) == repeats(whole.classes)
        assert (part.classes[:, vertex_split > 0] == -1).all()
        assert np.array_equal(part.classes[:, vertex_split == 0], whole.classes[:4, vertex_split == 0])
