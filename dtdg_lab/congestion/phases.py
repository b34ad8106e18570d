"""Congestion that comes and goes by the clock of a run's epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dtdg_lab.congestion.slow_owners import slow_owners
from dtdg_lab.core.links import LinkState

LEVELS = 16  # a wave changes the links so often, and no oftener: every change is told to the servers and recorded


@dataclass(frozen=True, slots=True)
class Phases:
    """Links that are congested for a while, then clean, by turns.

    Attributes:
        congested: the links while they are.
        first_epoch: the first of the first congested phase.
        period: epochs from one congested phase's beginning to the next one's.
        length: epochs of a congested phase, at most ``period``; 0: never.
    """

    congested: LinkState
    first_epoch: int
    period: float = 1.0
    length: float = 0.0

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """The links when ``share`` of an epoch has passed, 0 to less than 1."""
        passed = epoch - self.first_epoch + share
        if passed >= 0 and passed % self.period < self.length:
            return self.congested
        return LinkState.clean(self.congested.parts)


@dataclass(frozen=True, slots=True)
class Turns:
    """Links that take turns: each state holds for the same time, one after another, again and again.

    Attributes:
        states: in their order, at least one.
        first_epoch: the first of the first turn; links are clean before.
        period: epochs of all turns together.
    """

    states: tuple[LinkState, ...]
    first_epoch: int
    period: float

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """The links when ``share`` of an epoch has passed, 0 to less than 1."""
        passed = epoch - self.first_epoch + share
        if passed < 0:
            return LinkState.clean(self.states[0].parts)
        return self.states[math.floor(passed / self.period * len(self.states)) % len(self.states)]


@dataclass(frozen=True, slots=True)
class Wave:
    """Congestion that swings between two owners in a cosine wave: one's wanes while the other's waxes.

    At weight w an owner's delay is w times the greatest, its rate the least divided by w.

    Attributes:
        parts: P.
        owners: the one congested at the beginning, and the other.
        delay_ms: the greatest delay.
        mbit: the least rate; 0 for no limit.
        first_epoch: the first with congestion.
        period: epochs of a whole swing, there and back.
    """

    parts: int
    owners: tuple[int, int]
    delay_ms: float
    mbit: float
    first_epoch: int
    period: float

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """The links when ``share`` of an epoch has passed, 0 to less than 1."""
        passed = epoch - self.first_epoch + share
        if passed < 0:
            return LinkState.clean(self.parts)
        level = math.floor(passed / self.period * LEVELS) % LEVELS
        first = (1 + math.cos(2 * math.pi * level / LEVELS)) / 2
        weights = dict(zip(self.owners, (first, 1 - first), strict=True))
        return slow_owners(
            self.parts,
            {owner: weight * self.delay_ms for owner, weight in weights.items()},
            {owner: self.mbit / weight for owner, weight in weights.items() if weight > 0},
        )
