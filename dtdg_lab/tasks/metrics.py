"""Metrics: confusion counts, ROC and precision-recall curves, mean reciprocal rank."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def confusion(true: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Return the confusion table (C, C): entry (c, d) counts items of class c predicted as d."""
    counts = np.bincount(true * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.float64)


def accuracy(table: NDArray[np.float64]) -> float | None:
    """Return the share of correct predictions; None without items."""
    total = float(table.sum())
    return float(np.trace(table)) / total if total else None


def f1(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return F1 of each class, (C,): 2 hits / (items of the class + predictions of it); NaN without either."""
    hits, involved = np.diag(table), table.sum(axis=0) + table.sum(axis=1)
    return np.where(involved > 0, 2 * hits / np.maximum(involved, 1), np.nan)


def macro_f1(table: NDArray[np.float64]) -> float | None:
    """Return the mean F1 of the classes that occur or are predicted; None without items."""
    return float(np.nanmean(f1(table))) if table.sum() else None


def f1_of(table: NDArray[np.float64], kind: int) -> float | None:
    """Return F1 of one class; None if it neither occurs nor is predicted."""
    value = float(f1(table)[kind])
    return None if np.isnan(value) else value


def auc_and_average_precision(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return the area under the ROC curve, and average precision, with ties.

    The area is the chance that a positive scores above a negative, ties counting half. Average precision is the sum
    over thresholds, from the highest score down, of the gain in recall times the precision there; equal scores are one
    threshold, and nothing is interpolated.

    Args:
        scores: (n,).
        labels: (n,), True for positives; at least one of each kind.

    Raises:
        ValueError: one kind is missing: neither number is defined.
    """
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        raise ValueError(f"{positives} positives and {negatives} negatives: both are needed")
    values, level, count = torch.unique(scores, return_inverse=True, return_counts=True)
    true = torch.bincount(level[labels], minlength=len(values)).double()
    false = count - true
    below = false.cumsum(0) - false
    area = (true * (below + false / 2)).sum() / (positives * negatives)
    hits = true.flip(0).cumsum(0)
    precision = hits / count.flip(0).cumsum(0)
    average = (true.flip(0) * precision).sum() / positives
    return float(area), float(average)


_BLOCK = 1 << 22  # scores compared at once, to bound memory


def reciprocal_ranks(positive: Tensor, candidates: Tensor, row: Tensor) -> Tensor:
    """Return 1 / rank of each positive among itself and a row of candidates, (P,).

    The rank is 1 + (candidates above) + (candidates with the same score) / 2: the mean of the best and the worst rank
    that ties allow. Where every candidate is absent the rank is 1.

    Args:
        positive: (P,) scores.
        candidates: (U, K) scores; minus infinity where a row has fewer candidates.
        row: (P,), int64: which row each positive is ranked against.

    Source: TGB 2023, evaluator of link prediction (ties).
    """
    step = max(1, _BLOCK // max(candidates.shape[1], 1))
    ranks = []
    for i in range(0, len(positive), step):
        scores, rivals = positive[i : i + step, None], candidates[row[i : i + step]]
        above, equal = (rivals > scores).sum(dim=1), (rivals == scores).sum(dim=1)
        ranks.append(1 + above.double() + equal.double() / 2)
    return 1 / torch.cat(ranks) if ranks else positive.new_zeros(0, dtype=torch.float64)
