"""A window of the cache: how long it is, and who gets how much."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.feature_path import BIAS, WINDOWS, CacheActions, CacheDecision
from dtdg_lab.features.path import FeaturePath


@dataclass(frozen=True, slots=True, eq=False)
class WindowPlan:
    """A window and who gets how much of its cache.

    Attributes:
        number: of the window, from 0.
        first: its first step.
        length: W, steps whose batches are looked at.
        shares: (P - 1,) of the cache for each other part, ascending.
        capacity: rows.
        policy: what decided.
        action: see :class:`dtdg_lab.core.feature_path.CacheActions`; -1 where it is none of them.
        biased: part that is preferred; -1 for none.
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
        """Its action, or the nearest one, of the part whose cache it is."""
        if self.action >= 0:
            return self.action
        place = None if self.biased < 0 else self.biased - (self.biased > part)
        return nearest_action(self.length, place, len(self.shares) + 1)


@dataclass(frozen=True, slots=True)
class Epochs:
    """Where epochs begin, and where the run ends.

    Attributes:
        steps: of an epoch.
        first: first step of one of them.
        stop: step that will never be asked for; None: no end is known.
    """

    steps: int
    first: int = 0
    stop: int | None = None

    def left(self, step: int) -> int:
        """Steps of the epoch from a step on."""
        return self.steps - (step - self.first) % self.steps

    def most(self, step: int, length: int) -> int:
        """A length, cut where the run ends."""
        return length if self.stop is None else min(length, self.stop - step)


def plan_window(
    number: int, first: int, path: FeaturePath, *, part: int, parts: int, epochs: Epochs, decision: CacheDecision | None
) -> WindowPlan:
    """The plan of a window as its path has it, or as a policy decided.

    Args:
        number: of the window.
        first: its first step.
        path: what holds where nothing is decided.
        part: whose cache it is.
        parts: P.
        epochs: lengths of epochs; mode ``epoch_hot`` lasts to the end of one.
        decision: the policy's.

    Raises:
        PlanError: there is no such action.
    """
    others = [other for other in range(parts) if other != part]
    if decision is not None and others:
        actions = CacheActions(parts)
        place = actions.biased(decision.action)
        return WindowPlan(
            number=number, first=first, length=epochs.most(first, actions.window(decision.action)),
            shares=actions.shares(decision.action), capacity=path.capacity, policy=decision.policy,
            action=decision.action, biased=-1 if place is None else others[place],
        )  # fmt: skip
    length = epochs.left(first) if path.mode == "epoch_hot" else path.window
    biased = others.index(path.biased) if path.mode == "windows" and path.biased in others else None
    shares = np.full(len(others), 1 / max(len(others), 1))
    if biased is not None and len(others) > 1:
        shares[:] = (1 - BIAS) / (len(others) - 1)
        shares[biased] = BIAS
    known = path.mode == "windows" and path.window in WINDOWS and others
    return WindowPlan(
        number=number, first=first, length=epochs.most(first, length), shares=shares, capacity=path.capacity,
        policy=path.policy, action=CacheActions(parts).action(path.window, biased) if known else -1,
        biased=-1 if biased is None else others[biased],
    )  # fmt: skip


def nearest_action(window: int, place: int | None, parts: int) -> int:
    """The action of the allocation whose window comes nearest by ratio; ``place`` as in :class:`CacheActions`."""
    return CacheActions(parts).action(min(WINDOWS, key=lambda known: abs(math.log(known / window))), place)
