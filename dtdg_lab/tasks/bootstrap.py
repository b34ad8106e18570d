"""Bootstrap of link metrics over pairs: their variation under other draws of pairs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
LEVEL = 0.95  # of the interval
MOST_DRAWN = 1024  # of positives, or of negatives, in one resample
LEAST_POSITIVES = 10  # fewer give no interval
_DRAWN_AT_ONCE = 1 << 20  # pairs drawn at once

_Rows = NDArray[np.float64]


def resampled(
    scores: NDArray[np.float64], positives: int, reciprocal: NDArray[np.float64], draws: np.random.Generator
) -> _Rows:
    """Return accuracy, AUC, average precision and MRR of resamples of one snapshot's pairs: (4, RESAMPLES).

    Positives and negatives are drawn separately with replacement, as many as there are, so that their shares stay;
    ranked positives likewise. Of more than ``MOST_DRAWN`` of a kind, a share f of both kinds is drawn, and deviations
    are multiplied by sqrt(f): the bootstrap of m out of n. AUC and average precision are 0 without negatives, MRR
    without ranked positives.

    Args:
        scores: (P + Q,), of the positives first; above 0 means an edge.
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
    """Return the percentile interval of ``LEVEL`` of resampled numbers."""
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def _area_and_precision(positive: NDArray[np.int64], negative: NDArray[np.int64]) -> tuple[_Rows, _Rows]:
    """Return AUC and average precision of rows of levels, (S, P) and (S, Q), with ties."""
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
