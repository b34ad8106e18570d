"""Fetching of remote features, and the actions and policies of their cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError

WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128)  # GreenDyGNN section IV-C: choices of steps between two rebuilds
BIAS = 0.6  # share of the cache that a biased allocation gives to one owner


@dataclass(frozen=True, slots=True)
class OwnerReply:
    """The reply of one owner.

    Attributes:
        owner: number of its part.
        rows: (k, F) float32, in the requested order.
        rtt_s: seconds from the request to the last byte.
        nbytes: of request and reply.
    """

    owner: int
    rows: NDArray[np.float32]
    rtt_s: float
    nbytes: int


class Fetcher(Protocol):
    """Fetches feature rows from their owners. Not thread-safe."""

    def fetch(self, wanted: Mapping[int, NDArray[np.int64]]) -> dict[int, OwnerReply]:
        """Fetch from all owners concurrently, one RPC each, and return when the last has answered.

        Args:
            wanted: for each owner the keys of the rows, at least one.

        Raises:
            RunFailedError: an owner timed out or refused; the message names it.
        """
        ...

    def close(self) -> None:
        """Disconnect; a second call does nothing."""
        ...


@dataclass(frozen=True, slots=True)
class CacheActions:
    """The actions at a cache rebuild: a window, and the allocation of the cache to owners.

    With P parts there are 8 P actions: ``action = 8 * b + w`` chooses ``WINDOWS[w]``, and b = 0 the uniform
    allocation, b = i + 1 the one biased to the i-th of the P - 1 other parts, in ascending order.

    Attributes:
        parts: P, at least 2.

    Raises:
        PlanError: fewer than two parts, or no such action.

    References: GreenDyGNN section IV-C1 (P = 4: 32 actions).
    """

    parts: int

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise PlanError(f"parts={self.parts}: a cache of remote features needs at least 2 parts.")

    def __len__(self) -> int:
        return len(WINDOWS) * self.parts

    def window(self, action: int) -> int:
        """W of an action, in steps."""
        return WINDOWS[self._checked(action) % len(WINDOWS)]

    def biased(self, action: int) -> int | None:
        """The index, among the P - 1 other parts, of the prioritised one; None for the uniform allocation."""
        allocation = self._checked(action) // len(WINDOWS)
        return allocation - 1 if allocation else None

    def action(self, window: int, biased: int | None = None) -> int:
        """The action of a window and an allocation.

        Raises:
            PlanError: there is none.
        """
        if window not in WINDOWS or (biased is not None and not 0 <= biased < self.parts - 1):
            raise PlanError(
                f"window={window}, biased={biased}: windows are {', '.join(map(str, WINDOWS))}; biased is None or an "
                f"index from 0 to {self.parts - 2}."
            )
        return WINDOWS.index(window) + len(WINDOWS) * (0 if biased is None else biased + 1)

    def shares(self, action: int) -> NDArray[np.float64]:
        """(P - 1,) shares of the cache for the rows of each other part; they sum to 1."""
        others, biased = self.parts - 1, self.biased(action)
        if biased is None or others == 1:
            return np.full(others, 1 / others)
        shares = np.full(others, (1 - BIAS) / (others - 1))
        shares[biased] = BIAS
        return shares

    def _checked(self, action: int) -> int:
        if not 0 <= action < len(self):
            raise PlanError(f"action {action}: there are {len(self)}, numbered from 0 to {len(self) - 1}.")
        return action


@dataclass(frozen=True, slots=True)
class CacheView:
    """The input of a policy's decision.

    Attributes:
        state: (3 P + 11,) float32; see :mod:`dtdg_lab.systems.feature_cache.policies.env`.
        delays_s: (P - 1,) estimated delay of each other part's replies.
        step: first step of the run that the decision applies to.
        steps_left: remaining steps of the epoch from there.
        previous: the action that applies until then.
        forecast: maps delays (P - 1,) to the predicted seconds per step of every action, (A,); None if unknown.
        rebuilds: maps delays to the predicted seconds of a rebuild for every action.
        now: step of the decision, non-decreasing during a run; -1 if it is ``step``.
        changes: number of change points of links detected so far.
        pending: the next action already decided, if the current window may be ended early; else -1.
        left: remaining steps of the current window.
    """

    state: NDArray[np.float32]
    delays_s: NDArray[np.float64]
    step: int
    steps_left: int
    previous: int
    forecast: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    rebuilds: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    now: int = -1
    changes: int = 0
    pending: int = -1
    left: int = 0

    @property
    def at(self) -> int:
        """Step of the decision."""
        return self.step if self.now < 0 else self.now


@dataclass(frozen=True, slots=True)
class CacheDecision:
    """The decision of a policy.

    Attributes:
        policy: its name.
        action: see :class:`CacheActions`.
        values: estimated value of each action, larger is better; empty if the policy estimates none.
        epsilon: probability of a random choice.
        greedy: whether the action has the highest estimated value.
    """

    policy: str
    action: int
    values: tuple[float, ...] = ()
    epsilon: float = 0.0
    greedy: bool = True


class CachePolicy(Protocol):
    """Chooses the window and the allocation of the next rebuild."""

    name: str

    def decide(self, view: CacheView) -> CacheDecision:
        """The action that applies from ``view.step``."""
        ...
