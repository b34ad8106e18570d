"""The progress law: fits progress and time as functions of batch size, to choose the most progress per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.rl.agent import Agent, AgentChoice, checked_action, checked_choices

FORGET = 0.98  # a window's weight halves after 34 decisions
MODEL_WEIGHT = 2.0  # number of own windows at which a size's mean and the model have equal weight
NOISE_SCALES, MARGIN = 15, 30.0  # number of noise scales, and their margin beyond the smallest and largest batch
SNAPSHOT_POWERS = (0.0, 0.5, 1.0)  # powers of N_S: benefit of longer rollouts beyond their share of targets
EXPLORATION = 1.0  # standard errors added to an estimate
MIN_ERROR = 0.1  # lower limit of the assumed relative error of a window

Array = NDArray[np.float64]


class ProgressLaw(Agent):
    """Fits progress per step and seconds per step against size, and chooses the size with the best quotient.

    Progress of a step on b = N_S N_V targets is g N_S^p b / (b + B), with the noise scale B and the power p from a few
    values. Each pair (B, p) is fitted by discounted least squares over all windows and weighted by its likelihood; the
    model is their mean. A size with n windows of its own uses its own mean with weight n / (n + 2), which corrects
    errors of the model. Seconds of a step are fitted by c_0 + c_1 N_S + c_2 b, none negative; a timed size has its own
    mean. A standard error of a size's own mean is added before the best is chosen, so that rarely tried sizes are tried
    again. The first two choices are the largest and the smallest batch. The law is deterministic: equal rewards and
    seconds give equal choices. Old windows are discounted, so that it follows a rising noise scale and slower steps.

    Args:
        sizes: (N_S, N_V) of each of A >= 2 actions, as numbers or as shares.

    Raises:
        ConfigError: there is only one size, or a size is not above 0.

    References: McCandlish, Kaplan, Amodei 2018, section 2 (noise scale); Garivier, Moulines 2011 (discounting).
    Differs from the paper: DynaHB has a DQN; the law is ours.
    """

    def __init__(self, sizes: Sequence[tuple[float, float]]) -> None:
        from scipy.optimize import nnls  # here, not in the first step that needs it: it takes 0.3 s

        self._nnls = nnls
        self.choices = checked_choices(len(sizes))
        snapshots, nodes = np.array(sizes, dtype=np.float64).T
        if not (snapshots > 0).all() or not (nodes > 0).all():
            raise ConfigError(f"sizes of batches {sizes!r}: give numbers above 0.")
        self._targets = snapshots * nodes
        scales = np.geomspace(self._targets.min() / MARGIN, self._targets.max() * MARGIN, NOISE_SCALES)
        shapes = np.array(
            [
                snapshots**power * self._targets / (self._targets + scale)
                for scale in scales
                for power in SNAPSHOT_POWERS
            ]
        )
        self._shapes: Array = shapes / shapes.max(axis=1, keepdims=True)  # (H, A)
        self._times: Array = np.column_stack([np.ones(self.choices), snapshots, self._targets])
        self._counts, self._gains, self._seconds = (np.zeros(self.choices) for _ in range(3))
        self._squares = 0.0

    def timed(self, action: int, step_s: float) -> None:
        """Record the seconds of a step of this size, for the next call of :meth:`learn`."""
        self._step_s = step_s

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Add a window; ``reward`` is progress per second, and the recorded seconds turn it into progress per step."""
        checked_action(action, self.choices)
        gain = reward * self._step_s
        self._counts, self._gains, self._seconds = (FORGET * x for x in (self._counts, self._gains, self._seconds))
        self._counts[action] += 1.0
        self._gains[action] += gain
        self._seconds[action] += self._step_s
        self._squares = FORGET * self._squares + gain * gain

    def choose(self, state: float) -> AgentChoice:
        """Return the size with the highest possible progress per second; of equal ones, the lowest action."""
        values, margins = self._rates() if self._counts.any() else (None, None)
        estimates: tuple[float | None, ...] = (None,) * self.choices if values is None else tuple(values.tolist())
        for probe in (int(self._targets.argmax()), int(self._targets.argmin())):
            if not self._counts[probe]:
                return AgentChoice(probe, estimates, 0.0, False)
        assert values is not None and margins is not None
        action = int((values + margins).argmax())
        return AgentChoice(action, estimates, 0.0, action == int(values.argmax()))

    def _rates(self) -> tuple[Array, Array]:
        """Return progress per second of each size, and its uncertainty, after at least one window."""
        total = self._counts.sum()
        square = (self._shapes**2 @ self._counts).clip(min=np.finfo(float).tiny)
        crossed = self._shapes @ self._gains
        scales = crossed / square  # (H,) least squares of g
        errors = (self._squares - crossed * scales).clip(min=0.0)
        variance = max(errors.min() / total, MIN_ERROR**2 * self._squares / total, np.finfo(float).tiny)
        likelihood = np.exp(-(errors - errors.min()) / (2 * variance))
        law = (likelihood * scales) @ self._shapes / likelihood.sum()
        weights = self._counts + MODEL_WEIGHT
        error = np.sqrt(max(errors.min(), 0.0) / total / weights)  # standard error of a size's progress per step
        seconds = self._step_seconds()
        return (self._gains + MODEL_WEIGHT * law) / weights / seconds, EXPLORATION * error / seconds

    def _step_seconds(self) -> Array:
        """Return the seconds of a step of each size: its own mean, or the fit to the timed sizes."""
        timed = self._counts > 0
        means = self._seconds[timed] / self._counts[timed]
        seconds = np.full(self.choices, means.mean())
        if timed.sum() >= self._times.shape[1]:
            columns = self._times[timed] / means[:, np.newaxis]  # relative errors
            seconds = self._times @ self._nnls(columns, np.ones(len(means)))[0]
        seconds = seconds.clip(min=means.min() * 1e-3)
        seconds[timed] = means
        return seconds

    def state_dict(self) -> dict[str, Any]:
        """Return discounted ``counts`` of windows, sums of ``gains`` and step ``seconds`` by action, ``squares``."""
        return {
            "counts": self._counts.tolist(),
            "gains": self._gains.tolist(),
            "seconds": self._seconds.tolist(),
            "squares": self._squares,
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Restore a state dict of :meth:`state_dict`."""
        self._counts, self._gains, self._seconds = (np.array(data[name]) for name in ("counts", "gains", "seconds"))
        self._squares = float(data["squares"])
