"""Every task against its definition in plain loops: losses, metrics, baselines, and what is refused."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.core.errors import DataError, UnsupportedError
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import cut_edges
from dtdg_lab.graphs.snapshot import EdgeSet, Snapshot
from dtdg_lab.graphs.split import Split
from dtdg_lab.records.link_metrics import is_score
from dtdg_lab.tasks.base import Scores, Task
from dtdg_lab.tasks.classification import Classification
from dtdg_lab.tasks.link_prediction import LinkPrediction, round_noise
from dtdg_lab.tasks.link_samples import NO_VERTEX, edge_seed, link_samples, ranking_candidates
from dtdg_lab.tasks.metrics import accuracy, auc_and_average_precision, confusion, f1, f1_of, macro_f1, reciprocal_ranks
from dtdg_lab.tasks.regression import Regression
from tests.factories import random_graph

NODES, TIMES = 15, 12
SPLIT = Split(range(5), range(6, 8), range(8, 12))
PARTS = {"train": SPLIT.train, "validation": SPLIT.validation, "test": SPLIT.test}
EMPTY = (3, 9, 10)  # snapshots that no edge follows


def graph(**fields: Any) -> DynamicGraph:
    empty = [t + 1 for t in EMPTY]
    return replace(random_graph(NODES, TIMES, share=0.23, empty=empty, seed=4), **fields)


def classes_of(kinds: int = 3, unlabelled: float = 0.4) -> np.ndarray:
    draw = np.random.default_rng(6)
    classes = draw.choice(kinds, size=(TIMES, NODES), p=[0.6, 0.3, 0.1][:kinds]).astype(np.int16)
    classes[draw.random(classes.shape) < unlabelled] = -1
    classes[7] = -1  # a snapshot without labels
    return classes


def readout(task: Task, *, times: int = TIMES) -> Tensor:
    draw = torch.Generator().manual_seed(3)
    return torch.randn(times, NODES, task.outputs, generator=draw, dtype=torch.float64, requires_grad=True)


def scored(task: Task, z: Tensor, part: str, blocks: tuple[int, ...] = (0, NODES)) -> Scores:
    """The scores of a part, measured block by block of nodes."""
    sums = np.zeros((len(PARTS[part]), task.columns))
    for place, t in enumerate(PARTS[part]):
        for start, stop in itertools.pairwise(blocks):
            sums[place] += task.measure(z.detach()[t, start:stop], t, slice(start, stop), part).numpy()
    return task.scores(part, sums)


# metrics


def _brute_auc(scores: list[float], labels: list[bool]) -> float:
    positive = [s for s, label in zip(scores, labels, strict=True) if label]
    negative = [s for s, label in zip(scores, labels, strict=True) if not label]
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    return wins / (len(positive) * len(negative))


def _brute_average_precision(scores: list[float], labels: list[bool]) -> float:
    total, before, area = sum(labels), 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        taken = [label for s, label in zip(scores, labels, strict=True) if s >= threshold]
        recall = sum(taken) / total
        area += (recall - before) * sum(taken) / len(taken)
        before = recall
    return area


@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_auc_and_average_precision_are_their_definitions(levels: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    scores = (draw.integers(0, levels, 40) / levels).tolist()
    labels = (draw.random(40) < 0.3).tolist()
    found = auc_and_average_precision(torch.tensor(scores, dtype=torch.float64), torch.tensor(labels))
    assert found == pytest.approx((_brute_auc(scores, labels), _brute_average_precision(scores, labels)), rel=1e-12)


def test_known_areas() -> None:
    labels = torch.tensor([True, True, False, False])
    assert auc_and_average_precision(torch.tensor([4.0, 3.0, 2.0, 1.0]), labels) == (1.0, 1.0)
    assert auc_and_average_precision(torch.zeros(4), labels) == (0.5, 0.5)
    # scikit-learn's documentation: average_precision_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) is 0.83, AUC 0.75
    found = auc_and_average_precision(torch.tensor([0.35, 0.8, 0.1, 0.4]), labels)
    assert found == (0.75, pytest.approx(0.8333333333333333))
    for one_kind in (torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)):
        with pytest.raises(ValueError, match="both are needed"):
            auc_and_average_precision(torch.zeros(3), one_kind)


@pytest.mark.parametrize("block", [3, 1 << 22])
def test_reciprocal_ranks_are_means_of_the_best_and_the_worst_rank(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtdg_lab.tasks.metrics._BLOCK", block)
    draw = torch.Generator().manual_seed(1)
    positive = torch.randint(0, 4, (20,), generator=draw).double()
    candidates = torch.randint(0, 4, (6, 7), generator=draw).double()
    candidates[2, 3:] = -torch.inf
    candidates[4] = -torch.inf
    row = torch.randint(0, 6, (20,), generator=draw)
    found = reciprocal_ranks(positive, candidates, row).tolist()
    for own, place, value in zip(positive.tolist(), row.tolist(), found, strict=True):
        others = sorted([s for s in candidates[place].tolist() if s > -math.inf], reverse=True)
        best = 1 + len([s for s in others if s > own])
        worst = 1 + len([s for s in others if s >= own])
        assert value == pytest.approx(2 / (best + worst))
    assert reciprocal_ranks(positive[:0], candidates, row[:0]).tolist() == []


def test_f1_and_accuracy_are_their_definitions() -> None:
    draw = np.random.default_rng(2)
    true, said = draw.integers(0, 4, 200), draw.integers(0, 4, 200)
    true[true == 3] = 0  # class 3 is predicted and never true
    table = confusion(true, said, 5)
    for kind in range(4):
        hits = ((true == kind) & (said == kind)).sum()
        precision = hits / (said == kind).sum()
        recall = hits / (true == kind).sum() if (true == kind).any() else 0.0
        wanted = 2 * precision * recall / (precision + recall) if hits else 0.0
        assert f1(table)[kind] == pytest.approx(wanted)
        assert f1_of(table, kind) == pytest.approx(wanted)
    assert f1_of(table, 4) is None  # neither
    assert macro_f1(table) == pytest.approx(f1(table)[:4].mean())
    assert accuracy(table) == pytest.approx((true == said).mean())
    assert (accuracy(np.zeros((2, 2))), macro_f1(np.zeros((2, 2)))) == (None, None)


# what holds for every task


def made(name: str, **options: Any) -> Task:
    how: dict[str, Any] = {"dtype": torch.float64, **options}
    if name == "regression":
        return Regression(graph(), SPLIT, **how)
    if name == "classification":
        return Classification(graph(classes=classes_of()), SPLIT, **how)
    return LinkPrediction(graph(), SPLIT, **how)


TASKS: list[tuple[str, dict[str, Any]]] = [
    ("regression", {}),
    ("classification", {}),
    ("link", {}),
    ("link", {"link_head": "dot", "hidden": 4}),
]


@pytest.mark.parametrize(("name", "options"), TASKS, ids=str)
def test_the_loss_of_a_sequence_is_that_of_its_snapshots(name: str, options: dict[str, Any]) -> None:
    task = made(name, **options)
    assert task.name == name
    z = readout(task)
    whole = task.loss(z[1:5], range(1, 5), slice(0, NODES))
    assert whole.shape == (4,)
    each = [made(name, **options).loss(z[t : t + 1], range(t, t + 1), slice(0, NODES))[0] for t in range(1, 5)]
    assert torch.allclose(whole, torch.stack(each), rtol=1e-13)
    (gradient,) = torch.autograd.grad(whole.sum(), z)
    assert gradient[1:5].abs().sum() > 0
    assert gradient[0].abs().sum() == gradient[5:].abs().sum() == 0
    assert torch.autograd.gradcheck(lambda z: task.loss(z, range(1, 4), slice(0, NODES)), readout(task)[1:4])


@pytest.mark.parametrize("name", ["regression", "classification"])
def test_blocks_of_vertices_add_up(name: str) -> None:
    task = made(name)
    assert task.per_vertex
    z = readout(task)[:5]
    whole = task.loss(z, range(5), slice(0, NODES))
    blocks = [task.loss(z[:, a:b], range(5), slice(a, b)) for a, b in ((0, 4), (4, 11), (11, 15))]
    assert torch.allclose(sum(blocks[1:], blocks[0]), whole, rtol=1e-13)
    for part in PARTS:
        one, several = (scored(task, readout(task), part, cut) for cut in ((0, NODES), (0, 4, 11, NODES)))
        assert one.loss == pytest.approx(several.loss, rel=1e-13)
        assert one.metrics == pytest.approx(several.metrics, rel=1e-13)


@pytest.mark.parametrize(("name", "options"), TASKS, ids=str)
def test_the_training_part_s_score_is_the_training_loss(name: str, options: dict[str, Any]) -> None:
    task = made(name, **options)
    z = readout(task)
    losses = task.loss(z[:5], range(5), slice(0, NODES)).detach()
    found = scored(task, z, "train")
    labelled = [t for t in range(5) if name != "link" or t not in EMPTY]
    assert found.loss == pytest.approx(losses[labelled].mean().item(), rel=1e-12)
    assert found.snapshots == len(labelled)


@pytest.mark.parametrize(("name", "options"), TASKS, ids=str)
def test_a_part_without_labelled_items_has_no_scores(name: str, options: dict[str, Any]) -> None:
    task = made(name, **options)
    found = task.scores("validation", np.zeros((0, task.columns)))
    # a validation split of SPLIT that is empty is never measured; the baselines of its snapshots are not asked for
    assert found.loss is None
    assert found.snapshots == 0


# regression


class Absolute(Regression):
    """Absolute errors."""

    def penalty(self, errors: Tensor) -> Tensor:
        return errors.abs()


def test_a_regression_with_another_penalty_trains_with_it_and_is_scored_by_it() -> None:
    data, task = graph(), Absolute(graph(), SPLIT, dtype=torch.float64)
    z = readout(task)
    errors = np.abs(z.detach().numpy()[..., 0] - data.targets.astype(np.float64))
    assert task.loss(z[2:5], range(2, 5), slice(0, NODES)).tolist() == pytest.approx(errors[2:5].mean(1), rel=1e-12)
    mean = data.targets[:5].astype(np.float64).mean()
    found = scored(task, z, "test")
    assert found.loss == pytest.approx(errors[8:].mean(), rel=1e-12) == found.metrics["mae"]
    assert found.persistence_loss == found.metrics["persistence_mae"]
    assert found.mean_loss == pytest.approx(np.abs(mean - data.targets[8:].astype(np.float64)).mean(), rel=1e-12)


def test_regression_by_hand() -> None:
    data, task = graph(), made("regression")
    z = readout(task)
    targets, today = data.targets.astype(np.float64), data.persistence.astype(np.float64)
    said = z.detach().numpy()[..., 0]
    losses = task.loss(z[2:5], range(2, 5), slice(0, NODES)).tolist()
    assert losses == pytest.approx([((said[t] - targets[t]) ** 2).mean() for t in (2, 3, 4)], rel=1e-12)
    mean = targets[:5].mean()
    for part, where in PARTS.items():
        found, place = scored(task, z, part), list(where)
        assert found.loss == pytest.approx(((said[place] - targets[place]) ** 2).mean(), rel=1e-12)
        assert found.persistence_loss == pytest.approx(((today[place] - targets[place]) ** 2).mean(), rel=1e-12)
        assert found.mean_loss == pytest.approx(((mean - targets[place]) ** 2).mean(), rel=1e-12)
        assert found.metrics == pytest.approx(
            {
                "mae": np.abs(said[place] - targets[place]).mean(),
                "persistence_mae": np.abs(today[place] - targets[place]).mean(),
            }
        )
        assert found.snapshots == len(place)


# classification


def _log_softmax(z: np.ndarray) -> np.ndarray:
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def _classified_by_hand(classes: np.ndarray, z: np.ndarray, part: str, of: np.ndarray | None) -> dict[str, Any]:
    """All scores from loops over nodes; ``of`` is the node split."""

    def counted(t: int, v: int, part: str) -> bool:
        return classes[t, v] >= 0 and (of is None or of[v] == list(PARTS).index(part))

    trained = [int(classes[t, v]) for t in PARTS["train"] for v in range(NODES) if counted(t, v, "train")]
    kinds = int(classes.max()) + 1
    share = [(trained.count(c) + 1) / (len(trained) + kinds) for c in range(kinds)]
    common = max(range(kinds), key=trained.count)

    def last(t: int, v: int) -> int:
        seen = [int(classes[s, v]) for s in range(t) if counted(s, v, "train")]
        return seen[-1] if seen else -1

    pairs = [
        (last(t, v), int(classes[t, v]))
        for t in PARTS["train"]
        for v in range(NODES)
        if counted(t, v, "train") and last(t, v) >= 0
    ]
    stays = (sum(a == b for a, b in pairs) + 1) / (len(pairs) + 2)
    logs = _log_softmax(z)
    losses: dict[str, list[float]] = {"own": [], "today": [], "constant": []}
    items: list[tuple[int, int, int]] = []
    for t in PARTS[part]:
        here = [v for v in range(NODES) if counted(t, v, part)]
        own, today, constant = [], [], []
        for v in here:
            true, before = int(classes[t, v]), last(t, v)
            own.append(-logs[t, v, true])
            constant.append(-math.log(share[true]))
            chance = stays if true == before else (1 - stays) * share[true] / (1 - share[before])
            today.append(-math.log(chance if before >= 0 else share[true]))
            items.append((true, int(z[t, v].argmax()), before if before >= 0 else common))
        if here:
            for name, values in (("own", own), ("today", today), ("constant", constant)):
                losses[name].append(float(np.mean(values)))
    rarest = min((c for c in range(kinds) if trained.count(c)), key=trained.count)
    return {
        "losses": {name: np.mean(values) if values else None for name, values in losses.items()},
        "items": items,
        "rarest": rarest,
        "common": common,
        "snapshots": len(losses["own"]),
    }


def _f1_by_hand(pairs: list[tuple[int, int]]) -> dict[int, float]:
    found = {}
    for kind in {c for pair in pairs for c in pair}:
        hits = sum(a == b == kind for a, b in pairs)
        found[kind] = 2 * hits / (sum(a == kind for a, _ in pairs) + sum(b == kind for _, b in pairs))
    return found


VERTEX_SPLITS = [None, np.array([0, 0, 1, 2, -1] * 3, dtype=np.int8)]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("of", VERTEX_SPLITS, ids=["all nodes", "divided"])
def test_classification_by_hand(part: str, of: np.ndarray | None) -> None:
    classes = classes_of()
    task = Classification(graph(classes=classes, vertex_split=of), SPLIT, dtype=torch.float64)
    z = readout(task)
    found, wanted = scored(task, z, part), _classified_by_hand(classes, z.detach().numpy(), part, of)
    losses = {"own": found.loss, "today": found.persistence_loss, "constant": found.mean_loss}
    assert losses == pytest.approx(wanted["losses"], rel=1e-12)
    assert found.snapshots == wanted["snapshots"]
    items = wanted["items"]
    for prefix, pairs in (("", [(a, b) for a, b, _ in items]), ("persistence_", [(a, c) for a, _, c in items])):
        by_class = _f1_by_hand(pairs)
        assert found.metrics[f"{prefix}accuracy"] == pytest.approx(np.mean([a == b for a, b in pairs]))
        assert found.metrics[f"{prefix}macro_f1"] == pytest.approx(np.mean(list(by_class.values())))
        rarest = by_class.get(wanted["rarest"])
        assert found.metrics[f"{prefix}rarest_f1"] == (None if rarest is None else pytest.approx(rarest))
    assert found.metrics["majority_accuracy"] == pytest.approx(np.mean([a == wanted["common"] for a, _, _ in items]))


def test_only_training_vertices_are_learned_from() -> None:
    of = VERTEX_SPLITS[1]
    task = Classification(graph(classes=classes_of(), vertex_split=of), SPLIT, dtype=torch.float64)
    z = readout(task)
    (gradient,) = torch.autograd.grad(task.loss(z[:5], range(5), slice(0, NODES)).sum(), z)
    touched = gradient.abs().sum(dim=(0, 2)) > 0
    assert touched.any()
    assert not touched[torch.from_numpy(of != 0)].any()


def test_a_snapshot_without_labels_has_loss_zero() -> None:
    task = Classification(graph(classes=classes_of()), Split(range(8), range(8, 9), range(9, 12)))
    losses = task.loss(readout(task).float()[6:8], range(6, 8), slice(0, NODES))
    assert losses[0] > 0
    assert losses[1] == 0


def test_classes_that_never_change_are_held_once() -> None:
    row = classes_of()[0]
    still, moving = graph(classes=row), graph(classes=np.tile(row, (TIMES, 1)))
    one, other = (Classification(data, SPLIT, dtype=torch.float64) for data in (still, moving))
    z = readout(one)
    for part in PARTS:
        assert scored(one, z, part) == scored(other, z, part)
    assert len(one._labels) < len(other._labels)
    assert scored(one, z, "test").metrics["persistence_accuracy"] == 1.0  # known since the first snapshot


def test_classification_refuses_data_without_classes_or_labels() -> None:
    with pytest.raises(UnsupportedError, match=r"no classes; it serves regression, link"):
        Classification(graph(), SPLIT)
    with pytest.raises(UnsupportedError, match="no classes"):
        Classification(graph(classes=np.full(NODES, -1, np.int16)), SPLIT)
    late = classes_of()
    late[:5] = -1
    with pytest.raises(DataError, match="labelled in the training split"):
        Classification(graph(classes=late), SPLIT)


# link prediction


def _samples(data: DynamicGraph, t: int, share: float = 0.1, negatives: int = 1) -> tuple[list, list]:
    found = link_samples(
        EdgeSet(data.following[t]), seed=edge_seed(data.following), t=t, share=share, negatives=negatives
    )
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
                "auc": _brute_auc(scores, labels),
                "average_precision": _brute_average_precision(scores, labels),
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
        EdgeSet(data.following[t]), np.array(sources, np.int32), seed=edge_seed(data.following), t=t, count=count
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
    first = _pairs_asked(_cut())
    assert first == _pairs_asked(_cut(features="degrees"))
    assert first == _pairs_asked(_cut(smoothing_window=4))
    assert first == _pairs_asked(_cut(smoothing_window=2, features="constant"))
    assert all(a != b for a, b in zip(first, _pairs_asked(_cut(edge_life=2)), strict=False))
    windows = graph().following
    later = graph(following=(*windows[:-1], windows[0]))  # other edges, and other draws from the same ones
    assert all(a != b for t, (a, b) in enumerate(zip(wanted, _pairs_asked(later), strict=True)) if t not in EMPTY)


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


@pytest.mark.parametrize(("name", "options"), TASKS, ids=str)
def test_a_snapshot_is_labelled_where_its_loss_counts(name: str, options: dict[str, Any]) -> None:
    task = made(name, **options)
    without = {"regression": (), "classification": (7,), "link": EMPTY}[name]
    assert [t for t in range(TIMES) if not task.labelled(t)] == list(without)


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
