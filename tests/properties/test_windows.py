"""Windows against a reference made of Python sets, on arbitrary small edge lists."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdg_lab.graphs import build_graph
from dtdg_lab.graphs.windows import IntervalEdges, base_snapshots, cut_edges, merge_windows

NODES, INTERVALS = 6, 7
EDGE = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, INTERVALS - 1))
EDGES = st.lists(EDGE, max_size=60)
WEIGHT = st.floats(0, 100, width=32)


def as_intervals(edges, weight=None):
    src, dst, interval = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    return IntervalEdges(src, dst, interval, INTERVALS, NODES, None if weight is None else np.array(weight, float))


def pairs(snapshot):
    return list(zip(snapshot.indices.tolist(), snapshot.rows().tolist(), strict=True))


@settings(deadline=None)
@given(EDGES)
def test_base_snapshots_hold_every_distinct_edge_of_their_interval_and_no_other(edges):
    base = base_snapshots(as_intervals(edges))
    found = [(*pair, i) for i, snapshot in enumerate(base) for pair in pairs(snapshot)]
    assert len(base) == INTERVALS
    assert sorted(found) == sorted(set(edges))


@settings(deadline=None)
@given(EDGES, st.integers(1, INTERVALS))
def test_an_edge_lives_edge_life_snapshots_except_at_the_ends(edges, edge_life):
    windows = merge_windows(base_snapshots(as_intervals(edges)), edge_life)
    assert len(windows) == INTERVALS - edge_life + 1
    for i, snapshot in enumerate(windows):
        assert sorted(pairs(snapshot)) == sorted({(u, v) for u, v, t in edges if i <= t < i + edge_life})
    # one edge alone: counted over all snapshots
    for u, v, t in edges[:1]:
        alone = merge_windows(base_snapshots(as_intervals([(u, v, t)])), edge_life)
        lives = sum(snapshot.num_edges for snapshot in alone)
        assert lives == len(range(max(0, t - edge_life + 1), min(t, INTERVALS - edge_life) + 1))
        if edge_life - 1 <= t <= INTERVALS - edge_life:
            assert lives == edge_life


@settings(deadline=None)
@given(EDGES, st.integers(1, INTERVALS))
def test_rows_are_sorted_and_unique_whatever_the_order_of_the_edges(edges, edge_life):
    windows = merge_windows(base_snapshots(as_intervals(edges)), edge_life)
    backwards = merge_windows(base_snapshots(as_intervals(edges[::-1])), edge_life)
    for snapshot, other in zip(windows, backwards, strict=True):
        for v in range(NODES):
            row = snapshot.indices[snapshot.indptr[v] : snapshot.indptr[v + 1]].tolist()
            assert row == sorted(set(row))
        np.testing.assert_array_equal(snapshot.indptr, other.indptr)
        np.testing.assert_array_equal(snapshot.indices, other.indices)


@settings(deadline=None)
@given(st.lists(st.tuples(EDGE, WEIGHT), max_size=40), st.integers(1, INTERVALS))
def test_weights_of_duplicates_are_summed(weighted, edge_life):
    edges, weight = [edge for edge, _ in weighted], [w for _, w in weighted]
    windows = merge_windows(base_snapshots(as_intervals(edges, weight)), edge_life)
    for i, snapshot in enumerate(windows):
        sums = Counter()
        for (u, v, t), w in weighted:
            if i <= t < i + edge_life:
                sums[u, v] += w
        found = dict(zip(pairs(snapshot), snapshot.weights.tolist(), strict=True))
        assert found.keys() == sums.keys()
        for pair, total in sums.items():
            assert found[pair] == pytest.approx(total, rel=1e-6)


@settings(deadline=None)
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


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=30), st.integers(1, 20), st.integers(1, 30))
def test_times_fall_into_the_interval_that_contains_them(times, cut, window):
    nobody = [0] * len(times)
    start, span = min(times), max(times) - min(times)
    if span:
        equal = cut_edges(nobody, nobody, times, cut=cut)
        assert equal.num_intervals == cut
        for time, i in zip(times, equal.interval.tolist(), strict=True):
            assert i * span <= (time - start) * cut
            assert (time - start) * cut < (i + 1) * span or (time == max(times) and i == cut - 1)
        as_float = cut_edges(nobody, nobody, [float(time) for time in times], cut=cut)
        assert np.abs(as_float.interval - equal.interval).max() <= 1  # a boundary is not exact in floating point
    fixed = cut_edges(nobody, nobody, times, window=window)
    assert fixed.interval.tolist() == [(time - start) // window for time in times]
    assert fixed.num_intervals == span // window + 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12)), min_size=1, max_size=20))
def test_vertices_are_numbered_in_the_order_of_their_ids(ends):
    src, dst = zip(*ends, strict=True)
    edges = cut_edges(src, dst, range(len(ends)), window=1)
    assert edges.node_ids.tolist() == sorted({*src, *dst})
    assert edges.node_ids[edges.src].tolist() == list(src)
    assert edges.node_ids[edges.dst].tolist() == list(dst)
