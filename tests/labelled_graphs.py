"""A labelled graph, tasks on it, and areas under curves by their definitions."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.tasks.base import Scores, Task
from dtdg_lab.tasks.classification import Classification
from dtdg_lab.tasks.link_prediction import LinkPrediction
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


TASKS: list[tuple[str, dict[str, Any]]] = [
    ("regression", {}),
    ("classification", {}),
    ("link", {}),
    ("link", {"link_head": "dot", "hidden": 4}),
]


def task_of(name: str, **options: Any) -> Task:
    how: dict[str, Any] = {"dtype": torch.float64, **options}
    if name == "regression":
        return Regression(graph(), SPLIT, **how)
    if name == "classification":
        return Classification(graph(classes=classes_of()), SPLIT, **how)
    return LinkPrediction(graph(), SPLIT, **how)


def brute_auc(scores: list[float], labels: list[bool]) -> float:
    positive = [s for s, label in zip(scores, labels, strict=True) if label]
    negative = [s for s, label in zip(scores, labels, strict=True) if not label]
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    return wins / (len(positive) * len(negative))


def brute_average_precision(scores: list[float], labels: list[bool]) -> float:
    total, before, area = sum(labels), 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        taken = [label for s, label in zip(scores, labels, strict=True) if s >= threshold]
        recall = sum(taken) / total
        area += (recall - before) * sum(taken) / len(taken)
        before = recall
    return area
