"""Classification against its definition in loops over nodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.core.errors import DataError, UnsupportedError
from dtdg_lab.graphs.split import Split
from dtdg_lab.tasks import classification
from dtdg_lab.tasks.classification import Classification
from tests.labelled_graphs import NODES, PARTS, SPLIT, TIMES, classes_of, graph, readout, scored


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


def test_the_numbers_of_labels_are_copied_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Classification(graph(classes=classes_of()), SPLIT)
    z, snapshots, uploads = readout(task).float(), PARTS["train"], list[Any]()
    task.prepare(snapshots)
    monkeypatch.setattr(classification, "upload", lambda values, device: uploads.append(values) or values)
    first, again = (task.loss(z[list(snapshots)], snapshots, slice(0, NODES)) for _ in range(2))
    assert torch.equal(first, again)
    assert len(uploads) == 1
    task.loss(z[list(snapshots[:1])].double(), snapshots[:1], slice(0, NODES))
    assert len(uploads) == 2, "other snapshots and another type"


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
