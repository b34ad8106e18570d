"""Reciprocal ranks of positives among candidates."""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 1 << 22  # scores compared at once, so that little memory is needed beside them


def reciprocal_ranks(positive: Tensor, candidates: Tensor, row: Tensor) -> Tensor:
    """1 / rank of each positive among itself and a row of candidates; (P,).

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
        own, others = positive[i : i + step, None], candidates[row[i : i + step]]
        above, equal = (others > own).sum(dim=1), (others == own).sum(dim=1)
        ranks.append(1 + above.double() + equal.double() / 2)
    return 1 / torch.cat(ranks) if ranks else positive.new_zeros(0, dtype=torch.float64)
