"""Chunks of each part: by METIS, by hash, by load; kept in the cache; and what happens where METIS does not work."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import PartitionError, PlanError, UnknownNameError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.child_process import in_child
from dtdg_lab.partition.metis import restricted, union_graph, vertex_weights
from dtdg_lab.systems.decayed_windows import chunks as chunks_module
from dtdg_lab.systems.decayed_windows.chunks import CHUNKERS, Chunking, chunking_event, make_chunks
from dtdg_lab.testing.example_graphs import graph_of, power_law
from tests.thinning import thinned


def cliques(number: int = 4, size: int = 5) -> Any:
    """Complete graphs in a ring of single edges: clique k holds the nodes that are k modulo ``number``."""
    edges = []
    for clique in range(number):
        own = [clique + number * i for i in range(size)]
        edges += [(u, v) for u in own for v in own if u < v]
        edges.append((own[0], (clique + 1) % number))
    return graph_of(number * size, [edges, edges[::2]], name="cliques")


def whole(graph: Any) -> Partition:
    return Partition(np.zeros(graph.num_nodes, np.int32), 1)


def sizes(partition: Partition, made: Chunking) -> np.ndarray:
    """Nodes of each chunk, (P, C)."""
    number = partition.owner * made.chunks + made.chunk
    return np.bincount(number, minlength=made.parts * made.chunks).reshape(made.parts, made.chunks)


def test_metis_cuts_where_there_is_one_edge() -> None:
    graph = cliques()
    made = make_chunks("metis", graph, whole(graph), 4, seed=0)
    assert {tuple(sorted(np.flatnonzero(made.chunk == chunk) % 4)) for chunk in range(4)} == {
        (k,) * 5 for k in range(4)
    }
    assert (made.made_by, made.note) == ("metis (seed 0)", "")
    facts = chunking_event("metis", graph, whole(graph), made).write()
    assert facts["sizes"] == (5, 5.0, 5)
    assert facts["cut_edges"] < facts["edges"]
    bridges = sum(int((snapshot.rows() % 4 != snapshot.indices % 4).sum()) for snapshot in graph.snapshots)
    assert facts["cut_edges"] == bridges


@pytest.mark.slow
def test_metis_sees_nothing_of_other_parts() -> None:
    """Two cliques to a part, in two chunks: each part is cut between its cliques."""
    graph = cliques()
    partition = Partition(np.arange(20) % 4 // 2, 2)
    made = make_chunks("metis", graph, partition, 2, seed=0)
    for clique in range(4):
        assert len(set(made.chunk[np.arange(20) % 4 == clique].tolist())) == 1
    assert sizes(partition, made).tolist() == [[5, 5], [5, 5]]
    facts = chunking_event("metis", graph, partition, made).write()
    within = cut = 0
    for snapshot in graph.snapshots:
        for target, source in zip(snapshot.rows() % 4, snapshot.indices % 4, strict=True):
            within += target // 2 == source // 2
            cut += target // 2 == source // 2 and target != source
    assert (facts["edges"], facts["cut_edges"]) == (within, cut)
    assert facts["cut_share"] == cut / within


def test_loads_are_dealt_within_each_part() -> None:
    falling = graph_of(8, [[(u, v) for v in range(8) for u in range(8 - v)]])  # in-degrees 8, 7, ..., 1
    partition = Partition(np.array([0, 1] * 4), 2)
    made = make_chunks("load_aware", falling, partition, 2, seed=0)
    assert made.chunk.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
    assert made.made_by == "load_aware"


def test_hash_chunks_are_the_same_on_every_machine() -> None:
    graph = graph_of(12, [[]])
    made = make_chunks("hash", graph, whole(graph), 4, seed=0)
    assert made.chunk.tolist() == [1, 1, 1, 3, 0, 2, 3, 2, 2, 3, 1, 2]
    assert make_chunks("hash", graph, whole(graph), 4, seed=1).chunk.tolist() != made.chunk.tolist()


@pytest.mark.parametrize("name", ["hash", "load_aware"])
@given(data=st.data())
def test_no_chunk_of_any_part_is_empty(name: str, data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, 3))
    owner = np.array([*range(parts), *data.draw(st.lists(st.integers(0, parts - 1), max_size=20))])
    graph = graph_of(len(owner), [[(0, len(owner) - 1), (0, 0)]])
    partition = Partition(owner, parts)
    most = int(partition.counts.min())
    for chunks in {1, most, data.draw(st.integers(1, most))}:
        made = make_chunks(name, graph, partition, chunks, seed=data.draw(st.integers(0, 5)))
        assert sizes(partition, made).min() >= 1
        assert not made.note


@pytest.mark.slow
def test_chunks_are_balanced_by_edges_and_labelled_vertices_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = power_law(nodes=34)
    partition = make_partition("hash", graph, 2, seed=4)
    shown: list[Any] = []

    def looked(solver: str, arrays: Any, **named: Any) -> Any:
        shown.append((solver, arrays, named))
        return in_child(solver, arrays, **named)

    monkeypatch.setattr("dtdg_lab.partition.metis.in_child", looked)
    make_chunks("metis", graph, partition, 3, seed=0)
    assert [(solver, named["parts"]) for solver, _, named in shown] == [("metis", 3)] * 2
    assert len({int(arrays["seed"]) for _, arrays, _ in shown}) == 2
    weights, union = vertex_weights(graph), union_graph(graph.snapshots)
    for part, (_, arrays, named) in enumerate(shown):
        own = partition.vertices(part)
        joined = own[np.diff(restricted(union, own).indptr) > 0]
        assert named["vertices"] == len(joined) < len(graph.snapshots[0].indptr) - 1
        share = arrays["vertex_weights"] / arrays["vertex_weights"].sum()
        assert np.allclose(share, weights[joined] / weights[joined].sum())


@pytest.mark.parametrize("chunks", thinned([1, 9, 10]))
def test_metis_chunks_of_every_part_hold_vertices(chunks: int) -> None:
    graph = power_law(nodes=33)
    partition = make_partition("hash", graph, 2, seed=4)
    made = make_chunks("metis", graph, partition, chunks, seed=0)
    assert sizes(partition, made).min() >= 1
    assert (made.chunks, made.parts, made.note) == (chunks, 2, "")


def test_vertices_without_neighbours_go_to_the_smallest_chunks() -> None:
    graph = graph_of(20, [[(0, 1), (1, 2), (2, 0)]])
    found = sizes(whole(graph), make_chunks("metis", graph, whole(graph), 4, seed=0))
    assert found.tolist() == [[5, 5, 5, 5]]


# the union within a part


def test_the_union_among_some_vertices() -> None:
    union = union_graph(cliques(number=3, size=3).snapshots)
    own = np.array([0, 3, 4, 6])  # clique 0, and one node of clique 1
    inner = restricted(union, own)
    matrix = np.zeros((9, 9), int)
    matrix[np.repeat(np.arange(9), np.diff(union.indptr)), union.indices] = union.snapshots
    found = np.zeros((4, 4), int)
    found[np.repeat(np.arange(4), np.diff(inner.indptr)), inner.indices] = inner.snapshots
    assert found.tolist() == matrix[np.ix_(own, own)].tolist()
    assert found.any()
    assert restricted(union, np.arange(9)).indices.tolist() == union.indices.tolist()


# where METIS does not work


def test_hash_stands_in_aloud_where_metis_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = power_law(nodes=41)
    find = importlib.util.find_spec
    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda name: None if name == "pymetis" else find(name))
        made = make_chunks("metis", graph, whole(graph), 6, seed=2)
    assert made.note.startswith("chunker metis failed, so chunks were assigned by hash: the package pymetis is not")
    assert made.made_by == "hash (seed 2), in place of metis"
    assert made.chunk.tolist() == make_chunks("hash", graph, whole(graph), 6, seed=2).chunk.tolist()
    again = make_chunks("metis", graph, whole(graph), 6, seed=2)  # what stood in is not kept in the cache
    assert (again.note, again.made_by) == ("", "metis (seed 2)")


def test_hash_stands_in_aloud_where_metis_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pymetis.py").write_text("import os; os.kill(os.getpid(), 11)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    graph = power_law(nodes=42)
    made = make_chunks("metis", graph, whole(graph), 6, seed=0)
    assert "SIGSEGV" in made.note
    assert chunking_event("metis", graph, whole(graph), made).write()["note"] == made.note


def test_hash_stands_in_where_one_part_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def second_fails(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise PartitionError("out of luck")
        return in_child(*given, **named)

    monkeypatch.setattr("dtdg_lab.partition.metis.in_child", second_fails)
    graph = power_law(nodes=43)
    partition = make_partition("hash", graph, 2)
    made = make_chunks("metis", graph, partition, 3, seed=0)
    assert made.note.endswith("out of luck")
    assert made.chunk.tolist() == make_chunks("hash", graph, partition, 3, seed=0).chunk.tolist()


# what is refused


def test_more_chunks_than_vertices_of_a_part_are_refused() -> None:
    graph = graph_of(7, [[(0, 1)]], name="seven")
    partition = Partition(np.array([0, 0, 0, 0, 1, 1, 1]), 2)
    with pytest.raises(
        PartitionError, match=r"chunks=4 is out of range: part 1 has 3 of the 7 nodes of 'seven'.*chunks to 3"
    ):
        make_chunks("hash", graph, partition, 4, seed=0)
    assert make_chunks("hash", graph, partition, 3, seed=0).chunks == 3


def test_unknown_names_and_no_chunks_are_refused() -> None:
    graph = graph_of(7, [[(0, 1)]])
    with pytest.raises(UnknownNameError, match=r"chunker 'metiss'. Did you mean 'metis'"):
        make_chunks("metiss", graph, whole(graph), 2, seed=0)
    with pytest.raises(PartitionError, match="chunks=0 is out of range: part 0"):
        make_chunks("hash", graph, whole(graph), 0, seed=0)


# the cache


def test_chunks_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = power_law(nodes=44)
    partition = make_partition("hash", graph, 2)
    first = make_chunks("load_aware", graph, partition, 4, seed=0)
    monkeypatch.setitem(CHUNKERS, "load_aware", lambda *given: pytest.fail("made again"))
    again = make_chunks("load_aware", graph, partition, 4, seed=1)  # which draws no lots
    assert again.chunk.tolist() == first.chunk.tolist()
    assert (again.seconds, again.made_by, again.note) == (first.seconds, first.made_by, "")


def test_other_parts_chunks_seeds_and_graphs_have_other_files() -> None:
    graph, other = power_law(nodes=45), power_law(nodes=45, edges=149)
    one, two = make_partition("hash", graph, 2), make_partition("round_robin", graph, 2)
    file = chunks_module._cache_file
    asked = [
        ("hash", graph, one, 4, 0),
        ("metis", graph, one, 4, 0),
        ("hash", other, one, 4, 0),
        ("hash", graph, two, 4, 0),
        ("hash", graph, one, 5, 0),
        ("hash", graph, one, 4, 1),
    ]
    assert len({file(*given) for given in asked}) == len(asked)
    assert file("load_aware", graph, one, 4, 0) == file("load_aware", graph, one, 4, 1)


@pytest.mark.parametrize("damage", ["cut", "flipped", "other", "small"])
def test_a_damaged_file_is_made_anew(damage: str) -> None:
    graph = power_law(nodes=46)
    made = make_chunks("hash", graph, whole(graph), 4, seed=0)
    file = chunks_module._cache_file("hash", graph, whole(graph), 4, 0)
    assert file.is_relative_to(cache_folder() / "chunks")
    bytes_ = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(bytes_[:-30])
    elif damage == "flipped":
        bytes_[len(bytes_) // 3] ^= 0xFF
        file.write_bytes(bytes_)
    elif damage == "other":
        np.savez(file, format=np.array("dtdg-lab partition 1"), owner=np.zeros(46))
    else:
        chunks_module._write_chunks(file, Chunking(np.array([0, 1, 2, 3]), 4, 1))
    damaged = file.read_bytes()
    assert make_chunks("hash", graph, whole(graph), 4, seed=0).chunk.tolist() == made.chunk.tolist()
    assert file.read_bytes() != damaged, "it was written anew"


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail() -> None:
    shutil.rmtree(cache_folder() / "chunks", ignore_errors=True)
    (cache_folder() / "chunks").write_text("a file where the folder should be")
    graph = power_law(nodes=47)
    assert make_chunks("hash", graph, whole(graph), 4, seed=0).chunks == 4


def test_loops_do_not_count_and_nothing_has_no_cut() -> None:
    graph = graph_of(4, [[(0, 0), (1, 1)], []])
    facts = chunking_event("metis", graph, whole(graph), make_chunks("hash", graph, whole(graph), 2, seed=0)).write()
    assert (facts["edges"], facts["cut_edges"], facts["cut_share"]) == (0, 0, 0.0)


@pytest.mark.parametrize("chunk", [[0, 1, 2], [0, -1, 1]])
def test_numbers_that_are_no_chunks_are_refused(chunk: list[int]) -> None:
    with pytest.raises(PlanError, match="chunks are numbered 0 to 1"):
        Chunking(np.array(chunk), 2, 1)
