"""Actions of a cache policy: a window and the allocation of the cache to owners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError

WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128)  # GreenDyGNN section IV-C: choices of steps between two rebuilds
BIAS = 0.6  # share of the cache that a biased allocation gives to one owner


def other_parts(part: int, parts: int) -> list[int]:
    """Return the P - 1 other parts, ascending."""
    return [*range(part), *range(part + 1, parts)]


def allocation_shares(num_others: int, biased: int | None) -> NDArray[np.float64]:
    """Return (P - 1,) shares of the cache for the rows of each other part; they sum to 1.

    Args:
        num_others: P - 1.
        biased: index of the preferred part; None for the uniform allocation.
    """
    if biased is None or num_others < 2:
        return np.full(num_others, 1 / max(num_others, 1))
    shares = np.full(num_others, (1 - BIAS) / (num_others - 1))
    shares[biased] = BIAS
    return shares


@dataclass(frozen=True, slots=True)
class CacheActions:
    """The actions at a cache rebuild: a window, and the allocation of the cache to owners.

    With P parts there are 8 P actions: ``action = 8 * b + w`` chooses ``WINDOWS[w]``, and b = 0 the uniform
    allocation, b = i + 1 the one biased to the i-th of the P - 1 other parts, in ascending order.

    Attributes:
        parts: P, at least 2.

    Raises:
        PlanError: there are fewer than two parts, or the action is out of range.

    References: GreenDyGNN section IV-C1 (P = 4: 32 actions).
    """

    parts: int

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise PlanError(f"parts={self.parts}: a cache of remote features needs at least 2 parts.")

    def __len__(self) -> int:
        return len(WINDOWS) * self.parts

    def window(self, action: int) -> int:
        """Return W of an action, in steps."""
        return WINDOWS[self._checked(action) % len(WINDOWS)]

    def biased(self, action: int) -> int | None:
        """Return the index of the prioritised part among the P - 1 others; None for the uniform allocation."""
        allocation = self._checked(action) // len(WINDOWS)
        return allocation - 1 if allocation else None

    def action(self, window: int, biased: int | None = None) -> int:
        """Return the action of a window and an allocation.

        Raises:
            PlanError: no action has them.
        """
        if window not in WINDOWS or (biased is not None and not 0 <= biased < self.parts - 1):
            raise PlanError(
                f"window={window}, biased={biased} is not allowed: windows are {', '.join(map(str, WINDOWS))}; biased "
                f"is None or an index from 0 to {self.parts - 2}."
            )
        return WINDOWS.index(window) + len(WINDOWS) * (0 if biased is None else biased + 1)

    def shares(self, action: int) -> NDArray[np.float64]:
        """Return (P - 1,) shares of the cache for the rows of each other part; they sum to 1."""
        return allocation_shares(self.parts - 1, self.biased(action))

    def _checked(self, action: int) -> int:
        if not 0 <= action < len(self):
            raise PlanError(f"action {action} is out of range: actions are numbered from 0 to {len(self) - 1}.")
        return action
