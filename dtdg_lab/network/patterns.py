"""Patterns of congestion by name: the slow links at each moment of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.core.rng import generator
from dtdg_lab.network.links import LinkState, check_delay, check_owner, check_rate, read_number, slow_owners
from dtdg_lab.network.traces import RecordedTrace, load_trace

_ENTRY = re.compile(r"(\d{1,9}(?:\+\d{1,9})*):(\S+)")


@dataclass(frozen=True, slots=True)
class CycleTable:
    """Clean epochs, then a repeated cycle of epochs from a table; the last epoch of a run is clean.

    Attributes:
        phases: the links of each epoch of the cycle.
        first_epoch: first epoch of the first cycle.
        epochs: epochs of the run.

    References: GreenDyGNN section VI-A, congestion injection: epochs 0 to 2 clean, from 3 on 15 to 25 ms on one or two
    nodes at a time, repeated every 7 epochs. It does not specify which nodes and when: the table is ours.
    """

    phases: tuple[LinkState, ...]
    first_epoch: int
    epochs: int

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """Return the links of an epoch; they do not change within one."""
        if epoch < self.first_epoch or epoch >= self.epochs - 1:
            return LinkState.clean(self.phases[0].parts)
        return self.phases[(epoch - self.first_epoch) % len(self.phases)]


def parse_table(text: str, *, parts: int, cycle: int, mbit: float = 0.0) -> tuple[LinkState, ...]:
    """Parse the links of each epoch of a cycle.

    Args:
        text: an entry for each epoch, separated by blanks: ``OWNERS:MS``, with ``+`` between several owners, such as
            ``1+2:25``; or ``-`` for a clean epoch.
        parts: P.
        cycle: number of entries.
        mbit: rate of congested links in Mbit/s; 0 for no limit.

    Raises:
        ConfigError: an entry has another form, an owner does not exist, a delay is out of bounds, or there are more or
            fewer entries than epochs of the cycle.
    """
    entries = text.split()
    if len(entries) != cycle:
        raise ConfigError(
            f"congestion_table={shortened(text)} has {len(entries)} entries, but congestion_cycle={cycle}: give one "
            "for each epoch of the cycle, '-' for a clean one."
        )
    return tuple(_phase(entry, parts, mbit) for entry in entries)


def made_table(owners: tuple[int, int], cycle: int) -> str:
    """Write a table of 15 to 25 ms on one or two owners; the last epoch of a longer cycle is clean."""
    first, second = owners
    both = f"{first}+{second}"
    turns = [f"{first}:15", f"{first}:25", f"{second}:20", f"{both}:15", f"{both}:25", f"{second}:15"]
    congested = [turns[number % len(turns)] for number in range(max(1, cycle - 1))]
    return " ".join([*congested, "-"][:cycle])


def _phase(entry: str, parts: int, mbit: float) -> LinkState:
    if entry == "-":
        return LinkState.clean(parts)
    matched = _ENTRY.fullmatch(entry)
    if matched is None:
        raise ConfigError(
            f"congestion_table: {shortened(entry)} is no entry; write OWNERS:MS with '+' between owners, such as 1:15 "
            "or 1+2:25, or '-' for a clean epoch."
        )
    delay_ms = read_number(matched[2])
    check_delay(delay_ms, f"congestion_table: {shortened(entry)}")
    owners = [int(number) for number in matched[1].split("+")]
    for owner in owners:
        check_owner(owner, parts, f"congestion_table: {shortened(entry)}")
    return slow_owners(parts, dict.fromkeys(owners, delay_ms), dict.fromkeys(owners, mbit))


LEVELS = 16  # changes in a period of a wave: every change is sent to the servers and recorded


@dataclass(frozen=True, slots=True)
class Phases:
    """Links that are alternately congested and clean.

    Attributes:
        congested: links in a congested phase.
        first_epoch: first epoch of the first congested phase.
        period: epochs from the start of a congested phase to the next.
        length: epochs of a congested phase, at most ``period``; 0 for no congestion.
    """

    congested: LinkState
    first_epoch: int
    period: float = 1.0
    length: float = 0.0

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """Return the links after a ``share`` of an epoch, 0 to less than 1."""
        passed = epoch - self.first_epoch + share
        if passed >= 0 and passed % self.period < self.length:
            return self.congested
        return LinkState.clean(self.congested.parts)


@dataclass(frozen=True, slots=True)
class Turns:
    """Links that cycle through states of equal duration.

    Attributes:
        states: one or more states, in order.
        first_epoch: first epoch of the first state; links are clean before.
        period: epochs of all states together.
    """

    states: tuple[LinkState, ...]
    first_epoch: int
    period: float

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """Return the links after a ``share`` of an epoch, 0 to less than 1."""
        passed = epoch - self.first_epoch + share
        if passed < 0:
            return LinkState.clean(self.states[0].parts)
        return self.states[math.floor(passed / self.period * len(self.states)) % len(self.states)]


@dataclass(frozen=True, slots=True)
class Wave:
    """Congestion that moves between two owners in a cosine wave.

    At weight w an owner's delay is w times the largest, its rate the lowest divided by w.

    Attributes:
        parts: number of parts, P.
        owners: the owner congested first, and the other one.
        delay_ms: the largest delay.
        mbit: the lowest rate; 0 for no limit.
        first_epoch: first epoch with congestion.
        period: epochs of a whole wave.
    """

    parts: int
    owners: tuple[int, int]
    delay_ms: float
    mbit: float
    first_epoch: int
    period: float

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """Return the links after a ``share`` of an epoch, 0 to less than 1."""
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


BURST = 0.25  # epochs of a short congested phase, and of the clean phase after it


class Pattern(Protocol):
    """The links at each moment of a run: a pure function, the same on every rank."""

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """Return the links after a ``share`` of an epoch, 0 to less than 1."""
        ...


@dataclass(frozen=True, slots=True)
class PatternSettings:
    """Settings of all patterns; a pattern reads some of them.

    Attributes:
        parts: number of parts, P.
        seed: seed that selects the congested owners, unless ``table`` or ``file`` names them.
        delay_ms: delay of replies over congested links, at least 0; ``table`` and ``file`` have their own delays.
        mbit: rate of congested links in Mbit/s; 0 for no limit; ``file`` has its own rates.
        first_epoch: first epoch that may be congested.
        cycle: period of the pattern in epochs, at least 1.
        table: table of a schedule, see :func:`dtdg_lab.network.patterns.parse_table`; empty for one from the seed.
        file: file of a recorded trace, see :func:`dtdg_lab.network.traces.load_trace`.
        epochs: epochs of the run.
        settings: options of the run that the pattern's entry names, by name.

    Raises:
        ConfigError: a number is out of bounds.
    """

    parts: int
    seed: int = 0
    delay_ms: float = 20.0
    mbit: float = 0.0
    first_epoch: int = 3
    cycle: int = 7
    table: str = ""
    file: str = ""
    epochs: int = 30
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_delay(self.delay_ms, "congestion_ms")
        if self.mbit:
            check_rate(self.mbit, "congestion_mbit")
        for name, minimum in (("parts", 1), ("first_epoch", 0), ("cycle", 1)):
            if getattr(self, name) < minimum:
                raise ConfigError(
                    f"{name}={getattr(self, name)} of a congestion pattern is too small: give at least {minimum}."
                )

    @property
    def owners(self) -> tuple[int, int]:
        """The two owners that the seed selects; a pattern with one owner takes the first.

        Raises:
            ConfigError: there are fewer than two parts.
        """
        if self.parts < 2:
            raise ConfigError(
                f"congestion between parts={self.parts}: one part fetches nothing. Set congestion=none, or more parts."
            )
        first, second = generator(self.seed, "congestion/owners").permutation(self.parts)[:2].tolist()
        return first, second

    @property
    def all_owners(self) -> tuple[int, ...]:
        """All parts in an order from the seed; the first two are ``owners``.

        Raises:
            ConfigError: as of ``owners``.
        """
        first = self.owners
        return *first, *(part for part in range(self.parts) if part not in first)

    def slow_parts(self, *parts: int) -> LinkState:
        """Return the links if these parts reply with the delay and rate of the settings."""
        return slow_owners(self.parts, dict.fromkeys(parts, self.delay_ms), dict.fromkeys(parts, self.mbit))

    def slow(self, *weights: float) -> LinkState:
        """Return the links if the seed's owners are congested by weights: delay times weight, rate over weight."""
        delays = {owner: weight * self.delay_ms for owner, weight in zip(self.owners, weights, strict=False)}
        rates = {owner: self.mbit / weight for owner, weight in zip(self.owners, weights, strict=False)}
        return slow_owners(self.parts, delays, rates)


