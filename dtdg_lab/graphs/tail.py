"""How heavy the tail of a degree distribution is: the exponent of a power law fitted to the largest degrees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_IN_TAIL = 50  # fewer values say nothing about a tail


@dataclass(frozen=True, slots=True)
class Tail:
    """A power law p(x) ~ x^-exponent for x of at least ``start``, fitted to ``values`` values.

    Attributes:
        exponent: alpha.
        start: the smallest degree of the tail, chosen so that the law fits best.
        values: how many degrees are in the tail.
        distance: largest distance between the distribution of the tail and the law's, 0 (equal) to 1.
    """

    exponent: float
    start: int
    values: int
    distance: float


def fit_tail(histogram: NDArray[np.int64]) -> Tail | None:
    """The power law that fits the tail of a distribution best; None where no tail has 50 values of two sizes.

    Args:
        histogram: shape (largest degree + 1,): how often each degree occurs; degree 0 does not count.

    Source: Clauset, Shalizi, Newman, "Power-law distributions in empirical data" (2009): the estimate of equation 3.7,
    the start by the smallest Kolmogorov-Smirnov distance (section 3.3). The estimate is an approximation, a few per
    cent low for tails that start below 6.
    """
    degrees = np.flatnonzero(histogram[1:]) + 1
    counts = histogram[degrees]
    above = np.cumsum(counts[::-1])[::-1]  # values at least as large as each degree
    starts = np.flatnonzero(above[:-1] >= LEAST_IN_TAIL)
    fits = [_fit_from(degrees[start:], counts[start:]) for start in starts.tolist()]
    return min(fits, key=lambda fit: fit.distance, default=None)


def _fit_from(degrees: NDArray[np.int64], counts: NDArray[np.int64]) -> Tail:
    """The law for a tail given as its distinct degrees, rising, and how often each occurs."""
    total, start = int(counts.sum()), int(degrees[0])
    logs = np.log(degrees / (start - 0.5))
    exponent = 1 + total / float(counts @ logs)
    found = np.cumsum(counts[::-1])[::-1] / total  # share at least as large
    law = np.exp(logs * (1 - exponent)) * ((degrees - 0.5) / degrees) ** (1 - exponent)
    return Tail(exponent, start, total, float(np.abs(found - law).max()))
