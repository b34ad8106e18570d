"""Least squares with few parameters, and robust straight lines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_SMALL = 1e-12
_LINE_ROUNDS = 50
_BAD = 2.0


def least_squares(residuals: Callable[[Vector], Vector], start: Vector) -> Vector:
    """Return parameters (K,) near ``start`` with the least sum of squares of ``residuals(parameters)``, (M,).

    Deterministic, and never worse than the start.

    References: the trust region of ``scipy.optimize.least_squares``.
    """
    from scipy.optimize import least_squares as solve

    return np.asarray(solve(residuals, np.array(start, dtype=np.float64)).x)


def softened(residuals: Vector) -> Vector:
    """Return residuals whose squares grow slowly where they are large, so that a single bad cell has limited influence.

    References: Cauchy's (Lorentz') loss, at twice the noise.
    """
    return np.asarray(np.sign(residuals) * _BAD * np.sqrt(np.log1p((residuals / _BAD) ** 2)))


def relative_line(x: Vector, y: Vector) -> tuple[float, float]:
    """Fit intercept and slope, neither negative, by the least mean of |a + b x - y| / y: half of the points lie above.

    Args:
        x: (M,) 0 or more.
        y: (M,) above 0.
    """
    weights = 1 / y
    intercept, slope = 0.0, 0.0
    for _ in range(_LINE_ROUNDS):
        intercept, slope = _weighted_line(x, y, weights)
        off = np.abs(intercept + slope * x - y) / y
        weights = 1 / y / np.sqrt(np.maximum(off, 1e-3))
    return intercept, slope


def _weighted_line(x: Vector, y: Vector, weights: Vector) -> tuple[float, float]:
    columns = np.stack([weights, weights * x], axis=1)
    scale = np.maximum(np.linalg.norm(columns, axis=0), _SMALL)
    solved = np.linalg.lstsq(columns / scale, weights * y, rcond=None)[0] / scale
    if solved[0] < 0 or solved[1] < 0:
        only = [max(float(column @ (weights * y)) / float(column @ column or 1.0), 0.0) for column in columns.T]
        residuals = [float(np.sum((weights * y - only[index] * columns[:, index]) ** 2)) for index in (0, 1)]
        return (only[0], 0.0) if residuals[0] <= residuals[1] else (0.0, only[1])
    return float(solved[0]), float(solved[1])
