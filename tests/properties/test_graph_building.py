"""Graphs built from arbitrary small streams: through files as in memory, smoothed as the dense formula says."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import IntervalEdges

NODES, INTERVALS = 5, 6
EDGE = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, INTERVALS - 1))
EDGES = st.lists(EDGE, max_size=40)
OPTIONS = st.fixed_dictionaries(
    {
        "edge_life": st.integers(1, 4),
        "smoothing_window": st.integers(1, 4),
        "min_edges": st.integers(0, 4),
        "features": st.sampled_from(["log_degrees", "degrees", "one_hot_degree", "constant", "given"]),
        "strict_label": st.booleans(),
    }
)


def stream_of(edges, *, weighted=False, extras="none", seed=0):
    src, dst, interval = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    draws = np.random.default_rng(seed)
    weight = draws.random(len(src)) * 10.0 ** draws.integers(-6, 6, len(src)) if weighted else None
    given = {"features": draws.random((INTERVALS, NODES, 3), dtype=np.float32)}
    if extras == "static":
        given["features"] = given["features"][0]
        given["classes"] = draws.integers(-1, 3, NODES).astype(np.int16)
        given["vertex_split"] = draws.integers(-1, 3, NODES).astype(np.int8)
    if extras == "moving":
        given["classes"] = draws.integers(-1, 3, (INTERVALS, NODES)).astype(np.int16)
        given["targets"] = draws.random((INTERVALS, NODES), dtype=np.float32)
        if seed % 2:
            given["persistence"] = draws.random((INTERVALS, NODES), dtype=np.float32)
    intervals = IntervalEdges(src, dst, interval, INTERVALS, NODES, weight, np.arange(NODES) * 7)
    return intervals.stream(**given)


def parts_of(graph):
    """Every field as bytes or plain values."""
    parts = []
    for snapshot in (*graph.snapshots, *(graph.following or ())):
        parts += [snapshot.indptr, snapshot.indices, snapshot.weights]
    parts += [graph.features, graph.targets, graph.persistence, graph.node_ids, graph.classes, graph.vertex_split]
    arrays = [part if part is None else (part.dtype, part.shape, part.tobytes()) for part in parts]
    return [arrays, graph.name, graph.source, graph.edge_life, graph.strict_label, graph.counts, graph.follows_next]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EDGES, OPTIONS, st.booleans(), st.sampled_from(["none", "static", "moving"]), st.integers(0, 3))
def test_a_graph_written_while_it_is_made_is_the_one_made_in_memory(tmp_path, edges, options, weighted, extras, seed):
    def build(**where):
        stream = stream_of(edges, weighted=weighted, extras=extras, seed=seed)
        return build_graph(stream, name="x", source="a test", **options, **where)

    try:
        graph = build()
    except DataError as error:
        with pytest.raises(DataError, match="snapshot"):
            build(into=tmp_path / "none")
        assert "at least" in str(error) or "only a label" in str(error)
        assert list(tmp_path.glob("*none*")) == []
        return
    streamed = build(into=tmp_path / "g")
    assert parts_of(streamed) == parts_of(graph)
    assert (
        streamed.static_features
        == graph.static_features
        == (options["features"] == "constant" or (options["features"] == "given" and extras == "static"))
    )
    # three ways to the same hash: taken while writing, from memory, and anew from a copy that was checked
    assert streamed.data_hash == graph.data_hash == dataclasses.replace(streamed).data_hash
    graph.save(tmp_path / "saved")
    assert parts_of(DynamicGraph.load(tmp_path / "saved", mmap=False)) == parts_of(graph)


def dense(snapshot):
    matrix = np.zeros((NODES, NODES))
    matrix[snapshot.rows(), snapshot.indices] = 1 if snapshot.weights is None else snapshot.weights
    return matrix


@given(EDGES, st.integers(1, 3), st.integers(2, 8), st.booleans(), st.sampled_from(["degrees", "log_degrees", "given"]))
def test_smoothing_is_the_m_transform_of_graph_and_features(edges, edge_life, window, weighted, features):
    def build(**options):
        stream = stream_of(edges, weighted=weighted)
        return build_graph(stream, name="x", source="a test", edge_life=edge_life, features=features, **options)

    plain, smooth = build(), build(smoothing_window=window)
    steps = plain.num_snapshots
    m = np.zeros((steps, steps))  # ESDG section 5.3, t and k counted from 1
    for t in range(1, steps + 1):
        for k in range(max(1, t - window + 1), t + 1):
            m[t - 1, k - 1] = 1 / min(window, t)
    matrices = np.stack([dense(snapshot) for snapshot in plain.snapshots])
    expected = np.einsum("tk,kuv->tuv", m, matrices)
    for t, snapshot in enumerate(smooth.snapshots):
        np.testing.assert_allclose(dense(snapshot), expected[t], rtol=1e-6)
        alive = matrices[max(0, t - window + 1) : t + 1]
        stored = {(v, u) for v, u in zip(snapshot.rows().tolist(), snapshot.indices.tolist(), strict=True)}
        assert {(int(v), int(u)) for _, v, u in np.argwhere(alive)} <= stored
        assert snapshot.weights is not None
    np.testing.assert_allclose(smooth.features, np.einsum("tk,knf->tnf", m, plain.features), rtol=1e-5, atol=1e-7)
    # the label says what comes next as it is
    np.testing.assert_array_equal(smooth.targets, plain.targets)
    np.testing.assert_array_equal(smooth.persistence, plain.persistence)
    for ours, theirs in zip(smooth.following, plain.following, strict=True):
        assert ours.equals(theirs)
    assert not smooth.follows_next or steps == 1


@given(EDGES, st.integers(1, 3), st.integers(0, 4), st.booleans(), st.booleans())
def test_labels_and_their_edges_follow_their_definitions(edges, edge_life, min_edges, strict, weighted):
    windows = []
    for newest in range(edge_life - 1, INTERVALS):
        alive = {(u, v) for u, v, t in edges if newest - edge_life < t <= newest}
        if len(alive) >= min_edges:
            windows.append((newest, alive))
    if len(windows) < 2:
        return
    stream = stream_of(edges)
    graph = build_graph(
        stream,
        name="x",
        source="a test",
        edge_life=edge_life,
        min_edges=min_edges,
        strict_label=strict,
        features="given",
    )
    assert graph.num_snapshots == len(windows) - 1
    for t, ((newest, alive), (later, after)) in enumerate(itertools.pairwise(windows)):
        counted = [{(u, v) for u, v, i in edges if i == at} for at in (newest, later)] if strict else [alive, after]
        degrees = np.array([[sum(v == w for _, w in pairs) for v in range(NODES)] for pairs in counted])
        np.testing.assert_allclose(graph.persistence[t], np.log1p(degrees[0]), rtol=1e-6)
        np.testing.assert_allclose(graph.targets[t], np.log1p(degrees[1]), rtol=1e-6)
        label = graph.following[t]
        assert set(zip(label.indices.tolist(), label.rows().tolist(), strict=True)) == counted[1]
        np.testing.assert_array_equal(graph.features[t], stream.features[newest])


@given(EDGES, st.integers(1, 4), st.integers(0, 4), st.integers(0, 3))
def test_what_is_given_belongs_to_the_newest_base_interval(edges, edge_life, min_edges, seed):
    stream = stream_of(edges, extras="moving", seed=seed)
    newest = [
        last
        for last in range(edge_life - 1, INTERVALS)
        if len({(u, v) for u, v, t in edges if last - edge_life < t <= last}) >= min_edges
    ]
    if not newest:
        return
    graph = build_graph(stream, name="x", source="a test", edge_life=edge_life, min_edges=min_edges, features="given")
    np.testing.assert_array_equal(graph.targets, stream.targets[newest])
    np.testing.assert_array_equal(graph.classes, stream.classes[newest])
    np.testing.assert_array_equal(graph.features, stream.features[newest])
    zero = np.zeros((1, NODES), np.float32)
    yesterday = np.concatenate([zero, stream.targets[:-1]]) if stream.persistence is None else stream.persistence
    np.testing.assert_array_equal(graph.persistence, yesterday[newest])
    assert graph.following is None
    assert "link" not in graph.tasks
