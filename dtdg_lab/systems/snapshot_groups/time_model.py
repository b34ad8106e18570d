"""Models of group times: linear, growing, and averaged over epochs; and predicted epoch times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s, named, solve, times_of

# Epoch times on other numbers of ranks, predicted from the measurements of one run, and their errors.


_NOTHING: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EpochTime:
    """A predicted epoch on a number of ranks.

    Attributes:
        scheduler: name of the scheduler.
        ranks: R.
        iterations: of the epoch.
        predicted_s: seconds of the epoch.
        bound_s: lower bound of these seconds by the same model.
        allreduce_s: of each iteration, as assumed for R ranks.
        speedup: relative to one rank that computes all groups in the fewest possible iterations.
        measured_s: of a run on R ranks; None if none was given.
        error: predicted over measured, minus 1; None without a measurement.
    """

    scheduler: str
    ranks: int
    iterations: int
    predicted_s: float
    bound_s: float
    allreduce_s: float
    speedup: float
    measured_s: float | None
    error: float | None

    def row(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)


def predict_epochs(
    times_s: ArrayLike,
    *,
    measured_on: int,
    ranks: Sequence[int] = (1, 2, 4),
    scheduler: str = "best_of",
    per_rank: int = 2,
    allreduce_s: float | Mapping[int, float] = 0.0,
    step_s: float = 0.0,
    measured_s: Mapping[int, float] = _NOTHING,
    time_limit_s: float = 1.0,
    seed: int = 0,
) -> tuple[EpochTime, ...]:
    """Predict epoch times on ``ranks`` from a run's group times, its all-reduce, and the rest of its iterations.

    A group is assumed to take the same time on any number of ranks: true if each rank has cores or a GPU of its own,
    but not if ranks share them. Waiting follows from the schedule. An all-reduce measured on one number of ranks is
    scaled to others by the bytes of a ring, 2 (R - 1) / R of the gradients; its latency is not modelled.

    Args:
        times_s: compute seconds of each group: (K,), or (M, K) from M epochs. With several epochs, the schedule is made
            from their medians and evaluated on each epoch's own times, so that waiting caused by noise is counted.
        measured_on: ranks of the run that measured them.
        ranks: numbers of ranks to predict for.
        scheduler: ``psg`` or a name of the catalogue.
        per_rank: maximum number of groups per rank and iteration; ``psg`` has one.
        allreduce_s: seconds of an all-reduce without waiting, as measured on ``measured_on`` ranks; or by number of
            ranks, for every requested number above 1.
        step_s: seconds of an iteration apart from groups and all-reduce, such as the optimiser's.
        measured_s: ranks -> epoch seconds of runs to compare with.
        time_limit_s: for schedulers that search.
        seed: for randomised schedulers.

    Raises:
        PlanError: times are negative or not finite, or all are 0, or have the wrong shape.
        ConfigError: a number of ranks is below 1, an all-reduce was measured on one rank or is missing or negative, or
            a measured epoch took no time.
    """
    epochs = _epochs(times_s)
    _check(ranks, measured_on, step_s, measured_s)
    typical = np.median(epochs, axis=0)
    most = named(scheduler, per_rank)[1]
    alone_s = float(epochs.sum(axis=1).mean()) + step_s * -(-len(typical) // most)
    found = []
    for count in ranks:
        exchange = _allreduce(allreduce_s, measured_on, count)
        end_s = exchange + step_s  # of an iteration
        plan = solve(scheduler, typical, count, per_rank=most, allreduce_s=end_s, time_limit_s=time_limit_s, seed=seed)
        predicted = float(np.mean([plan.makespan_s(each, allreduce_s=end_s) for each in epochs]))
        bounds = [lower_bound_s(each, count, per_rank=most, allreduce_s=end_s) for each in epochs]
        known = measured_s.get(count)
        error = None if known is None else predicted / known - 1
        iterations, bound = len(plan.assignment), float(np.mean(bounds))
        found.append(
            EpochTime(scheduler, count, iterations, predicted, bound, exchange, alone_s / predicted, known, error)
        )
    return tuple(found)


def _check(ranks: Sequence[int], measured_on: int, step_s: float, measured_s: Mapping[int, float]) -> None:
    if not ranks or min(*ranks, measured_on) < 1:
        raise ConfigError(f"ranks={list(ranks)}, measured_on={measured_on}: all must be at least 1.")
    if any(not epoch_s > 0 for epoch_s in measured_s.values()):
        raise ConfigError(f"measured epochs {dict(measured_s)}: seconds must be above 0.")
    if not step_s >= 0:
        raise ConfigError(f"step_s={step_s}: seconds of an iteration must be at least 0.")


def _epochs(times_s: ArrayLike) -> NDArray[np.float64]:
    """(M, K) seconds of each group in each epoch."""
    given = np.asarray(times_s, dtype=np.float64)
    if given.ndim > 2 or not given.size:
        raise PlanError(f"group times have shape {given.shape}: (groups,) or (epochs, groups) is needed.")
    return np.stack([times_of(each) for each in np.atleast_2d(given)])


def _allreduce(given: float | Mapping[int, float], measured_on: int, ranks: int) -> float:
    """Seconds of an all-reduce among ``ranks``."""
    if ranks == 1:
        return 0.0
    if isinstance(given, Mapping):
        if ranks not in given:
            raise ConfigError(f"all-reduces are given for {sorted(given)} ranks, not for {ranks}: add it, or give one.")
        seconds = float(given[ranks])
    elif measured_on == 1 and given:
        raise ConfigError("one rank has no all-reduce to measure: give seconds by number of ranks, such as {2: 0.01}.")
    else:
        seconds = float(given) * ((ranks - 1) / ranks) / ((measured_on - 1) / measured_on) if given else 0.0
    if not 0 <= seconds < np.inf:
        raise ConfigError(f"an all-reduce of {seconds} s on {ranks} ranks: seconds must be at least 0.")
    return seconds


# Seconds of a snapshot group as a linear function of the nodes and edges of its snapshots, fitted to some groups.


Vector = NDArray[np.float64]
_LEAST = 4  # groups: three unknowns, and one to check them
_FOLDS = 5
_ROUNDS = 60
_STEADY = 1e-10  # relative change of the coefficients at which reweighting stops
_HUBER = 1.345  # in units of the spread: larger residuals get a constant influence
_SPREAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_FINEST = 1e-6  # relative spread below which times are treated as exact
_LOWEST = 1e-3  # of the median time: lower limit of the time by which a group is weighted


@dataclass(frozen=True, slots=True)
class LinearTimes:
    """t = a1 nodes + a2 edges + a3 for each snapshot; a group takes the sum over its snapshots.

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
        """Seconds of each group, (K,).

        Args:
            nodes: (K,) nodes, summed over the snapshots of a group.
            edges: (K,) edges, likewise.
            snapshots: (K,) snapshots per group, or one number for all.

        Raises:
            PlanError: the vectors differ in length, or contain invalid sizes.
        """
        return _sizes(nodes, edges, snapshots) @ np.array([self.a1, self.a2, self.a3])

    def errors(self, nodes: ArrayLike, edges: ArrayLike, times_s: ArrayLike, snapshots: ArrayLike = 1.0) -> Vector:
        """|predicted - measured| / measured of groups outside the fit, (K,); arguments as in :func:`fit`."""
        times = _seconds(times_s)
        return _relative(_sizes(nodes, edges, snapshots), times, np.array([self.a1, self.a2, self.a3]))

    def to_dict(self) -> dict[str, float]:
        """Plain numbers, as in a run's event ``schedule``."""
        names = ("a1", "a2", "a3", "mean_error", "max_error")
        return {name: float(getattr(self, name)) for name in names}


