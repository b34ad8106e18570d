"""Prefixes of decayed snapshots by hand, and how long they are kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.loader import Loader
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.systems.decayed_windows.chunks import Chunking
from dtdg_lab.systems.decayed_windows.shrinking import PrefixSource, Shrinker, SurvivalOrder, survival_order
from dtdg_lab.testing.example_graphs import graph_of
from tests.pretend_copies import pretend_copies
from tests.simulated_tensors import DEVICE, simulated_device


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
    assert (edges.rows, edges.num_edges) == (3, 4)
    assert edges.levels.tolist() == [0, 2, 1, 2]
    assert edges.counts.tolist() == [0, 1, 2, 4]


def test_a_shorter_prefix_by_hand() -> None:
    made, order = shrinker()
    made.renumber(order)
    made.edges(0, 3)
    edges = made.edges(0, 2)
    assert (edges.indptr.tolist(), edges.indices.tolist(), edges.levels.tolist()) == ([0, 1, 2], [0, 0], [0, 1])
    assert edges.weights is not None
    assert edges.weights.tolist() == [2.5, 1.5]
    assert [made.edges(0, rows).num_edges for rows in (1, 0)] == [1, 0]
    assert made.edges(0, 0).indptr.tolist() == [0]


def test_degrees_are_those_that_the_edges_of_a_prefix_induce() -> None:
    made, order = shrinker()
    made.renumber(order)
    source = PrefixSource(made.edges(0, 3), OperatorSettings(dtype=torch.float64))
    degrees = {"in": [2.5, 2.5, 0.5], "out": [4.0, 0.5, 1.0]}
    for _ in range(2):
        for direction, by_hand in degrees.items():
            assert source.column_degrees(direction).tolist() == by_hand
            assert source.row_degrees(direction).tolist() == by_hand
        source.release()
    out = source.adjacency("out")
    assert (out.indptr.tolist(), out.indices.tolist()) == ([0, 2, 3, 4], [0, 1, 2, 1])
    with pytest.raises(UnsupportedError, match="sideways"):
        source.column_degrees("sideways")


def test_what_was_cut_out_is_given_again() -> None:
    made, order = shrinker()
    made.renumber(order)
    edges = made.edges(0, 3)
    assert made.edges(0, 3) is edges
    made.keep_only(range(1, 5))
    assert made.edges(0, 3) is not edges
    again = made.edges(0, 3)
    made.keep_only(range(1))
    assert made.edges(0, 3) is again
    made.renumber(order)
    assert made.edges(0, 3) is not again


def test_a_device_is_not_waited_for_and_holds_what_the_host_holds() -> None:
    made, order = shrinker()
    made.renumber(order)
    with simulated_device() as counter:
        there = Shrinker(made._snapshots, DEVICE)
        there.renumber(order)
        on_device = [there.edges(0, rows) for rows in (4, 3, 2, 0)]
        degrees = PrefixSource(on_device[1], OperatorSettings(device=DEVICE)).column_degrees("out")
        assert not counter.waits
        for edges in on_device:
            here = made.edges(0, edges.rows)
            for name in ("indptr", "indices", "weights", "levels"):
                assert getattr(edges, name).device.type == "simulated"
                assert getattr(edges, name).tolist() == getattr(here, name).tolist()
        assert degrees.tolist() == [4.0, 0.5, 1.0]


def test_a_snapshot_is_copied_once() -> None:
    made, order = shrinker()
    made.renumber(order)
    with pretend_copies() as copies:
        for rows in (4, 3, 2, 0):
            assert made.edges(0, rows).rows == rows
    assert len(copies.copied) == 4, "offsets, indices, weights and levels"


def test_snapshots_are_cut_out_ahead_once_and_only_if_no_prefix_has_them() -> None:
    made, order = shrinker()
    counted = made._snapshots
    loader = Loader(ahead=True)
    ahead = Shrinker(counted, loader=loader)
    made.renumber(order)
    ahead.renumber(order)
    ahead.prepare(0, 3)
    assert len(loader._requested) == 1
    assert ahead.edges(0, 3).indices.tolist() == made.edges(0, 3).indices.tolist()
    ahead.prepare(0, 2)
    assert not loader._requested, "a prefix has them already"
    ahead.prepare(0, 4)
    ahead.renumber(order)
    assert not loader._requested, "another order"
    loader.close()


def halves(nodes: int = 60, chunks: int = 5, parts: int = 4) -> tuple[np.ndarray, Chunking]:
    rng = np.random.default_rng(3)
    owner = rng.permutation(nodes) % parts
    chunk = np.empty(nodes, np.int32)
    for part in range(parts):
        own = np.flatnonzero(owner == part)
        chunk[own] = rng.permutation(len(own)) % chunks
    return owner.astype(np.int32), Chunking(chunk, chunks, parts, made_by="a test")


def test_an_order_holds_chunk_after_chunk_of_every_part() -> None:
    owner, chunking = halves()
    order = survival_order(owner, chunking, range(1, 3), seed=0, epoch=4)
    assert len(order.rows) == 6
    assert sorted(order.vertices.tolist()) == np.flatnonzero((owner == 1) | (owner == 2)).tolist()
    assert order.parts.tolist() == owner[order.vertices].tolist()
    seen: set[tuple[int, int]] = set()
    for start, stop in zip(order.rows[:-1], order.rows[1:], strict=True):
        block = order.vertices[start:stop]
        pairs = list(zip(owner[block].tolist(), chunking.chunk[block].tolist(), strict=True))
        assert len(set(pairs)) == 2  # one chunk of each part
        assert [part for part, _ in pairs] == sorted(part for part, _ in pairs)
        for pair in set(pairs):
            inside = [vertex for vertex, of in zip(block.tolist(), pairs, strict=True) if of == pair]
            assert inside == np.flatnonzero((owner == pair[0]) & (chunking.chunk == pair[1])).tolist()
        assert not seen & set(pairs)
        seen |= set(pairs)


def test_what_survives_of_a_part_does_not_depend_on_the_ranks() -> None:
    owner, chunking = halves()
    whole = survival_order(owner, chunking, range(4), seed=0, epoch=1)
    for part in range(4):
        alone = survival_order(owner, chunking, range(part, part + 1), seed=0, epoch=1)
        assert whole.vertices[whole.parts == part].tolist() == alone.vertices.tolist()
        for count in range(6):
            assert (whole.parts[: whole.rows[count]] == part).sum() == alone.rows[count]


def test_every_epoch_seed_and_part_has_an_order_of_its_own() -> None:
    owner, chunking = halves(chunks=13)
    orders = {
        tuple(survival_order(owner, chunking, range(4), seed=seed, epoch=epoch).vertices.tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9
    order = survival_order(owner, chunking, range(4), seed=0, epoch=0)
    firsts = {tuple(chunking.chunk[order.vertices[order.parts == part]].tolist()) for part in range(4)}
    assert len(firsts) == 4


@pytest.mark.parametrize("nodes", [300, 70_000])  # more than 8 bits number, and more than 16
def test_many_chunks_are_shuffled_as_their_stream_says(nodes: int) -> None:
    order = survival_order(np.zeros(nodes, np.int32), Chunking(np.arange(nodes), nodes, 1), range(1), seed=5, epoch=2)
    assert order.rows.tolist() == list(range(nodes + 1))
    assert order.vertices.tolist() == generator(5, "batching/survival", 2, 0).permutation(nodes).tolist()


def test_an_empty_chunk_is_refused() -> None:
    owner, chunking = halves()
    other = np.where((owner == 2) & (chunking.chunk == 3), 0, owner)
    with pytest.raises(PlanError, match="a chunk of part 2 has no nodes"):
        survival_order(other, chunking, range(4), seed=0, epoch=0)
