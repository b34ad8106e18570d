"""How late the owners have been for a while, and how unsteadily: what a state alone does not tell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FAST_STEPS, SLOW_STEPS = 50.0, 200.0  # steps after which two thirds of what was heard are forgotten
KINDS = 3


def memory_size(parts: int) -> int:
    """How many numbers are remembered for P parts: 3 (P - 1)."""
    return KINDS * (parts - 1)


class LatenessMemory:
    """Fading means of the congestion multipliers in states, one memory for each of B runs.

    Of each other part: the mean of late, the mean over longer, and the mean distance between what is heard and the
    latter. A link that is slow now and then, or two that take turns, look like a slow one at the moment: it is these
    that tell them apart.

    Args:
        runs: B.
        parts: P.
    """

    def __init__(self, runs: int, parts: int) -> None:
        self._held = np.zeros((runs, KINDS, parts - 1))
        self._fresh = np.ones(runs, dtype=bool)

    def forget(self, which: NDArray[np.bool_]) -> None:
        """Begin anew for some of the runs (B,)."""
        self._held[which] = 0.0
        self._fresh[which] = True

    def take_in(self, states: NDArray[np.float32], steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """Hear states (B, 3 P + 11), so many steps (B,) after the last ones; them and what is remembered, as one.

        Returns:
            (B, 3 P + 11 + 3 (P - 1)) float32.
        """
        late = states[:, : self._held.shape[2]].astype(np.float64)
        for place, lasts in ((0, FAST_STEPS), (1, SLOW_STEPS)):
            self._move(place, late, steps, lasts)
        self._move(2, np.abs(late - self._held[:, 1]), steps, SLOW_STEPS)
        self._fresh[:] = False
        return self.recall(states, np.arange(len(states)))

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """States (R, 3 P + 11) of some runs (R,), and what was remembered of these before, as one."""
        remembered = self._held[rows].reshape(len(rows), -1).astype(np.float32)
        return np.concatenate([states, remembered], axis=1)

    def _move(self, place: int, heard: NDArray[np.float64], steps: NDArray[np.int64], lasts: float) -> None:
        share = np.where(self._fresh, 1.0, -np.expm1(-steps / lasts))[:, np.newaxis]
        self._held[:, place] += share * (heard - self._held[:, place])


class RunsMemory:
    """The same for whoever decides in runs, and is told which run is where: a run that is new begins anew.

    Args:
        parts: P.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._memory = LatenessMemory(0, parts)
        self._runs = self._steps = np.zeros(0, dtype=np.int64)

    def take_in(
        self, states: NDArray[np.float32], runs: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """States (B, 3 P + 11) of runs of these numbers (B,) at these steps (B,); them and what is remembered, as one.

        A place with another run than before, or at an earlier step, forgets.
        """
        if len(runs) != len(self._runs):
            self._memory = LatenessMemory(len(runs), self._parts)
            self._runs, self._steps = runs, steps
        self._memory.forget((runs != self._runs) | (steps < self._steps))
        told = self._memory.take_in(states, np.maximum(steps - self._steps, 0))
        self._runs, self._steps = runs.copy(), steps.copy()
        return told

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """States (R, 3 P + 11) at some places (R,), and what was remembered there before; nothing is taken in."""
        return self._memory.recall(states, rows)
