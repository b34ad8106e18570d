"""Names of link metrics in an evaluation's row: sample sizes, and bounds of confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PAIRS, RANKED = "pairs", "ranked"  # node pairs scored in the split; positives that were ranked
LOW, HIGH = "_low", "_high"  # suffixes of a metric's bootstrap interval
FEW_PAIRS = 100  # below it a link metric is unreliable


def is_score(name: str) -> bool:
    """Return True if a metric is a score, not a sample size or a bound of an interval."""
    return name not in (PAIRS, RANKED) and not name.endswith((LOW, HIGH))


def interval_of(metrics: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric; None if there is none."""
    low, high = metrics.get(name + LOW), metrics.get(name + HIGH)
    return None if low is None or high is None else (float(low), float(high))


def few_pairs(metrics: Mapping[str, Any] | None, split: str | None) -> str:
    """Return a warning if a split's link metrics rest on fewer than ``FEW_PAIRS`` pairs; else an empty text."""
    pairs = (metrics or {}).get(PAIRS)
    if pairs is None or pairs >= FEW_PAIRS:
        return ""
    plural = "pair" if pairs == 1 else "pairs"
    return (
        f"The link metrics of the {split} split rest on {pairs:.0f} {plural}, fewer than {FEW_PAIRS}, and are "
        "unreliable. Raise link_share or negatives, use longer intervals, or choose another protocol."
    )
