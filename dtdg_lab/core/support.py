"""Sample size and confidence intervals of link metrics: their names in the metrics of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PAIRS, RANKED = "pairs", "ranked"  # node pairs scored in the split; positives that were ranked
LOW, HIGH = "_low", "_high"  # suffixes of a metric's bootstrap interval
FEW_PAIRS = 100  # below it a link metric is unreliable


def is_score(name: str) -> bool:
    """Whether a metric is a score, not a sample size or an interval bound."""
    return name not in (PAIRS, RANKED) and not name.endswith((LOW, HIGH))


def interval_of(metrics: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """The 95 % interval of a metric; None where there is none."""
    low, high = metrics.get(name + LOW), metrics.get(name + HIGH)
    return None if low is None or high is None else (float(low), float(high))


def few_pairs(metrics: Mapping[str, Any] | None, part: str | None) -> str:
    """A warning if a split's link metrics rest on fewer than ``FEW_PAIRS`` pairs; empty otherwise."""
    pairs = (metrics or {}).get(PAIRS)
    if pairs is None or pairs >= FEW_PAIRS:
        return ""
    plural = "pair" if pairs == 1 else "pairs"
    return (
        f"The link metrics of the {part} split rest on {pairs:.0f} {plural}, fewer than {FEW_PAIRS}, and are "
        "unreliable. Raise link_share or negatives, use longer intervals, or choose another protocol."
    )
