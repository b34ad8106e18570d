"""Prediction of the seconds of computing stretches and exchanges from their sizes, learned while training."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import PlanError

Vector = NDArray[np.float64]
KINDS = ("compute", "communicate")
FEATURES = ("rows", "edges", "width", "bytes", *KINDS)  # the last two: 1 in that of its kind, 0 in the other

COMPUTE_PRIOR_S = (5e-5, 1e-9)  # of a stretch, and of each number of its rows and edges times its width
COMMUNICATE_PRIOR_S = (2e-4, 1e-9)  # of an exchange, and of each byte: 1 GB/s

OBSERVATIONS = 512  # the newest, which the model is fitted to
ROUNDS = 3  # of reweighting in each fit
OUTLIER = 0.3  # a logarithm farther off than this pulls no harder than one just as far off
LEAST_S = 1e-7  # clock resolution: shorter times count as this
FARTHEST = 12.0  # most that the model moves the logarithm of a prior, a factor of 160,000
_CENTRE = np.array([8.0, 8.0, 4.0, 12.0])  # about what log(1 + size) is


def task_features(
    kind: str, *, rows: float = 0.0, edges: float = 0.0, width: float = 0.0, sent_bytes: float = 0.0
) -> tuple[float, ...]:
    """Return one row for :class:`TaskTimePredictor`, (6,).

    Args:
        kind: ``compute`` or ``communicate``.
        rows: of nodes that the stretch computes, or the exchange brings.
        edges: that the stretch aggregates over.
        width: numbers of a row.
        sent_bytes: of the exchange.

    Raises:
        PlanError: there is no such kind.
    """
    if kind not in KINDS:
        raise PlanError(f"a task of kind {kind!r}: the kinds are {', '.join(KINDS)}.")
    return (rows, edges, width, sent_bytes, float(kind == KINDS[0]), float(kind == KINDS[1]))


class TaskTimePredictor:
    """A power law of the sizes for each kind of task, fitted to the times of the newest 512 tasks.

    In logarithms it is a linear correction of a prior, by least squares with Huber's weights. Before any observation a
    prediction is the prior: 50 µs and 1 ns for each of (rows + edges) times width, or 200 µs and 1 ns a byte.

    References: FlareDTDG section 3.4.
    Differs from the paper: it trains a network on the mean squared error of seconds. On recorded tasks of TGCN and
    MPNN-LSTM on two ranks, a power law predicts as well as a network (median relative error 0.60 to 0.70, against 0.62
    to 0.68).
    """

    def __init__(self) -> None:
        self._observed: deque[tuple[Vector, float]] = deque(maxlen=OBSERVATIONS)  # design row, log of time over prior
        self._coefficients = np.zeros(6)

    def predict(self, features: ArrayLike) -> Vector:
        """Return the seconds of each task, (n,).

        Args:
            features: (n, 6), by :data:`FEATURES`; rows of :func:`task_features`.

        Raises:
            PlanError: they have another shape, hold a negative or infinite size, or name no kind.
        """
        rows = _checked(features)
        return np.exp(_log_prior(rows) + np.clip(_design(rows) @ self._coefficients, -FARTHEST, FARTHEST))

    def observe(self, features: ArrayLike, seconds: ArrayLike) -> None:
        """Learn from measured times.

        Args:
            features: (n, 6), as of :meth:`predict`.
            seconds: (n,); below 0.1 µs they count as this.

        Raises:
            PlanError: the two do not fit, or a time is negative or not finite.
        """
        rows, times_s = _checked(features), np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        if times_s.shape != (len(rows),) or not np.isfinite(times_s).all() or (times_s < 0).any():
            raise PlanError(
                f"times of shape {times_s.shape} for {len(rows)} tasks: give each task one time, finite and at least "
                "0 s. Leave out tasks that were not timed."
            )
        if not len(rows):
            return
        targets = np.log(np.maximum(times_s, LEAST_S)) - _log_prior(rows)
        self._observed.extend(zip(_design(rows), targets.tolist(), strict=True))
        self._fit()

    def _fit(self) -> None:
        """Fit by iteratively reweighted least squares, with a weight of one observation on the prior."""
        design = np.array([row for row, _ in self._observed])
        targets = np.array([target for _, target in self._observed])
        weights = np.ones(len(targets))
        for _ in range(ROUNDS):
            weighted = design * weights[:, np.newaxis]
            self._coefficients = np.linalg.solve(weighted.T @ design + np.eye(design.shape[1]), weighted.T @ targets)
            errors = np.abs(design @ self._coefficients - targets)
            weights = np.minimum(1.0, OUTLIER / np.maximum(errors, LEAST_S))


def _checked(features: ArrayLike) -> Vector:
    rows = np.asarray(features, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(FEATURES):
        raise PlanError(f"features of shape {rows.shape}: give (n, {len(FEATURES)}), {', '.join(FEATURES)} a task.")
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise PlanError("sizes of tasks must be finite and at least 0: see task_features.")
    if not ((rows[:, 4] + rows[:, 5] == 1) & (rows[:, 4] * rows[:, 5] == 0)).all():
        raise PlanError(f"each task is of one kind, {' or '.join(KINDS)}: 1 in its column and 0 in the other.")
    return rows


def _design(rows: Vector) -> Vector:
    """Return (n, 6): a constant and the logarithms of sizes that matter to a task of each kind, 0 for the other."""
    rows_log, edges_log, width_log, bytes_log = (np.log1p(rows[:, :4]) - _CENTRE).T
    compute, communicate = rows[:, 4], rows[:, 5]
    return np.stack(
        [
            compute,
            compute * rows_log,
            compute * edges_log,
            compute * width_log,
            communicate,
            communicate * bytes_log,
        ],
        axis=1,
    )


def _log_prior(rows: Vector) -> Vector:
    compute_s = COMPUTE_PRIOR_S[0] + COMPUTE_PRIOR_S[1] * (rows[:, 0] + rows[:, 1]) * rows[:, 2]
    communicate_s = COMMUNICATE_PRIOR_S[0] + COMMUNICATE_PRIOR_S[1] * rows[:, 3]
    return np.log(np.where(rows[:, 5] == 1, communicate_s, compute_s))
