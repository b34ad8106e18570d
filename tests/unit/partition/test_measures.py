"""Measures of partitions worked out by hand, kept in the cache, and refused where they make no sense."""

from __future__ import annotations

import dataclasses
import json
import pickle

import numpy as np
import pytest

from dtdg_lab.config.model_facts import Pull, model_facts
from dtdg_lab.core.errors import ConfigError, PartitionError, PlanError, UnknownNameError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import IntervalEdges
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.partition import metrics as kept
from dtdg_lab.partition.halo import hop_distance, outside, remote_rows, transposed, union_of, within_hops
from dtdg_lab.partition.metrics import compare_partitions, measure, measures_for, partition_graph, predicted_bytes

# 0 -> 1 -> 2 -> 3 -> 4 -> 5, and in the second snapshot only 5 -> 0 and a loop at 2; the third is empty
STEPS = [[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], [(5, 0), (2, 2)], []]
HALVES = Partition(np.array([0, 0, 0, 1, 1, 1], np.int32), 2)


def snapshot_of(edges, vertices=6):
    dense = np.zeros((vertices, vertices), bool)
    for u, v in edges:
        dense[v, u] = True
    indptr = np.concatenate([[0], np.cumsum(dense.sum(axis=1))]).astype(np.int64)
    return Snapshot(indptr, np.nonzero(dense)[1].astype(np.int32))


def graph_of(steps=STEPS, vertices=6, static=False):
    snapshots = tuple(snapshot_of(step, vertices) for step in steps)
    zeros = np.zeros((len(steps), vertices), np.float32)
    features = np.zeros((vertices, 3) if static else (len(steps), vertices, 3), np.float32)
    return DynamicGraph("a path", snapshots, features, zeros, zeros, "a test", 1)


def trainable(intervals=12):
    rng = np.random.default_rng(0)
    rows = np.array([(*rng.integers(0, 20, 2), t) for t in range(intervals) for _ in range(30)])
    edges = IntervalEdges(*rows.T, num_intervals=intervals, num_nodes=20)
    return build_graph(edges.stream(), name="drawn", source="a test", edge_life=1)


def test_a_path_cut_in_the_middle():
    found = measure(graph_of(), HALVES, hops=2)
    assert found.owned.tolist() == [3, 3]
    assert found.edges.tolist() == [[2, 3], [2, 0], [0, 0]]
    assert found.all_edges.tolist() == [5, 2, 0]
    assert found.cut_edges.tolist() == [1, 1, 0]
    assert found.halo.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert found.matrix["in"].tolist() == [[0, 1], [1, 0]]
    assert found.first_matrix["in"].tolist() == [[0, 1], [0, 0]]
    # 3 pulls from 2 and 2 from 1; 0 pulls from 5 and 5 from 4: in some snapshot
    assert found.replicated.tolist() == [[2, 2]] * 3
    assert found.replicated_edges.tolist() == [[1, 1], [0, 1], [0, 0]]
    assert (found.cut_share, found.halo_share, found.replicated_share) == (2 / 7, 2 / 20, 12 / 30)
    # an edge counts twice, a walk of two edges once; in the second snapshot the loop makes a walk of its own
    assert found.load.tolist() == [(2 * 2 + 1) + (2 * 2 + 1), 2 * 3 + 3]
    assert measure(graph_of(), HALVES, hops=500).replicated.tolist() == [[3, 3]] * 3
    assert found.imbalance == {"vertices": 1.0, "edges": 4 / 3.5, "load": 10 / 9.5}


def test_a_path_whose_snapshots_stand_alone():
    found = measure(graph_of(), HALVES, hops=2, static=False)
    assert found.replicated.tolist() == [[0, 2], [1, 0], [0, 0]]
    assert found.replicated_edges.tolist() == [[0, 1], [0, 0], [0, 0]]


def test_memory_is_counted_array_by_array():
    found = measure(graph_of(), HALVES, hops=1)
    # per snapshot 3 nodes' 3 features and 4 row starts; own edges; one row sent and one received
    assert found.halo_bytes.tolist() == [4 * (3 * (9 + 4) + 4 + 2), 4 * (3 * (9 + 4) + 3 + 2)]
    # one replicated row in every snapshot; edges of own rows alone within 0 hops
    assert found.cached_bytes.tolist() == [4 * (3 * (12 + 5) + 4), 4 * (3 * (12 + 5) + 3)]
    once = measure(graph_of(static=True), HALVES, hops=1)
    assert (found.halo_bytes - once.halo_bytes).tolist() == [4 * 18, 4 * 18]
    assert (found.cached_bytes - once.cached_bytes).tolist() == [4 * 24, 4 * 24]


def test_both_ways_add_up():
    one, both = (measure(graph_of(), HALVES, directions=ways) for ways in (("in",), ("in", "out")))
    assert both.halo.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert both.halo_share == 4 / 40
    assert both.matrix["out"].tolist() == one.matrix["in"].T.tolist()
    assert both.cut_share == one.cut_share
    assert measure(graph_of(), HALVES, directions=("out",)).edges.tolist() == one.edges.tolist()


