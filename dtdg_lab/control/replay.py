"""What an agent has lived through: the last transitions, to learn from more than once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError


class Replay:
    """The newest transitions (state, action, reward, next state); the oldest makes room.

    Args:
        capacity: most transitions kept.

    Raises:
        ConfigError: nothing could be kept.

    References: Lin 1992, Mnih et al. 2015 (experience replay).
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ConfigError(f"a replay memory of {capacity} transitions: at least 1 is needed.")
        self._rows: deque[tuple[float, int, float, float]] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Keep a transition, instead of the oldest where there is no room."""
        self._rows.append((float(state), int(action), float(reward), float(next_state)))

    def sample(self, count: int, draw: np.random.Generator) -> NDArray[np.float64]:
        """``count`` distinct transitions, each as likely as another, as rows (count, 4)."""
        places = draw.choice(len(self._rows), size=count, replace=False)
        return np.array([self._rows[place] for place in places], dtype=np.float64)

    def rows(self) -> list[list[float]]:
        """All transitions, the oldest first."""
        return [list(row) for row in self._rows]

    def load(self, rows: Iterable[Sequence[float]]) -> None:
        """Keep these transitions and no others, the oldest first."""
        self._rows.clear()
        for state, action, reward, next_state in rows:
            self.add(state, int(action), reward, next_state)