def none(settings: PatternSettings) -> Pattern:
    """Keep links clean."""
    return Phases(LinkState.clean(settings.parts), settings.first_epoch)


def one_slow(settings: PatternSettings) -> Pattern:
    """Congest one owner for the first half of every cycle, rounded up."""
    return _in_long_phases(settings, 1.0)


def one_fast(settings: PatternSettings) -> Pattern:
    """Congest one owner twice in every epoch, for a quarter of it each; ignore ``cycle``."""
    return Phases(settings.slow(1.0), settings.first_epoch, 2 * BURST, BURST)


def two_symmetric(settings: PatternSettings) -> Pattern:
    """Congest two owners equally, in the phases of :func:`one_slow`."""
    return _in_long_phases(settings, 1.0, 1.0)


def two_asymmetric(settings: PatternSettings) -> Pattern:
    """Congest two owners, the second with half the delay and twice the rate."""
    return _in_long_phases(settings, 1.0, 0.5)


def oscillating(settings: PatternSettings) -> Pattern:
    """Move congestion between two owners in a cosine wave, one wave a cycle."""
    return Wave(settings.parts, settings.owners, settings.delay_ms, settings.mbit, settings.first_epoch, settings.cycle)


def rotating(settings: PatternSettings) -> Pattern:
    """Congest one owner after another, each for the same share of every cycle; ours."""
    states = tuple(settings.slow_parts(owner) for owner in settings.all_owners)
    return Turns(states, settings.first_epoch, settings.cycle)