def test_more_parts_than_bits_in_a_word():
    vertices, ring = 130, [(v, (v + 1) % 130) for v in range(130)]
    alone = Partition(np.arange(vertices, dtype=np.int32), vertices)
    found = measure(graph_of([ring], vertices), alone, hops=3)
    assert (found.halo == 1).all()
    assert (found.replicated == 3).all()
    assert (found.replicated_edges == 2).all()
    reached = within_hops([snapshot_of(ring, vertices)], alone.owner, vertices, 1)[1]
    assert np.nonzero(outside(reached, alone.owner, vertices))[1].tolist() == [*range(1, vertices), 0]


def test_one_part_and_graphs_without_edges():
    whole = measure(graph_of(), Partition(np.zeros(6, np.int32), 1), hops=2)
    assert (whole.halo.sum(), whole.cut_edges.sum(), whole.replicated.sum()) == (0, 0, 0)
    empty = measure(graph_of([[], []]), HALVES)
    assert (empty.cut_share, empty.halo_share, empty.replicated_share) == (0.0, 0.0, 0.0)
    assert empty.imbalance == {"vertices": 1.0, "edges": 1.0, "load": 1.0}


def test_measures_cannot_change_and_can_be_pickled():
    found = measure(graph_of(), HALVES)
    with pytest.raises(ValueError, match="read-only"):
        found.matrix["in"][0, 1] = 0
    again = pickle.loads(pickle.dumps(found))
    assert again.to_dict() == found.to_dict()


def test_told_is_plain_and_thinned():
    found = measure(graph_of(), HALVES, snapshots=range(1, 3), hops=2)
    described = json.loads(json.dumps(found.to_dict(columns=2)))
    assert described["bins"] == [1, 2, 3]
    assert (described["parts"], described["vertices"], described["owned"]) == (2, 6, [3, 3])
    assert (described["edges"], described["halo"]) == ([[2, 0], [0, 0]], [[1, 0], [0, 0]])
    assert described["totals"]["all_edges"] == 2
    assert described["matrix"] == {"in": [[0, 0], [1, 0]]}
    assert found.to_dict(columns=1)["edges"] == [[1.0], [0.0]]
    assert len(measure(graph_of(), HALVES).to_dict(columns=64)["bins"]) == 4


def test_bytes_by_hand():
    found = measure(graph_of(), HALVES, directions=("in", "out"))
    pulls = [
        Pull(0, "in", 3, False, of_features=True),
        Pull(0, "out", 5, True, at_first=False),
        Pull(1, "in", 2, True),
        Pull(1, "top", 9, True),
    ]
    described = predicted_bytes(found, pulls)
    assert described["forward"].tolist() == [[[0, 32], [32, 0]], [[0, 8], [8, 0]]]
    # out: in the first snapshot part 1 sends to part 0, whose gradient is not wanted back; in the second the reverse
    assert described["backward"].tolist() == [[[0, 0], [20, 0]], [[0, 8], [8, 0]]]
    assert predicted_bytes(found, pulls, reuse=True)["forward"][0].tolist() == [[0, 20], [20, 0]]
    assert (predicted_bytes(found, pulls, itemsize=8)["forward"] == 2 * described["forward"]).all()
    with pytest.raises(PlanError, match="the model aggregates over out, but directions="):
        predicted_bytes(measure(graph_of(), HALVES), pulls)


@pytest.mark.parametrize("settings", [{"hops": 0}, {"snapshots": range(0)}, {"snapshots": range(2, 4)}])
def test_what_cannot_be_measured(settings):
    with pytest.raises(PlanError, match="at least"):
        measure(graph_of(), HALVES, **settings)


def test_what_does_not_fit():
    other = Partition(np.arange(5, dtype=np.int32) % 2, 2)
    with pytest.raises(PlanError, match="the partition has 5 nodes, but the snapshot has 6"):
        measure(graph_of(), other)
    with pytest.raises(PlanError, match="direction='up'"):
        remote_rows(snapshot_of([]), HALVES, "up")
    with pytest.raises(PlanError, match="hops=127 must be from 0 to 126"):
        hop_distance([snapshot_of([])], np.array([0]), 127)
    with pytest.raises(PlanError, match=r"directions=\(\)"):
        hop_distance([snapshot_of([])], np.array([0]), 1, ())
    with pytest.raises(PlanError, match="the union needs at least one snapshot"):
        union_of([])
    with pytest.raises(PlanError, match=r"snapshots of \[5, 6\] nodes"):
        union_of([snapshot_of([], 5), snapshot_of([], 6)])


def test_a_union_of_more_edges_than_are_sorted_at_once(monkeypatch):
    monkeypatch.setattr("dtdg_lab.partition.halo.KEYS_AT_ONCE", 3)
    union = union_of([snapshot_of(step) for step in STEPS * 2])
    assert union.equals(snapshot_of([edge for step in STEPS for edge in step]))


