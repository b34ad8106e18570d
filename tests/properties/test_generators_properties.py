"""What every generated graph must hold, whatever the seed and the settings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.datasets.generators.base import growth_line, merged, some
from dtdg_lab.datasets.generators.communities import COMMUNITIES
from dtdg_lab.datasets.generators.synthetic import GROWING, POWERLAW, UNIFORM
from dtdg_lab.datasets.generators.transactions import TRANSACTIONS
from dtdg_lab.datasets.sequences import grow
from dtdg_lab.datasets.tables import StaticTable
from dtdg_lab.graphs.snapshot import Snapshot, edge_keys, places_of

CURVES = ("linear", "exponential", "logistic")
SEEDS = st.integers(0, 2**53 - 1)
SIZES = st.fixed_dictionaries(
    {"nodes": st.integers(100, 260), "edges": st.integers(110, 330), "snapshots": st.integers(4, 9)}
)
SHARE = st.floats(0, 1)
OWN = {
    GROWING: {"growth": st.floats(1, 30), "growth_curve": st.sampled_from(CURVES), "churn": SHARE},
    UNIFORM: {},
    POWERLAW: {"churn": SHARE, "zipf": st.floats(0, 1.2)},
    COMMUNITIES: {"communities": st.integers(2, 4), "drift": SHARE},
    TRANSACTIONS: {},
}
each_generator = pytest.mark.parametrize("definition", list(OWN), ids=lambda definition: definition.name)


def settings_of(data, definition):
    return {**data.draw(SIZES), **data.draw(st.fixed_dictionaries(OWN[definition]))}


def same(one, other):
    return np.array_equal(edge_keys(one), edge_keys(other)) and (
        (one.weights is None and other.weights is None) or np.array_equal(one.weights, other.weights)
    )


@each_generator
@given(st.data(), SEEDS)
def test_snapshots_are_valid_without_loops_and_as_many_as_announced(definition, data, seed):
    given_ = settings_of(data, definition)
    stream = definition.generate(seed=seed, **given_)
    made = list(stream.make())
    assert len(made) == stream.num_intervals == given_["snapshots"]
    assert sum(snapshot.num_edges for snapshot in made) == stream.rows
    for snapshot in made:
        Snapshot(snapshot.indptr, snapshot.indices, snapshot.weights)  # looks at everything, duplicates too
        assert snapshot.num_nodes == stream.num_nodes == given_["nodes"]
        assert not (snapshot.rows() == snapshot.indices).any()
        assert (snapshot.weights is not None) == stream.weighted
        if definition is not GROWING:
            assert snapshot.num_edges == given_["edges"]


@each_generator
@given(st.data(), SEEDS)
def test_the_seed_decides_everything_and_a_stream_starts_anew(definition, data, seed):
    given_ = settings_of(data, definition)
    stream, again = definition.generate(seed=seed, **given_), definition.generate(seed=seed, **given_)
    other = definition.generate(seed=seed + 1, **given_)
    begun = stream.make()
    next(begun)
    for one, two, three in zip(stream.make(), stream.make(), again.make(), strict=True):
        assert same(one, two)
        assert same(one, three)
    assert same(next(begun), next(itertools.islice(stream.make(), 1, None)))  # others have not disturbed it
    assert not any(same(one, two) for one, two in zip(stream.make(), other.make(), strict=True))
    if stream.classes is not None:
        np.testing.assert_array_equal(stream.classes, again.classes)
        assert not np.array_equal(stream.classes, other.classes)


@given(SEEDS, st.integers(4, 60), st.floats(1, 50), st.sampled_from(CURVES))
def test_counts_follow_the_curve_within_the_noise(seed, snapshots, growth, curve):
    stream = GROWING.generate(
        seed=seed, nodes=150, edges=2000, snapshots=snapshots, growth=growth, growth_curve=curve, churn=0.5
    )
    counts = np.array([snapshot.num_edges for snapshot in stream.make()])
    line = growth_line(2000, snapshots=snapshots, growth=growth, growth_curve=curve)
    assert line[0] == pytest.approx(2000 / growth)
    assert line[-1] == pytest.approx(2000)
    assert (np.diff(line) >= -1e-9).all()
    assert (np.abs(counts - line) <= 0.15 * line + 0.5).all()
    steps = np.diff(line) if curve == "linear" else np.diff(np.log(line))
    if curve != "logistic":
        np.testing.assert_allclose(steps, steps[0], atol=1e-6)


@given(SEEDS, SHARE, st.floats(0, 1))
def test_the_share_asked_for_is_renewed(seed, churn, zipf):
    edges = 400
    stream = POWERLAW.generate(seed=seed, nodes=3000, edges=edges, snapshots=5, churn=churn, zipf=zipf)
    keys = [edge_keys(snapshot) for snapshot in stream.make()]
    for before, after in itertools.pairwise(keys):
        kept = len(np.intersect1d(before, after))
        # an edge that left may be drawn again, which is rare among so many pairs
        assert 0 <= kept - round((1 - churn) * edges) <= 0.05 * edges


@given(SEEDS, st.integers(2, 5), SHARE, st.integers(4, 12))
def test_communities_keep_their_size_and_lose_the_share_asked_for(seed, communities, drift, snapshots):
    nodes = 203
    stream = COMMUNITIES.generate(
        seed=seed, nodes=nodes, edges=200, snapshots=snapshots, communities=communities, drift=drift
    )
    classes = np.broadcast_to(stream.classes, (snapshots, nodes))
    assert stream.classes.shape == ((snapshots, nodes) if drift else (nodes,))
    assert not stream.classes.flags.writeable
    sizes = [np.bincount(row, minlength=communities).tolist() for row in classes]
    assert all(row == sizes[0] for row in sizes)
    assert max(sizes[0]) - min(sizes[0]) <= 1
    moved = (np.diff(classes, axis=0) != 0).sum()
    wanted = drift * nodes * (snapshots - 1)
    assert abs(moved - wanted) <= communities * snapshots  # whole nodes of each community, and none twice at once
    assert moved <= wanted + 1e-6


@given(SEEDS, st.integers(2, 5), SHARE)
def test_edges_stay_within_communities_while_vertices_drift(seed, communities, drift):
    stream = COMMUNITIES.generate(seed=seed, nodes=400, edges=1500, snapshots=6, communities=communities, drift=drift)
    classes = np.broadcast_to(stream.classes, (6, 400))
    for snapshot, row in zip(stream.make(), classes, strict=True):
        inside = (row[snapshot.rows()] == row[snapshot.indices]).mean()
        into, out = (
            np.bincount(row, weights=degrees, minlength=communities) / snapshot.num_edges
            for degrees in (snapshot.in_degrees(), snapshot.out_degrees())
        )
        assert 0.85 < inside < 0.95  # 10/11 is planted
        assert inside - (into * out).sum() > 0.2  # modularity; 0.26 is planted with two communities, more with more
        attraction = np.bincount(row, weights=snapshot.in_degrees()) / np.bincount(row)
        assert 2.5 < attraction[-1] / attraction[0] < 6.5  # 4 is planted


TABLE = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=80)


@given(TABLE, SEEDS, st.integers(4, 20), st.floats(1, 100), st.sampled_from(CURVES), st.floats(0, 0.2))
def test_deleted_edges_come_back_for_good_along_the_curve(edges, seed, snapshots, growth, curve, noise):
    src, dst = np.array(edges, dtype=np.int64).T
    table = StaticTable(src=src, dst=dst, num_nodes=12)
    stream = grow(table, seed=seed, snapshots=snapshots, growth=growth, growth_curve=curve, noise=noise)
    made = list(stream.make())
    for snapshot in made:
        Snapshot(snapshot.indptr, snapshot.indices)
    sets = [set(zip(s.indices.tolist(), s.rows().tolist(), strict=True)) for s in made]
    assert len(sets) == snapshots
    assert sets[-1] == set(edges)
    assert all(before <= after for before, after in itertools.pairwise(sets))
    for there in sets:  # both directions of a pair, where the graph has both
        assert {(v, u) for u, v in there} & set(edges) <= there
    if not noise:
        line = growth_line(len(set(edges)), snapshots=snapshots, growth=growth, growth_curve=curve)
        assert all(-0.5 <= len(there) - max(count, 0.5) <= 1.5 for there, count in zip(sets, line, strict=True))
    again = [s.num_edges for s in stream.make()]
    assert again == [len(there) for there in sets]


@given(st.sets(st.integers(0, 400)), st.sets(st.integers(0, 400)), SEEDS)
def test_sets_of_keys(one, two, seed):
    first, second = (np.array(sorted(keys), dtype=np.int64) for keys in (one, two))
    assert places_of(second, first)[1].tolist() == [key in two for key in sorted(one)]
    assert merged(first, second[~places_of(first, second)[1]]).tolist() == sorted(one | two)
    part = some(np.random.default_rng(seed), first, len(one) // 2)
    assert len(part) == len(one) // 2
    assert set(part.tolist()) <= one
    assert (np.diff(part) > 0).all()
