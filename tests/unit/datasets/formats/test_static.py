"""Static graphs in the files of Planetoid and OGB and as nodes and edges, and what each parser must refuse."""

from __future__ import annotations

import gzip
from types import MappingProxyType

import numpy as np
import pytest

from dtdg_lab.datasets.archives import ArchiveMembers
from dtdg_lab.datasets.formats import static
from tests import format_samples as samples
from tests.format_samples import refused


def test_planetoid_with_papers_that_are_not_described():
    table = static.parse_planetoid(samples.planetoid(), "tiny")
    assert (table.src.tolist(), table.dst.tolist()) == ([0, 0, 1, 2, 4, 6], [1, 2, 0, 0, 6, 4])
    assert table.num_nodes == 7
    assert table.classes.tolist() == [2, 0, 1, -1, 1, -1, 0]
    assert table.vertex_split.tolist() == [0, 1, 1, -1, 2, -1, 2]
    assert table.features[6].tolist() == [1, 0, 0, 0, 1]  # test.index names 6 first, so tx's first row is its
    assert table.features[4].tolist() == [0, 0, 0, 0, 0.25]
    assert not table.features[[3, 5]].any()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("graph", {0: [99]}, "the graph names paper 99"),
        ("graph", {0: [-1]}, "the graph names a paper -1"),
        ("graph", {0: 1}, "something else than lists"),
        ("graph", [1], "the graph is a list"),
        ("y", np.zeros((2, 3), np.int32), "1 rows of features and labels of shape (2, 3)"),
        ("ally", np.zeros((3, 40_000), np.int32), "1 to 32767 are allowed"),
        ("tx", samples.csr_matrix(np.ones((2, 6), np.float32)), "allx has 5 features and tx 6"),
        ("allx", samples.csr_matrix(np.full((3, 5), np.nan, np.float32)), "is nan; finite numbers"),
        ("x", [1, 2], "a sparse matrix, and an array of one-hot labels"),
    ],
)
def test_planetoid_refuses(name, value, words):
    files = {**samples.planetoid(), f"ind.tiny.{name}": samples.pickled(value)}
    assert words in refused(static.parse_planetoid, files)


def test_planetoid_refuses_a_test_index_that_does_not_fit():
    files = samples.planetoid()
    for index, words in (
        (b"6\n", "test.index 1 entries"),
        (b"6\n6\n", "each test paper once"),
        (b"6\n1\n", "from 1 on"),
        (b"6\n2147483647\n", "2,147,483,648 cells"),
        (b"6\nx\n", "column 1 (paper) is 'x'"),
    ):
        assert words in refused(static.parse_planetoid, {**files, "ind.tiny.test.index": index})
    del files["ind.tiny.ally"]
    assert "has no file '*.ally'" in refused(static.parse_planetoid, files)