def test_transposing_keeps_weights():
    turned = transposed(Snapshot(np.array([0, 2, 2]), np.array([0, 1], np.int32), np.array([1.5, 2], np.float32)))
    assert (turned.indptr.tolist(), turned.indices.tolist(), turned.weights.tolist()) == ([0, 1, 2], [0, 0], [1.5, 2])


def test_measures_are_counted_once(monkeypatch):
    graph = graph_of([[(0, 1)], [(0, 4), (4, 0)]])
    first = kept.kept_measures(graph, HALVES, directions=("in", "out"))
    files = set((cache_folder() / "partition-measures").glob("*.npz"))
    counted = []
    monkeypatch.setattr(kept, "measure", lambda *given, **settings: counted.append(1) or measure(*given, **settings))
    again = kept.kept_measures(graph, HALVES, directions=("in", "out"))
    assert again.to_dict() == first.to_dict()
    assert all((again.first_matrix[way] == first.first_matrix[way]).all() for way in ("in", "out"))
    assert not counted
    other = Partition(HALVES.owner[::-1], 2)
    assert kept.kept_measures(graph, other, directions=("in", "out")).to_dict() != first.to_dict()
    for asked in ({}, {"hops": 2}, {"static": False}, {"snapshots": range(1)}):
        assert kept.kept_measures(graph, HALVES, **asked).to_dict() == measure(graph, HALVES, **asked).to_dict()
    assert len(counted) == 5
    for file in files:
        file.write_bytes(file.read_bytes()[:50])
    assert kept.kept_measures(graph, HALVES, directions=("in", "out")).to_dict() == first.to_dict()
    assert len(counted) == 6


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "file"))
    assert kept.kept_measures(graph_of(), HALVES).to_dict() == measure(graph_of(), HALVES).to_dict()


def test_a_measured_partition(tmp_path):
    graph = trainable()
    found = partition_graph(graph, "round_robin", 3, model="dcrnn", layers=2, diffusion_steps=1)
    assert (found.measures.hops, found.measures.directions, found.measures.static) == (4, ("in", "out"), True)
    assert found.measures.snapshots.start == 0
    assert found.measures.snapshots.stop < graph.num_snapshots
    assert found.predicted["forward"].shape == found.predicted["backward"].shape == (2, 3, 3)
    assert 0 < found.predicted["backward"].sum() < found.predicted["forward"].sum()
    assert found.bytes_per_step == sum(sent.sum() for sent in found.predicted.values())
    assert "'drawn' in 3 parts by round_robin, made in" in repr(found)
    assert "dcrnn of 2 layers, hidden 32" in repr(found)
    assert json.loads(json.dumps(found.to_dict()))["measures"]["parts"] == 3
    file = found.save(tmp_path / "three.npz")
    again = partition_graph(graph, "file", 3, partition_file=str(file))
    assert again.partition == found.partition


def test_what_a_model_remembers_decides_what_is_replicated():
    graph = trainable()
    half = Partition(np.arange(20, dtype=np.int32) % 2, 2)
    whole = range(graph.num_snapshots)
    assert measures_for(graph, half, model_facts("tgcn", 2, 4, 2, gc_layers=2), snapshots=whole).hops == 4
    for model in ("evolvegcn-o", "graphsage"):
        assert not measures_for(graph, half, model_facts(model, 2, 4, 1), snapshots=whole).static


def test_partitions_side_by_side():
    found = compare_partitions(trainable(), ("hash", "round_robin"), 4, layers=2)
    assert [each.partitioner for each in found] == ["hash", "round_robin"]
    assert {each.measures.parts for each in found} == {4}


def test_a_partition_made_by_hand():
    graph = trainable()
    half = Partition(np.arange(20, dtype=np.int32) % 2, 2)
    assert "by by hand" not in repr(partition_graph(graph, half))
    assert partition_graph(graph, half).to_dict()["partitioner"] == "manual"
    with pytest.raises(PartitionError, match="made for another graph: its data hash is ffff"):
        partition_graph(graph, dataclasses.replace(half, data_hash="f" * 64))
    with pytest.raises(PartitionError, match="the partition has 6 nodes, but 'drawn' has 20"):
        partition_graph(graph, HALVES)


def test_wrong_names_of_a_measured_partition():
    graph = trainable()
    with pytest.raises(UnknownNameError, match="Did you mean 'warm'"):
        partition_graph(graph, "hash", protocol="warmm")
    with pytest.raises(UnknownNameError, match="Did you mean 'assignment_order'"):
        partition_graph(graph, "hash", assigment_order="plain")
    with pytest.raises(UnknownNameError, match="Did you mean 'hash'"):
        partition_graph(graph, "hahs")
    with pytest.raises(ConfigError, match=r"lab\.datasets\.load"):
        partition_graph("collegemsg")
    with pytest.raises(PartitionError, match="parts=21 must be from 1 to 20"):
        partition_graph(graph, "hash", 21)
    with pytest.raises(ConfigError, match="layers=0 is out of range"):
        partition_graph(graph, "hash", layers=0)
