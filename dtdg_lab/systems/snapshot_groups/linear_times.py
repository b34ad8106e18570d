"""Seconds of a snapshot group as a linear function of nodes and edges of its snapshots, fitted to some groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from dtdg_lab.core.errors import PlanError

Vector = NDArray[np.float64]
_LEAST = 4  # minimum number of groups: three unknowns, and one group to check them
_FOLDS = 5
_ROUNDS = 60
_STEADY = 1e-10  # relative change of the coefficients at which reweighting stops
_HUBER = 1.345  # larger residuals, in units of the spread, get a constant influence
_SPREAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_FINEST = 1e-6  # relative spread below which times are treated as exact
_LOWEST = 1e-3  # lower limit of the time that weights a group, relative to the median time


@dataclass(frozen=True, slots=True)
class LinearTimes:
    """Linear model t = a1 nodes + a2 edges + a3 of a snapshot; a group takes the sum over its snapshots.

    Attributes:
        a1: seconds per node.
        a2: seconds per edge.
        a3: seconds per snapshot.
        mean_error: mean of |predicted - measured| / measured over groups that were held out of the fit.
        max_error: the largest of these errors.
        groups: number of groups in the fit.

    References: DyGNeX appendix H, equation 31 (error below 5 %).
    """

    a1: float
    a2: float
    a3: float
    mean_error: float
    max_error: float
    groups: int

    def predict(self, nodes: ArrayLike, edges: ArrayLike, snapshots: ArrayLike = 1.0) -> Vector:
        """Return the (K,) seconds of each group.

        Args:
            nodes: (K,) nodes, summed over the snapshots of a group.
            edges: (K,) edges, likewise.
            snapshots: (K,) snapshots per group, or one number for all.

        Raises:
            PlanError: the vectors differ in length, or contain invalid sizes.
        """
        return _sizes(nodes, edges, snapshots) @ np.array([self.a1, self.a2, self.a3])

    def errors(self, nodes: ArrayLike, edges: ArrayLike, times_s: ArrayLike, snapshots: ArrayLike = 1.0) -> Vector:
        """Return the (K,) relative errors of groups outside the fit; arguments as in :func:`fit`."""
        times = _seconds(times_s)
        return np.abs(self.predict(nodes, edges, snapshots) - times) / times

    def to_dict(self) -> dict[str, float]:
        """Return plain numbers, as in a run's event ``schedule``."""
        names = ("a1", "a2", "a3", "mean_error", "max_error")
        return {name: float(getattr(self, name)) for name in names}


def fit(nodes: ArrayLike, edges: ArrayLike, times_s: ArrayLike, snapshots: ArrayLike = 1.0) -> LinearTimes:
    """Fit the model to measured groups, by non-negative least squares of the relative residuals.

    Residuals are relative, since the noise of times grows with them. From a dozen groups on, residuals far beyond the
    usual spread have limited influence (Huber), so that a single bad timing does not distort the model. With fewer
    groups an outlier cannot be identified. Errors are those of held-out groups: the model is fitted five more times,
    each time without a fifth of the groups, which it then predicts.

    Args:
        nodes: (K,) nodes, summed over the snapshots of a group.
        edges: (K,) edges, likewise.
        times_s: (K,) measured seconds of each group.
        snapshots: (K,) snapshots per group, or one number for all.

    Raises:
        PlanError: fewer than four groups, vectors of different lengths, times that are not positive, or sizes that are
            negative or all zero.

    References: DyGNeX appendix H.
    Differs from the paper: the paper specifies neither the fit nor the mean of its error; both are ours. If a graph's
    nodes never change, a1 and a3 are not identifiable: one of them takes the sum, and predictions are the same.
    """
    sizes, times = _sizes(nodes, edges, snapshots), _seconds(times_s)
    if len(sizes) != len(times):
        raise PlanError(f"{len(times)} times do not match {len(sizes)} groups. Give each group one time.")
    if len(times) < _LEAST:
        raise PlanError(f"{len(times)} groups are too few for a linear model. Profile at least {_LEAST} groups.")
    if not sizes.any():
        raise PlanError("groups without nodes, edges and snapshots cannot explain their times.")
    folds = min(_FOLDS, len(times))
    errors = np.empty(len(times))
    for fold in range(folds):
        held_out = np.arange(len(times)) % folds == fold
        predicted = sizes[held_out] @ _robust(sizes[~held_out], times[~held_out])
        errors[held_out] = np.abs(predicted - times[held_out]) / times[held_out]
    a1, a2, a3 = _robust(sizes, times)
    return LinearTimes(float(a1), float(a2), float(a3), float(errors.mean()), float(errors.max()), len(times))


def _sizes(nodes: ArrayLike, edges: ArrayLike, snapshots: ArrayLike) -> Vector:
    """Return the (K, 3) nodes, edges and snapshots of each group."""
    columns = [np.atleast_1d(np.asarray(column, dtype=np.float64)) for column in (nodes, edges, snapshots)]
    groups = len(columns[0])
    if len(columns[2]) == 1:
        columns[2] = np.full(groups, columns[2][0])
    if any(column.shape != (groups,) for column in columns):
        raise PlanError(
            f"sizes of groups have shapes {', '.join(str(column.shape) for column in columns)}. Give (K,) each."
        )
    sizes = np.column_stack(columns)
    if not np.isfinite(sizes).all() or (sizes < 0).any():
        raise PlanError("nodes, edges and snapshots of a group must be numbers of at least 0.")
    return sizes


def _seconds(times_s: ArrayLike) -> Vector:
    times = np.atleast_1d(np.asarray(times_s, dtype=np.float64))
    if times.ndim != 1 or not np.isfinite(times).all() or (times <= 0).any():
        raise PlanError("measured group times must be finite and above 0 s. Leave out groups that were not timed.")
    return times


def _robust(sizes: Vector, times: Vector) -> Vector:
    """Return the (3,) coefficients by iteratively reweighted least squares.

    Residuals are relative to predicted, not measured, times: a group timed far too short would dominate otherwise.
    """
    scale = sizes.max(axis=0)
    scale[scale == 0] = 1.0
    rows = sizes / scale
    typical = float(np.median(times))
    level, weights = np.full(len(times), typical), np.ones(len(times))
    coefficients = _non_negative(rows / typical, times / typical, weights)
    for _ in range(_ROUNDS):
        residuals = np.abs(rows @ coefficients - times) / level
        edge = _HUBER * max(_SPREAD * float(np.median(residuals)), _FINEST)
        weights = edge / np.maximum(residuals, edge)
        level = np.maximum(rows @ coefficients, _LOWEST * typical)
        previous, coefficients = (coefficients, _non_negative(rows / level[:, None], times / level, weights))
        if np.abs(coefficients - previous).max() <= _STEADY * coefficients.max():
            break
    return coefficients / scale


def _non_negative(rows: Vector, target: Vector, weights: Vector) -> Vector:
    """Solve the weighted least squares of ``rows @ x = target`` with x >= 0."""
    root = np.sqrt(weights)
    solution: Vector = nnls(rows * root[:, None], target * root)[0]
    return solution