def test_nodes_and_edges():
    table = static.parse_nodes_edges(samples.NODES_EDGES, "tiny")
    assert (table.src.tolist(), table.dst.tolist()) == ([0, 0, 1, 1, 2, 3], [1, 3, 0, 2, 1, 0])
    assert table.features.tolist() == [[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert table.classes.tolist() == [3, 0, -1, 1]
    assert table.vertex_split.tolist() == [0, 1, -1, 2]
    head, *rows = samples.NODES_EDGES["nodes.csv"].splitlines(keepends=True)
    shuffled = {**samples.NODES_EDGES, "nodes.csv": head + b"".join(reversed(rows))}
    other = static.parse_nodes_edges(shuffled, "tiny")
    assert np.array_equal(other.features, table.features)
    assert np.array_equal(other.classes, table.classes)
    assert np.array_equal(other.vertex_split, table.vertex_split)


@pytest.mark.parametrize(
    ("file", "found", "put", "words"),
    [
        ("nodes.csv", b"\n1,0", b"\n7,0", "lists node 2 where 1 is expected"),
        ("nodes.csv", b"train", b"trian", "line 2 of tiny (nodes.csv) has the split 'trian'"),
        ("nodes.csv", b",3,train", b",40000,train", "a class from -1 (none) to 32,767"),
        ("nodes.csv", b"1 4", b"1 x", "feature_indices"),
        ("nodes.csv", b"1 4", b"1 -4", "lists position -4"),
        ("nodes.csv", b"1 4", b"1 999999999", "1,000,000,000 cells"),
        ("nodes.csv", b"label", b"class", "none is label"),
        ("edges.csv", b"2,1", b"2,4", "line 3 of tiny (edges.csv) has dst 4; 0 to 3"),
        ("edges.csv", b"2,1", b"2,1,1", "line 3 of tiny (edges.csv)"),
        ("edges.csv", b"\n0,1\n2,1\n1,0\n3,3\n3,0\n", b"\n", "holds no rows"),
    ],
)
def test_nodes_and_edges_refuse(file, found, put, words):
    assert found in samples.NODES_EDGES[file]
    broken = {**samples.NODES_EDGES, file: samples.NODES_EDGES[file].replace(found, put)}
    assert words in refused(static.parse_nodes_edges, broken)


@pytest.mark.parametrize("files", [samples.OGB, samples.OGB_NPZ], ids=["csv", "npz"])
def test_ogb(files):
    table = static.parse_ogb(MappingProxyType(files), "tiny")
    assert (table.src.tolist(), table.dst.tolist()) == ([0, 2, 3, 1], [1, 1, 0, 0])
    assert table.num_nodes == 4
    np.testing.assert_allclose(table.features, [[0.5, 1], [-0.25, 2], [1e-3, 3], [0, 4]], rtol=1e-6)
    assert table.classes.tolist() == ([4, 0, 39, 1] if files is samples.OGB else [4, 0, 39, -1])
    assert table.vertex_split.tolist() == [0, 1, 0, 2]
    assert static.parse_ogb(files, "tiny", features=False).features is None
    both = static.parse_ogb(files, "tiny", both_directions=True)
    assert (both.src.tolist(), both.dst.tolist()) == ([0, 0, 1, 1, 2, 3], [1, 3, 0, 2, 1, 0])
    packed = ArchiveMembers(samples.zipped(files), "tiny.zip")
    assert np.array_equal(static.parse_ogb(packed, "tiny.zip").features, table.features)
    unpacked = {
        name.removesuffix(".gz"): gzip.decompress(data) if name.endswith("gz") else data for name, data in files.items()
    }
    assert np.array_equal(static.parse_ogb(unpacked, "tiny").classes, table.classes)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("raw/edge", b"0,1\n2,4\n", "line 2 of tiny (edge.csv) joins 2 and 4; 0 to 3"),
        ("raw/edge", b"0,1,2\n", "it has 3 columns"),
        ("raw/edge", b"", "holds 0 rows"),
        ("raw/num-node-list", b"1000000000000\n", "[1000000000000]; one graph of 1 to 2,147,483,647"),
        ("raw/num-node-list", b"2000000000\n", "4 labels for 2,000,000,000 nodes"),
        ("raw/node-label", b"4\n0\n", "2 labels for 4 nodes"),
        ("raw/node-label", b"4\n0\n1\nx\n", "line 4 of tiny (node-label.csv)"),
        ("raw/node-feat", b"1,2\n1,2\n1\n1,2\n", "line 3 of tiny (node-feat.csv)"),
        ("raw/node-feat", b"1,2\n1,2\n1,nan\n1,2\n", "column 2 (feature 1) is 'nan'"),
        ("raw/node-feat", b"1,2\n", "features of 1 nodes"),
        ("raw/node-feat", b"1," * 5000 + b"1\n", "5,001 columns; at most 4,096"),
        ("split/time/train", b"0\n4\n", "line 2 of tiny (train.csv) is node 4"),
        ("split/time/train", b"0\n1\n", "nodes of another split"),
    ],
)
def test_ogb_refuses(file, text, words):
    broken = {**samples.OGB, f"arxiv/{file}.csv.gz": gzip.compress(text)}
    assert words in refused(static.parse_ogb, broken)
    assert "cannot be read" in refused(static.parse_ogb, {**broken, f"arxiv/{file}.csv.gz": gzip.compress(text)[:-5]})


