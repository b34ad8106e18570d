"""Medians and spreads over seeds, and which contestant may be called the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

RULE = (
    "Bold is the best median where the spread over its seeds, from the least to the most, does not touch that of any "
    "other contestant; with one seed nothing is bold, nor is a contestant that lost one to a failure."
)


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity over the seeds of one contestant.

    Attributes:
        middle: the median; infinite where half of the seeds never got there; None where no seed knows it.
        low, high: the least and the most of the seeds that know it.
        count: seeds that count; those that never got there among them.
        missed: seeds that never got there.
    """

    middle: float | None
    low: float | None
    high: float | None
    count: int
    missed: int = 0


def spread(values: Sequence[float | None]) -> Spread:
    """The spread of one value for each seed: None is unknown and left out, infinite never got there."""
    known = sorted(float(value) for value in values if value is not None and not math.isnan(value))
    if not known:
        return Spread(None, None, None, 0)
    finite = [value for value in known if math.isfinite(value)]
    low, high = (finite[0], finite[-1]) if finite else (None, None)
    return Spread(median(known), low, high, len(known), len(known) - len(finite))


def best(spreads: Mapping[str, Spread], *, high_is_good: bool = False) -> str | None:
    """The contestant whose seeds all beat all seeds of every other one; None where there is none.

    One seed shows no spread, so that whoever has fewer than two is neither best nor beaten. A contestant of whom
    nothing is known is left out; a seed that never got there beats nobody.

    Args:
        spreads: by contestant.
        high_is_good: whether more is better.
    """
    known = {label: each for label, each in spreads.items() if each.count}
    if len(known) < 2 or any(each.count < 2 for each in known.values()):
        return None
    ends = {label: _ends(each, high_is_good=high_is_good) for label, each in known.items()}
    first = min(ends, key=lambda label: ends[label][1])
    others = [good for label, (good, _) in ends.items() if label != first]
    worst = ends[first][1]
    return first if math.isfinite(worst) and all(worst < good for good in others) else None


def _ends(each: Spread, *, high_is_good: bool) -> tuple[float, float]:
    """The best and the worst seed, as numbers of which less is better."""
    if each.low is None or each.high is None:
        return math.inf, math.inf
    good, bad = (-each.high, -each.low) if high_is_good else (each.low, each.high)
    return good, math.inf if each.missed else bad
