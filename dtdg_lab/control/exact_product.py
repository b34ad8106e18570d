"""Products of matrices whose bits are the same on every machine."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

BITS = 21  # two factors of 21 bits, summed over up to 2**10 terms, stay below the 2**53 that float64 counts exactly
TERMS = 1 << 10
LEAST = -900  # exponents below are taken for this one: powers of two beyond would not be finite

Array = NDArray[np.float64]


class FixedPoint:
    """A matrix rounded to multiples of one power of two, 21 bits below its largest entry.

    Products of two such matrices are exact in float64, and so the same in whatever order a BLAS adds. That is what lets
    a policy be learned again from its seed, with the same bits, on another processor.

    Args:
        values: (m, n), any real numbers.

    Attributes:
        whole: (m, n) whole numbers, ``values`` over the unit.
        unit: exponent of the power of two.
    """

    __slots__ = ("unit", "whole")

    def __init__(self, values: Array) -> None:
        largest = float(np.abs(values).max(initial=0.0))
        self.unit = max(math.frexp(largest)[1], LEAST) - BITS
        self.whole = np.rint(values * 2.0**-self.unit)

    def __matmul__(self, other: FixedPoint) -> Array:
        """(m, n) by (n, k) -> (m, k), exact; n is 1,024 at most."""
        assert self.whole.shape[1] <= TERMS
        product: Array = self.whole @ other.whole
        return product * 2.0 ** (self.unit + other.unit)

    @property
    def turned(self) -> FixedPoint:
        """Rows as columns."""
        found = object.__new__(FixedPoint)
        found.unit, found.whole = self.unit, self.whole.T
        return found
