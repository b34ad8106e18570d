"""Ids of nodes from memory: what is a whole number, what is missing, two kinds of nodes, and nodes without edges."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets import from_csv, from_edges, from_pandas
from dtdg_lab.graphs.edge_list import MISSING_WORDS


@pytest.mark.parametrize(
    "src",
    [
        [0.0, 1.0, 2.0],
        np.array([0, 1, 2], dtype=np.float32),
        pd.Series([0.0, 1.0, 2.0]),
        pd.Series([0, 1.0, 2], dtype=object),
        [Decimal(0), Decimal("1.0"), Decimal(2)],
        pd.array([0, 1, 2], dtype="Int64"),
    ],
    ids=lambda ids: type(ids).__name__,
)
def test_ids_that_are_whole_in_every_row_are_whole_numbers(src):
    graph = from_edges(src, [1, 2, 0], [0, 1, 2], cut=3)
    assert graph.node_ids.dtype == np.int64
    assert graph.node_ids.tolist() == [0, 1, 2]
    assert from_pandas(pd.DataFrame({"src": src, "dst": [1, 2, 0], "time": range(3)}), cut=3).num_nodes == 3


def test_vectors_of_edge_features_are_refused_by_name(tmp_path):
    frame = pd.DataFrame({"src": [0, 1], "dst": [1, 0], "time": [0, 1], "a": [1, 2], "b": [3, 4]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for load in (
        lambda: from_edges([0, 1], [1, 0], [0, 1], frame[["a", "b"]], cut=2),
        lambda: from_edges([0, 1], [1, 0], [0, 1], np.ones((2, 2)), cut=2),
        lambda: from_pandas(frame, weight=["a", "b"], cut=2),
        lambda: from_csv(tmp_path / "a.csv", "src", "dst", "time", ["a", "b"], cut=2),
    ):
        with pytest.raises(DataError, match="Vectors of edge features are not supported: an edge has one weight"):
            load()


def test_decimals_of_a_database_are_numbers():
    numbers = [Decimal("0"), Decimal("1.5"), Decimal("3")]
    graph = from_edges([Decimal(0), Decimal(1), Decimal(2)], [1, 2, 0], numbers, numbers, cut=3)
    assert graph.snapshots[1].weights.tolist() == [1.5]


@pytest.mark.parametrize(
    ("src", "message"),
    [
        (pd.Series(["1", 1, 2], dtype=object), "src mixes str and int: src[0] is '1', src[1] is 1"),
        (np.array([b"1", "1", "2"], dtype=object), "src mixes bytes and str"),
        ([0.0, np.nan, 1.0], "src[1] is nan, a missing id"),
        ([0.0, 1.5, 1.0], "src[1] is 1.5, of type float64"),
        ([0.0, 1e300, 1.0], "too large for such numbers to be exact"),
        ([Decimal("0.5"), Decimal(1), Decimal(2)], "src[0] is 0.5"),
        (["a", None, "b"], "src mixes str and NoneType"),
        (["a", np.nan, "b"], "drop what is missing"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_mixed_and_broken_ids_are_refused_with_their_row(src, message):
    with pytest.raises(DataError) as refusal:
        from_edges(src, src, [0, 1, 2], cut=3)
    assert message in str(refusal.value)


@pytest.mark.parametrize("word", sorted(MISSING_WORDS))
def test_a_word_for_what_is_missing_is_no_id(word):
    with pytest.raises(DataError, match=r"dst\[2\] is '.*', which stands for a missing id"):
        from_edges(["a", "b", "c"], ["b", "c", word], [0, 1, 2], cut=3)
    for options in ({"bipartite": True}, {"nodes": ["a", "b", "c", word]}):
        with pytest.raises(DataError, match="which stands for a missing id"):
            from_edges(["a", "b", "c"], ["b", "c", word], [0, 1, 2], cut=3, **options)
    frame = pd.DataFrame({"src": ["a", "b", "c"], "dst": ["b", "c", word], "time": range(3)})
    with pytest.raises(DataError, match=r"row 2 of the frame \(from 0\): 'dst' is '.*', which stands for a missing id"):
        from_pandas(frame, cut=3)


def test_two_kinds_of_nodes_are_shifted_or_named_apart():
    def ids(src, dst, **options):
        return from_edges(src, dst, [0, 1, 2], cut=3, bipartite=True, **options).node_ids.tolist()

    assert ids([0, 1, 2], [0, 1, 0]) == [0, 1, 2, 3, 4]
    assert ids([5, 9, 5], [-2, 9, 7]) == [5, 9, 10, 19, 21]
    assert ids(["ann", "bob", "ann"], ["ann", "tea", "tea"]) == ["ann", "bob", "dst:ann", "dst:tea"]
    assert ids(["dst:1", "y", "y"], ["1", "b", "b"]) == ["dst:1", "y", "dst:dst:1", "dst:dst:b"]
    assert ids([7, 8, 7], ["tea", "tea", "ink"]) == ["7", "8", "dst:ink", "dst:tea"]
    assert ids([0, 1, 0], [1, 0, 1], nodes=(3, [1, 0])) == [0, 1, 2, 4, 3]
    with pytest.raises(DataError, match="passes 2\\^63"):
        ids([0, 2**62, 2], [2**62, 1, 0])
    with pytest.raises(DataError, match="nodes is no pair"):
        ids([0, 1, 2], [0, 1, 0], nodes=5)


def test_edges_of_two_kinds_join_the_right_nodes():
    graph = from_edges([0, 1, 1], [0, 0, 1], [0, 1, 2], cut=3, bipartite=True)
    assert [(one.indices.tolist(), one.rows().tolist()) for one in graph.snapshots] == [([0], [2]), ([1], [2])]
    frame = pd.DataFrame({"src": [0, 1, 1], "dst": [0, 0, 1], "time": range(3)})
    assert from_pandas(frame, cut=3, bipartite=True).data_hash == graph.data_hash


def test_nodes_that_are_listed_keep_their_order_and_need_no_edge():
    graph = from_edges(["b", "a"], ["a", "b"], [0, 1], cut=2, nodes=["c", "b", "a"], features=[[1.0], [2.0], [3.0]])
    assert graph.node_ids.tolist() == ["c", "b", "a"]
    assert graph.features[0, :, 0].tolist() == [1, 2, 3]
    assert (graph.snapshots[0].indices.tolist(), graph.snapshots[0].rows().tolist()) == ([1], [2])
    assert from_edges([0, 1], [1, 0], [0, 1], cut=2, nodes=5).num_nodes == 5
    by_id = from_edges([0, 1], [1, 0], [0, 1], cut=2, nodes=[1, 7, 0], features={0: [0.0], 1: [1.0], 7: [7.0]})
    assert by_id.features[0, :, 0].tolist() == [1, 7, 0]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 2], "src has the id 1, which nodes does not list: it lists 2 ids, such as 0"),
        (1, "src has the id 1, which nodes does not list"),
        ([0, 1, 1], "nodes lists 1 twice"),
        (["a", "b"], "nodes are text, and src[0] is 0"),
        ([], "nodes is empty"),
        (0, "nodes=0"),
    ],
)
def test_nodes_that_do_not_fit_are_refused(nodes, message):
    with pytest.raises(DataError) as refusal:
        from_edges([0, 1], [1, 0], [0, 1], cut=2, nodes=nodes)
    assert message in str(refusal.value)
