"""Patterns of congestion by name: which links are slow at each moment of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from dtdg_lab.congestion.cycle_table import CycleTable, made_table, parse_table
from dtdg_lab.congestion.phases import Phases, Turns, Wave
from dtdg_lab.congestion.recorded import RecordedTrace, load_trace
from dtdg_lab.congestion.slow_owners import check_delay, check_rate, slow_owners
from dtdg_lab.core import streams
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.links import LinkState

BURST = 0.25  # epochs that a short phase lasts, and that are clean between two


class Pattern(Protocol):
    """What every link is like at each moment of a run: a pure function, the same on every rank."""

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """The links when ``share`` of an epoch has passed, 0 to less than 1."""
        ...


@dataclass(frozen=True, slots=True)
class PatternSettings:
    """What patterns are made of; each reads what it needs.

    Attributes:
        parts: P.
        seed: decides which owners are congested, but for ``table`` and ``file``, which name them.
        delay_ms: added to replies over congested links; at least 0. ``table`` and ``file`` have their own.
        mbit: rate of congested links in Mbit/s; 0 does not limit them. ``file`` has its own.
        first_epoch: the first that may be congested.
        cycle: epochs after which a pattern begins anew, at least 1.
        table: of a schedule, see :func:`dtdg_lab.congestion.cycle_table.parse_table`; empty makes one by the seed.
        file: of a recorded trace, see :func:`dtdg_lab.congestion.recorded.load_trace`.
        epochs: of the run.

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

    def __post_init__(self) -> None:
        check_delay(self.delay_ms, "congestion_ms")
        if self.mbit:
            check_rate(self.mbit, "congestion_mbit")
        for name, least in (("parts", 1), ("first_epoch", 0), ("cycle", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} of a pattern of congestion: give at least {least}.")

    @property
    def owners(self) -> tuple[int, int]:
        """The two owners that the seed congests; a pattern of one takes the first.

        Raises:
            ConfigError: there are fewer than two parts, and so no link.
        """
        if self.parts < 2:
            raise ConfigError(
                f"congestion between parts={self.parts}: one part fetches nothing. Set congestion=none, or more parts."
            )
        first, second = streams.generator(self.seed, "congestion/owners").permutation(self.parts)[:2].tolist()
        return first, second

    @property
    def all_owners(self) -> tuple[int, ...]:
        """All parts in an order that the seed decides; the first two are ``owners``.

        Raises:
            ConfigError: as of ``owners``.
        """
        first = self.owners
        return *first, *(part for part in range(self.parts) if part not in first)

    def slow_parts(self, *parts: int) -> LinkState:
        """Links over which these parts reply as late, and as slowly, as the settings say."""
        return slow_owners(self.parts, dict.fromkeys(parts, self.delay_ms), dict.fromkeys(parts, self.mbit))

    def slow(self, *weights: float) -> LinkState:
        """Links of the seed's owners, each congested by its weight: its share of the delay, the rate divided by it."""
        delays = {owner: weight * self.delay_ms for owner, weight in zip(self.owners, weights, strict=False)}
        rates = {owner: self.mbit / weight for owner, weight in zip(self.owners, weights, strict=False)}
        return slow_owners(self.parts, delays, rates)


def none(settings: PatternSettings) -> Pattern:
    """No pattern: links are clean, but for what is set by hand."""
    return Phases(LinkState.clean(settings.parts), settings.first_epoch)


def one_slow(settings: PatternSettings) -> Pattern:
    """One owner is congested for the first half of every cycle, of which an odd epoch is congested too."""
    return _in_long_phases(settings, 1.0)


def one_fast(settings: PatternSettings) -> Pattern:
    """One owner is congested twice in every epoch, for a quarter of it each; ``cycle`` is not read."""
    return Phases(settings.slow(1.0), settings.first_epoch, 2 * BURST, BURST)


def two_symmetric(settings: PatternSettings) -> Pattern:
    """Two owners are congested alike, when :func:`one_slow` congests one."""
    return _in_long_phases(settings, 1.0, 1.0)


def two_asymmetric(settings: PatternSettings) -> Pattern:
    """As :func:`two_symmetric`, but the second owner has half the delay, and twice the rate."""
    return _in_long_phases(settings, 1.0, 0.5)


def oscillating(settings: PatternSettings) -> Pattern:
    """Congestion swings between two owners in a cosine wave, there and back in every cycle."""
    return Wave(settings.parts, settings.owners, settings.delay_ms, settings.mbit, settings.first_epoch, settings.cycle)


def rotating(settings: PatternSettings) -> Pattern:
    """One owner after another is congested, each for the same share of every cycle; ours."""
    states = tuple(settings.slow_parts(owner) for owner in settings.all_owners)
    return Turns(states, settings.first_epoch, settings.cycle)


def all_slow(settings: PatternSettings) -> Pattern:
    """All owners are congested alike, when :func:`one_slow` congests one; ours."""
    congested = settings.slow_parts(*settings.all_owners)
    return Phases(congested, settings.first_epoch, settings.cycle, (settings.cycle + 1) // 2)


def markov(settings: PatternSettings) -> Pattern:
    """Each owner becomes congested and clean again by itself, after exponentially distributed times; ours.

    It stays congested for a quarter of a cycle in the mean, and clean for three quarters. Where ``epochs`` end, so does
    what is drawn.
    """
    changes: list[tuple[float, int]] = []
    for owner in settings.all_owners:
        random = streams.generator(settings.seed, "congestion/markov", owner)
        at, slow = settings.first_epoch + random.exponential(0.75 * settings.cycle), True
        while at < settings.epochs:
            changes.append((at, owner))
            at, slow = at + random.exponential((0.25 if slow else 0.75) * settings.cycle), not slow
    congested: set[int] = set()
    states = []
    for _, owner in sorted(changes):
        congested ^= {owner}
        states.append(settings.slow_parts(*sorted(congested)))
    times = tuple((int(at), at % 1.0) for at, _ in sorted(changes))
    return RecordedTrace(times, tuple(states), settings.parts)


def schedule(settings: PatternSettings) -> Pattern:
    """A table says which owners are congested in each epoch of a cycle; ``delay_ms`` is not read."""
    text = settings.table.strip() or made_table(settings.owners, settings.cycle)
    phases = parse_table(text, parts=settings.parts, cycle=settings.cycle, mbit=settings.mbit)
    return CycleTable(phases, settings.first_epoch, settings.epochs)


def recorded(settings: PatternSettings) -> Pattern:
    """What a file says, whatever the other settings are."""
    return load_trace(settings.file, settings.parts)


PATTERNS: Mapping[str, Callable[[PatternSettings], Pattern]] = MappingProxyType(
    {
        made.__name__: made
        for made in (
            none,
            one_slow,
            one_fast,
            two_symmetric,
            two_asymmetric,
            oscillating,
            rotating,
            markov,
            all_slow,
            schedule,
            recorded,
        )
    }
)


def make_pattern(name: str, *, parts: int, **settings: float | str) -> Pattern:
    """A pattern by its name.

    Args:
        name: one of ``PATTERNS``.
        parts: P.
        settings: see :class:`PatternSettings`.

    Raises:
        UnknownNameError: there is no such pattern.
        ConfigError: a setting is out of bounds, a table or file names a part that does not exist, or there are no links
            between fewer than two parts.
        DataError: a recorded trace cannot be read.

    References: GreenDyGNN section IV-C2 names six archetypes (no congestion, one link slow or fast, two links symmetric
    or asymmetric, oscillating); what they do in time it does not tell. Differs from the paper: their shapes are ours. A
    congested link is all of an owner's replies, as section VI-A congests nodes.
    """
    if name not in PATTERNS:
        raise UnknownNameError("congestion", name, PATTERNS)
    return PATTERNS[name](PatternSettings(parts, **settings))  # type: ignore[arg-type]


def _in_long_phases(settings: PatternSettings, *weights: float) -> Pattern:
    return Phases(settings.slow(*weights), settings.first_epoch, settings.cycle, (settings.cycle + 1) // 2)
