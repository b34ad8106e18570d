"""Link prediction against its definition in loops over pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.core.errors import DataError, UnsupportedError
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import cut_edges
from dtdg_lab.graphs.snapshot import EdgeSet, Snapshot
from dtdg_lab.graphs.split import Split
from dtdg_lab.records.link_metrics import is_score
from dtdg_lab.tasks.link_prediction import LinkPrediction, round_noise
from dtdg_lab.tasks.link_samples import NO_VERTEX, edge_seed, link_samples, ranking_candidates
from tests.labelled_graphs import (
    EMPTY,
    NODES,
    PARTS,
    SPLIT,
    TIMES,
    brute_auc,
    brute_average_precision,
    classes_of,
    graph,
    readout,
    scored,
)


def _seed(data: DynamicGraph) -> int:
    return edge_seed(data.following[t] for t in SPLIT.train)


def _samples(data: DynamicGraph, t: int, share: float = 0.1, negatives: int = 1) -> tuple[list, list]:
    found = link_samples(EdgeSet(data.following[t]), seed=_seed(data), t=t, share=share, negatives=negatives)
    pairs = list(zip(found.src.tolist(), found.dst.tolist(), strict=True))
    return pairs[: found.positives], pairs[found.positives :]


def _pairs_of(snapshot: Snapshot) -> set[tuple[int, int]]:
    return set(zip(snapshot.indices.tolist(), snapshot.rows().tolist(), strict=True))


def _score_by_hand(z: np.ndarray, u: int, v: int, head: str) -> float:
    return z[u, 0] + z[v, 1] if head == "concat" else float(z[u] @ z[v]) / math.sqrt(z.shape[1])


def _cross_entropy(score: float, label: bool) -> float:
    return math.log1p(math.exp(-score)) if label else math.log1p(math.exp(score))


@pytest.mark.parametrize("head", ["concat", "dot"])
@pytest.mark.parametrize("negatives", [1, 3])
def test_the_link_loss_by_hand(head: str, negatives: int) -> None:
    data = graph()
    task = LinkPrediction(
        data, SPLIT, dtype=torch.float64, hidden=4, link_share=0.3, negatives=negatives, link_head=head
    )
    z = readout(task)
    assert (task.outputs, task.per_vertex) == (2 if head == "concat" else 4, False)
    losses = task.loss(z[:5], range(5), slice(0, NODES)).tolist()
    for t in range(5):
        positives, absent = _samples(data, t, 0.3, negatives)
        assert len(absent) == negatives * len(positives)
        terms = [_cross_entropy(_score_by_hand(z.detach().numpy()[t], u, v, head), True) for u, v in positives]
        terms += [_cross_entropy(_score_by_hand(z.detach().numpy()[t], u, v, head), False) for u, v in absent]
        assert losses[t] == pytest.approx(np.mean(terms) if terms else 0.0, rel=1e-12)
        assert bool(terms) == (t not in EMPTY)


@pytest.mark.parametrize("head", ["concat", "dot"])
@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_link_scores_by_hand(part: str, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtdg_lab.tasks.link_prediction._BLOCK", 60)  # several blocks of products
    data = graph()
    task = LinkPrediction(
        data, SPLIT, dtype=torch.float64, hidden=4, link_share=0.4, ranking_negatives=5, link_head=head
    )
    z = readout(task)
    found = scored(task, z, part)
    said = z.detach().numpy()
    wanted: dict[str, list[float]] = {}
    for t in (t for t in PARTS[part] if t not in EMPTY):
        positives, absent = _samples(data, t, 0.4)
        labels = [True] * len(positives) + [False] * len(absent)
        held = _pairs_of(data.snapshots[t])
        for prefix, score in (
            ("", lambda u, v, t=t: _score_by_hand(said[t], u, v, head)),
            ("persistence_", lambda u, v, held=held: float((u, v) in held)),
        ):
            scores = [score(u, v) for u, v in (*positives, *absent)]
            numbers = {
                "accuracy": np.mean([(s > 0) == label for s, label in zip(scores, labels, strict=True)]),
                "auc": brute_auc(scores, labels),
                "average_precision": brute_average_precision(scores, labels),
            }
            if part != "train":
                numbers["mrr"] = np.mean(_reciprocal_by_hand(data, t, positives, score, 5))
            for name, value in numbers.items():
                wanted.setdefault(prefix + name, []).append(value)
    metrics = {name: value for name, value in found.metrics.items() if is_score(name)}
    times = [t for t in PARTS[part] if t not in EMPTY]
    asked = [_samples(data, t, 0.4) for t in times]
    assert found.metrics["pairs"] == sum(len(positives) + len(absent) for positives, absent in asked)
    if part == "train":
        assert (metrics.pop("mrr"), metrics.pop("persistence_mrr")) == (None, None)
    assert metrics == pytest.approx({name: np.mean(values) for name, values in wanted.items()}, rel=1e-12)
    assert found.mean_loss == pytest.approx(math.log(2))
    assert found.snapshots == len([t for t in PARTS[part] if t not in EMPTY])


def _reciprocal_by_hand(data: DynamicGraph, t: int, positives: list, score: Any, count: int) -> list[float]:
    sources = sorted({u for u, _ in positives})
    candidates = ranking_candidates(
        EdgeSet(data.following[t]), np.array(sources, np.int32), seed=_seed(data), t=t, count=count
    )
    found = []
    for u, v in positives:
        others = [score(u, w) for w in candidates[sources.index(u)].tolist() if w != NO_VERTEX]
        if not others:
            continue
        above, equal = sum(s > score(u, v) for s in others), sum(s == score(u, v) for s in others)
        found.append(1 / (1 + above + equal / 2))
    return found


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("negatives", [1, 4])
def test_persistence_of_links_has_the_chances_of_the_training_part(part: str, negatives: int) -> None:
    data = graph()
    task = LinkPrediction(data, SPLIT, dtype=torch.float64, link_share=0.4, negatives=negatives)
    kept = edges = gone = absent = 0
    for t in PARTS["train"]:
        now, then = ({(u, v) for u, v in _pairs_of(s) if u != v} for s in (data.snapshots[t], data.following[t]))
        kept, edges = kept + len(now & then), edges + len(then)
        gone, absent = gone + len(now - then), absent + NODES * (NODES - 1) - len(then)
    a, b, prior = (kept + 1) / (edges + 2), (gone + 1) / (absent + 2), 1 / (1 + negatives)
    chance = {
        True: prior * a / (prior * a + (1 - prior) * b),
        False: prior * (1 - a) / (prior * (1 - a) + (1 - prior) * (1 - b)),
    }
    losses, constants = [], []
    for t in (t for t in PARTS[part] if t not in EMPTY):
        positives, others = _samples(data, t, 0.4, negatives)
        held = _pairs_of(data.snapshots[t])
        terms = [-math.log(chance[pair in held]) for pair in positives]
        terms += [-math.log(1 - chance[pair in held]) for pair in others]
        losses.append(np.mean(terms))
        constants.append(np.mean([-math.log(prior)] * len(positives) + [-math.log(1 - prior)] * len(others)))
    found = scored(task, readout(task), part)
    assert found.persistence_loss == pytest.approx(np.mean(losses), rel=1e-12)
    assert found.mean_loss == pytest.approx(np.mean(constants), rel=1e-12)


def test_vertices_that_are_alike_tie() -> None:
    """Equal embeddings give equal scores to the last bit, whatever the head; ties count half."""
    data = graph()
    for head in ("concat", "dot"):
        task = LinkPrediction(data, SPLIT, link_head=head, hidden=7, ranking_negatives=3, link_share=1.0)
        row = torch.randn(1, 1, task.outputs, generator=torch.Generator().manual_seed(1))
        found = scored(task, row.expand(TIMES, NODES, -1).clone(), "test").metrics
        assert (found["auc"], found["average_precision"]) == (0.5, 0.5)
        assert found["mrr"] == pytest.approx(1 / 2.5)


@pytest.mark.parametrize(("dtype", "noise", "apart"), [(torch.float32, 1e-7, 1e-3), (torch.float64, 1e-15, 1e-7)])
def test_rounding_does_not_decide_ranks(dtype: torch.dtype, noise: float, apart: float) -> None:
    """Sums in another order differ in the last bits: that must not break ties, and real differences must count."""
    data = graph()
    task = LinkPrediction(data, SPLIT, ranking_negatives=3, link_share=1.0)
    draw = torch.Generator().manual_seed(1)
    alike = torch.ones(TIMES, NODES, 2, dtype=dtype)
    shaken = alike * (1 + noise * torch.randn(alike.shape, generator=draw, dtype=dtype))
    other = alike * (1 + apart * torch.randn(alike.shape, generator=draw, dtype=dtype))
    assert not torch.equal(alike, shaken)
    one, same, else_ = (scored(task, z * 0.7, "test").metrics for z in (alike, shaken, other))
    assert one == same
    assert (one["auc"], one["mrr"]) == (0.5, pytest.approx(1 / 2.5))
    assert else_["auc"] != 0.5 != else_["mrr"]


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 14), (torch.float64, 30)])
def test_noise_is_rounded_away_entry_by_entry(dtype: torch.dtype, bits: int) -> None:
    draw = torch.Generator().manual_seed(2)
    z = torch.randn(200, 3, generator=draw, dtype=dtype) * torch.exp(8 * torch.randn(200, 1, generator=draw)).to(dtype)
    z[:3] = torch.tensor([[0.0], [1e-30], [1e30]], dtype=dtype)
    found = round_noise(z)
    assert found.dtype == torch.float64
    typical = z.double().abs().median(dim=0).values
    assert ((found - z.double()).abs() <= 2.0**-bits * torch.maximum(z.double().abs(), typical)).all()
    assert torch.equal(round_noise(found.to(dtype)), found)  # what is rounded stays
    assert (found[0] == 0).all()
    # a difference of entries as large as most is as noisy as they are: so small a one is none
    ones = torch.ones(5, 1, dtype=dtype)
    ones[3:, 0] = torch.tensor([3.0, 4.0], dtype=dtype) * 2.0 ** -(bits + 4)
    assert round_noise(ones)[3:].tolist() == [[0.0], [0.0]]
    assert round_noise(ones[:0]).shape == (0, 1)
    mostly_zero = torch.zeros(5, 1, dtype=dtype)
    mostly_zero[0] = 2.0**-60
    assert torch.equal(round_noise(mostly_zero), mostly_zero.double())
    assert round_noise(torch.tensor([[torch.inf], [1.0], [1.0]], dtype=dtype)).tolist() == [[math.inf], [1.0], [1.0]]
    unknown = round_noise(torch.tensor([[torch.nan], [1.0], [1.0]], dtype=dtype))
    assert unknown.isnan().tolist() == [[True], [False], [False]]


def _cut(**how: Any) -> DynamicGraph:
    draw = np.random.default_rng(3)
    src, dst = draw.integers(0, NODES, (2, 400))
    edges = cut_edges(src, dst, np.sort(draw.random(400)), cut=14)
    return build_graph(edges, name="cut", source="test", **how)


def _pairs_asked(data: DynamicGraph) -> list[tuple[list, list]]:
    task = LinkPrediction(data, Split(range(5), range(6, 8), range(8, data.num_snapshots)))
    return [(task._pairs_of(t).src.tolist(), task._pairs_of(t).dst.tolist()) for t in range(data.num_snapshots)]


def test_pairs_are_the_same_whatever_is_given_to_the_model() -> None:
    """Features, labels, weights and smoothing do not choose what is asked; edges do."""
    wanted = _pairs_asked(graph())
    assert wanted == _pairs_asked(graph())
    assert wanted == _pairs_asked(graph(targets=np.zeros((TIMES, NODES), np.float32)))
    assert wanted == _pairs_asked(graph(classes=classes_of()))
    cut = _pairs_asked(_cut())
    assert cut == _pairs_asked(_cut(features="degrees"))
    assert cut == _pairs_asked(_cut(smoothing_window=4))
    assert cut == _pairs_asked(_cut(smoothing_window=2, features="constant"))
    assert all(a != b for a, b in zip(cut, _pairs_asked(_cut(edge_life=2)), strict=False))
    windows = graph().following
    later = graph(following=(*windows[:-1], windows[0]))  # other edges of the test split
    assert _pairs_asked(later)[:-1] == wanted[:-1] and _pairs_asked(later)[-1] != wanted[-1]
    first = graph(following=(windows[-1], *windows[1:]))  # other edges of training, and other draws from the same ones
    assert all(a != b for t, (a, b) in enumerate(zip(wanted, _pairs_asked(first), strict=True)) if t not in EMPTY)


def test_the_seed_of_draws_is_made_of_edges() -> None:
    windows = graph().following
    assert edge_seed(windows) == edge_seed(iter(windows)) != edge_seed(windows[1:])
    weighted = tuple(Snapshot(w.indptr, w.indices, np.ones(w.num_edges, np.float32)) for w in windows)
    assert edge_seed(weighted) == edge_seed(windows)
    indices = np.array(windows[0].indices)
    row = int(np.argmax(np.diff(windows[0].indptr)))
    start, stop = windows[0].indptr[row : row + 2]
    indices[start:stop] = np.sort(np.setdiff1d(np.arange(NODES), indices[start:stop])[: stop - start].tolist() or 0)
    assert edge_seed((Snapshot(windows[0].indptr, indices.astype(np.int32)), *windows[1:])) != edge_seed(windows)


HOW = [{}, {"smoothing_window": 3}, {"edge_life": 3, "strict_label": True}, {"edge_life": 3}]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_persistence_of_links_says_what_the_label_before_counted(how: dict[str, Any]) -> None:
    """Neither smoothing nor old edges of a strict label's window are today's."""
    data = _cut(**how)
    parts = Split(range(5), range(6, 8), range(8, data.num_snapshots))
    task = LinkPrediction(data, parts, link_share=1.0, dtype=torch.float64)
    z = torch.zeros(NODES, 2, dtype=torch.float64)
    today = [data.snapshots[0], *data.following[:-1]]
    if how.get("smoothing_window"):
        unsmoothed = _cut()
        assert [_pairs_of(a) for a in today] == [_pairs_of(a) for a in unsmoothed.snapshots]
        assert _pairs_of(data.snapshots[5]) != _pairs_of(unsmoothed.snapshots[5])
    for t in range(data.num_snapshots):
        pairs = task._pairs_of(t)
        held = [pair in _pairs_of(today[t]) for pair in zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True)]
        wanted = np.mean([a == (place < pairs.positives) for place, a in enumerate(held)])
        found = task.scores("test", task.measure(z, t, slice(0, NODES), "test").numpy()[None])
        assert found.metrics["persistence_accuracy"] == pytest.approx(wanted)
    kept = sum(len({p for p in _pairs_of(today[t]) & _pairs_of(data.following[t]) if p[0] != p[1]}) for t in range(5))
    then = sum(len({p for p in _pairs_of(data.following[t]) if p[0] != p[1]}) for t in range(5))
    gone = sum(len({p for p in _pairs_of(today[t]) - _pairs_of(data.following[t]) if p[0] != p[1]}) for t in range(5))
    a, b = (kept + 1) / (then + 2), (gone + 1) / (5 * NODES * (NODES - 1) - then + 2)
    assert task._edge_bank.if_edge == pytest.approx(a / (a + b), rel=1e-12)


def test_positives_with_nothing_to_be_ranked_against_are_left_out() -> None:
    star = {(0, v) for v in range(1, NODES)} | {(1, 2), (3, 4)}
    indptr = np.cumsum([0, *(sum(dst == v for _, dst in star) for v in range(NODES))]).astype(np.int64)
    indices = np.array([src for v in range(NODES) for src, dst in sorted(star) if dst == v], np.int32)
    data = graph(following=(Snapshot(indptr, indices),) * TIMES)
    task = LinkPrediction(data, SPLIT, dtype=torch.float64, link_share=1.0, ranking_negatives=4)
    z = readout(task)
    said = z.detach().numpy()
    wanted = []
    for t in PARTS["test"]:
        ranks = _reciprocal_by_hand(data, t, sorted(star), lambda u, v, t=t: said[t, u, 0] + said[t, v, 1], 4)
        assert len(ranks) == 2  # those of (1, 2) and (3, 4)
        wanted.append(np.mean(ranks))
    assert scored(task, z, "test").metrics["mrr"] == pytest.approx(np.mean(wanted), rel=1e-12)


def test_link_prediction_refuses_data_without_what_follows() -> None:
    with pytest.raises(UnsupportedError, match=r"snapshots that follow; it serves regression\. "):
        LinkPrediction(graph(following=None), SPLIT)
    nothing = Snapshot(np.zeros(NODES + 1, np.int64), np.zeros(0, np.int32))
    with pytest.raises(DataError, match="followed by edges"):
        LinkPrediction(graph(following=(nothing,) * TIMES), SPLIT)
