"""Samples of link prediction against definitions in plain loops: edges, non-edges, ranking candidates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.graphs.snapshot import EdgeSet
from dtdg_lab.tasks.link_samples import NO_VERTEX, link_samples, ranking_candidates
from tests.factories import snapshot_of

Pairs = set[tuple[int, int]]


def random_pairs(num_nodes: int, count: int, seed: int) -> Pairs:
    draw = np.random.default_rng(seed)
    return {(int(u), int(v)) for u, v in draw.integers(0, num_nodes, (count, 2))}


def all_pairs(num_nodes: int) -> Pairs:
    return {(u, v) for u in range(num_nodes) for v in range(num_nodes) if u != v}


graphs = st.integers(1, 7).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
)


@given(graphs)
def test_an_edge_set_is_the_set_of_edges_between_different_vertices(drawn: tuple[int, Pairs]) -> None:
    num_nodes, pairs = drawn
    edges = EdgeSet(snapshot_of(pairs, num_nodes))
    wanted = sorted((u, v) for u, v in pairs if u != v)
    assert len(edges) == len(wanted)
    src, dst = edges.pairs(edges.numbers)
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == wanted
    every = sorted(all_pairs(num_nodes))
    if every:
        us, vs = np.array(every, dtype=np.int32).T
        assert edges.number(us, vs).tolist() == list(range(len(every)))
        assert edges.holds(us, vs).tolist() == [pair in pairs for pair in every]
    missing = [pair for pair in every if pair not in pairs]
    assert edges.absent == len(missing)
    src, dst = edges.pairs(edges.nth_absent(np.arange(len(missing))))
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == missing
    first, count = edges.absent_from(np.arange(num_nodes, dtype=np.int32))
    for u in range(num_nodes):
        own = [place for place, pair in enumerate(missing) if pair[0] == u]
        assert count[u] == len(own)
        assert not own or first[u] == own[0]


def test_numbers_of_many_vertices_do_not_overflow() -> None:
    num_nodes = 2**31 - 1
    edges = object.__new__(EdgeSet)
    edges.num_nodes = num_nodes
    edges.numbers = np.array([0, num_nodes * (num_nodes - 1) - 1])
    src, dst = edges.pairs(edges.numbers)
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == [(0, 1), (num_nodes - 1, num_nodes - 2)]
    assert edges.holds(src, dst).all()
    assert edges.nth_absent(np.array([0, edges.absent - 1])).tolist() == [1, num_nodes * (num_nodes - 1) - 2]


# positives and negatives


@pytest.mark.parametrize(("share", "wanted"), [(0.1, 6), (0.5, 30), (1.0, 60), (0.001, 1)])
def test_positives_are_that_share_of_the_edges_and_negatives_are_none(share: float, wanted: int) -> None:
    pairs = set(sorted(random_pairs(40, 200, 1) & all_pairs(40))[:60]) | {(3, 3), (5, 5)}
    samples = link_samples(EdgeSet(snapshot_of(pairs, 40)), seed=9, t=4, share=share, negatives=3)
    found = list(zip(samples.src.tolist(), samples.dst.tolist(), strict=True))
    positives, negatives = found[: samples.positives], found[samples.positives :]
    assert samples.positives == len(set(positives)) == wanted
    assert set(positives) <= pairs & all_pairs(40)
    assert len(set(negatives)) == len(negatives) == 3 * wanted
    assert set(negatives) <= all_pairs(40) - pairs


def test_samples_are_a_function_of_seed_and_snapshot() -> None:
    edges = EdgeSet(snapshot_of(random_pairs(60, 300, 2), 60))

    def drawn(seed: int, t: int) -> list[list[int]]:
        samples = link_samples(edges, seed=seed, t=t, share=0.2, negatives=1)
        candidates = ranking_candidates(edges, np.arange(60, dtype=np.int32), seed=seed, t=t, count=5)
        return [samples.src.tolist(), samples.dst.tolist(), candidates.tolist()]

    assert drawn(5, 3) == drawn(5, 3)
    for part in range(3):
        assert drawn(5, 3)[part] != drawn(5, 4)[part]
        assert drawn(5, 3)[part] != drawn(6, 3)[part]


def test_draws_are_those_of_every_machine() -> None:
    """Kept as numbers: another numpy must draw the same, or results of the same data hash would differ."""
    edges = EdgeSet(snapshot_of({(i, (3 * i + 1) % 50) for i in range(50)}, 50))
    samples = link_samples(edges, seed=2**200 + 7, t=11, share=0.1, negatives=1)
    assert samples.src.tolist() == GOLDEN_SRC
    assert samples.dst.tolist() == GOLDEN_DST
    candidates = ranking_candidates(edges, np.array([4, 30], np.int32), seed=2**200 + 7, t=11, count=4)
    assert candidates.tolist() == GOLDEN_CANDIDATES


GOLDEN_SRC = [21, 22, 23, 32, 46, 7, 28, 34, 36, 40]
GOLDEN_DST = [14, 17, 20, 47, 39, 3, 1, 5, 38, 49]
GOLDEN_CANDIDATES = [[34, 42, 7, 24], [13, 33, 43, 7]]


@pytest.mark.slow
def test_every_pair_that_is_no_edge_is_as_likely() -> None:
    edges = EdgeSet(snapshot_of({(0, 1), (1, 0), (2, 2), (4, 3)}, 5))
    counts: dict[tuple[int, int], int] = {}
    rounds = 6000
    for t in range(rounds):
        samples = link_samples(edges, seed=1, t=t, share=1.0, negatives=1)
        for pair in zip(samples.src[3:].tolist(), samples.dst[3:].tolist(), strict=True):
            counts[pair] = counts.get(pair, 0) + 1
    missing = all_pairs(5) - {(0, 1), (1, 0), (4, 3)}
    assert counts.keys() == missing
    expected = rounds * 3 / len(missing)
    assert max(abs(count - expected) for count in counts.values()) < 5 * expected**0.5


@pytest.mark.parametrize("num_nodes", [1, 4])
def test_a_snapshot_without_edges_has_no_samples(num_nodes: int) -> None:
    edges = EdgeSet(snapshot_of({(0, 0)}, num_nodes))
    samples = link_samples(edges, seed=1, t=0, share=0.5, negatives=2)
    assert (samples.positives, len(samples.src), len(samples.dst)) == (0, 0, 0)
    assert ranking_candidates(edges, samples.src, seed=1, t=0, count=3).shape == (0, 0)


def test_where_few_pairs_are_no_edges_all_of_them_are_taken() -> None:
    full = all_pairs(5)
    edges = EdgeSet(snapshot_of(full - {(1, 2), (4, 0)}, 5))
    samples = link_samples(edges, seed=1, t=0, share=1.0, negatives=1)
    found = list(zip(samples.src.tolist(), samples.dst.tolist(), strict=True))
    assert samples.positives == 18
    assert found[18:] == [(1, 2), (4, 0)]
    complete = link_samples(EdgeSet(snapshot_of(full, 5)), seed=1, t=0, share=1.0, negatives=1)
    assert (complete.positives, len(complete.src)) == (20, 20)


# ranking candidates


def test_candidates_are_distinct_targets_without_an_edge_from_their_source() -> None:
    pairs = random_pairs(30, 400, 3)
    edges = EdgeSet(snapshot_of(pairs, 30))
    sources = np.array([0, 3, 4, 11, 29], np.int32)
    candidates = ranking_candidates(edges, sources, seed=7, t=2, count=6)
    assert candidates.shape == (5, 6)
    for u, row in zip(sources.tolist(), candidates.tolist(), strict=True):
        assert len(set(row)) == 6
        assert all(v != u and (u, v) not in pairs for v in row)


def test_rows_with_fewer_targets_hold_all_of_them_and_are_filled_up() -> None:
    num_nodes = 12
    absent = {0: [], 1: [7], 2: [0, 5, 9], 3: [1, 2, 4, 5, 8, 11]}
    pairs = {(u, v) for u, v in all_pairs(num_nodes) if v not in absent.get(u, [])}
    candidates = ranking_candidates(
        EdgeSet(snapshot_of(pairs, num_nodes)), np.arange(4, dtype=np.int32), seed=3, t=0, count=4
    )
    assert candidates.shape == (4, 4)
    for u, row in enumerate(candidates.tolist()):
        valid = [v for v in row if v != NO_VERTEX]
        assert len(valid) == len(set(valid)) == min(4, len(absent[u]))
        assert set(valid) <= set(absent[u])
        assert row[len(valid) :] == [NO_VERTEX] * (4 - len(valid))


def test_more_candidates_than_vertices_are_all_of_them() -> None:
    pairs = random_pairs(9, 20, 4)
    candidates = ranking_candidates(
        EdgeSet(snapshot_of(pairs, 9)), np.arange(9, dtype=np.int32), seed=3, t=0, count=1000
    )
    for u, row in enumerate(candidates.tolist()):
        wanted = [v for v in range(9) if v != u and (u, v) not in pairs]
        assert sorted(v for v in row if v != NO_VERTEX) == wanted


@pytest.mark.slow
def test_every_target_without_an_edge_is_as_likely_a_candidate() -> None:
    """7 targets in 5 stretches: stretches of one and of two, which the random start makes alike."""
    edges = EdgeSet(snapshot_of({(2, 0), (2, 5)}, 10))
    counts = np.zeros(10)
    rounds = 7000
    for t in range(rounds):
        np.add.at(counts, ranking_candidates(edges, np.array([2], np.int32), seed=1, t=t, count=5)[0], 1)
    assert not counts[[0, 2, 5]].any()
    expected = rounds * 5 / 7
    others = np.delete(counts, [0, 2, 5])
    assert np.abs(others - expected).max() < 5 * expected**0.5


def test_candidates_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = EdgeSet(snapshot_of(random_pairs(30, 200, 5), 30))
    sources = np.arange(30, dtype=np.int32)
    whole = ranking_candidates(edges, sources, seed=1, t=0, count=6)
    monkeypatch.setattr("dtdg_lab.tasks.link_samples._CANDIDATES_AT_ONCE", 40)
    assert np.array_equal(ranking_candidates(edges, sources, seed=1, t=0, count=6), whole)
