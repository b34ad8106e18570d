"""Seconds of a snapshot group from the vertices and edges of its snapshots: a linear model fitted to a few of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import SnapshotGroups

Vector = NDArray[np.float64]
_LEAST = 4  # groups: three unknowns, and one that checks them
_FOLDS = 5
_ROUNDS = 60
_STEADY = 1e-10  # relative change of the coefficients at which reweighting ends
_HUBER = 1.345  # of the spread: beyond it a residual pulls no harder
_SPREAD = 1.4826  # of a normal distribution over its median distance from zero
_FINEST = 1e-6  # relative spread below which times are as good as exact
_LOWEST = 1e-3  # of the median time: no group is weighed as if it took less


@dataclass(frozen=True, slots=True)
class LinearTimes:
    """t = a1 nodes + a2 edges + a3 for each snapshot; a group takes the sum over its snapshots.

    Attributes:
        a1: seconds a vertex.
        a2: seconds an edge.
        a3: seconds a snapshot, whatever its size.
        mean_error: mean of |predicted - measured| / measured over groups that were held out of the fit.
        max_error: the largest of them.
        groups: that the model was fitted to.

    References: DyGNeX appendix H, equation 31 (error below 5 %).
    """

    a1: float
    a2: float
    a3: float
    mean_error: float
    max_error: float
    groups: int

    def predict(self, nodes: ArrayLike, edges: ArrayLike, snapshots: ArrayLike = 1.0) -> Vector:
        """Seconds of each group, (K,).

        Args:
            nodes: (K,) vertices, summed over the snapshots of a group.
            edges: (K,) edges, likewise.
            snapshots: (K,) how many snapshots it holds, or one number for all.

        Raises:
            PlanError: the vectors do not fit, or hold what is no size.
        """
        return _sizes(nodes, edges, snapshots) @ np.array([self.a1, self.a2, self.a3])

    def errors(self, nodes: ArrayLike, edges: ArrayLike, times_s: ArrayLike, snapshots: ArrayLike = 1.0) -> Vector:
        """|predicted - measured| / measured of groups that were not fitted, (K,); arguments as of :func:`fit`."""
        times = _seconds(times_s)
        return _relative(_sizes(nodes, edges, snapshots), times, np.array([self.a1, self.a2, self.a3]))

    def told(self) -> dict[str, float]:
        """Plain numbers, as the event ``schedule`` of a run has them."""
        names = ("a1", "a2", "a3", "mean_error", "max_error")
        return {name: float(getattr(self, name)) for name in names}


def fit(nodes: ArrayLike, edges: ArrayLike, times_s: ArrayLike, snapshots: ArrayLike = 1.0) -> LinearTimes:
    """Fit the model to measured groups, by non-negative least squares of the relative residuals.

    Relative, since noise of times grows with them; and a residual far beyond the usual spread pulls no harder than one
    at its edge (Huber), so that one group timed in a bad moment does not bend the model: from a dozen groups on, since
    among fewer it cannot be told from the rest. Errors are those of groups held out: the model is fitted five times
    more, each time without a fifth of the groups, which it then predicts.

    Args:
        nodes: (K,) vertices, summed over the snapshots of a group.
        edges: (K,) edges, likewise.
        times_s: (K,) measured seconds of each group.
        snapshots: (K,) how many snapshots it holds, or one number for all.

    Raises:
        PlanError: fewer than four groups, vectors that do not fit, times that are not positive, or sizes that are
            negative or all zero.

    References: DyGNeX appendix H.
    Differs from the paper: it says neither how it fits nor what its error is a mean of; both are ours. In a graph whose
    vertices never change a1 and a3 cannot be told apart: one of them takes all, and predictions are the same.
    """
    sizes, times = _sizes(nodes, edges, snapshots), _seconds(times_s)
    if len(sizes) != len(times):
        raise PlanError(f"{len(times)} times for {len(sizes)} groups: give each group one time.")
    if len(times) < _LEAST:
        raise PlanError(f"a linear model of {len(times)} groups: {_LEAST} or more are needed. Profile more groups.")
    if not sizes.any():
        raise PlanError("groups without vertices, edges and snapshots tell nothing of their times.")
    folds = min(_FOLDS, len(times))
    errors = np.empty(len(times))
    for fold in range(folds):
        held_out = np.arange(len(times)) % folds == fold
        found = _robust(sizes[~held_out], times[~held_out])
        errors[held_out] = _relative(sizes[held_out], times[held_out], found)
    a1, a2, a3 = _robust(sizes, times)
    return LinearTimes(float(a1), float(a2), float(a3), float(errors.mean()), float(errors.max()), len(times))


def group_sums(groups: SnapshotGroups, values: ArrayLike) -> Vector:
    """What a number a snapshot, (T,), amounts to in each group: (K,) sums.

    Raises:
        PlanError: a group reaches beyond the last snapshot.
    """
    running = np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])
    if int(groups.stop.max()) >= len(running):
        raise PlanError(f"a group ends at snapshot {groups.stop.max() - 1}; there are {len(running) - 1} snapshots.")
    return running[groups.stop] - running[groups.start]


def _sizes(nodes: ArrayLike, edges: ArrayLike, snapshots: ArrayLike) -> Vector:
    """(K, 3): vertices, edges and snapshots of each group."""
    columns = [np.atleast_1d(np.asarray(given, dtype=np.float64)) for given in (nodes, edges, snapshots)]
    groups = len(columns[0])
    if len(columns[2]) == 1:
        columns[2] = np.full(groups, columns[2][0])
    if any(column.shape != (groups,) for column in columns):
        raise PlanError(f"sizes of groups have shapes {', '.join(str(column.shape) for column in columns)}.")
    sizes = np.column_stack(columns)
    if not np.isfinite(sizes).all() or (sizes < 0).any():
        raise PlanError("vertices, edges and snapshots of a group must be numbers of at least 0.")
    return sizes


def _seconds(times_s: ArrayLike) -> Vector:
    times = np.atleast_1d(np.asarray(times_s, dtype=np.float64))
    if times.ndim != 1 or not np.isfinite(times).all() or (times <= 0).any():
        raise PlanError("measured times of groups must be finite and above 0 s. Leave out groups that were not timed.")
    return times


def _relative(sizes: Vector, times: Vector, found: Vector) -> Vector:
    return np.abs(sizes @ found - times) / times


def _robust(sizes: Vector, times: Vector) -> Vector:
    """(3,) coefficients: least squares, repeated with weights from the residuals until they are steady.

    Residuals are relative to what is predicted, not to what was measured: a group timed far too short would weigh most.
    """
    scale = sizes.max(axis=0)
    scale[scale == 0] = 1.0
    rows = sizes / scale
    typical = float(np.median(times))
    level, weights = np.full(len(times), typical), np.ones(len(times))
    found = _non_negative(rows / typical, times / typical, weights)
    for _ in range(_ROUNDS):
        residuals = np.abs(rows @ found - times) / level
        edge = _HUBER * max(_SPREAD * float(np.median(residuals)), _FINEST)
        weights = edge / np.maximum(residuals, edge)
        level = np.maximum(rows @ found, _LOWEST * typical)
        before, found = found, _non_negative(rows / level[:, None], times / level, weights)
        if np.abs(found - before).max() <= _STEADY * found.max():
            break
    return found / scale


def _non_negative(rows: Vector, target: Vector, weights: Vector) -> Vector:
    """Weighted least squares of ``rows @ x = target`` with x >= 0: the best of all supports, of which there are few."""
    root = np.sqrt(weights)
    left, right = rows * root[:, None], target * root
    best, least = np.zeros(rows.shape[1]), np.inf
    for count in range(1, rows.shape[1] + 1):
        for support in itertools.combinations(range(rows.shape[1]), count):
            part = np.linalg.lstsq(left[:, support], right, rcond=None)[0]
            rest = float(np.square(left[:, support] @ part - right).sum())
            if (part >= 0).all() and rest < least * (1 - 1e-12):
                best, least = np.zeros(rows.shape[1]), rest
                best[list(support)] = part
    return best
