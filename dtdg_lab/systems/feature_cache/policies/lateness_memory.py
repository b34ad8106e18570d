"""Averages of the owners' past delays, and of their variation, which a single state lacks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FAST_STEPS, SLOW_STEPS = 50.0, 200.0  # time constants of the averages: steps after which a weight falls to 1 / e
KINDS = 3


def memory_size(parts: int) -> int:
    """Return the length of the memory for P parts: 3 (P - 1)."""
    return KINDS * (parts - 1)


class LatenessMemory:
    """Exponential averages of the congestion multipliers in states, one memory for each of B runs.

    For each other part: a fast average, a slow average, and the average distance from the slow one. A link that is slow
    intermittently, or two that alternate, are indistinguishable from a slow link at one moment; the averages differ.

    Args:
        runs: B.
        parts: P.
    """

    def __init__(self, runs: int, parts: int) -> None:
        self._held = np.zeros((runs, KINDS, parts - 1))
        self._fresh = np.ones(runs, dtype=bool)

    def forget(self, which: NDArray[np.bool_]) -> None:
        """Reset the memory of some of the runs (B,)."""
        self._held[which] = 0.0
        self._fresh[which] = True

    def take_in(self, states: NDArray[np.float32], steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """Add states (B, 3 P + 11), given steps (B,) after the last ones; return them joined with the memory.

        Returns:
            (B, 3 P + 11 + 3 (P - 1)) float32.
        """
        late = states[:, : self._held.shape[2]].astype(np.float64)
        for index, lasts in ((0, FAST_STEPS), (1, SLOW_STEPS)):
            self._move(index, late, steps, lasts)
        self._move(2, np.abs(late - self._held[:, 1]), steps, SLOW_STEPS)
        self._fresh[:] = False
        return self.recall(states, np.arange(len(states)))

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return states (R, 3 P + 11) of some runs (R,), joined with their previous memory."""
        remembered = self._held[rows].reshape(len(rows), -1).astype(np.float32)
        return np.concatenate([states, remembered], axis=1)

    def _move(self, index: int, received: NDArray[np.float64], steps: NDArray[np.int64], lasts: float) -> None:
        share = np.where(self._fresh, 1.0, -np.expm1(-steps / lasts))[:, np.newaxis]
        self._held[:, index] += share * (received - self._held[:, index])


class RunsMemory:
    """A memory for policies that identify runs by number: a new run starts with an empty one.

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
        """Add states (B, 3 P + 11) of runs of these numbers (B,) at these steps (B,); return them with the memory.

        The memory at an index is reset for a different run, or an earlier step.
        """
        if len(runs) != len(self._runs):
            self._memory = LatenessMemory(len(runs), self._parts)
            self._runs, self._steps = runs, steps
        self._memory.forget((runs != self._runs) | (steps < self._steps))
        joined = self._memory.take_in(states, np.maximum(steps - self._steps, 0))
        self._runs, self._steps = runs.copy(), steps.copy()
        return joined

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return states (R, 3 P + 11) at some indices (R,), joined with their previous memory; nothing is added."""
        return self._memory.recall(states, rows)
