"""The replay buffer of a learner."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError


class Transitions(NamedTuple):
    """B transitions.

    Attributes:
        states: (B, S) float32, before the action.
        actions: (B,) int64.
        rewards: (B,) float32.
        after: (B, S) float32, the next states.
        follows: (B,) float32, weight of the next state's value: the discount, and 0 at an episode's end.
    """

    states: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    after: NDArray[np.float32]
    follows: NDArray[np.float32]

    def rows(self, indices: NDArray[Any]) -> Transitions:
        """Return the transitions at some indices."""
        return Transitions(*(column[indices] for column in self))


class TransitionRing:
    """A ring buffer of the newest transitions.

    Args:
        capacity: maximum number of transitions.
        inputs: S, numbers of a state.

    Raises:
        ConfigError: nothing could be kept.

    References: Lin 1992, Mnih et al. 2015 (experience replay).
    """

    def __init__(self, capacity: int, inputs: int) -> None:
        if capacity < 1:
            raise ConfigError(f"a replay memory of {capacity} transitions: at least 1 is needed.")
        self._transitions = Transitions(
            states=np.zeros((capacity, inputs), np.float32),
            actions=np.zeros(capacity, np.int64),
            rewards=np.zeros(capacity, np.float32),
            after=np.zeros((capacity, inputs), np.float32),
            follows=np.zeros(capacity, np.float32),
        )
        self._capacity, self._added = capacity, 0

    def __len__(self) -> int:
        return min(self._added, self._capacity)

    def add(self, new: Transitions) -> None:
        """Add transitions, in their order."""
        slots = (self._added + np.arange(len(new.actions))) % self._capacity
        for name in Transitions._fields:
            getattr(self._transitions, name)[slots[-self._capacity :]] = getattr(new, name)[-self._capacity :]
        self._added += len(slots)

    def sample(self, count: int, rng: np.random.Generator) -> Transitions:
        """Return ``count`` transitions, drawn with replacement."""
        return self._transitions.rows(rng.integers(len(self), size=count))
