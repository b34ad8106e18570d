"""A law of progress and of time against the size of batches: the size of most progress per second is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.agent import Choice, checked_action, checked_choices
from dtdg_lab.core.errors import ConfigError

FORGET = 0.98  # a window counts half after 34 decisions
OWN = 2.0  # windows of its own after which a size's mean counts as much as the law
NOISE_SCALES, AROUND = 15, 30.0  # noise scales tried, and how far beyond the smallest and largest batch
SNAPSHOT_POWERS = (0.0, 0.5, 1.0)  # of N_S: how much longer rollouts teach beyond their share of targets
WIDTH = 1.0  # standard errors by which a size may be better than thought
SURE = 0.1  # least relative error of a window that the law is believed to have

Array = NDArray[np.float64]


class ProgressLaw:
    """Fits progress per step and seconds per step against size, and takes the size with the best quotient.

    Progress of a step on b = N_S N_V targets is g N_S^p b / (b + B), with the noise scale B and the power p among a
    few values. Each pair (B, p) is fitted by discounted least squares over all windows and weighted by its likelihood;
    their mean is the law. A size with n windows of its own takes its own mean with weight n / (n + 2), so that sizes
    the law is wrong about are still found out. Seconds of a step are fitted by c_0 + c_1 N_S + c_2 b, none negative;
    a size that was timed has its own mean. A standard error of a size's own mean is added before the best is taken, so
    that what was hardly tried is tried again. The first two choices are the largest and the smallest batch. It draws
    nothing: the same rewards and seconds give the same choices. Old windows fade, so that a noise scale that rises, or
    steps that become slower, are followed.

    Args:
        sizes: (N_S, N_V) of each of A >= 2 actions, as numbers or as shares.
        forget: weight that a window keeps from one decision to the next, in (0, 1].

    Raises:
        ConfigError: there is nothing to choose from, or a size is not above 0.

    References: McCandlish, Kaplan, Amodei 2018, section 2 (noise scale); Garivier, Moulines 2011 (discounting).
    Differs from the paper: DynaHB has a DQN; this is ours.
    """

    def __init__(self, sizes: Sequence[tuple[float, float]], *, forget: float = FORGET) -> None:
        self.choices = checked_choices(len(sizes))
        given = np.array(sizes, dtype=np.float64)
        if not (given > 0).all():
            raise ConfigError(f"sizes of batches {sizes!r}: numbers above 0 are needed.")
        self._targets = given[:, 0] * given[:, 1]
        scales = np.geomspace(self._targets.min() / AROUND, self._targets.max() * AROUND, NOISE_SCALES)
        shapes = np.array([
            given[:, 0] ** power * self._targets / (self._targets + scale)
            for scale in scales for power in SNAPSHOT_POWERS
        ])  # fmt: skip
        self._shapes: Array = shapes / shapes.max(axis=1, keepdims=True)  # (H, A)
        self._times: Array = np.column_stack([np.ones(len(given)), given[:, 0], self._targets])
        self._forget = forget
        self._counts, self._gains, self._seconds = (np.zeros(self.choices) for _ in range(3))
        self._squares = 0.0

    def timed(self, action: int, step_s: float) -> None:
        """Note what a step of this size took in the window that :meth:`learn` is called for next."""
        self._step_s = step_s
        checked_action(action, self.choices)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Add a window: ``reward`` is progress per second; with the noted seconds it is progress per step."""
        checked_action(action, self.choices)
        gain = reward * self._step_s
        self._counts *= self._forget
        self._gains *= self._forget
        self._seconds *= self._forget
        self._squares = self._forget * self._squares + gain * gain
        self._counts[action] += 1.0
        self._gains[action] += gain
        self._seconds[action] += self._step_s

    def choose(self, state: float) -> Choice:
        """The size that may make the most progress per second, whatever the state; ties go to the lower action."""
        values, more = self._rates() if self._counts.any() else (None, None)
        told: tuple[float | None, ...] = (None,) * self.choices if values is None else tuple(values.tolist())
        for probe in (int(self._targets.argmax()), int(self._targets.argmin())):
            if not self._counts[probe]:
                return Choice(probe, told, 0.0, False)
        assert values is not None and more is not None
        action = int((values + more).argmax())
        return Choice(action, told, 0.0, action == int(values.argmax()))

    def _rates(self) -> tuple[Array, Array]:
        """Progress per second of each size, and how much more it might be; at least one window was learned."""
        total = self._counts.sum()
        square = (self._shapes**2 @ self._counts).clip(min=np.finfo(float).tiny)
        crossed = self._shapes @ self._gains
        scales = crossed / square  # (H,) least squares of g
        errors = (self._squares - crossed * scales).clip(min=0.0)
        variance = max(errors.min() / total, SURE**2 * self._squares / total, np.finfo(float).tiny)
        likelihood = np.exp(-(errors - errors.min()) / (2 * variance))
        law = (likelihood * scales) @ self._shapes / likelihood.sum()
        weights = self._counts + OWN
        error = np.sqrt(max(errors.min(), 0.0) / total / weights)  # standard error of a size's progress per step
        seconds = self._step_seconds()
        return (self._gains + OWN * law) / weights / seconds, WIDTH * error / seconds

    def _step_seconds(self) -> Array:
        """Seconds of a step of each size: its own mean, or the fit of those that were timed."""
        seen = self._counts > 0
        means = self._seconds[seen] / self._counts[seen]
        found = np.full(self.choices, means.mean())
        if seen.sum() >= self._times.shape[1]:
            best = np.inf
            for some in (c for count in (1, 2, 3) for c in combinations(range(self._times.shape[1]), count)):
                columns = self._times[seen][:, some] / means[:, np.newaxis]  # relative errors
                fit = np.linalg.lstsq(columns, np.ones(len(means)), rcond=None)[0]
                error = float(((columns @ fit - 1) ** 2).sum())
                if (fit >= 0).all() and error < best * (1 - 1e-9):
                    best, found = error, self._times[:, some] @ fit
        found = found.clip(min=means.min() * 1e-3)
        found[seen] = means
        return found

    def state_dict(self) -> dict[str, Any]:
        """Faded ``counts`` of windows, sums of ``gains`` and of ``seconds`` of a step by action, and ``squares``."""
        return {
            "counts": self._counts.tolist(), "gains": self._gains.tolist(), "seconds": self._seconds.tolist(),
            "squares": self._squares,
        }  # fmt: skip

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._counts, self._gains, self._seconds = (np.array(data[of]) for of in ("counts", "gains", "seconds"))
        self._squares = float(data["squares"])
