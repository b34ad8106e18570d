"""Counts of partitions against their definitions, spelt out with sets, on any small graph."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config.model_facts import Pull
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.measures import measure, remote_rows
from dtdg_lab.partition.neighbourhoods import hop_distance, outside, transposed, union_of, within_hops
from dtdg_lab.partition.volume import predicted_bytes
from tests.factories import snapshot_of_matrix

WAYS = (("in",), ("out",), ("in", "out"))


def snapshot_of(edges, vertices, weighted):
    """A snapshot of edges (u, v), u into v; each has another weight."""
    dense = np.zeros((vertices, vertices), np.float32)
    for u, v in edges:
        dense[v, u] = 1 + u + vertices * v
    return snapshot_of_matrix(dense, weighted=weighted)


@st.composite
def divided(draw):
    """A graph of 1 to 3 snapshots, perhaps with loops, isolated nodes and empty snapshots, and a partition of it."""
    vertices = draw(st.integers(2, 9))
    pairs = st.tuples(st.integers(0, vertices - 1), st.integers(0, vertices - 1))
    steps = draw(st.lists(st.lists(pairs, max_size=18), min_size=1, max_size=3))
    weighted = draw(st.booleans())
    parts = draw(st.integers(1, vertices))
    owner = draw(st.permutations([v % parts for v in range(vertices)]))
    snapshots = tuple(snapshot_of(step, vertices, weighted) for step in steps)
    zeros = np.zeros((len(steps), vertices), np.float32)
    features = np.zeros((len(steps), vertices, 2) if draw(st.booleans()) else (vertices, 2), np.float32)
    graph = DynamicGraph("drawn", snapshots, features, zeros, zeros, "a test", 1)
    return graph, Partition(np.array(owner, np.int32), parts)


def pulled_from(snapshot, way):
    """For every node the set that it pulls from."""
    found = [set() for _ in range(snapshot.num_nodes)]
    for v, u in zip(snapshot.rows().tolist(), snapshot.indices.tolist(), strict=True):
        found[v if way == "in" else u].add(u if way == "in" else v)
    return found


def reach(snapshots, own, hops, ways):
    """Nodes within 0, 1, ..., D hops of some."""
    reached = [set(own)]
    for _ in range(hops):
        more = [pulled_from(snapshot, way)[v] for snapshot in snapshots for way in ways for v in reached[-1]]
        reached.append(reached[-1].union(*more))
    return reached


@given(divided(), st.sampled_from(["in", "out"]))
def test_remote_rows_are_what_parts_pull_and_do_not_own(drawn, way):
    graph, partition = drawn
    for snapshot in graph.snapshots:
        pairs = {
            (int(partition.owner[v]), int(partition.owner[u]), u)
            for v, sources in enumerate(pulled_from(snapshot, way))
            for u in sources
            if partition.owner[u] != partition.owner[v]
        }
        part, source = remote_rows(snapshot, partition, way)
        assert list(zip(part.tolist(), partition.owner[source].tolist(), source.tolist(), strict=True)) == sorted(pairs)


@given(divided())
def test_transposing_twice_changes_nothing(drawn):
    for snapshot in drawn[0].snapshots:
        turned = transposed(snapshot)
        assert pulled_from(turned, "in") == pulled_from(snapshot, "out")
        assert transposed(turned).equals(snapshot)
        Snapshot(turned.indptr, turned.indices, turned.weights)  # sorted, no duplicates


@given(divided(), st.integers(0, 4), st.sampled_from(WAYS))
def test_hop_distances_are_lengths_of_shortest_walks(drawn, hops, ways):
    graph, partition = drawn
    for part in range(partition.parts):
        own = partition.vertices(part)
        reached = reach(graph.snapshots, own.tolist(), hops, ways)
        expected = [next((d for d in range(hops + 1) if v in reached[d]), hops + 1) for v in range(graph.num_nodes)]
        assert hop_distance(graph.snapshots, own, hops, ways).tolist() == expected
        assert hop_distance([union_of(graph.snapshots)], own, hops, ways).tolist() == expected
        for d, bits in enumerate(within_hops(graph.snapshots, partition.owner, partition.parts, hops, ways)):
            members = np.flatnonzero(outside(bits, partition.owner, partition.parts)[:, part])
            assert set(members.tolist()) == reached[d] - set(own.tolist())


@given(divided(), st.integers(1, 3), st.sampled_from(WAYS), st.booleans(), st.integers(0, 2))
def test_measures_are_what_their_names_say(drawn, hops, ways, static, first):
    graph, partition = drawn
    counted = range(min(first, graph.num_snapshots - 1), graph.num_snapshots)
    found = measure(graph, partition, snapshots=counted, hops=hops, directions=ways, static=static)
    owner, parts = partition.owner, partition.parts
    for row, t in enumerate(counted):
        snapshot = graph.snapshots[t]
        sources, rows = snapshot.indices, snapshot.rows()
        assert found.cut_edges[row] == (owner[sources] != owner[rows]).sum()
        assert found.edges[row].tolist() == [(owner[rows] == part).sum() for part in range(parts)]
        lists = {way: pulled_from(snapshot, way) for way in ways}
        within = [graph.snapshots[s] for s in counted] if static else [snapshot]
        for part in range(parts):
            own = set(partition.vertices(part).tolist())
            needed = [set().union(*(lists[way][v] for v in own)) - own for way in ways]
            assert found.halo[row, part] == sum(map(len, needed))
            *_, nearer, farthest = reach(within, own, hops, ways)
            assert found.replicated[row, part] == len(farthest - own)
            held = sum(len(lists[way][v]) for way in ways for v in nearer - own)
            assert found.replicated_edges[row, part] == held
    assert found.owned.sum() == graph.num_nodes
    assert found.edges.sum(axis=1).tolist() == found.all_edges.tolist() == graph.num_edges[counted.start :].tolist()
    for rows in (found.matrix, found.first_matrix):
        assert all((np.diag(matrix) == 0).all() for matrix in rows.values())
    assert sum(found.matrix.values()).sum(axis=0).tolist() == found.halo.sum(axis=0).tolist()
    assert sum(found.first_matrix.values()).sum(axis=0).tolist() == found.halo[0].tolist()


@given(divided())
def test_parts_that_share_a_rank_need_no_more_than_apart(drawn):
    graph, partition = drawn
    if partition.parts % 2:
        return
    apart, together = measure(graph, partition), measure(graph, partition.on_ranks(partition.parts // 2))
    assert together.halo.sum() <= apart.halo.sum()
    assert together.cut_edges.sum() <= apart.cut_edges.sum()


@given(divided(), st.integers(1, 5), st.booleans())
def test_what_goes_forward_comes_back(drawn, width, at_first):
    graph, partition = drawn
    found = measure(graph, partition)
    described = predicted_bytes(found, [Pull(0, "in", width, True, at_first)], itemsize=8)
    rows = found.matrix["in"] - (0 if at_first else found.first_matrix["in"])
    np.testing.assert_array_equal(described["forward"][0], found.matrix["in"] * width * 8)
    np.testing.assert_array_equal(described["backward"][0], rows.T * width * 8)


@given(divided(), st.integers(1, 4))
def test_bins_keep_the_sums(drawn, columns):
    graph, partition = drawn
    same = dataclasses.replace(graph, snapshots=graph.snapshots[:1] * graph.num_snapshots)
    found = measure(same, partition)
    described = found.to_dict(columns)
    lengths = np.diff(described["bins"])
    assert len(lengths) == min(columns, graph.num_snapshots)
    for name in ("edges", "halo", "replicated"):  # all snapshots are the same here, so that no mean is rounded
        assert (np.array(described[name]) @ lengths).tolist() == getattr(found, name).sum(axis=0).tolist()
