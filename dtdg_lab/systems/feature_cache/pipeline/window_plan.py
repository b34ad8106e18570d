"""The plan of a window of the cache: its length, and the shares of the other parts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions, allocation_shares, other_parts
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision


@dataclass(frozen=True, slots=True, eq=False)
class WindowPlan:
    """The plan of a window and of its cache.

    Attributes:
        number: index of the window, from 0.
        first: its first step.
        length: W, number of steps whose batches are counted.
        shares: (P - 1,) share of the cache for each other part, ascending by part.
        capacity: rows of the cache.
        policy: name of the policy that decided.
        action: see :class:`dtdg_lab.systems.feature_cache.actions.CacheActions`; -1 if no action matches.
        biased: preferred part; -1 for none.
    """

    number: int
    first: int
    length: int
    shares: NDArray[np.float64]
    capacity: int
    policy: str
    action: int = -1
    biased: int = -1

    def nearest_action(self, part: int) -> int:
        """Return the plan's action, or the nearest one, for the part that owns the cache."""
        if self.action >= 0:
            return self.action
        position = None if self.biased < 0 else self.biased - (self.biased > part)
        return nearest_action(self.length, position, len(self.shares) + 1)


@dataclass(frozen=True, slots=True)
class Epochs:
    """Boundaries of epochs, and the end of the run.

    Attributes:
        steps: steps of an epoch.
        stop: first step after the run; None if unknown.
    """

    steps: int
    stop: int | None = None

    def steps_left(self, step: int) -> int:
        """Return the number of remaining steps of the epoch, including ``step``."""
        return self.steps - step % self.steps

    def limit(self, step: int, length: int) -> int:
        """Cut a length at the end of the run."""
        return length if self.stop is None else min(length, self.stop - step)


def plan_window(
    number: int, first: int, path: FeaturePath, *, part: int, parts: int, epochs: Epochs, decision: CacheDecision | None
) -> WindowPlan:
    """Plan a window by the settings, or by a policy's decision.

    Args:
        number: index of the window.
        first: its first step.
        path: settings used without a decision.
        part: the part that owns the cache.
        parts: P.
        epochs: lengths of epochs; in mode ``epoch_hot`` a window lasts to the end of an epoch.
        decision: decision of the policy, if any.

    Raises:
        PlanError: the action does not exist.
    """
    others = other_parts(part, parts)
    if decision is not None and others:
        actions, policy, action = CacheActions(parts), decision.policy, decision.action
        length, biased = actions.window(action), actions.biased(action)
    else:
        length = epochs.steps_left(first) if path.mode == "epoch_hot" else path.window
        biased = others.index(path.biased) if path.mode == "windows" and path.biased in others else None
        is_action = path.mode == "windows" and path.window in WINDOWS and others
        policy, action = path.policy, CacheActions(parts).action(path.window, biased) if is_action else -1
    return WindowPlan(
        number=number,
        first=first,
        length=epochs.limit(first, length),
        shares=allocation_shares(len(others), biased),
        capacity=path.capacity,
        policy=policy,
        action=action,
        biased=-1 if biased is None else others[biased],
    )


def nearest_action(window: int, position: int | None, parts: int) -> int:
    """Return the action of the allocation whose window is nearest by ratio.

    ``position`` is an index among the other parts, as in :class:`CacheActions`.
    """
    return CacheActions(parts).action(min(WINDOWS, key=lambda candidate: abs(math.log(candidate / window))), position)
