"""Scheduling of tasks that alternately compute and exchange, by predicted durations."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import PlanError


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """Seconds of one task, such as a snapshot's forward: computing stretches with an exchange between each two.

    Attributes:
        compute_s: (k+1,) seconds of each stretch, before, between and after the pulls.
        communicate_s: (k,) seconds of each pull's exchange, from its start to its arrival.

    Raises:
        PlanError: the stretches are not one more than the pulls, or a time is negative or not finite.
    """

    compute_s: tuple[float, ...]
    communicate_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "compute_s", _seconds(self.compute_s))
        object.__setattr__(self, "communicate_s", _seconds(self.communicate_s))
        if len(self.compute_s) != len(self.communicate_s) + 1:
            raise PlanError(
                f"a task of {len(self.compute_s)} stretches and {len(self.communicate_s)} pulls: give one stretch more "
                "than pulls, of 0 s where nothing is computed."
            )

    @property
    def pulls(self) -> int:
        """Number of exchanges, k; the task takes k + 1 turns."""
        return len(self.communicate_s)


def _seconds(times: Iterable[float]) -> tuple[float, ...]:
    seconds = tuple(float(time) for time in times)
    if not all(0 <= time < math.inf for time in seconds):  # NaN is in no range
        raise PlanError(f"times of a task are {seconds}: they must be finite and at least 0 s.")
    return seconds


class TaskClock:
    """Simulated clock of a rank that computes turns of tasks, one at a time, while exchanges run in the background.

    A turn waits for the task's previous pull, computes a stretch and starts the next pull.

    Args:
        tasks: times of the tasks.
        one_link: whether exchanges run one after another, as if limited by bandwidth; else in parallel, as if limited
            by latency.
    """

    def __init__(self, tasks: Sequence[TaskTimes], *, one_link: bool = False) -> None:
        self.now_s = 0.0
        self.computed_s = 0.0
        self.waited_s = 0.0
        self._tasks = tasks
        self._one_link = one_link
        self._link_free_s = 0.0
        self._turns = [0] * len(tasks)
        self._ready_s = [0.0] * len(tasks)

    def unfinished(self) -> list[int]:
        """Return the numbers of the tasks that have turns left."""
        return [number for number, task in enumerate(self._tasks) if self._turns[number] <= task.pulls]

    def ready_s(self, number: int) -> float:
        """Return the time from which the task's next turn needs no waiting: 0, or the arrival of its pull."""
        return self._ready_s[number]

    def next_pull_s(self, number: int) -> float | None:
        """Return the seconds of the exchange that the task's next turn starts; None if it starts none."""
        task, turn = self._tasks[number], self._turns[number]
        return task.communicate_s[turn] if turn < task.pulls else None

    def wait_until(self, seconds: float) -> None:
        """Advance to ``seconds``, unless the clock is past it."""
        self.waited_s += max(0.0, seconds - self.now_s)
        self.now_s = max(self.now_s, seconds)

    def turn(self, number: int) -> None:
        """Run the task's next turn.

        Raises:
            PlanError: there is no such task, or it has no turn left.
        """
        if not 0 <= number < len(self._tasks) or self._turns[number] > self._tasks[number].pulls:
            raise PlanError(
                f"task {number} of 0 to {len(self._tasks) - 1} has no turn left. List each task in an order as often "
                "as it has stretches."
            )
        stretch, pull_s = self._tasks[number].compute_s[self._turns[number]], self.next_pull_s(number)
        self.wait_until(self._ready_s[number])
        self.now_s += stretch
        self.computed_s += stretch
        self._turns[number] += 1
        if pull_s is not None:
            start_s = max(self.now_s, self._link_free_s) if self._one_link else self.now_s
            self._ready_s[number] = self._link_free_s = start_s + pull_s


