"""Metrics: confusion counts, ROC and precision-recall curves, mean reciprocal rank, and bootstraps over pairs."""

from __future__ import annotations

import math

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

    The area is the probability that a positive scores above a negative, with ties counting half. Average precision is
    the sum over thresholds, from the highest score down, of the gain in recall times the precision; equal scores are
    one threshold, without interpolation.

    Args:
        scores: (n,).
        labels: (n,), True for positives; at least one of each kind.

    Raises:
        ValueError: there are no positives or no negatives.
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
    that ties allow. Without candidates the rank is 1.

    Args:
        positive: (P,) scores.
        candidates: (U, K) scores; minus infinity where a row has fewer candidates.
        row: (P,), int64: row of candidates of each positive.

    Source: TGB 2023, evaluator of link prediction (ties).
    """
    step = max(1, _BLOCK // max(candidates.shape[1], 1))
    ranks = []
    for i in range(0, len(positive), step):
        scores, rivals = positive[i : i + step, None], candidates[row[i : i + step]]
        above, equal = (rivals > scores).sum(dim=1), (rivals == scores).sum(dim=1)
        ranks.append(1 + above.double() + equal.double() / 2)
    return 1 / torch.cat(ranks) if ranks else positive.new_zeros(0, dtype=torch.float64)


RESAMPLES = 1000
LEVEL = 0.95  # confidence level of the interval
MOST_DRAWN = 1024  # most positives, or negatives, in one resample
LEAST_POSITIVES = 10  # fewest positives for an interval
_DRAWN_AT_ONCE = 1 << 20  # pairs drawn at once

_Rows = NDArray[np.float64]


def resampled(
    scores: NDArray[np.float64], positives: int, reciprocal: NDArray[np.float64], draws: np.random.Generator
) -> _Rows:
    """Return accuracy, AUC, average precision and MRR of resamples of one snapshot's pairs: (4, RESAMPLES).

    Positives, negatives and ranked positives are drawn separately with replacement, each as many as there are. If a
    kind has more than ``MOST_DRAWN``, a share f of both kinds is drawn, and deviations are multiplied by sqrt(f): the
    m-out-of-n bootstrap. AUC and average precision are 0 without negatives, MRR without ranked positives.

    Args:
        scores: (P + Q,), positives first; above 0 predicts an edge.
        positives: P, at least 1.
        reciprocal: reciprocal ranks of the ranked positives.
        draws: the random stream.

    Source: Efron 1979 (bootstrap); Bickel, Goetze, van Zwet 1997 (m out of n).
    """
    level = np.unique(scores, return_inverse=True)[1].reshape(-1).astype(np.int64)
    right = np.concatenate([scores[:positives] > 0, scores[positives:] <= 0])
    metrics = np.zeros((4, RESAMPLES))
    negatives = len(scores) - positives
    share = min(1.0, MOST_DRAWN / max(positives, negatives, 1))
    sizes = [max(1, round(count * share)) if count else 0 for count in (positives, negatives)]
    step = max(1, _DRAWN_AT_ONCE // sum(sizes))
    for first in range(0, RESAMPLES, step):
        rows = min(step, RESAMPLES - first)
        positive = draws.integers(0, positives, (rows, sizes[0]))
        negative = positives + draws.integers(0, max(negatives, 1), (rows, sizes[1]))
        block = slice(first, first + rows)
        metrics[0, block] = np.concatenate([right[positive], right[negative]], axis=1).mean(axis=1)
        if negatives:
            metrics[1, block], metrics[2, block] = _area_and_precision(level[positive], level[negative])
    point = np.zeros(4)
    point[0] = right.mean()
    if negatives:
        unsampled = _area_and_precision(level[None, :positives], level[None, positives:])
        point[1], point[2] = unsampled[0][0], unsampled[1][0]
    metrics[:3] = point[:3, None] + math.sqrt(share) * (metrics[:3] - point[:3, None])
    if len(reciprocal):
        few = min(len(reciprocal), MOST_DRAWN)
        means = reciprocal[draws.integers(0, len(reciprocal), (RESAMPLES, few))].mean(axis=1)
        centre = reciprocal.mean()
        metrics[3] = centre + math.sqrt(few / len(reciprocal)) * (means - centre)
    return np.clip(metrics, 0.0, 1.0)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentile interval of resampled numbers at ``LEVEL``."""
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def _area_and_precision(positive: NDArray[np.int64], negative: NDArray[np.int64]) -> tuple[_Rows, _Rows]:
    """Return AUC and average precision of each row of score levels, (S, P) and (S, Q), with ties."""
    rows, levels = len(positive), int(max(positive.max(), negative.max())) + 1
    shift = levels * np.arange(rows, dtype=np.int64)[:, None]
    positives, negatives = (
        np.bincount((level + shift).ravel(), minlength=rows * levels).reshape(rows, levels)
        for level in (positive, negative)
    )
    below = np.cumsum(negatives, axis=1) - negatives  # negatives below each level, (S, levels)
    area = (positives * (below + negatives / 2)).sum(axis=1) / (positive.shape[1] * negative.shape[1])
    true = positive.shape[1] - np.cumsum(positives, axis=1) + positives
    above = true + negative.shape[1] - below
    precision = np.divide(positives * true, above, out=np.zeros(positives.shape), where=positives > 0)
    return area, precision.sum(axis=1) / positive.shape[1]
