"""Prefixes sliced from each other are what one gets by cutting the subgraph out of the graph each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.systems.decayed_windows.chunks import Chunking
from dtdg_lab.systems.decayed_windows.shrinking import (
    Numbering,
    PrefixSource,
    Shrinker,
    ShrunkenEdges,
    SurvivalOrder,
    survival_order,
)
from dtdg_lab.testing.example_graphs import graph_of

WAYS = st.sampled_from(["in", "out"])


@st.composite
def divided(draw: st.DrawFn) -> tuple[Any, np.ndarray, Chunking]:
    """A graph of 1 to 14 nodes in 1 to 3 snapshots, the part of each node, and chunks of these parts."""
    parts, chunks = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    nodes = draw(st.integers(parts * chunks, 14))
    vertex = st.integers(0, nodes - 1)
    snapshots = draw(st.lists(st.lists(st.tuples(vertex, vertex), max_size=50), min_size=1, max_size=3))
    graph = graph_of(nodes, snapshots, weighted=draw(st.booleans()))
    seats = draw(st.permutations(range(nodes)))  # each chunk of each part has one of the first
    number = np.array(
        [min(seat, draw(st.integers(0, parts * chunks - 1))) if seat >= parts * chunks else seat for seat in seats]
    )
    return graph, (number // chunks).astype(np.int32), Chunking(number % chunks, chunks, parts)


def dense(snapshot: Any) -> np.ndarray:
    """A[v, u] is the weight of the edge from u to v, moved up by 1 so that a weight of 0 is an edge too; 0 for none."""
    matrix = np.zeros((snapshot.num_nodes, snapshot.num_nodes))
    matrix[snapshot.rows(), snapshot.indices] = 1 + (0 if snapshot.weights is None else snapshot.weights)
    return matrix


def wanted(snapshot: Any, order: SurvivalOrder, rows: int, way: str) -> np.ndarray:
    """The dense subgraph along a way, in the order's numbering, without edges between parts."""
    own, parts = order.vertices[:rows], order.parts[:rows]
    matrix = dense(snapshot)[np.ix_(own, own)] * (parts[:, None] == parts[None, :])
    return matrix if way == "in" else matrix.T


def source_of(edges: ShrunkenEdges) -> PrefixSource:
    return PrefixSource(edges, OperatorSettings(dtype=torch.float64))


def check(edges: ShrunkenEdges, matrix: np.ndarray, weighted: bool, way: str) -> None:
    rows, source = len(matrix), source_of(edges)
    found, along = np.zeros((rows, rows)), source.adjacency(way)
    values = np.zeros(along.num_edges) if along.weights is None else along.weights.numpy()
    found[along.edge_rows().numpy(), along.indices.numpy()] = 1 + values
    assert edges.num_edges == np.count_nonzero(matrix)  # each edge once
    assert found.tolist() == matrix.tolist()
    weights = matrix - (matrix > 0) if weighted else matrix
    other = "out" if way == "in" else "in"
    assert np.allclose(source.row_degrees(way), weights.sum(axis=1), rtol=1e-12)
    assert np.allclose(source.row_degrees(other), weights.sum(axis=0), rtol=1e-12)


def check_equal(edges: ShrunkenEdges, fresh: ShrunkenEdges) -> None:
    """A sliced prefix equals one that is cut out of the graph on the host, value by value."""
    assert edges.rows == fresh.rows
    assert edges.counts[: edges.rows + 1].tolist() == fresh.counts[: edges.rows + 1].tolist()
    for name in ("indptr", "indices", "weights", "levels"):
        ours, cut = getattr(edges, name), getattr(fresh, name)
        assert (ours is None) == (cut is None)
        assert ours is None or (ours.dtype == cut.dtype and ours.tolist() == cut.tolist())


@given(divided(), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 14), WAYS), min_size=1, max_size=8), st.data())
def test_slices_are_the_subgraph_cut_out_and_relabelled(problem: Any, asked: Any, data: st.DataObject) -> None:
    graph, owner, chunking = problem
    first = data.draw(st.integers(0, chunking.parts - 1))
    own = range(first, data.draw(st.integers(first + 1, chunking.parts)))
    shrinker = Shrinker(graph.snapshots)
    for epoch in range(2):
        order = survival_order(owner, chunking, own, seed=3, epoch=epoch)
        shrinker.renumber(order)
        for number, length, way in asked:  # lengths rise and fall: from a slice, and from the graph again
            t, rows = number % len(graph.snapshots), min(length, len(order.vertices))
            snapshot = graph.snapshots[t]
            edges = shrinker.edges(t, rows)
            check(edges, wanted(snapshot, order, rows, way), snapshot.weights is not None, way)
            check_equal(edges, Numbering.of(order, graph.num_nodes).cut_out(snapshot, rows))


@given(divided(), WAYS)
def test_a_part_s_edges_do_not_depend_on_the_ranks(problem: Any, way: str) -> None:
    """Sums of floats depend on their order, so even a row's columns must come in the same order."""
    graph, owner, chunking = problem
    whole = survival_order(owner, chunking, range(chunking.parts), seed=0, epoch=0)
    together = Shrinker(graph.snapshots)
    together.renumber(whole)
    for part in range(chunking.parts):
        order = survival_order(owner, chunking, range(part, part + 1), seed=0, epoch=0)
        alone = Shrinker(graph.snapshots)
        alone.renumber(order)
        for count in range(chunking.chunks + 1):
            cut, cut_alone = together.edges(0, int(whole.rows[count])), alone.edges(0, int(order.rows[count]))
            sources = source_of(cut), source_of(cut_alone)
            joint, own = (source.adjacency(way) for source in sources)
            mine = np.flatnonzero(whole.parts[: cut.rows] == part)
            assert whole.vertices[mine].tolist() == order.vertices[: cut_alone.rows].tolist()
            for row, at in enumerate(mine):
                columns = joint.indices[joint.indptr[at] : joint.indptr[at + 1]].numpy()
                here = own.indices[own.indptr[row] : own.indptr[row + 1]].numpy()
                assert whole.vertices[columns].tolist() == order.vertices[here].tolist()
            joint_degrees, degrees = (source.row_degrees(way).numpy() for source in sources)
            assert joint_degrees[mine].tolist() == degrees.tolist()


@given(divided())
def test_all_chunks_of_one_part_are_the_whole_graph(problem: Any) -> None:
    graph, owner, chunking = problem
    whole = np.zeros_like(owner)
    number = owner * chunking.chunks + chunking.chunk
    one = Chunking(number, chunking.chunks * chunking.parts, 1)
    order = survival_order(whole, one, range(1), seed=0, epoch=0)
    shrinker = Shrinker(graph.snapshots)
    shrinker.renumber(order)
    for t, snapshot in enumerate(graph.snapshots):
        edges = shrinker.edges(t, len(order.vertices))
        assert edges.num_edges == snapshot.num_edges
        source = source_of(edges)
        assert source.column_degrees("in").tolist() == snapshot.in_degrees()[order.vertices].tolist()
        assert np.allclose(source.column_degrees("out"), snapshot.out_degrees()[order.vertices], rtol=1e-12)
