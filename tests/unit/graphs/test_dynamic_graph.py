"""Snapshots, dynamic graphs, windows and features, worked out by hand; storage bit for bit."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re

import numpy as np
import pytest

from dtdg_lab.core.errors import DataError, UnknownNameError
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import cut_edges
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.storage import graph_folder

# ids 10, 20, 30, 40 become 0, 1, 2, 3; times 0, 1, 2; the first edge twice in interval 0; a self loop of 40
ROWS = [(10, 20, 0), (30, 20, 0), (10, 20, 0), (40, 40, 0), (20, 30, 1), (10, 20, 1), (30, 10, 2), (20, 30, 2)]
WEIGHT = [0.5, 1, 1.5, 2, 4, 1, 8, 16]
# of small() and small(WEIGHT) without label graphs
OLD_HASH = "027b61813f6ad55766d44cafa613d230d0efc3e44efc6a300c5cbf284b65017b"
OLD_WEIGHTED_HASH = "a30f4c0b9bc6fb651fdf4759741527bbe02626b96d1dcca4f07829e73daddac5"


def small(weight=None, **options):
    src, dst, time = zip(*ROWS, strict=True)
    edges = cut_edges(src, dst, time, weight=weight, window=1)
    return build_graph(edges, **{"name": "small", "source": "a test", "edge_life": 2, **options})


CLASSES = np.int16([0, 2, -1, 1])
PARTS = np.int8([0, 1, 2, -1])


def full(**options):
    """A small graph that has everything a graph can have."""
    graph = small(WEIGHT, edge_life=1, **options)
    return dataclasses.replace(graph, features=graph.features[0], classes=CLASSES, vertex_split=PARTS)


def arrays_of(graph):
    every = [graph.features, graph.targets, graph.persistence, graph.node_ids]
    every += [graph.classes, graph.vertex_split]
    for snapshot in (*graph.snapshots, *(graph.following or ())):
        every += [snapshot.indptr, snapshot.indices, snapshot.weights]
    return [array for array in every if array is not None]


def test_golden_two_intervals_per_snapshot():
    graph = small(features="degrees")
    assert graph.num_snapshots == 1  # three intervals make two snapshots, and the last is only a label
    (first,) = graph.snapshots
    assert first.indptr.tolist() == [0, 0, 2, 3, 4]
    assert first.indices.tolist() == [0, 2, 1, 3]
    assert first.weights is None
    assert graph.features.tolist() == [[[0, 1], [2, 1], [1, 1], [1, 1]]]
    np.testing.assert_array_equal(graph.targets, np.log1p(np.float32([[1, 1, 1, 0]])))
    np.testing.assert_array_equal(graph.persistence, np.log1p(np.float32([[0, 2, 1, 1]])))
    assert graph.node_ids.tolist() == [10, 20, 30, 40]
    assert (graph.num_nodes, graph.num_features, graph.edge_life) == (4, 2, 2)
    assert graph.num_edges.tolist() == [4]


def test_golden_strict_label_counts_the_newest_interval_only():
    graph = small(strict_label=True)
    np.testing.assert_array_equal(graph.targets, np.log1p(np.float32([[1, 0, 1, 0]])))
    np.testing.assert_array_equal(graph.persistence, np.log1p(np.float32([[0, 1, 1, 0]])))
    np.testing.assert_array_equal(graph.features, np.log1p(np.float32([[[0, 1], [2, 1], [1, 1], [1, 1]]])))
    assert graph.strict_label


def test_golden_one_interval_per_snapshot():
    graph = small(edge_life=1, features="degrees")
    assert [snapshot.indptr.tolist() for snapshot in graph.snapshots] == [[0, 0, 2, 2, 3], [0, 0, 1, 2, 2]]
    assert [snapshot.indices.tolist() for snapshot in graph.snapshots] == [[0, 2, 3], [0, 1]]
    assert graph.features.tolist() == [[[0, 1], [2, 0], [0, 1], [1, 1]], [[0, 1], [1, 1], [1, 0], [0, 0]]]
    np.testing.assert_array_equal(graph.targets, np.log1p(np.float32([[0, 1, 1, 0], [1, 0, 1, 0]])))
    np.testing.assert_array_equal(graph.persistence, np.log1p(np.float32([[0, 2, 0, 1], [0, 1, 1, 0]])))
    strict = small(edge_life=1, features="degrees", strict_label=True)
    assert strict.data_hash == graph.data_hash


def test_golden_weights():
    graph = small(WEIGHT, features="degrees")
    (first,) = graph.snapshots
    assert first.indices.tolist() == [0, 2, 1, 3]
    assert first.weights.tolist() == [3, 1, 4, 2]  # 0.5 + 1.5 + 1, 1, 4, 2
    assert graph.features.tolist() == [[[0, 3], [4, 4], [4, 1], [2, 2]]]
    np.testing.assert_array_equal(graph.targets, np.log1p(np.float32([[8, 1, 20, 0]])))


def test_empty_snapshots_are_kept():
    edges = cut_edges([0, 1], [1, 0], [0, 35], window=10)
    graph = build_graph(edges, name="gap", source="a test")
    assert graph.num_edges.tolist() == [1, 0, 0]
    assert graph.targets[0].tolist() == [0, 0]
    assert graph.persistence[1].tolist() == [0, 0]
    weighted = cut_edges([0, 1], [1, 0], [0, 35], weight=[1, 2], window=10)
    assert build_graph(weighted, name="gap", source="a test", edge_life=2).num_edges.tolist() == [1, 0]


def test_unknown_features_name_the_known_ones():
    with pytest.raises(UnknownNameError, match="Did you mean 'degrees'"):
        small(features="degree")


@pytest.mark.parametrize(
    ("indptr", "indices", "weights", "message"),
    [
        ([0, 1, 2], [0, 2], None, "nodes are numbered 0 to 1"),
        ([0, 1, 2], [0, -1], None, "nodes are numbered 0 to 1"),
        ([0, 2, 2], [1, 0], None, "row 0 is not sorted"),
        ([0, 1, 3], [0, 1, 1], None, "row 1 is not sorted or holds a duplicate"),
        ([0, 2, 1], [0], None, "never fall"),
        ([0, 1, 1], [0, 1], None, "end at the number of edges, 2"),
        ([0], [], None, "N at least 1"),
        ([0, 1, 1], [1], [np.nan], r"weights\[0\] is nan"),
        ([0, 1, 1], [1], [-1], r"weights\[0\] is -1"),
        ([0, 1, 1], [1], [1, 1], r"weights has shape \(2,\)"),
    ],
)
def test_snapshots_that_are_none(indptr, indices, weights, message):
    with pytest.raises(DataError, match=message):
        Snapshot(np.int64(indptr), np.int32(indices), None if weights is None else np.float32(weights))


def test_types_are_not_converted_unseen():
    with pytest.raises(DataError, match=re.escape("indices has type int64; int32 is needed")):
        Snapshot(np.int64([0, 1]), np.int64([0]))
    with pytest.raises(DataError, match="indptr is a list"):
        Snapshot([0, 1], np.int32([0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"snapshots": ()}, "at least 1 labelled snapshot"),
        ({"targets": np.zeros((2, 4), np.float32)}, r"targets has shape \(2, 4\); \(1, 4\) is needed"),
        ({"features": np.zeros((1, 4, 2))}, "features has type float64"),
        ({"features": np.full((1, 4, 2), np.inf, np.float32)}, r"features\[0, 0, 0\] is inf"),
        ({"node_ids": np.arange(3)}, r"node_ids has shape \(3,\)"),
        ({"node_ids": np.array([None] * 4)}, "whole numbers or text"),
        ({"edge_life": 0}, "at least 1 base interval"),
        ({"snapshots": ("a",)}, r"snapshots\[0\] is a str"),
        ({"features": np.zeros((3, 2), np.float32)}, r"features has shape \(3, 2\); \(4, any\) is needed"),
        ({"features": np.float32([[0, 0], [0, np.nan], [0, 0], [0, 0]])}, r"features\[1, 1\] is nan"),
        ({"classes": np.zeros(4, np.int64)}, "classes has type int64"),
        ({"classes": np.zeros(3, np.int16)}, r"classes has shape \(3,\); \(4,\) is needed"),
        ({"classes": np.int16([0, 1, -2, 1])}, r"classes\[2\] is -2; -1 to 32767"),
        ({"vertex_split": np.int8([0, 1, 2, 3])}, r"vertex_split\[3\] is 3; -1 to 2"),
        ({"vertex_split": np.zeros((1, 4), np.int8)}, r"vertex_split has shape \(1, 4\)"),
        ({"following": ()}, "following has 0 snapshots and there are 1"),
        ({"following": ("a",)}, r"following\[0\] is a str"),
    ],
)
def test_graphs_that_are_none(changes, message):
    with pytest.raises(DataError, match=message):
        dataclasses.replace(small(), **changes)


def test_snapshots_must_agree():
    four, five = small().snapshots[0], Snapshot(np.zeros(6, np.int64), np.zeros(0, np.int32))
    weighted = small(WEIGHT).snapshots[0]
    label = np.zeros((2, 4), np.float32)
    for other, message in ((five, "5 nodes"), (weighted, "weights")):
        with pytest.raises(DataError, match=message):
            DynamicGraph("x", (four, other), np.zeros((2, 4, 2), np.float32), label, label, "a test", 1)


def test_nothing_can_be_changed(tmp_path):
    graph = full()
    graph.save(tmp_path / "g")
    copies = [graph, pickle.loads(pickle.dumps(graph))]
    copies += [DynamicGraph.load(tmp_path / "g", mmap=mmap) for mmap in (True, False)]
    for one in copies:
        for array in arrays_of(one):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.name = "other"
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.snapshots[0].indices = None


def test_the_callers_arrays_stay_the_callers():
    indptr, indices = np.int64([0, 1, 1]), np.int32([1])
    snapshot = Snapshot(indptr, indices)
    indices[0] = 0
    assert snapshot.indices.tolist() == [1]
    targets = np.zeros((1, 4), np.float32)
    graph = dataclasses.replace(small(), targets=targets)
    targets += 1
    assert not graph.targets.any()


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("mmap", [True, False])
def test_round_trip_bit_for_bit(tmp_path, weight, mmap):
    graph = small(weight, edge_life=1, strict_label=True)
    loaded = DynamicGraph.load(graph.save(tmp_path / "deep" / "g"), mmap)
    for ours, theirs in zip(arrays_of(graph), arrays_of(loaded), strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes()
    for name in ("name", "source", "edge_life", "strict_label", "data_hash"):
        assert getattr(graph, name) == getattr(loaded, name)
    assert dataclasses.replace(loaded).data_hash == graph.data_hash  # computed anew, not the stored one
    mapped = loaded.features
    while isinstance(mapped.base, np.ndarray):
        mapped = mapped.base
    assert isinstance(mapped, np.memmap) == mmap
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["g"]  # no draft is left


def test_hash_depends_on_every_array_and_on_nothing_else():
    graph = small(WEIGHT)
    flip = np.ones((1, 4), np.float32)
    others = [
        small(),
        small(WEIGHT, edge_life=1),
        small(WEIGHT, features="degrees"),
        small([*WEIGHT[:-1], 17]),
        dataclasses.replace(graph, targets=flip),
        dataclasses.replace(graph, persistence=flip),
        dataclasses.replace(graph, node_ids=None),
        dataclasses.replace(graph, edge_life=3),
        dataclasses.replace(graph, following=None),
        dataclasses.replace(graph, following=graph.snapshots),
        dataclasses.replace(graph, classes=CLASSES),
        dataclasses.replace(graph, classes=CLASSES[::-1].copy()),
        dataclasses.replace(graph, vertex_split=PARTS),
    ]
    assert len({graph.data_hash, *(other.data_hash for other in others)}) == 1 + len(others)
    assert dataclasses.replace(graph, name="b", source="c").data_hash == graph.data_hash


def test_saving_again_replaces_a_graph_but_nothing_else(tmp_path):
    folder = small().save(tmp_path / "g")
    before = DynamicGraph.load(folder)
    old = before.features.copy()
    other = small(features="degrees")
    other.save(folder)
    assert DynamicGraph.load(folder).data_hash == other.data_hash
    np.testing.assert_array_equal(before.features, old)  # still mapped
    other.save(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="holds no graph"):
        other.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(DataError, match="holds no stored graph"):
        DynamicGraph.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="DTDG_LAB_CACHE"):
        small().save(tmp_path / "file" / "g")
    folder = small().save(tmp_path / "g")

    (folder / "meta.json").write_text("{")
    with pytest.raises(DataError, match=r"meta\.json"):
        DynamicGraph.load(folder)
    (folder / "meta.json").write_text('{"format": "dtdg-lab graph", "schema": 99}')
    with pytest.raises(DataError, match="schema 2"):
        DynamicGraph.load(folder)


def test_store_keeps_a_graph_once_under_its_hash(tmp_path):
    graph = small()
    name = graph.store(tmp_path)
    assert name == f"graph:{graph.data_hash[:16]}"
    folder = graph_folder(graph.data_hash[:16], tmp_path)
    written = (folder / "meta.json").stat().st_mtime_ns
    assert graph.store(tmp_path) == name
    assert (folder / "meta.json").stat().st_mtime_ns == written
    assert DynamicGraph.load(folder).data_hash == graph.data_hash


def test_repr_is_a_line_about_the_graph():
    assert repr(small()) == (
        "DynamicGraph('small': 1 labelled snapshots, 4 nodes, 4 to 4 edges, 2 features, edge life 2; a test)"
    )
    assert repr(small(WEIGHT).snapshots[0]) == "Snapshot(4 nodes, 4 edges, weighted)"


def test_graphs_without_the_newer_fields_keep_their_hash():
    """Hashes written down before label graphs and classes came: what is stored under them stays valid."""
    assert dataclasses.replace(small(), following=None).data_hash == OLD_HASH
    assert dataclasses.replace(small(WEIGHT), following=None).data_hash == OLD_WEIGHTED_HASH


def test_label_graphs_are_the_next_snapshots_and_only_the_last_is_extra():
    graph = small(edge_life=1)
    assert graph.follows_next
    assert graph.following[0] is graph.snapshots[1]
    assert graph.following[1].indices.tolist() == [2, 1]  # 30 -> 10 and 20 -> 30
    assert len(graph.extra_following) == 1
    strict = small(strict_label=True)
    assert (strict.following[0].indices.tolist(), strict.following[0].indptr.tolist()) == ([2, 1], [0, 1, 1, 2, 2])


def test_label_graphs_that_equal_the_next_snapshot_are_it(tmp_path):
    graph = small(edge_life=1)
    copies = tuple(Snapshot(s.indptr.copy(), s.indices.copy()) for s in graph.following)
    again = dataclasses.replace(graph, following=copies)
    assert again.follows_next
    assert again.data_hash == graph.data_hash
    other = dataclasses.replace(graph, following=copies[::-1])
    assert not other.follows_next
    loaded = DynamicGraph.load(other.save(tmp_path / "g"))
    assert [s.num_edges for s in loaded.following] == [2, 2]
    assert loaded.following[0].equals(copies[1])
    assert not loaded.follows_next
    assert dataclasses.replace(loaded).data_hash == other.data_hash


def test_what_never_changes_is_held_and_stored_once(tmp_path):
    graph = full()
    assert graph.static_features
    assert graph.features.shape == (2, 4, 2)
    assert graph.classes.shape == (2, 4)
    assert np.shares_memory(graph.features[0], graph.features[1])
    folder = graph.save(tmp_path / "g")
    assert np.load(folder / "features.npy").shape == (4, 2)
    assert np.load(folder / "classes.npy").shape == (4,)
    copies = [DynamicGraph.load(folder), pickle.loads(pickle.dumps(graph)), dataclasses.replace(graph)]
    for copy in copies:
        assert copy.static_features
        assert copy.data_hash == graph.data_hash
        assert dataclasses.replace(copy).data_hash == graph.data_hash
        np.testing.assert_array_equal(copy.features, graph.features)
        np.testing.assert_array_equal(copy.classes, graph.classes)
    assert not small().static_features
    assert len(pickle.dumps(graph)) < len(pickle.dumps(dataclasses.replace(graph, features=graph.features.copy() + 0)))


def test_a_graph_says_what_can_be_learned_on_it():
    graph = full()
    assert graph.num_classes == 3
    assert graph.tasks == ("regression", "link", "classification")
    assert small().tasks == ("regression", "link")
    unlabelled = dataclasses.replace(graph, following=None, classes=np.full(4, -1, np.int16))
    assert (unlabelled.tasks, unlabelled.num_classes) == (("regression",), 0)
    assert (graph.weighted, small().weighted) == (True, False)


def test_a_trusted_snapshot_is_not_looked_into_but_must_be_closed_and_typed():
    indptr, indices = np.int64([0, 1, 1]), np.int32([7])  # 7 is no node: nobody looks
    with pytest.raises(DataError, match="read-only"):
        Snapshot.trusted(indptr, indices)
    for array in (indptr, indices):
        array.setflags(write=False)
    assert Snapshot.trusted(indptr, indices).num_edges == 1
    with pytest.raises(DataError, match="int32"):
        Snapshot.trusted(indptr, indptr)


def test_folders_of_the_first_schema_can_be_read(tmp_path):
    graph = dataclasses.replace(small(WEIGHT, edge_life=1), following=None)
    folder = graph.save(tmp_path / "g")
    (folder / "edges.npy").unlink()
    meta = json.loads((folder / "meta.json").read_text())
    meta = {**meta, "schema": 1, "arrays": [name for name in meta["arrays"] if name != "edges"]}
    del meta["counts"]
    (folder / "meta.json").write_text(json.dumps(meta))
    loaded = DynamicGraph.load(folder)
    assert dataclasses.replace(loaded).data_hash == graph.data_hash
