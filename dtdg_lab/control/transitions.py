"""What a learner has lived through, as arrays: the last transitions, to learn from more than once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Transitions:
    """B transitions.

    Attributes:
        states: (B, S) float32 in which was decided.
        actions: (B,) int64 taken.
        rewards: (B,) float32 earned.
        after: (B, S) float32 that followed.
        follows: (B,) float32 by which the value of what follows counts: the discount, and 0 where nothing follows.
    """

    states: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    after: NDArray[np.float32]
    follows: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.actions)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Each field by its name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def taken(self, places: NDArray[Any]) -> Transitions:
        """Some of them."""
        return Transitions(**{name: given[places] for name, given in self.arrays().items()})


class TransitionRing:
    """The newest transitions; the oldest make room.

    Args:
        capacity: most transitions kept.
        inputs: S, numbers of a state.

    Raises:
        ConfigError: nothing could be kept.

    References: Lin 1992, Mnih et al. 2015 (experience replay).
    """

    def __init__(self, capacity: int, inputs: int) -> None:
        if capacity < 1:
            raise ConfigError(f"a replay memory of {capacity} transitions: at least 1 is needed.")
        self._held = Transitions(
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
        """Keep some, in their order."""
        places = (self._added + np.arange(len(new))) % self._capacity
        for name, held in self._held.arrays().items():
            held[places[-self._capacity :]] = getattr(new, name)[-self._capacity :]
        self._added += len(new)

    def sample(self, count: int, draw: np.random.Generator) -> Transitions:
        """``count`` of those held, each drawn for itself."""
        return self._held.taken(draw.integers(len(self), size=count))

    def state_dict(self) -> dict[str, Any]:
        """All that is held, and how many were ever added."""
        return {"added": self._added, **{name: held.copy() for name, held in self._held.arrays().items()}}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._added = int(data["added"])
        for name, held in self._held.arrays().items():
            held[...] = data[name]
