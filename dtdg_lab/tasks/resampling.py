"""Bootstrap of link metrics over pairs: how far a number would move if other pairs had been drawn."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
LEVEL = 0.95  # of the interval
MOST_DRAWN = 1024  # of positives, or of negatives, in one resample
LEAST_POSITIVES = 10  # fewer say nothing about how far a number would move
_BLOCK = 1 << 20  # pairs drawn at once

_Rows = NDArray[np.float64]


def resampled(
    scores: NDArray[np.float64], positives: int, reciprocal: NDArray[np.float64], draws: np.random.Generator
) -> _Rows:
    """Accuracy, AUC, average precision and MRR of resamples of one snapshot's pairs: (4, RESAMPLES).

    Positives and negatives are drawn with replacement apart from each other, as many as there are, so that their share
    stays; ranked positives likewise. Of more than ``MOST_DRAWN`` of a kind, a share f of both kinds is drawn, and what
    the resamples are off is multiplied by sqrt(f): the bootstrap of m out of n. AUC and average precision are 0 where
    there is no negative, MRR where nothing is ranked.

    Args:
        scores: (P + Q,), of the positives first; above 0 means an edge.
        positives: P, at least 1.
        reciprocal: reciprocal ranks of the positives that are ranked.
        draws: the stream.

    Source: Efron 1979 (bootstrap); Bickel, Goetze, van Zwet 1997 (m out of n).
    """
    level = np.unique(scores, return_inverse=True)[1].reshape(-1).astype(np.int64)
    right = np.concatenate([scores[:positives] > 0, scores[positives:] <= 0])
    found = np.zeros((4, RESAMPLES))
    negatives = len(scores) - positives
    share = min(1.0, MOST_DRAWN / max(positives, negatives, 1))
    drawn = [max(1, round(count * share)) if count else 0 for count in (positives, negatives)]
    step = max(1, _BLOCK // sum(drawn))
    for first in range(0, RESAMPLES, step):
        rows = min(step, RESAMPLES - first)
        own = draws.integers(0, positives, (rows, drawn[0]))
        other = positives + draws.integers(0, max(negatives, 1), (rows, drawn[1]))
        where = slice(first, first + rows)
        found[0, where] = np.concatenate([right[own], right[other]], axis=1).mean(axis=1)
        if negatives:
            found[1, where], found[2, where] = _area_and_precision(level[own], level[other])
    point = np.zeros(4)
    point[0] = right.mean()
    if negatives:
        whole = _area_and_precision(level[None, :positives], level[None, positives:])
        point[1], point[2] = whole[0][0], whole[1][0]
    found[:3] = point[:3, None] + math.sqrt(share) * (found[:3] - point[:3, None])
    if len(reciprocal):
        few = min(len(reciprocal), MOST_DRAWN)
        means = reciprocal[draws.integers(0, len(reciprocal), (RESAMPLES, few))].mean(axis=1)
        centre = reciprocal.mean()
        found[3] = centre + math.sqrt(few / len(reciprocal)) * (means - centre)
    return np.clip(found, 0.0, 1.0)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The percentile interval of ``LEVEL`` of resampled numbers."""
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def _area_and_precision(positive: NDArray[np.int64], negative: NDArray[np.int64]) -> tuple[_Rows, _Rows]:
    """AUC and average precision of every row of levels, (S, P) and (S, Q), ties as in :mod:`dtdg_lab.tasks.metrics`."""
    rows, highest = len(positive), int(max(positive.max(), negative.max())) + 1
    shift = highest * np.arange(rows, dtype=np.int64)[:, None]
    asked = (positive + shift).ravel()

    def below(of: NDArray[np.int64], side: str) -> NDArray[np.float64]:
        """How many of a row's levels are below each positive, or not above it: (S, P)."""
        ordered = np.sort((of + shift).ravel())
        place = np.searchsorted(ordered, asked, side=side)  # type: ignore[call-overload]
        return place.reshape(positive.shape) - of.shape[1] * np.arange(rows)[:, None].astype(np.float64)

    less, not_more = below(negative, "left"), below(negative, "right")
    area = ((less + not_more) / 2).mean(axis=1) / negative.shape[1]
    true = positive.shape[1] - below(positive, "left")
    false = negative.shape[1] - less
    return area, (true / (true + false)).mean(axis=1)
