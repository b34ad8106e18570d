"""Steps over a window: how many chunks of which snapshots, in which order nodes survive, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.decayed_windows.window import (
    Chunking,
    HybridBatch,
    Shrinker,
    SurvivalOrder,
    Trapezoid,
    decayed_counts,
    epoch_batches,
    hybrid_batch,
    kept_share,
    segments,
    survival_order,
)
from dtdg_lab.testing.example_graphs import graph_of

# decay


@pytest.mark.parametrize(
    ("rule", "counts", "share"),
    [("text", (87, 59, 40, 27, 18, 12), 0.4873046875), ("ladder", (13, 8, 5, 3, 2, 1), 0.28125)],
)
def test_counts_of_the_paper_s_setting(rule: str, counts: tuple[int, ...], share: float) -> None:
    assert decayed_counts(rule, chunks=128, alpha=0.1, decayed=6) == counts
    assert kept_share(counts, chunks=128, full=2) == share


def test_text_with_alpha_1_keeps_all_and_a_window_of_full_ones_has_no_counts() -> None:
    assert decayed_counts("text", chunks=7, alpha=1, decayed=4) == (7, 7, 7, 7)
    assert [decayed_counts(rule, chunks=128, alpha=0.5, decayed=0) for rule in ("text", "ladder")] == [(), ()]
    assert kept_share((), chunks=128, full=8) == kept_share((7, 7), chunks=7, full=1) == 1


def test_one_decayed_snapshot_keeps_alpha_of_its_chunks() -> None:
    assert decayed_counts("text", chunks=50, alpha=0.1, decayed=1) == (5,)
    assert decayed_counts("ladder", chunks=130, alpha=0.1, decayed=1) == (13,)  # 130 * 0.1 is above 13 in floats
    assert decayed_counts("ladder", chunks=131, alpha=0.1, decayed=1) == (14,)


@pytest.mark.parametrize(
    ("chunks", "decayed", "counts"),
    [(10, 4, (10, 5, 3, 1)), (32, 6, (32, 16, 8, 4, 2, 1)), (243, 6, (243, 81, 27, 9, 3, 1))],
)
def test_rungs_of_a_ladder_are_rounded_up_as_released(chunks: int, decayed: int, counts: tuple[int, ...]) -> None:
    """Whole numbers stay what they are, although floats put 243^(1/5) above 3."""
    assert decayed_counts("ladder", chunks=chunks, alpha=1.0, decayed=decayed) == counts


@pytest.mark.parametrize("rule", ["text", "ladder"])
@pytest.mark.parametrize("alpha", [1e-4, 0.03, 0.5, 1.0])
@pytest.mark.parametrize(("chunks", "decayed"), [(1, 3), (3, 9), (128, 2), (1000, 14)])
def test_counts_fall_with_age_and_never_to_none(rule: str, alpha: float, chunks: int, decayed: int) -> None:
    counts = decayed_counts(rule, chunks=chunks, alpha=alpha, decayed=decayed)
    assert len(counts) == decayed
    assert min(counts) >= 1
    assert max(counts) <= chunks
    assert list(counts) == sorted(counts, reverse=True)
    if rule == "ladder":
        assert (counts[0], counts[-1]) == (max(1, int(np.ceil(round(alpha * chunks, 9)))), 1)


@pytest.mark.parametrize(
    ("rule", "alpha", "chunks", "said"),
    [
        ("stairs", 0.1, 8, "decay='stairs': text and ladder"),
        ("text", 0.0, 8, "alpha=0.0"),
        ("text", 1.01, 8, "alpha=1.01: a share of chunks above 0 and at most 1"),
        ("ladder", float("nan"), 8, "alpha=nan"),
        ("ladder", 0.1, 0, "0 chunks"),
    ],
)
def test_a_decay_that_is_none_is_refused(rule: str, alpha: float, chunks: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        decayed_counts(rule, chunks=chunks, alpha=alpha, decayed=3)


def test_the_share_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 of each"):
        kept_share((), chunks=8, full=0)


# segments and batches


def test_the_later_segment_comes_first_and_both_are_the_training_part() -> None:
    train = range(3, 10)
    cuts = set()
    for epoch in range(200):
        parts = segments(train, seed=5, epoch=epoch)
        assert sorted(t for part in parts for t in part) == list(train)
        assert parts[0].stop == train.stop
        assert len(parts) == 1 or parts[1].start == train.start
        cuts.add(parts[0].start)
    assert cuts == set(train)  # a cut at the first leaves one segment
    assert segments(train, seed=5, epoch=7) == segments(train, seed=5, epoch=7)
    assert segments(range(4, 5), seed=0, epoch=0) == (range(4, 5),)


@pytest.mark.parametrize("train", [range(0), range(0, 8, 2)])
def test_segments_of_no_run_of_snapshots_are_refused(train: range) -> None:
    with pytest.raises(PlanError, match="non-empty range of consecutive"):
        segments(train, seed=0, epoch=0)


def batch(target: int, after: int | None = None, **changed: Any) -> HybridBatch:
    """Of a window of 5, unless ``changed``, with 6, 3 and 1 of 6 chunks in its decayed snapshots."""
    shape = Trapezoid(**{"window": 5, "full": 2, "chunks": 6, "alpha": 1.0, "decay": "ladder", **changed})
    return hybrid_batch(range(10, 20), target, shape, after=after)


def test_windows_grow_from_a_segment_s_start_and_decayed_snapshots_lack_first() -> None:
    found = [batch(target) for target in range(10, 16)]
    assert [(b.snapshots, b.full, b.counts, b.carries) for b in found] == [
        (range(10, 11), 1, (), False),
        (range(10, 12), 2, (), False),
        (range(10, 13), 2, (6,), False),
        (range(10, 14), 2, (3, 6), False),
        (range(10, 15), 2, (1, 3, 6), False),
        (range(11, 16), 2, (1, 3, 6), True),
    ]
    assert [b.decayed for b in found[1:3]] == [range(10, 10), range(10, 11)]


def test_state_goes_on_only_after_the_step_one_snapshot_earlier() -> None:
    assert batch(17).carries
    assert batch(17, after=16).carries
    assert not batch(17, after=15).carries


def test_a_window_of_one_and_a_window_of_full_snapshots() -> None:
    one = batch(10, window=1, full=1)
    assert (one.snapshots, one.full, one.carries) == (range(10, 11), 1, False)
    assert batch(11, window=1, full=1).carries
    assert batch(19, window=4, full=4).full == 4


def test_a_batch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(PlanError, match="target 20 is not in the segment of snapshots 10 to 19"):
        batch(20)
    for full in (0, 6):
        with pytest.raises(ConfigError, match=f"full_snapshots={full} of window=5"):
            batch(12, full=full)
    for counts, said in (((0, 3), "at least 1"), ((3, 1), "none above that of a newer")):
        with pytest.raises(PlanError, match=said):
            HybridBatch(12, range(10, 13), 1, counts)


def test_an_epoch_has_a_step_for_each_labelled_snapshot() -> None:
    shape = Trapezoid(4, 1, 4, 1.0, "ladder")
    for epoch in range(20):
        train = range(2, 14)
        found = epoch_batches(train, shape, seed=1, epoch=epoch)
        assert [b.target for b in found] == [t for part in segments(train, seed=1, epoch=epoch) for t in part]
        starts = {part.start for part in segments(train, seed=1, epoch=epoch)}
        assert [b.carries for b in found] == [not starts & set(range(b.target - 3, b.target + 1)) for b in found]
        some = epoch_batches(train, shape, seed=1, epoch=epoch, labelled=set(range(2, 14)) - {6})
        targets = [b.target for b in some]
        assert targets == [b.target for b in found if b.target != 6]
        for b in some:
            assert b.carries == (found[[f.target for f in found].index(b.target)].carries and b.target != 7)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((4, range(3, 4), 1), "end at its target 4, not"),
        ((4, range(0), 1), "end at its target 4, not"),
        ((4, range(0, 5, 2), 1), "consecutive"),
        ((4, range(3, 5), 3), "full=3 must be from 1 to 2, the number of snapshots"),
        ((4, range(3, 5), 1), "0 counts of chunks for 1 decayed"),
    ],
)
def test_a_batch_of_no_window_is_refused(asked: tuple[Any, ...], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        HybridBatch(*asked)


# survival


def halves(nodes: int = 60, chunks: int = 5, parts: int = 4) -> tuple[np.ndarray, Chunking]:
    rng = np.random.default_rng(3)
    owner = rng.permutation(nodes) % parts
    chunk = np.empty(nodes, np.int32)
    for part in range(parts):
        own = np.flatnonzero(owner == part)
        chunk[own] = rng.permutation(len(own)) % chunks
    return owner.astype(np.int32), Chunking(chunk, chunks, parts, made_by="a test")


def test_an_order_holds_chunk_after_chunk_of_every_part() -> None:
    owner, chunking = halves()
    order = survival_order(owner, chunking, range(1, 3), seed=0, epoch=4)
    assert order.chunks == 5
    assert sorted(order.vertices.tolist()) == np.flatnonzero((owner == 1) | (owner == 2)).tolist()
    assert order.parts.tolist() == owner[order.vertices].tolist()
    seen: set[tuple[int, int]] = set()
    for start, stop in zip(order.rows[:-1], order.rows[1:], strict=True):
        block = order.vertices[start:stop]
        pairs = list(zip(owner[block].tolist(), chunking.chunk[block].tolist(), strict=True))
        assert len(set(pairs)) == 2  # one chunk of each part
        assert [part for part, _ in pairs] == sorted(part for part, _ in pairs)
        for pair in set(pairs):
            inside = [vertex for vertex, of in zip(block.tolist(), pairs, strict=True) if of == pair]
            assert inside == np.flatnonzero((owner == pair[0]) & (chunking.chunk == pair[1])).tolist()
        assert not seen & set(pairs)
        seen |= set(pairs)


def test_what_survives_of_a_part_does_not_depend_on_the_ranks() -> None:
    owner, chunking = halves()
    whole = survival_order(owner, chunking, range(4), seed=0, epoch=1)
    for part in range(4):
        alone = survival_order(owner, chunking, range(part, part + 1), seed=0, epoch=1)
        assert whole.vertices[whole.parts == part].tolist() == alone.vertices.tolist()
        for count in range(6):
            assert (whole.parts[: whole.rows[count]] == part).sum() == alone.rows[count]


def test_every_epoch_seed_and_part_has_an_order_of_its_own() -> None:
    owner, chunking = halves(chunks=13)
    orders = {
        tuple(survival_order(owner, chunking, range(4), seed=seed, epoch=epoch).vertices.tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9
    order = survival_order(owner, chunking, range(4), seed=0, epoch=0)
    firsts = {tuple(chunking.chunk[order.vertices[order.parts == part]].tolist()) for part in range(4)}
    assert len(firsts) == 4


@pytest.mark.parametrize("nodes", [300, 70_000])  # more than 8 bits number, and more than 16
def test_many_chunks_are_shuffled_as_their_stream_says(nodes: int) -> None:
    order = survival_order(np.zeros(nodes, np.int32), Chunking(np.arange(nodes), nodes, 1), range(1), seed=5, epoch=2)
    assert order.rows.tolist() == list(range(nodes + 1))
    assert order.vertices.tolist() == generator(5, "batching/survival", 2, 0).permutation(nodes).tolist()


def test_chunks_of_other_parts_or_vertices_are_refused() -> None:
    owner, chunking = halves()
    with pytest.raises(PlanError, match="60 nodes in chunks and 59 in parts"):
        survival_order(owner[1:], chunking, range(4), seed=0, epoch=0)
    with pytest.raises(PlanError, match="valid parts are 0 to 3"):
        survival_order(owner, chunking, range(3, 5), seed=0, epoch=0)
    with pytest.raises(PlanError, match="at least one part"):
        survival_order(owner, chunking, range(2, 2), seed=0, epoch=0)
    other = np.where((owner == 2) & (chunking.chunk == 3), 0, owner)
    with pytest.raises(PlanError, match="a chunk of part 2 has no nodes"):
        survival_order(other, chunking, range(4), seed=0, epoch=0)


@pytest.mark.parametrize(
    ("chunk", "chunks", "parts", "said"),
    [
        ([0, 1, 2], 2, 1, "run from 0 to 2; those of a part are numbered 0 to 1"),
        ([0, -1, 1], 2, 1, "from -1"),
        ([0, 1, 0], 2, 2, "2 chunks in each of 2 parts of 3 nodes"),
        ([0.5], 1, 1, "whole numbers, not float64"),
        ([], 1, 1, "non-empty"),
        ([0], 0, 1, "0 chunks"),
    ],
)
def test_numbers_that_are_no_chunks_are_refused(chunk: list[Any], chunks: int, parts: int, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Chunking(np.array(chunk), chunks, parts)


@pytest.mark.parametrize(
    ("vertices", "parts", "rows", "said"),
    [
        ([4, 2], [0], [0, 2], "1 parts for 2 nodes"),
        ([4, 2], [0, 0], [0, 1], r"end at \[1\]"),
        ([4, 2], [0, 0], [1, 2], r"begin \[1, 2\]"),
        ([4, 2], [0, 0], [0, 2, 2], "at least 1 with every chunk"),
        ([4, 2], [0, 0], [0], "must rise from 0 to 2"),
        ([4.0, 2.5], [0, 0], [0, 2], "vertices must be a vector of whole numbers"),
    ],
)
def test_an_order_that_does_not_fit_is_refused(vertices: Any, parts: Any, rows: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        SurvivalOrder(np.array(vertices), np.array(parts), np.array(rows))


def test_plans_cannot_be_changed_and_do_not_change_what_was_given() -> None:
    given = np.array([0, 1, 0], np.int32)
    chunking = Chunking(given, 2, 1, made_by="a test")
    given[:] = 1
    assert chunking.chunk.tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="read-only"):
        chunking.chunk[0] = 1
    assert repr(chunking) == "Chunking(3 nodes, 2 chunks in each of 1 parts by a test)"


# the shrinker's own manners


def shrinker() -> tuple[Shrinker, SurvivalOrder]:
    graph = graph_of(4, [[(0, 1), (1, 0), (3, 1), (2, 3), (3, 3)]], weighted=True)
    return Shrinker(graph.snapshots), SurvivalOrder(np.array([3, 1, 0, 2]), np.zeros(4, np.int32), np.arange(5))


def test_edges_of_a_prefix_by_hand() -> None:
    made, order = shrinker()
    made.renumber(order)
    edges = made.edges(0, 3)  # rows 3, 1, 0; weights as graph_of deals them: 0<-1 0.5, 1<-0 1, 1<-3 1.5, 3<-2, 3<-3 2.5
    assert edges.indptr.tolist() == [0, 1, 3, 4]
    assert edges.indices.tolist() == [0, 2, 0, 1]
    assert edges.weights is not None
    assert edges.weights.tolist() == [2.5, 1.0, 1.5, 0.5]
    assert edges.degrees.tolist() == [2.5, 2.5, 0.5]
    assert edges.other_degrees.tolist() == [4.0, 0.5, 1.0]
    assert (edges.rows, edges.num_edges) == (3, 4)
    out = made.edges(0, 3, "out")
    assert (out.indptr.tolist(), out.indices.tolist()) == ([0, 2, 3, 4], [0, 1, 2, 1])
    assert (out.degrees.tolist(), out.other_degrees.tolist()) == ([4.0, 0.5, 1.0], [2.5, 2.5, 0.5])


def test_what_was_cut_out_is_given_again_and_cannot_be_changed() -> None:
    made, order = shrinker()
    made.renumber(order)
    edges = made.edges(0, 3)
    assert made.edges(0, 3) is edges
    with pytest.raises(ValueError, match="read-only"):
        edges.indices[0] = 2
    made.keep_only(range(1, 5))
    assert made.edges(0, 3) is not edges
    again = made.edges(0, 3)
    made.keep_only(range(1))
    assert made.edges(0, 3) is again
    made.renumber(order)
    assert made.edges(0, 3) is not again


def test_a_shorter_prefix_looks_at_the_longer_one_and_not_at_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    made, order = shrinker()
    made.renumber(order)
    made.edges(0, 4)
    looked: list[int] = []
    monkeypatch.setattr(Shrinker, "_taken", lambda *given: looked.append(given[2]))
    assert made.edges(0, 2).indices.tolist() == [0, 0]
    assert looked == []
    made.edges(0, 3)  # longer than the one kept
    assert looked == [3]


def test_edges_that_there_are_not_are_refused() -> None:
    made, order = shrinker()
    with pytest.raises(PlanError, match="call renumber first"):
        made.edges(0, 1)
    made.renumber(order)
    for t, rows, way in ((1, 1, "in"), (-1, 1, "in"), (0, 5, "in"), (0, -1, "in"), (0, 1, "up")):
        with pytest.raises(PlanError, match=f"edges '{way}' of the first {rows} nodes in snapshot {t}"):
            made.edges(t, rows, way)
    with pytest.raises(PlanError, match="contains nodes 0 to 4; those of the snapshots are 0 to 3"):
        made.renumber(SurvivalOrder(np.array([4, 0]), np.zeros(2, np.int32), np.arange(3)))
