"""Windows against a reference made of Python sets, on arbitrary small edge lists."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.intervals import IntervalEdges
from dtdg_lab.graphs.windowing import Windows

NODES, INTERVALS = 6, 7
EDGE = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, INTERVALS - 1))
EDGES = st.lists(EDGE, max_size=60)
WEIGHT = st.floats(0, 100, width=32)


def as_intervals(edges, weight=None):
    src, dst, interval = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    return IntervalEdges(src, dst, interval, INTERVALS, NODES, None if weight is None else np.array(weight, float))


def windows_of(intervals, edge_life, min_edges=0):
    return [window.graph for window in Windows(intervals.stream(), edge_life, min_edges)]


def pairs(snapshot):
    return list(zip(snapshot.indices.tolist(), snapshot.rows().tolist(), strict=True))


@given(EDGES)
def test_base_snapshots_hold_every_distinct_edge_of_their_interval_and_no_other(edges):
    base = list(as_intervals(edges).snapshots())
    found = [(*pair, i) for i, snapshot in enumerate(base) for pair in pairs(snapshot)]
    assert len(base) == INTERVALS
    assert sorted(found) == sorted(set(edges))


@given(EDGES, st.integers(1, INTERVALS))
def test_an_edge_lives_edge_life_snapshots_except_at_the_ends(edges, edge_life):
    windows = windows_of(as_intervals(edges), edge_life)
    assert len(windows) == INTERVALS - edge_life + 1
    for i, snapshot in enumerate(windows):
        assert sorted(pairs(snapshot)) == sorted({(u, v) for u, v, t in edges if i <= t < i + edge_life})
    # one edge alone: counted over all snapshots
    for u, v, t in edges[:1]:
        alone = windows_of(as_intervals([(u, v, t)]), edge_life)
        lives = sum(snapshot.num_edges for snapshot in alone)
        assert lives == len(range(max(0, t - edge_life + 1), min(t, INTERVALS - edge_life) + 1))
        if edge_life - 1 <= t <= INTERVALS - edge_life:
            assert lives == edge_life


@given(EDGES, st.integers(1, INTERVALS))
def test_rows_are_sorted_and_unique_whatever_the_order_of_the_edges(edges, edge_life):
    windows = windows_of(as_intervals(edges), edge_life)
    backwards = windows_of(as_intervals(edges[::-1]), edge_life)
    for snapshot, other in zip(windows, backwards, strict=True):
        for v in range(NODES):
            row = snapshot.indices[snapshot.indptr[v] : snapshot.indptr[v + 1]].tolist()
            assert row == sorted(set(row))
        np.testing.assert_array_equal(snapshot.indptr, other.indptr)
        np.testing.assert_array_equal(snapshot.indices, other.indices)


@given(st.lists(st.tuples(EDGE, WEIGHT), max_size=40), st.integers(1, INTERVALS))
def test_weights_are_summed_within_an_interval_and_then_over_the_window(weighted, edge_life):
    edges, weight = [edge for edge, _ in weighted], [w for _, w in weighted]
    windows = windows_of(as_intervals(edges, weight), edge_life)
    daily = defaultdict(lambda: defaultdict(float))  # interval -> pair -> sum
    for (u, v, t), w in weighted:
        daily[t][u, v] += w
    for i, snapshot in enumerate(windows):
        sums = Counter()
        for t in range(i, i + edge_life):  # oldest first, so that the bits are those of one order of adding
            for pair, total in daily[t].items():
                sums[pair] += float(np.float32(total))
        found = dict(zip(pairs(snapshot), snapshot.weights.tolist(), strict=True))
        assert found == {pair: float(np.float32(total)) for pair, total in sums.items()}


def test_weights_do_not_drift():
    """A huge weight that comes and goes leaves nothing behind: 0.1 stays what it is."""
    edges = [(0, 1, t) for t in range(INTERVALS)]
    windows = windows_of(as_intervals(edges, [0.1, 0.1, 1e30, 0.1, 0.1, 0.1, 0.1]), 2)
    twice = np.float32(2 * np.float64(np.float32(0.1)))
    assert [window.weights[0] for window in windows] == [twice, np.float32(1e30), np.float32(1e30)] + [twice] * 3


@given(EDGES, st.integers(1, INTERVALS), st.integers(0, 12))
def test_windows_with_few_edges_are_left_out_and_counted(edges, edge_life, min_edges):
    windows = Windows(as_intervals(edges).stream(), edge_life, min_edges)
    kept = list(windows)
    sets = [{(u, v) for u, v, t in edges if i <= t < i + edge_life} for i in range(INTERVALS - edge_life + 1)]
    left = [(i, pairs) for i, pairs in enumerate(sets) if len(pairs) >= min_edges]
    assert [window.newest for window in kept] == [i + edge_life - 1 for i, _ in left]
    assert [set(pairs(window.graph)) for window in kept] == [pairs for _, pairs in left]
    assert [set(pairs(window.base)) for window in kept] == [
        {(u, v) for u, v, t in edges if t == window.newest} for window in kept
    ]
    counts = windows.counts
    assert (counts.rows, counts.intervals) == (len(edges), INTERVALS)
    assert (counts.windows, counts.dropped) == (len(left), len(sets) - len(left))
    assert counts.interval_edges == len(set(edges))
    assert counts.window_edges == sum(len(pairs) for _, pairs in left)


@given(EDGES, st.integers(1, INTERVALS - 1), st.booleans())
def test_features_and_labels_follow_their_definitions(edges, edge_life, strict):
    graph = build_graph(as_intervals(edges), name="x", source="a test", edge_life=edge_life, strict_label=strict)

    def in_degree(v, first, last):
        return len({u for u, w, t in edges if w == v and first <= t <= last})

    assert graph.num_snapshots == INTERVALS - edge_life
    for i in range(graph.num_snapshots):
        newest = i + edge_life - 1
        for v in range(NODES):
            out = len({w for u, w, t in edges if u == v and i <= t <= newest})
            assert graph.features[i, v].tolist() == pytest.approx(
                [math.log1p(in_degree(v, i, newest)), math.log1p(out)], rel=1e-6
            )
            since = newest if strict else i
            assert graph.persistence[i, v] == pytest.approx(math.log1p(in_degree(v, since, newest)), rel=1e-6)
            assert graph.targets[i, v] == pytest.approx(math.log1p(in_degree(v, since + 1, newest + 1)), rel=1e-6)