def fit(nodes: ArrayLike, edges: ArrayLike, times_s: ArrayLike, snapshots: ArrayLike = 1.0) -> LinearTimes:
    """Fit the model to measured groups, by non-negative least squares of the relative residuals.

    Residuals are relative, since the noise of times grows with them. From a dozen groups on, the influence of residuals
    far beyond the usual spread is limited (Huber), so that a single bad timing does not distort the model; with fewer
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
        raise PlanError(f"{len(times)} times for {len(sizes)} groups: give each group one time.")
    if len(times) < _LEAST:
        raise PlanError(f"a linear model of {len(times)} groups: at least {_LEAST} are needed. Profile more groups.")
    if not sizes.any():
        raise PlanError("groups without nodes, edges and snapshots cannot explain their times.")
    folds = min(_FOLDS, len(times))
    errors = np.empty(len(times))
    for fold in range(folds):
        held_out = np.arange(len(times)) % folds == fold
        found = _robust(sizes[~held_out], times[~held_out])
        errors[held_out] = _relative(sizes[held_out], times[held_out], found)
    a1, a2, a3 = _robust(sizes, times)
    return LinearTimes(float(a1), float(a2), float(a3), float(errors.mean()), float(errors.max()), len(times))


def _sizes(nodes: ArrayLike, edges: ArrayLike, snapshots: ArrayLike) -> Vector:
    """(K, 3): nodes, edges and snapshots of each group."""
    columns = [np.atleast_1d(np.asarray(given, dtype=np.float64)) for given in (nodes, edges, snapshots)]
    groups = len(columns[0])
    if len(columns[2]) == 1:
        columns[2] = np.full(groups, columns[2][0])
    if any(column.shape != (groups,) for column in columns):
        raise PlanError(f"sizes of groups have shapes {', '.join(str(column.shape) for column in columns)}.")
    sizes = np.column_stack(columns)
    if not np.isfinite(sizes).all() or (sizes < 0).any():
        raise PlanError("nodes, edges and snapshots of a group must be numbers of at least 0.")
    return sizes


def _seconds(times_s: ArrayLike) -> Vector:
    times = np.atleast_1d(np.asarray(times_s, dtype=np.float64))
    if times.ndim != 1 or not np.isfinite(times).all() or (times <= 0).any():
        raise PlanError("measured group times must be finite and above 0 s. Leave out groups that were not timed.")
    return times


def _relative(sizes: Vector, times: Vector, found: Vector) -> Vector:
    return np.abs(sizes @ found - times) / times


def _robust(sizes: Vector, times: Vector) -> Vector:
    """(3,) coefficients: iteratively reweighted least squares.

    Residuals are relative to predicted, not measured, times: a group timed far too short would dominate otherwise.
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
    """Weighted least squares of ``rows @ x = target`` with x >= 0."""
    from scipy.optimize import nnls

    root = np.sqrt(weights)
    found: Vector = nnls(rows * root[:, None], target * root)[0]
    return found


