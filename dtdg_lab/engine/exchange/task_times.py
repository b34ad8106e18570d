"""Prediction of the seconds of computing stretches and exchanges from their sizes, learned while training."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator

Vector = NDArray[np.float64]
KINDS = ("compute", "communicate")
FEATURES = ("rows", "edges", "width", "bytes", *KINDS)  # the last two: 1 in that of its kind, 0 in the other
COMPUTE_PRIOR_S = (5e-5, 1e-9)  # of a stretch, and of each number of its rows and edges times its width
COMMUNICATE_PRIOR_S = (2e-4, 1e-9)  # of an exchange, and of each byte: 1 GB/s
_HIDDEN = 16
_KEPT = 512  # observations that are learned from again
_BATCH = 64
_UPDATES = 2  # of the network for each call of observe
_EARLY_UPDATES, _EARLY_CALLS = 8, 64  # more of them in the first calls: the prior is of no machine
_LEARNING_RATE = 0.02
_BETAS, _EPSILON = (0.9, 0.99), 1e-8
_CENTRE = np.array([8.0, 8.0, 4.0, 12.0, 0.0, 0.0])  # about what log(1 + size) is, and its spread
_SPREAD = np.array([4.0, 4.0, 2.0, 4.0, 1.0, 1.0])
_LEAST_S = 1e-7  # clock resolution: shorter times count as this
_FARTHEST = 12.0  # most that the network moves the logarithm of a prior, a factor of 160,000


def task_features(
    kind: str, *, rows: float = 0.0, edges: float = 0.0, width: float = 0.0, sent_bytes: float = 0.0
) -> tuple[float, ...]:
    """One row for :class:`TaskTimePredictor`, (6,).

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
    """A network of one hidden layer of 16 that corrects a prior, in logarithms; it learns from what tasks took.

    Before any observation a prediction is the prior: 50 µs and 1 ns for each of (rows + edges) times width, or 200 µs
    and 1 ns a byte. It learns by Adam on the newest 512 observations, two updates a call and more in the first calls;
    one that took far longer than predicted pulls no harder than one a factor of e off.

    Args:
        seed: of the first weights and of the observations drawn in each update.

    References: FlareDTDG section 3.4.
    Differs from the paper: the loss is Huber's, of the logarithm of seconds, where the paper has the mean squared
    error of seconds; its sizes, features and prior are not specified; they are ours.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = int(seed)
        self._calls = 0
        self._updates = 0
        first = generator(self._seed, "task_times/weights").normal(size=(len(FEATURES) + 1) * _HIDDEN)
        self._weights = np.zeros(len(first) + _HIDDEN + 1)  # the last layer starts at zero: no correction
        self._weights[: len(first)] = first / np.sqrt(len(FEATURES))
        self._means = np.zeros((2, len(self._weights)))  # of gradients and of their squares
        self._kept = np.zeros((_KEPT, len(FEATURES) + 1))  # a ring: scaled features, logarithm of seconds over prior
        self._seen = 0  # observations so far
        self._errors: deque[tuple[str, float]] = deque(maxlen=_KEPT)  # kind, relative error

    def predict(self, features: ArrayLike) -> Vector:
        """Seconds of each task, (n,).

        Args:
            features: (n, 6), by :data:`FEATURES`; rows of :func:`task_features`.

        Raises:
            PlanError: they have another shape, hold a negative or infinite size, or name no kind.
        """
        rows = _checked(features)
        return self._seconds(_scaled(rows), _log_prior(rows))

    def observe(self, features: ArrayLike, seconds: ArrayLike) -> None:
        """Learn what tasks took.

        Args:
            features: (n, 6), as of :meth:`predict`.
            seconds: (n,); below 0.1 µs they count as this.

        Raises:
            PlanError: the two do not fit, or a time is negative or not finite.
        """
        rows, took = _checked(features), np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        if took.shape != (len(rows),) or not np.isfinite(took).all() or (took < 0).any():
            raise PlanError(
                f"times of shape {took.shape} for {len(rows)} tasks: give each task one time, finite and at least 0 s. "
                "Leave out tasks that were not timed."
            )
        if not len(rows):
            return
        took, scaled, prior = np.maximum(took, _LEAST_S), _scaled(rows), _log_prior(rows)
        errors = np.abs(self._seconds(scaled, prior) - took) / took
        kinds = [KINDS[int(each)] for each in rows[:, 5]]
        self._errors.extend(zip(kinds, errors.tolist(), strict=True))
        newest = np.column_stack([scaled, np.log(took) - prior])[-_KEPT:]
        self._seen += len(rows)
        self._kept[np.arange(self._seen - len(newest), self._seen) % _KEPT] = newest
        self._learn()

    def error(self, kind: str | None = None) -> float | None:
        """Median of |predicted - took| / took over the newest 512 observations; None where there are none.

        Each was predicted before it was learned from. ``kind`` asks for the tasks of one kind alone.
        """
        found = [error for its, error in self._errors if kind in (None, its)]
        return float(np.median(found)) if found else None

    def state_dict(self) -> dict[str, Any]:
        """All that the next predictions and updates follow from, in plain numbers, texts and lists."""
        return {
            "seed": self._seed,
            "calls": self._calls,
            "updates": self._updates,
            "weights": self._weights.tolist(),
            "means": self._means.tolist(),
            "seen": self._seen,
            "kept": self._kept[: self._seen].tolist(),
            "errors": [list(each) for each in self._errors],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of :meth:`state_dict`.

        Raises:
            PlanError: its weights are of a network of another shape.
        """
        weights, means = np.array(state["weights"], dtype=np.float64), np.array(state["means"], dtype=np.float64)
        if weights.shape != self._weights.shape or means.shape != self._means.shape:
            raise PlanError(
                f"a state of {weights.size} weights for a network of {self._weights.size}: it is another version's. "
                "Start a new predictor."
            )
        self._seed, self._calls = int(state["seed"]), int(state["calls"])
        self._updates, self._seen = int(state["updates"]), int(state["seen"])
        self._weights, self._means = weights, means
        kept = np.array(state["kept"], dtype=np.float64).reshape(-1, len(FEATURES) + 1)
        self._kept[: len(kept)] = kept
        self._errors = deque(((str(kind), float(error)) for kind, error in state["errors"]), maxlen=_KEPT)

    def _layers(self, flat: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """Views of one flat vector: (6, 16) and (16,) of the hidden layer, (16,) and (1,) of the last."""
        inner = len(FEATURES) * _HIDDEN
        hidden = flat[:inner].reshape(len(FEATURES), _HIDDEN)
        return hidden, flat[inner : inner + _HIDDEN], flat[inner + _HIDDEN : -1], flat[-1:]

    def _seconds(self, scaled: Vector, prior: Vector) -> Vector:
        return np.exp(prior + np.clip(self._correction(scaled)[1], -_FARTHEST, _FARTHEST))

    def _correction(self, scaled: Vector) -> tuple[Vector, Vector]:
        """Hidden activations (n, 16) and what is added to the logarithm of the prior, (n,)."""
        hidden, hidden_bias, last, last_bias = self._layers(self._weights)
        active = np.tanh(scaled @ hidden + hidden_bias)
        return active, active @ last + last_bias

    def _learn(self) -> None:
        count = _EARLY_UPDATES if self._calls < _EARLY_CALLS else _UPDATES
        draws = generator(self._seed, "task_times/replay", self._calls)
        for batch in draws.integers(min(self._seen, _KEPT), size=(count, _BATCH)):
            drawn = self._kept[batch]
            self._update(drawn[:, :-1], drawn[:, -1])
        self._calls += 1

    def _update(self, scaled: Vector, target: Vector) -> None:
        """One step of Adam on a batch: (n, 6) scaled features, (n,) logarithms of seconds over prior."""
        active, found = self._correction(scaled)
        off = np.clip(found - target, -1.0, 1.0) / len(target)  # gradient of Huber's loss
        gradient = np.empty_like(self._weights)
        hidden, hidden_bias, last, last_bias = self._layers(gradient)
        inner = off[:, None] * self._layers(self._weights)[2] * (1 - active**2)
        hidden[:], hidden_bias[:] = scaled.T @ inner, inner.sum(axis=0)
        last[:], last_bias[:] = off @ active, off.sum()
        self._updates += 1
        mean, square = self._means
        mean += (1 - _BETAS[0]) * (gradient - mean)
        square += (1 - _BETAS[1]) * (gradient**2 - square)
        step = _LEARNING_RATE / (1 - _BETAS[0] ** self._updates)
        scale = np.sqrt(square / (1 - _BETAS[1] ** self._updates)) + _EPSILON
        self._weights -= step * mean / scale


def _checked(features: ArrayLike) -> Vector:
    rows = np.asarray(features, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(FEATURES):
        raise PlanError(f"features of shape {rows.shape}: give (n, {len(FEATURES)}), {', '.join(FEATURES)} a task.")
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise PlanError("sizes of tasks must be finite and at least 0: see task_features.")
    if not ((rows[:, 4] + rows[:, 5] == 1) & (rows[:, 4] * rows[:, 5] == 0)).all():
        raise PlanError(f"each task is of one kind, {' or '.join(KINDS)}: 1 in its column and 0 in the other.")
    return rows


def _scaled(rows: Vector) -> Vector:
    """(n, 6): logarithms of sizes about -2 to 2, and the kinds as they are."""
    return (np.concatenate([np.log1p(rows[:, :4]), rows[:, 4:]], axis=1) - _CENTRE) / _SPREAD


def _log_prior(rows: Vector) -> Vector:
    computing = COMPUTE_PRIOR_S[0] + COMPUTE_PRIOR_S[1] * (rows[:, 0] + rows[:, 1]) * rows[:, 2]
    sending = COMMUNICATE_PRIOR_S[0] + COMMUNICATE_PRIOR_S[1] * rows[:, 3]
    return np.log(np.where(rows[:, 5] == 1, sending, computing))