def early_ready(tasks: Sequence[TaskTimes], *, one_link: bool = False) -> tuple[int, ...]:
    """Order the turns of tasks by the rule Early-Ready & Short-Comm.

    The times are simulated. Among ready tasks with pulls left, the task that was ready first runs; ties go to the
    shorter next exchange. If there is none, a ready task without pulls runs, which hides the exchanges in flight. If
    nothing is ready, the rank waits for the next arrival. Equal tasks go by number.

    The same predicted times give the same order on every rank. A wrong prediction makes the order slow, but cannot
    cause a deadlock: each rank starts the same exchanges in the same order.

    Args:
        tasks: predicted times of the tasks.
        one_link: see :class:`~dtdg_lab.engine.exchange.task_order.TaskClock`.

    Returns:
        The task of each turn; a task of k pulls occurs k + 1 times, in the order of its stretches.

    References: FlareDTDG section 3.4, priority (t_ready, t_comm).

    Differs from the paper: it orders sets of an exchange and the work that depends on it, and gives no place to work
    without exchanges. Here such work runs when no exchange can be started.
    """
    clock, order = TaskClock(tasks, one_link=one_link), []
    while remaining := clock.unfinished():
        ready = [number for number in remaining if clock.ready_s(number) <= clock.now_s]
        if not ready:
            clock.wait_until(min(clock.ready_s(number) for number in remaining))
            continue
        number = min(ready, key=lambda task: _priority(clock, task))
        clock.turn(number)
        order.append(number)
    return tuple(order)


def _priority(clock: TaskClock, number: int) -> tuple[bool, float, float, int]:
    pull_s = clock.next_pull_s(number)
    return pull_s is None, clock.ready_s(number), pull_s or 0.0, number


def in_turn(tasks: Sequence[TaskTimes]) -> tuple[int, ...]:
    """Return the blocking order: one task after another."""
    return tuple(number for number, task in enumerate(tasks) for _ in task.compute_s)


Vector = NDArray[np.float64]
KINDS = ("compute", "communicate")
FEATURES = ("rows", "edges", "width", "bytes", *KINDS)  # the last two are one-hot

COMPUTE_PRIOR_S = (5e-5, 1e-9)  # per stretch, and per (rows + edges) times width
COMMUNICATE_PRIOR_S = (2e-4, 1e-9)  # per exchange, and per byte: 1 GB/s


OBSERVATIONS = 512  # the newest observations, to which the model is fitted
ROUNDS = 3  # reweightings in each fit
OUTLIER = 0.3  # Huber threshold of errors of the logarithm
LEAST_S = 1e-7  # clock resolution: shorter times count as this
FARTHEST = 12.0  # largest correction of the logarithm of a prior, a factor of 160,000
_CENTRE = np.array([8.0, 8.0, 4.0, 12.0])  # typical values of log(1 + size)


def task_features(
    kind: str, *, rows: float = 0.0, edges: float = 0.0, width: float = 0.0, sent_bytes: float = 0.0
) -> tuple[float, ...]:
    """Return one row for :class:`TaskTimePredictor`, (6,).

    Args:
        kind: ``compute`` or ``communicate``.
        rows: rows that the stretch computes, or the exchange brings.
        edges: edges that the stretch aggregates over.
        width: numbers in a row.
        sent_bytes: bytes of the exchange.

    Raises:
        PlanError: there is no such kind.
    """
    if kind not in KINDS:
        raise PlanError(f"a task of kind {kind!r}: the kinds are {', '.join(KINDS)}.")
    return (rows, edges, width, sent_bytes, float(kind == KINDS[0]), float(kind == KINDS[1]))


class TaskTimePredictor:
    """A power law in the sizes of a task, for each kind, fitted to the times of the newest 512 tasks.

    The logarithm of the time is a prior plus a linear correction, fitted by least squares with Huber weights. The prior
    is 50 µs and 1 ns for each of (rows + edges) times width, or 200 µs and 1 ns a byte.

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
            seconds: (n,); shorter times count as 0.1 µs.

        Raises:
            PlanError: the shapes do not fit, or a time is negative or not finite.
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
        """Fit by iteratively reweighted least squares; the prior weighs as much as one observation."""
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
    """Return the design matrix, (n, 6): for each kind a constant and log sizes, 0 in rows of the other kind."""
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