def test_ogb_refuses_missing_files_and_odd_arrays():
    for name in ("raw/edge", "raw/num-node-list", "raw/node-label", "split/time/valid"):
        left = {key: data for key, data in samples.OGB.items() if name not in key}
        assert f"has no file '{name.rpartition('/')[2]}.csv.gz'" in refused(static.parse_ogb, left)
    right = {
        "edge_index": np.array([[0, 1], [1, 0]]),
        "num_nodes_list": np.array([4]),
        "node_feat": np.ones((4, 1), np.float32),
    }
    for changed, words in (
        ({"edge_index": np.array([[0, 4], [1, 0]])}, "edges of 0 to 4; 0 to 3"),
        ({"edge_index": np.array([0, 1])}, "(2, E) is needed"),
        ({"edge_index": np.array([["a"]])}, "whole numbers or floats are needed"),
        ({"edge_index": np.array([[None]])}, "Object arrays cannot be loaded"),
        ({"num_nodes_list": np.array([10**12])}, "one graph of 1 to"),
        ({"node_feat": np.full((4, 1), np.nan, np.float32)}, "finite (N, F)"),
        ({"node_feat": np.full((4, 1), 1e300)}, "float32 cannot hold"),
        ({"node_feat": np.ones((3, 1), np.float32)}, "features of 3 nodes"),
    ):
        data = {**samples.OGB_NPZ, "papers/raw/data.npz": samples.npz(**{**right, **changed})}
        assert words in refused(static.parse_ogb, data)
    del right["edge_index"]
    lacking = {**samples.OGB_NPZ, "papers/raw/data.npz": samples.npz(**right)}
    assert "has no 'edge_index'" in refused(static.parse_ogb, lacking)
    label = samples.npz(node_label=np.array([1, 2, 0.5, 1]))
    assert "labels from 0.5 to 2" in refused(static.parse_ogb, {**samples.OGB_NPZ, "papers/raw/node-label.npz": label})


def test_an_npz_that_announces_more_than_it_has_takes_no_memory():
    whole = samples.npz(edge_index=np.zeros((2, 10), np.int64), num_nodes_list=np.array([4]))
    for shape, words in ((b"(2, 99999999999999999), }", "announces"), (b"(2, 99), }", "it is cut short")):
        header = whole.replace(b"(2, 10), }" + b" " * (len(shape) - 10), shape)
        assert header != whole
        message = refused(static.parse_ogb, {**samples.OGB_NPZ, "papers/raw/data.npz": header})
        assert words in message or "CRC" in message or "cannot be read" in message


def test_real_cora_is_the_same_as_pickles_and_as_text(real_data):
    pickled = static.parse_planetoid(ArchiveMembers(real_data / "planetoid-cora.zip"), "planetoid-cora.zip")
    plain = static.parse_nodes_edges(ArchiveMembers(real_data / "cora-plain.zip"), "cora-plain.zip")
    for table in (pickled, plain):
        assert (len(table.src), table.num_nodes, table.features.shape) == (2 * 5_278, 2_708, (2_708, 1_433))
        assert np.bincount(table.classes).tolist() == [351, 217, 418, 818, 426, 298, 180]
        assert np.bincount(table.vertex_split + 1).tolist() == [1_068, 140, 500, 1_000]
    for name in ("src", "dst", "features", "classes", "vertex_split"):
        assert np.array_equal(getattr(pickled, name), getattr(plain, name))
