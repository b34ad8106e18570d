"""Statistics of graphs worked out by hand, and power laws that are found again."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import IntervalEdges
from dtdg_lab.graphs.snapshot import Snapshot, keys_of, snapshot_of_keys
from dtdg_lab.graphs.statistics import fit_tail

# (src, dst) in base intervals 0 .. 6; interval 0 has one edge twice, 3 and 4 are empty
STEPS = [[(0, 1), (2, 1), (0, 1), (3, 3)], [(0, 1), (1, 2)], [(1, 2), (0, 1)], [], [], [(4, 0)], [(0, 4)]]


def small(edge_life=1, **given):
    rows = np.array([(u, v, i) for i, step in enumerate(STEPS) for u, v in step])
    edges = IntervalEdges(*rows.T, num_intervals=7, num_nodes=5)
    return build_graph(edges.stream(**given), name="small", source="a test", edge_life=edge_life)


def test_by_hand():
    found = small().describe()
    assert (found.S, found.V, found.E, found.EL, found.rows) == (7, 5, 9, 9, 10)
    assert (found.edge_life, found.weighted, found.features, found.self_loops) == (1, False, 2, 1)
    assert found.edges.tolist() == [3, 2, 2, 0, 0, 1]
    assert found.active.tolist() == [4, 3, 3, 0, 0, 2]
    np.testing.assert_array_equal(found.jaccard, [1 / 4, 1, 0, np.nan, 0])
    np.testing.assert_array_equal(found.kept, [1 / 3, 1, 0, np.nan, np.nan])
    assert found.empty == (range(3, 5),)
    assert found.in_degrees == {0.5: 1, 0.9: 2, 0.99: 2, 1.0: 2}  # 2 1 | 1 1 | 1 1 | | | 1
    assert found.tail is None
    assert (found.classes, found.unlabelled) == ((), None)
    degrees = np.log1p(
        [[0, 2, 0, 1, 0], [0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0] * 5, [0] * 5, [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    )
    assert found.persistence_mse == pytest.approx(((degrees[1:] - degrees[:-1]) ** 2).mean(), rel=1e-6)
    assert found.mean_mse == pytest.approx(degrees[1:].var(), rel=1e-6)
    with pytest.raises(ValueError, match="read-only"):
        found.edges[0] = 1


def test_windows_count_edges_while_they_live():
    found = small(edge_life=2).describe()
    assert (found.S, found.E, found.EL) == (6, 9, 4 + 2 + 2 + 0 + 1 + 2)
    assert found.edges.tolist() == [4, 2, 2, 0, 1]
    assert found.empty == (range(3, 4),)


def test_what_was_not_counted_is_not_made_up():
    graph = dataclasses.replace(small(edge_life=2), counts=None)
    found = graph.describe()
    assert (found.S, found.E, found.EL, found.rows) == (5, None, 9, None)
    assert "not known" in str(found)
    assert dataclasses.replace(small(), counts=None).describe().E == 8  # without the last, which is only a label


def test_classes_are_counted_once_where_they_do_not_change():
    fixed = small(classes=np.int16([0, 2, 2, -1, 0])).describe()
    assert (fixed.classes, fixed.unlabelled) == ((2, 0, 2), 1)
    moving = small(classes=np.full((7, 5), 1, np.int16)).describe()
    assert (moving.classes, moving.unlabelled) == ((0, 30), 0)
    assert "classes          2: 0, 30; 0 unlabelled" in str(moving)


def test_it_can_be_read_and_written_as_json():
    found = small().describe()
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["jaccard"] == [0.25, 1, 0, None, 0]
    assert values["empty"] == [[3, 4]]
    assert values["in_degrees"]["0.5"] == 1
    assert set(values) == {field.name for field in dataclasses.fields(found)}
    lines = str(found).splitlines()
    assert lines[0] == "small: 7 snapshots (S), 6 of them labelled; edges live 1 base interval"
    assert "empty snapshots  3-4" in lines
    assert max(map(len, lines)) <= 120


def test_a_graph_without_edges_can_be_described():
    nothing = Snapshot(np.zeros(3, np.int64), np.zeros(0, np.int32))
    label = np.zeros((1, 2), np.float32)
    graph = DynamicGraph("void", (nothing,), np.zeros((1, 2, 2), np.float32), label, label, "a test", 1)
    found = graph.describe()
    assert (found.empty, found.in_degrees, found.tail, found.EL) == ((range(1),), {}, None, 0)
    assert "overlap          - of" in str(found)


@pytest.mark.parametrize("exponent", [2.2, 2.5, 3.0])
def test_the_exponent_of_a_power_law_is_found(exponent):
    degrees = np.random.default_rng(1).zipf(exponent, 200_000)
    tail = fit_tail(np.bincount(degrees[degrees < 10**6]))
    assert tail.exponent == pytest.approx(exponent, rel=0.05)
    assert tail.distance < 0.02


def test_the_tail_of_a_graph_begins_after_its_body():
    draws = np.random.default_rng(2)
    body = draws.integers(1, 20, 20_000)
    tail = np.floor(19.5 * (1 - draws.random(20_000)) ** (-1 / 1.5) + 0.5).astype(int)  # exponent 2.5 from 20 on
    found = fit_tail(np.bincount(np.concatenate([body, tail[tail < 10**6]])))
    assert 15 <= found.start <= 40
    assert found.exponent == pytest.approx(2.5, rel=0.05)
    assert fit_tail(np.bincount(np.full(1000, 3))) is None  # one size is no tail
    star = snapshot_of_keys(keys_of(np.arange(1, 60), np.zeros(59, int)), None, 60)
    assert fit_tail(np.bincount(np.diff(star.indptr))) is None


def test_a_published_set_has_the_silence_it_is_known_for(real_data):
    from dtdg_lab.datasets.names import load_dataset

    found = load_dataset("email-eu", root=real_data).describe()
    assert found.empty == (range(76, 113),)
    assert found.V == 986
    assert found.rows == 332_334
