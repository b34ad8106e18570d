"""What holds for partitions of any graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.plans import Partition
from dtdg_lab.partition import metis
from dtdg_lab.partition import simple as hash_
from dtdg_lab.partition import simple as load_aware
from dtdg_lab.partition import simple as round_robin
from dtdg_lab.partition.base import load_partition, save_partition
from dtdg_lab.partition.child_process import MAX_SUM, fitting
from dtdg_lab.partition.hypergraph import merged_nets
from dtdg_lab.partition.metis import union_graph
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.testing.example_graphs import graph_of
from dtdg_lab.testing.partitioners import check_assignment


@st.composite
def graphs(draw: st.DrawFn, most: int = 12):
    """A graph of 1 to ``most`` nodes in 1 to 4 snapshots, with loops and empty snapshots."""
    nodes = draw(st.integers(1, most))
    vertex = st.integers(0, nodes - 1)
    snapshots = draw(st.lists(st.lists(st.tuples(vertex, vertex), max_size=25), min_size=1, max_size=4))
    return graph_of(nodes, snapshots, weighted=draw(st.booleans()))


def dense(snapshot) -> np.ndarray:
    """A[v, u] is 1 where v pulls from u."""
    matrix = np.zeros((snapshot.num_nodes, snapshot.num_nodes))
    matrix[snapshot.rows(), snapshot.indices] = 1
    return matrix


@given(graphs(), st.integers(1, 4))
def test_loads_count_walks(graph, hops: int) -> None:
    walks = np.zeros(graph.num_nodes)
    for snapshot in graph.snapshots:
        for layer in range(1, hops + 1):
            for depth in range(1, layer + 1):
                walks += np.linalg.matrix_power(dense(snapshot), depth).sum(axis=1)
    assert vertex_loads(graph, hops).tolist() == walks.tolist()


@given(graphs())
def test_the_union_is_that_of_dense_matrices(graph) -> None:
    held = np.zeros((graph.num_nodes, graph.num_nodes))
    for snapshot in graph.snapshots:
        held += np.maximum(dense(snapshot), dense(snapshot).T)
    np.fill_diagonal(held, 0)
    union = union_graph(graph.snapshots)
    found = np.zeros_like(held)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(union.indptr))
    found[rows, union.indices] = union.snapshots
    assert found.tolist() == held.tolist()
    assert len(union.indices) == (held > 0).sum()


@given(graphs(), st.data())
def test_what_nets_cost_is_the_rows_that_are_sent(graph, data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, graph.num_nodes))
    owner = np.array(data.draw(st.lists(st.integers(0, parts - 1), min_size=graph.num_nodes, max_size=graph.num_nodes)))
    sent = 0
    for snapshot in graph.snapshots:
        needed = {(owner[v], u) for v, u in zip(snapshot.rows(), snapshot.indices, strict=True) if owner[v] != owner[u]}
        sent += len(needed)
    nets = merged_nets(graph.snapshots)
    touched = [len(set(owner[nets.pins[a:b]])) for a, b in zip(nets.starts[:-1], nets.starts[1:], strict=True)]
    assert sum(count * (number - 1) for count, number in zip(nets.counts, touched, strict=True)) == sent
    assert (np.diff(nets.starts) >= 2).all()


@pytest.mark.parametrize("assign", [hash_.assign_hash, round_robin.assign_round_robin, load_aware.assign_load_aware])
@given(graph=graphs(most=40), data=st.data())
def test_every_vertex_is_owned_once(assign, graph, data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, graph.num_nodes))
    seed = data.draw(st.integers(0, 2**53))
    first = check_assignment(assign, graph, parts, seed=seed)
    assert first.tolist() == check_assignment(assign, graph, parts, seed=seed).tolist()


@given(graphs(most=40), st.integers(1, 3), st.sampled_from(["plain", "boustrophedon"]), st.data())
def test_dealt_loads_differ_by_at_most_the_heaviest(
    graph, hops: int, assignment_order: str, data: st.DataObject
) -> None:
    parts = data.draw(st.integers(1, graph.num_nodes))
    loads = vertex_loads(graph, hops)
    made = load_aware.assign_load_aware(graph, parts, hops=hops, assignment_order=assignment_order)
    sums, counts = np.bincount(made.owner, weights=loads), np.bincount(made.owner)
    assert sums.max() - sums.min() <= loads.max()
    assert counts.max() - counts.min() <= 1


@given(st.integers(1, 50), st.data())
def test_metis_deals_vertices_without_neighbours_evenly(nodes: int, data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, nodes))
    counts = np.bincount(metis.assign_metis(graph_of(nodes, [[(0, 0)]]), parts).owner, minlength=parts)
    assert counts.max() - counts.min() <= 1


@given(st.lists(st.floats(0, 1e15), min_size=1, max_size=50))
def test_weights_fit_into_32_bits(weights: list[float]) -> None:
    fitted = fitting(np.array(weights))
    assert fitted.min() >= 1
    assert fitted.sum() <= MAX_SUM + len(weights)
    assert (np.diff(fitted[np.argsort(weights)]) >= 0).all()


owners = st.integers(1, 5).flatmap(
    lambda parts: st.tuples(st.just(parts), st.lists(st.integers(0, parts - 1), max_size=30))
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(owners, st.text(max_size=20), st.floats(0, 1e6))
def test_files_give_back_what_was_saved(tmp_path: Path, owned, words: str, seconds: float) -> None:
    parts, rest = owned
    made = Partition(np.array([*range(parts), *rest]), parts, None, "", words.rstrip("\0"), seconds)
    back = load_partition(save_partition(made, tmp_path / "any.npz"))
    assert (back, back.made_by, back.seconds, back.groups) == (made, made.made_by, made.seconds, None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_changed_file_is_refused_or_the_same(tmp_path: Path, data: st.DataObject) -> None:
    made = Partition(np.arange(20) % 3, 3, np.arange(20) % 2, "", "by hand", 1.5)
    file = save_partition(made, tmp_path / "damaged.npz")
    whole = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[place] ^= data.draw(st.integers(1, 255))
    else:
        del whole[place:]
    file.write_bytes(bytes(whole))
    try:
        back = load_partition(file)
    except DataError:
        return
    assert back == made  # what changed was a date or an attribute of the archive
