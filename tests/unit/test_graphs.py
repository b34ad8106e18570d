"""Snapshots, dynamic graphs, windows and features, worked out by hand; storage bit for bit."""

from __future__ import annotations

import dataclasses
import pickle
import re

import numpy as np
import pytest

from dtdg_lab.core.errors import DataError, UnknownNameError
from dtdg_lab.graphs import DynamicGraph, Snapshot, build_graph
from dtdg_lab.graphs.store import graph_folder
from dtdg_lab.graphs.windows import cut_edges

# ids 10, 20, 30, 40 become 0, 1, 2, 3; times 0, 1, 2; the first edge twice in interval 0; a self loop of 40
ROWS = [(10, 20, 0), (30, 20, 0), (10, 20, 0), (40, 40, 0), (20, 30, 1), (10, 20, 1), (30, 10, 2), (20, 30, 2)]
WEIGHT = [0.5, 1, 1.5, 2, 4, 1, 8, 16]


def small(weight=None, **options):
    src, dst, time = zip(*ROWS, strict=True)
    edges = cut_edges(src, dst, time, weight=weight, window=1)
    return build_graph(edges, **{"name": "small", "source": "a test", "edge_life": 2, **options})


def arrays_of(graph):
    every = [graph.features, graph.targets, graph.persistence, graph.node_ids]
    for snapshot in graph.snapshots:
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


def test_text_ids_and_datetimes():
    times = np.array(["2024-01-01", "2024-01-02", "2024-01-04"], dtype="datetime64[s]")
    edges = cut_edges(np.array(["b", "a", "c"], dtype=object), ["a", "b", "a"], times, cut=3)
    assert edges.node_ids.tolist() == ["a", "b", "c"]
    assert edges.src.tolist() == [1, 0, 2]
    assert edges.interval.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time": [1, 2]}, "3, 3 and 2 entries"),
        ({"src": [], "dst": [], "time": []}, "at least 1"),
        ({"src": [0.5, 1, 2]}, "src has type float64"),
        ({"src": ["a", "b", "c"]}, "both be text"),
        ({"time": [0, np.nan, 1]}, r"time\[1\] is not finite"),
        ({"time": np.array(["2024-01-01", "NaT", "2024-01-02"], dtype="datetime64[s]")}, r"time\[1\] is not a time"),
        ({"time": [5, 5, 5]}, "different times"),
        ({"cut": 0}, "give cut=n"),
        ({"weight": [1, -2, 3]}, r"weight\[1\] is -2"),
        ({"weight": [1, 2]}, "3 numbers are needed"),
    ],
)
def test_edges_that_cannot_be_cut(changes, message):
    given = {"src": [0, 1, 2], "dst": [1, 2, 0], "time": [0, 1, 2], "cut": 2, **changes}
    with pytest.raises(DataError, match=message):
        cut_edges(given.pop("src"), given.pop("dst"), given.pop("time"), **given)


@pytest.mark.parametrize(("edge_life", "message"), [(3, "only a label"), (4, "allowed 1 to 3")])
def test_too_few_intervals_for_the_edge_life(edge_life, message):
    with pytest.raises(DataError, match=message):
        small(edge_life=edge_life)


def test_unknown_features_name_the_known_ones():
    with pytest.raises(UnknownNameError, match="Did you mean 'degrees'"):
        small(features="degree")


@pytest.mark.parametrize(
    ("indptr", "indices", "weights", "message"),
    [
        ([0, 1, 2], [0, 2], None, "vertices are numbered 0 to 1"),
        ([0, 1, 2], [0, -1], None, "vertices are numbered 0 to 1"),
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
    ],
)
def test_graphs_that_are_none(changes, message):
    with pytest.raises(DataError, match=message):
        dataclasses.replace(small(), **changes)


def test_snapshots_must_agree():
    four, five = small().snapshots[0], Snapshot(np.zeros(6, np.int64), np.zeros(0, np.int32))
    weighted = small(WEIGHT).snapshots[0]
    label = np.zeros((2, 4), np.float32)
    for other, message in ((five, "5 vertices"), (weighted, "weights")):
        with pytest.raises(DataError, match=message):
            DynamicGraph("x", (four, other), np.zeros((2, 4, 2), np.float32), label, label, "a test", 1)


def test_nothing_can_be_changed(tmp_path):
    graph = small(WEIGHT)
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


def test_empty_graph_round_trip(tmp_path):
    nothing = Snapshot(np.zeros(3, np.int64), np.zeros(0, np.int32))
    label = np.zeros((1, 2), np.float32)
    graph = DynamicGraph("void", (nothing,), np.zeros((1, 2, 2), np.float32), label, label, "a test", 1)
    assert DynamicGraph.load(graph.save(tmp_path / "g")).num_edges.tolist() == [0]


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
    with (folder / "features.npy").open("r+b") as file:
        file.truncate(140)
    for mmap in (True, False):
        with pytest.raises(DataError, match="damaged"):
            DynamicGraph.load(folder, mmap)
    (folder / "meta.json").write_text("{")
    with pytest.raises(DataError, match=r"meta\.json"):
        DynamicGraph.load(folder)
    (folder / "meta.json").write_text('{"format": "dtdg-lab graph", "schema": 99}')
    with pytest.raises(DataError, match="schema 1"):
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
        "DynamicGraph('small': 1 labelled snapshots, 4 vertices, 4 to 4 edges, 2 features, edge life 2; a test)"
    )
    assert repr(small(WEIGHT).snapshots[0]) == "Snapshot(4 vertices, 4 edges, weighted)"
