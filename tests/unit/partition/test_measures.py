"""Measures of partitions worked out by hand, cached, and refused where they make no sense."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from dtdg_lab.config.model_facts import model_facts
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.partition import measures
from dtdg_lab.partition.measures import measure, measures_for
from dtdg_lab.partition.neighbourhoods import outside, within_hops
from tests.factories import HALVES, drawn_graph, path_graph, snapshot_of


def test_a_path_cut_in_the_middle():
    measured = measure(path_graph(), HALVES, hops=2)
    assert measured.owned.tolist() == [3, 3]
    assert measured.edges.tolist() == [[2, 3], [2, 0], [0, 0]]
    assert measured.all_edges.tolist() == [5, 2, 0]
    assert measured.cut_edges.tolist() == [1, 1, 0]
    assert measured.halo.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert measured.matrix["in"].tolist() == [[0, 1], [1, 0]]
    assert measured.first_matrix["in"].tolist() == [[0, 1], [0, 0]]
    # 3 pulls from 2 and 2 from 1; 0 pulls from 5 and 5 from 4: in some snapshot
    assert measured.replicated.tolist() == [[2, 2]] * 3
    assert measured.replicated_edges.tolist() == [[1, 1], [0, 1], [0, 0]]
    assert (measured.cut_share, measured.halo_share, measured.replicated_share) == (2 / 7, 2 / 20, 12 / 30)
    # an edge counts twice, a walk of two edges once; in the second snapshot the loop makes a walk of its own
    assert measured.load.tolist() == [(2 * 2 + 1) + (2 * 2 + 1), 2 * 3 + 3]
    assert measure(path_graph(), HALVES, hops=500).replicated.tolist() == [[3, 3]] * 3
    assert measured.imbalance == {"vertices": 1.0, "edges": 4 / 3.5, "load": 10 / 9.5}


def test_a_path_whose_snapshots_stand_alone():
    measured = measure(path_graph(), HALVES, hops=2, static=False)
    assert measured.replicated.tolist() == [[0, 2], [1, 0], [0, 0]]
    assert measured.replicated_edges.tolist() == [[0, 1], [0, 0], [0, 0]]


def test_memory_is_counted_array_by_array():
    measured = measure(path_graph(), HALVES, hops=1)
    # per snapshot 3 nodes' 3 features and 4 row starts; own edges; one row sent and one received
    assert measured.halo_bytes.tolist() == [4 * (3 * (9 + 4) + 4 + 2), 4 * (3 * (9 + 4) + 3 + 2)]
    # one replicated row in every snapshot; edges of own rows alone within 0 hops
    assert measured.cached_bytes.tolist() == [4 * (3 * (12 + 5) + 4), 4 * (3 * (12 + 5) + 3)]
    once = measure(path_graph(static=True), HALVES, hops=1)
    assert (measured.halo_bytes - once.halo_bytes).tolist() == [4 * 18, 4 * 18]
    assert (measured.cached_bytes - once.cached_bytes).tolist() == [4 * 24, 4 * 24]


def test_both_ways_add_up():
    one, both = (measure(path_graph(), HALVES, directions=ways) for ways in (("in",), ("in", "out")))
    assert both.halo.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert both.halo_share == 4 / 40
    assert both.matrix["out"].tolist() == one.matrix["in"].T.tolist()
    assert both.cut_share == one.cut_share
    assert measure(path_graph(), HALVES, directions=("out",)).edges.tolist() == one.edges.tolist()


def test_more_parts_than_bits_in_a_word():
    vertices, ring = 130, [(v, (v + 1) % 130) for v in range(130)]
    alone = Partition(np.arange(vertices, dtype=np.int32), vertices)
    measured = measure(path_graph([ring], vertices), alone, hops=3)
    assert (measured.halo == 1).all()
    assert (measured.replicated == 3).all()
    assert (measured.replicated_edges == 2).all()
    reached = within_hops([snapshot_of(ring, vertices)], alone.owner, vertices, 1)[1]
    assert np.nonzero(outside(reached, alone.owner, vertices))[1].tolist() == [*range(1, vertices), 0]


def test_one_part_and_graphs_without_edges():
    undivided = measure(path_graph(), Partition(np.zeros(6, np.int32), 1), hops=2)
    assert (undivided.halo.sum(), undivided.cut_edges.sum(), undivided.replicated.sum()) == (0, 0, 0)
    empty = measure(path_graph([[], []]), HALVES)
    assert (empty.cut_share, empty.halo_share, empty.replicated_share) == (0.0, 0.0, 0.0)
    assert empty.imbalance == {"vertices": 1.0, "edges": 1.0, "load": 1.0}


def test_measures_cannot_change_and_can_be_pickled():
    measured = measure(path_graph(), HALVES)
    with pytest.raises(ValueError, match="read-only"):
        measured.matrix["in"][0, 1] = 0
    second = pickle.loads(pickle.dumps(measured))
    assert second.to_dict() == measured.to_dict()


def test_told_is_plain_and_thinned():
    measured = measure(path_graph(), HALVES, snapshots=range(1, 3), hops=2)
    numbers = json.loads(json.dumps(measured.to_dict(columns=2)))
    assert numbers["bins"] == [1, 2, 3]
    assert (numbers["parts"], numbers["vertices"], numbers["owned"]) == (2, 6, [3, 3])
    assert (numbers["edges"], numbers["halo"]) == ([[2, 0], [0, 0]], [[1, 0], [0, 0]])
    assert numbers["totals"]["all_edges"] == 2
    assert numbers["matrix"] == {"in": [[0, 0], [1, 0]]}
    assert measured.to_dict(columns=1)["edges"] == [[1.0], [0.0]]
    assert len(measure(path_graph(), HALVES).to_dict(columns=64)["bins"]) == 4


@pytest.mark.parametrize("settings", [{"hops": 0}, {"snapshots": range(0)}, {"snapshots": range(2, 4)}])
def test_what_cannot_be_measured(settings):
    with pytest.raises(PlanError, match="at least"):
        measure(path_graph(), HALVES, **settings)


def test_measures_are_counted_once(monkeypatch):
    graph = path_graph([[(0, 1)], [(0, 4), (4, 0)]])
    first = measures.cached_measures(graph, HALVES, directions=("in", "out"))
    files = set((cache_folder() / "partition-measures").glob("*.npz"))
    counted = []
    monkeypatch.setattr(measures, "measure", lambda *args, **settings: counted.append(1) or measure(*args, **settings))
    second = measures.cached_measures(graph, HALVES, directions=("in", "out"))
    assert second.to_dict() == first.to_dict()
    assert all((second.first_matrix[way] == first.first_matrix[way]).all() for way in ("in", "out"))
    assert not counted
    other = Partition(HALVES.owner[::-1], 2)
    assert measures.cached_measures(graph, other, directions=("in", "out")).to_dict() != first.to_dict()
    for settings in ({}, {"hops": 2}, {"static": False}, {"snapshots": range(1)}):
        assert (
            measures.cached_measures(graph, HALVES, **settings).to_dict()
            == measure(graph, HALVES, **settings).to_dict()
        )
    assert len(counted) == 5
    for file in files:
        file.write_bytes(file.read_bytes()[:50])
    assert measures.cached_measures(graph, HALVES, directions=("in", "out")).to_dict() == first.to_dict()
    assert len(counted) == 6


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "file"))
    assert measures.cached_measures(path_graph(), HALVES).to_dict() == measure(path_graph(), HALVES).to_dict()


def test_what_a_model_remembers_decides_what_is_replicated():
    graph = drawn_graph()
    half = Partition(np.arange(20, dtype=np.int32) % 2, 2)
    undivided = range(graph.num_snapshots)
    assert measures_for(graph, half, model_facts("tgcn", 2, 4, 2, gc_layers=2), snapshots=undivided).hops == 4
    for model in ("evolvegcn-o", "graphsage"):
        assert not measures_for(graph, half, model_facts(model, 2, 4, 1), snapshots=undivided).static