# Times of the snapshots of a growing graph, and of groups of them: input of simulated schedules.


CURVES = MappingProxyType({"linear": 10.0, "exponential": 20.0})  # size of the last snapshot over that of the first


def growth(snapshots: int, curve: str = "linear", *, last: float | None = None) -> Vector:
    """How large each snapshot is, relative to the first: (T,).

    Args:
        snapshots: T.
        curve: ``linear`` adds a constant, ``exponential`` multiplies by a constant, from each snapshot to the next.
        last: size of the last snapshot; 10 for linear and 20 for exponential growth by default.

    Raises:
        UnknownNameError: there is no such curve.
        ConfigError: ``snapshots`` is below 1, or ``last`` is not positive.
    """
    if curve not in CURVES:
        raise UnknownNameError("growth curve", curve, CURVES)
    if snapshots < 1:
        raise ConfigError(f"snapshots={snapshots}: a growing graph has at least 1.")
    end = CURVES[curve] if last is None else last
    if not 0 < end < np.inf:
        raise ConfigError(f"last={end}: the last snapshot's size relative to the first must be above 0.")
    return np.linspace(1.0, end, snapshots) if curve == "linear" else np.geomspace(1.0, end, snapshots)


def snapshot_times(
    snapshots: int, curve: str = "linear", *, noise: float = 0.05, seed: int = 0, last: float | None = None
) -> Vector:
    """Seconds of each snapshot of a growing graph, (T,): growth times noise; the first takes about 1 s.

    Noise is log-normal with mean 1, so that no time is negative; at 5 % it is nearly normal. All groups that contain a
    snapshot share its noise.

    Args:
        snapshots: T.
        curve: see :func:`growth`.
        noise: relative standard deviation of a snapshot's time; 0 for none.
        seed: of the noise.
        last: see :func:`growth`.

    Raises:
        UnknownNameError, ConfigError: see :func:`growth`; noise is negative or no number.

    References: DyGNeX section 5.4 simulates 10,000 snapshots of DynaGraph, whose growth it does not give; the curves
    and the noise are ours.
    """
    return growth(snapshots, curve, last=last) * _noise(snapshots, noise, seed)


def modelled_times(
    fitted: LinearTimes,
    nodes: float,
    edges: float,
    snapshots: int,
    curve: str = "linear",
    *,
    nodes_grow: bool = True,
    noise: float = 0.05,
    seed: int = 0,
    last: float | None = None,
) -> Vector:
    """Seconds of each snapshot of a growing graph by a fitted model, (T,): its constant part does not grow.

    Args:
        fitted: the model, from :func:`~dtdg_lab.systems.snapshot_groups.time_model.fit`.
        nodes: nodes of the first snapshot.
        edges: of the first snapshot.
        snapshots: T.
        curve: growth of the edges.
        nodes_grow: whether the nodes grow as well; in the lab's graphs they do not.
        noise: see :func:`snapshot_times`.
        seed: of the noise.
        last: see :func:`growth`.
    """
    size = growth(snapshots, curve, last=last)
    vertices = nodes * (size if nodes_grow else np.ones(snapshots))
    return fitted.predict(vertices, edges * size) * _noise(snapshots, noise, seed)


def group_times(snapshot_s: ArrayLike, *, window: int = 4, stride: int = 1) -> Vector:
    """Seconds of each group of ``window`` consecutive snapshots, one group every ``stride``: (K,) sums.

    Raises:
        ConfigError: window or stride is below 1, or there are fewer snapshots than the window holds.
    """
    given = np.asarray(snapshot_s, dtype=np.float64)
    if window < 1 or stride < 1:
        raise ConfigError(f"window={window}, stride={stride}: both must be at least 1.")
    if len(given) < window:
        raise ConfigError(f"{len(given)} snapshots make no group of {window}: give more snapshots or a smaller window.")
    return np.lib.stride_tricks.sliding_window_view(given, window)[::stride].sum(axis=1)


def _noise(snapshots: int, noise: float, seed: int) -> Vector:
    """(T,) factors of mean 1."""
    if not 0 <= noise < np.inf:
        raise ConfigError(f"noise of {noise}: a relative standard deviation of at least 0 is needed, such as 0.05.")
    if noise == 0:
        return np.ones(snapshots)
    spread = np.sqrt(np.log1p(noise * noise))
    return np.exp(spread * generator(seed, "scheduling/noise").standard_normal(snapshots) - spread * spread / 2)