def all_slow(settings: PatternSettings) -> Pattern:
    """Congest all owners equally, in the phases of :func:`one_slow`; ours."""
    congested = settings.slow_parts(*settings.all_owners)
    return Phases(congested, settings.first_epoch, settings.cycle, (settings.cycle + 1) // 2)


def markov(settings: PatternSettings) -> Pattern:
    """Congest and clear each owner independently, after exponentially distributed times; ours.

    An owner is congested for a mean of a quarter of a cycle, and clean for three quarters. Times are drawn up to the
    last of ``epochs``.
    """
    changes: list[tuple[float, int]] = []
    for owner in settings.all_owners:
        random = generator(settings.seed, "congestion/markov", owner)
        time, slow = settings.first_epoch + random.exponential(0.75 * settings.cycle), True
        while time < settings.epochs:
            changes.append((time, owner))
            time, slow = time + random.exponential((0.25 if slow else 0.75) * settings.cycle), not slow
    congested: set[int] = set()
    states = []
    for _, owner in sorted(changes):
        congested ^= {owner}
        states.append(settings.slow_parts(*sorted(congested)))
    times = tuple((int(time), time % 1.0) for time, _ in sorted(changes))
    return RecordedTrace(times, tuple(states), settings.parts)


def schedule(settings: PatternSettings) -> Pattern:
    """Congest the owners that a table names for each epoch of a cycle; ignore ``delay_ms``."""
    text = settings.table.strip() or made_table(settings.owners, settings.cycle)
    phases = parse_table(text, parts=settings.parts, cycle=settings.cycle, mbit=settings.mbit)
    return CycleTable(phases, settings.first_epoch, settings.epochs)


def recorded(settings: PatternSettings) -> Pattern:
    """Repeat the links of a recorded trace; ignore the other settings."""
    return load_trace(settings.file, settings.parts)


class PatternRule(Protocol):
    """A function that makes a pattern; users add theirs with ``lab.register(rule, "congestion pattern")``."""

    def __call__(self, settings: PatternSettings) -> Pattern:
        """Return the pattern, such as ``Phases(settings.slow(1.0), settings.first_epoch, settings.cycle, 2)``."""


def make_pattern(name: str, *, parts: int, **settings: Any) -> Pattern:
    """Create a pattern by its name.

    Args:
        name: of the catalogue's kind ``congestion``.
        parts: P.
        settings: see :class:`PatternSettings`.

    Raises:
        UnknownNameError: there is no such pattern.
        ConfigError: a setting is out of bounds, a table or file names a part that does not exist, or there are no links
            between fewer than two parts.
        DataError: a recorded trace cannot be read.

    References: GreenDyGNN section IV-C2 names six archetypes (no congestion, one link slow or fast, two links symmetric
    or asymmetric, oscillating), without their course in time.

    Differs from the paper: their shapes are ours. A congested link affects all of an owner's replies, as in section
    VI-A.
    """
    make: PatternRule = catalogue.entry("congestion", name).load()
    return make(PatternSettings(parts, **settings))


def _in_long_phases(settings: PatternSettings, *weights: float) -> Pattern:
    return Phases(settings.slow(*weights), settings.first_epoch, settings.cycle, (settings.cycle + 1) // 2)
