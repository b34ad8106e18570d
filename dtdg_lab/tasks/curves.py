"""Area under the ROC curve and average precision of scored pairs, with ties."""

from __future__ import annotations

import torch
from torch import Tensor


def auc_and_average_precision(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """How well scores tell positives from negatives, whatever the threshold.

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
    found = true.flip(0).cumsum(0)
    precision = found / count.flip(0).cumsum(0)
    average = (true.flip(0) * precision).sum() / positives
    return float(area), float(average)
