"""Patterns of congestion by name: which links are slow at each moment of a run."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, DataError, PlanError, shortened
from dtdg_lab.core.files import replacing
from dtdg_lab.core.rng import generator
from dtdg_lab.core.system_errors import explain, reading
from dtdg_lab.core.units import as_path

# Links between parts: delay and rate of every reply of an owner to a requester.


BITS = 8e-6  # megabits per byte


@dataclass(frozen=True, slots=True, eq=False)
class LinkState:
    """Delay and rate of every link, from the owner of rows to the requester.

    Attributes:
        delay_s: (P, P) seconds added to a reply of owner o to requester r at ``[o, r]``, 0 or more.
        bytes_per_s: (P, P) rate of replies, which are sent one after another; infinite for no limit.

    Raises:
        ConfigError: the matrices are inconsistent, a delay is negative or a rate is not above 0.
    """

    delay_s: NDArray[np.float64]
    bytes_per_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        delay_s, bytes_per_s = (np.array(given, dtype=np.float64) for given in (self.delay_s, self.bytes_per_s))
        if delay_s.ndim != 2 or delay_s.shape[0] != delay_s.shape[1] or delay_s.shape != bytes_per_s.shape:
            raise ConfigError(
                f"links of delays {delay_s.shape} and rates {bytes_per_s.shape}: two square matrices of one size, a "
                "row for each owner and a column for each requester, are needed."
            )
        if not (delay_s >= 0).all() or np.isinf(delay_s).any() or not (bytes_per_s > 0).all():
            raise ConfigError(
                "links with a negative or infinite delay, or a rate that is not above 0: give delays of 0 ms or more, "
                "and rates above 0 Mbit/s (none for no limit)."
            )
        for name, own in (("delay_s", delay_s), ("bytes_per_s", bytes_per_s)):
            own.setflags(write=False)
            object.__setattr__(self, name, own)

    @staticmethod
    def clean(parts: int) -> LinkState:
        """Links between P parts without delay or limit."""
        return LinkState(np.zeros((parts, parts)), np.full((parts, parts), np.inf))

    @property
    def parts(self) -> int:
        """P."""
        return len(self.delay_s)

    @property
    def is_clean(self) -> bool:
        """Whether no link has a delay or limit."""
        return not self.delay_s.any() and bool(np.isinf(self.bytes_per_s).all())

    def with_(self, other: LinkState) -> LinkState:
        """Both combined: delays add up, and the lower rate applies."""
        return LinkState(self.delay_s + other.delay_s, np.minimum(self.bytes_per_s, other.bytes_per_s))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinkState):
            return NotImplemented
        return np.array_equal(self.delay_s, other.delay_s) and np.array_equal(self.bytes_per_s, other.bytes_per_s)

    def __hash__(self) -> int:
        return hash((self.delay_s.tobytes(), self.bytes_per_s.tobytes()))

    def to_dict(self) -> dict[str, Any]:
        """For records: ``delay_ms`` and ``mbit`` as lists of rows, one for each owner; None is an unlimited rate."""
        mbit = [[None if np.isinf(rate) else rate * BITS for rate in row] for row in self.bytes_per_s.tolist()]
        return {"delay_ms": (self.delay_s * 1e3).tolist(), "mbit": mbit}


# Links that are slow because the owner of features is: all its replies are late, for every requester.


MOST_MS = 10_000.0  # a link slower than these is taken for a mistake: a run on it would seem to stand still
LEAST_MBIT = 1e-3


def slow_owners(parts: int, delay_ms: Mapping[int, float], mbit: Mapping[int, float]) -> LinkState:
    """The links of P parts where some owners reply late to all other parts.

    A part does not ask itself: the diagonal stays clean.

    Args:
        parts: P.
        delay_ms: of each slow owner, milliseconds added to its replies.
        mbit: of each slow owner, Mbit/s of each of its links; 0 or nothing does not limit them.

    Raises:
        ConfigError: there is no such owner, or a delay or rate is out of bounds.
    """
    delays_s, rates = np.zeros((parts, parts)), np.full((parts, parts), np.inf)
    for owner in delay_ms.keys() | mbit.keys():
        rate = mbit.get(owner, 0.0)
        check_owner(owner, parts, "congestion")
        check_delay(delay_ms.get(owner, 0.0), f"congestion of part {owner}")
        if rate:
            check_rate(rate, f"congestion of part {owner}")
        delays_s[owner] = delay_ms.get(owner, 0.0) / 1e3
        rates[owner] = rate / BITS if rate else np.inf
    np.fill_diagonal(delays_s, 0.0)
    np.fill_diagonal(rates, np.inf)
    return LinkState(delays_s, rates)


def check_owner(owner: int, parts: int, where: str) -> None:
    """Refuse a part that does not exist.

    Raises:
        ConfigError: as said; ``where`` names the source.
    """
    if not 0 <= owner < parts:
        raise ConfigError(
            f"{where} names part {owner}: there are {parts}, numbered from 0 to {parts - 1}. "
            "Name one of these, or set more parts."
        )


def check_delay(delay_ms: float, where: str) -> None:
    """Refuse a delay that no link is given.

    Raises:
        ConfigError: it is not between 0 and ``MOST_MS``; ``where`` tells what gave it.
    """
    if not 0 <= delay_ms <= MOST_MS:
        raise ConfigError(f"{where}: a delay of {delay_ms:g} ms; it is 0 to {MOST_MS:g} ms.")


def check_rate(mbit: float, where: str) -> None:
    """Refuse a rate that no link is given.

    Raises:
        ConfigError: it is not finite or below ``LEAST_MBIT``; ``where`` tells what gave it.
    """
    if not LEAST_MBIT <= mbit < np.inf:
        raise ConfigError(
            f"{where}: a rate of {mbit:g} Mbit/s; it is {LEAST_MBIT:g} or more, and left out (0 in the options) for no "
            "limit."
        )


# Congestion by a table: which owners are slow, and by how much, in each epoch of a cycle.


_ENTRY = re.compile(r"(\d{1,9}(?:\+\d{1,9})*):(\S+)")


@dataclass(frozen=True, slots=True)
class CycleTable:
    """Clean epochs first, then a cycle of epochs as in a table, again and again; the last epoch of a run is clean.

    Attributes:
        phases: the links of each epoch of the cycle.
        first_epoch: the first of the first cycle.
        epochs: of the run.

    References: GreenDyGNN section VI-A, congestion injection: epochs 0 to 2 clean, from 3 on 15 to 25 ms on one or two
    nodes at a time, repeated every 7 epochs. It does not specify which nodes and when: the table is ours.
    """

    phases: tuple[LinkState, ...]
    first_epoch: int
    epochs: int

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """The links of an epoch; they do not change within one."""
        if epoch < self.first_epoch or epoch >= self.epochs - 1:
            return LinkState.clean(self.phases[0].parts)
        return self.phases[(epoch - self.first_epoch) % len(self.phases)]


def parse_table(text: str, *, parts: int, cycle: int, mbit: float = 0.0) -> tuple[LinkState, ...]:
    """The links of each epoch of a cycle.

    Args:
        text: an entry for each epoch, separated by blanks: ``OWNERS:MS``, with ``+`` between several owners, such as
            ``1+2:25``; or ``-`` for a clean epoch.
        parts: P.
        cycle: how many entries there must be.
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
    """A table of 15 to 25 ms on one or two owners, whose last epoch is clean where a cycle has more than one."""
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
    delay_ms = _number(matched[2])
    check_delay(delay_ms, f"congestion_table: {shortened(entry)}")
    owners = [int(number) for number in matched[1].split("+")]
    for owner in owners:
        check_owner(owner, parts, f"congestion_table: {shortened(entry)}")
    return slow_owners(parts, dict.fromkeys(owners, delay_ms), dict.fromkeys(owners, mbit))


def _number(text: str) -> float:
    """The number that a text says; NaN, which no bounds allow, where it says none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


# Links set by option, as text: ``1>0 delay=20 rate=25; 2 delay=5``.


_FORM = (
    "write 'OWNER>REQUESTER delay=MS rate=MBIT' or 'OWNER delay=MS', parts by number or *, ';' between links; such as "
    "'1>0 delay=20 rate=25; 2 delay=5'"
)
_ENDS = re.compile(r"(\*|\d{1,9})(?:>(\*|\d{1,9}))?")


def parse_links(text: str, parts: int) -> LinkState:
    """The links that a text describes; those that it does not name are clean.

    Clauses are separated by ``;``. Each names an owner, or an owner and a requester (``OWNER>REQUESTER``), by number or
    as ``*`` for all, then ``delay`` in ms, ``rate`` in Mbit/s, or both. What a later clause says of a link replaces
    what earlier ones said of it, each key for itself.

    Args:
        text: as above; empty for clean links.
        parts: P.

    Raises:
        ConfigError: a clause does not have this form, names a part that does not exist or a part's link to itself, or
            gives a delay or a rate out of bounds. The clause is quoted.
    """
    delays_s, rates = np.zeros((parts, parts)), np.full((parts, parts), np.inf)
    for clause in (each.strip() for each in text.split(";")):
        if clause:
            ends, *settings = clause.replace(" >", ">").replace("> ", ">").split()
            links = _links(ends, clause, parts)
            given = _settings(settings, clause)
            if "delay" in given:
                delays_s[links] = given["delay"] / 1e3
            if "rate" in given:
                rates[links] = given["rate"] / BITS
    return LinkState(delays_s, rates)


def format_links(links: LinkState) -> str:
    """The text of links, with one clause where all of an owner's, or all there are, are alike; empty where clean.

    Twelve digits of each number are kept: :func:`parse_links` reads the same links where they came of a text with no
    more. What is added to a part's link to itself is left out.
    """
    parts = range(links.parts)
    said = {owner: {asker: _said(links, owner, asker) for asker in parts if asker != owner} for owner in parts}
    everything = {text for row in said.values() for text in row.values()}
    if len(everything) == 1:
        only = everything.pop()
        return f"* {only}" if only else ""
    clauses = []
    for owner, row in said.items():
        if len(set(row.values())) == 1:
            clauses += [f"{owner} {text}" for text in set(row.values()) if text]
        else:
            clauses += [f"{owner}>{asker} {text}" for asker, text in row.items() if text]
    return "; ".join(clauses)


def with_link(
    text: str,
    parts: int,
    link: tuple[int, int | None],
    *,
    delay_ms: float | None = None,
    mbit: float | None = None,
) -> str:
    """Return the text of links with another delay or rate of one link, or of all links of an owner.

    Args:
        text: of the links; one that does not fit the parts counts as empty.
        parts: P.
        link: owner and requester; None for all requesters.
        delay_ms: instead of the delay so far; None keeps it.
        mbit: instead of the rate so far, 0 for no limit; None keeps it.
    """
    try:
        links = parse_links(text, parts)
    except ConfigError:  # of a run with other parts
        links = LinkState.clean(parts)
    (owner, asker), delays_s, rates = link, links.delay_s.copy(), links.bytes_per_s.copy()
    askers = [other for other in range(parts) if other != owner] if asker is None else [asker]
    if delay_ms is not None:
        delays_s[owner, askers] = delay_ms / 1e3
    if mbit is not None:
        rates[owner, askers] = mbit / BITS if mbit > 0 else np.inf
    return format_links(LinkState(delays_s, rates))


def _links(ends: str, clause: str, parts: int) -> NDArray[np.bool_]:
    """(P, P) which links a clause is about."""
    matched = _ENDS.fullmatch(ends)
    if not matched:
        raise ConfigError(f"links {shortened(clause)}: {shortened(ends)} names no link; {_FORM}.")
    named = np.zeros((parts, parts), dtype=bool)
    owner, asker = (_part(end, clause, parts) for end in matched.groups())
    named[owner, asker] = True
    if isinstance(owner, int) and owner == asker:
        raise ConfigError(f"links {shortened(clause)}: part {owner} does not ask itself; {_FORM}.")
    np.fill_diagonal(named, False)
    return named


def _part(end: str | None, clause: str, parts: int) -> int | slice:
    if end is None or end == "*":
        return slice(None)
    check_owner(int(end), parts, f"links {shortened(clause)}")
    return int(end)


def _settings(settings: list[str], clause: str) -> dict[str, float]:
    """Delay in ms and rate in Mbit/s, as far as they are given."""
    given: dict[str, float] = {}
    for setting in settings:
        key, equals, number = setting.partition("=")
        if key not in ("delay", "rate") or not equals or key in given:
            raise ConfigError(f"links {shortened(clause)}: {shortened(setting)} is not understood; {_FORM}.")
        check = check_delay if key == "delay" else check_rate
        check(_number(number), f"links {shortened(clause)}: {shortened(setting)}")
        given[key] = float(number)
    if not given:
        raise ConfigError(f"links {shortened(clause)}: neither delay= nor rate= is given; {_FORM}.")
    return given


def _said(links: LinkState, owner: int, asker: int) -> str:
    """The settings of one link, empty where it is clean."""
    delay_s, rate = links.delay_s[owner, asker], links.bytes_per_s[owner, asker]
    delay = f"delay={delay_s * 1e3:.12g}" if delay_s else ""
    return f"{delay} rate={rate * BITS:.12g}".strip() if np.isfinite(rate) else delay


# Congestion that comes and goes by the clock of a run's epochs.


LEVELS = 16  # a wave changes the links so often, and not more often: every change is sent to the servers and recorded


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


# Congestion as it was: a trace of links, kept in a file and repeated.


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """Links that change as in the recorded run; clean before the first change.

    Attributes:
        times: (epoch, share of it) of each change, ascending.
        states: the links from each change on, as many.
        parts: P.
    """

    times: tuple[tuple[int, float], ...]
    states: tuple[LinkState, ...]
    parts: int

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """The links when ``share`` of an epoch has passed, 0 to less than 1."""
        number = bisect_right(self.times, (epoch, share))
        return self.states[number - 1] if number else LinkState.clean(self.parts)


def save_trace(events: Iterable[Mapping[str, Any]], file: str | Path, *, steps_per_epoch: int) -> Path:
    """Write the trace of a run: a JSON line for each change of its links.

    Args:
        events: rows of the run's table ``events``; those of kind ``congestion`` are read; their ``data`` has
            ``delay_ms`` and ``mbit``, (P, P) each, a rate being None where nothing limits it.
        file: to write; replaced whole.
        steps_per_epoch: of the run, by which steps become shares of an epoch.

    Raises:
        DataError: there is no such event, or the file cannot be written.
    """
    lines = []
    for event in events:
        if event["kind"] == "congestion":
            share = (event["step"] - event["epoch"] * steps_per_epoch) / steps_per_epoch
            when = {"epoch": event["epoch"], "share": min(max(share, 0.0), 1 - 1e-9)}
            lines.append(json.dumps({**when, **{name: event["data"][name] for name in ("delay_ms", "mbit")}}))
    if not lines:
        raise DataError("no event of kind congestion is among those given: the run had no links to slow down.")
    path = as_path(file, "file")
    try:
        with replacing(path) as draft:
            draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write the trace {path}: {explain(error, path, setting='file=')}") from error
    return path


def load_trace(file: str | Path, parts: int) -> RecordedTrace:
    """Read a trace file of :func:`save_trace`, or one of the same format.

    Each line is a JSON object of ``epoch``, ``share`` (0 to less than 1; 0 where it is left out), and ``delay_ms``,
    ``mbit``: (P, P), a row for each owner and a column for each requester; ``mbit`` or a rate may be null.

    Args:
        file: of JSON lines, in order of time; empty lines are passed over.
        parts: P, of the run.

    Raises:
        ConfigError: no file is named, or it is of another number of parts.
        DataError: the file cannot be read, has no line, or a line is no such object, or before its predecessor in time.
    """
    if not file:
        raise ConfigError("congestion=recorded needs the file of a trace: set congestion_file, or another pattern.")
    path = as_path(file, "congestion_file")
    with reading(path, f"congestion_file={str(file)!r}", remedy="Give a trace's file."):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    changes = [_change(line, number, path, parts) for number, line in enumerate(lines, start=1)]
    times = tuple(when for when, _ in changes)
    if not times or list(times) != sorted(times):
        raise DataError(f"{path} is no trace: it needs at least one line, and lines in order of epoch and share.")
    return RecordedTrace(times, tuple(links for _, links in changes), parts)


def _change(line: str, number: int, path: Path, parts: int) -> tuple[tuple[int, float], LinkState]:
    try:
        described = json.loads(line)
        when = (int(described["epoch"]), float(described.get("share", 0.0)))
        delay_s = np.array(described["delay_ms"], dtype=np.float64) / 1e3
        limits = described.get("mbit") or [[None] * len(row) for row in described["delay_ms"]]
        rates = np.array([[np.inf if limit is None else limit for limit in row] for row in limits], dtype=float) / BITS
        if not 0 <= when[1] < 1:
            raise ValueError(f"share={when[1]} is not between 0 and less than 1")
        check_delay(float(delay_s.max()) * 1e3, "its greatest delay")
        if np.isfinite(rates).any():
            check_rate(float(rates.min()) * BITS, "its least rate")
        links = LinkState(delay_s, rates)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"line {number} of {path} is no change of links ({type(error).__name__}: {error}). Each is a JSON object "
            "of epoch, share, and (P, P) lists delay_ms and mbit."
        ) from error
    if links.parts != parts:
        raise ConfigError(
            f"{path} is a trace of {links.parts} parts, this run has {parts}. Run it with parts={links.parts}, or give "
            "another trace."
        )
    return when, links


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
        cycle: epochs after which a pattern repeats, at least 1.
        table: of a schedule, see :func:`dtdg_lab.network.patterns.parse_table`; empty makes one by the seed.
        file: of a recorded trace, see :func:`dtdg_lab.network.patterns.load_trace`.
        epochs: of the run.
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
        first, second = generator(self.seed, "congestion/owners").permutation(self.parts)[:2].tolist()
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
    """No pattern: links are clean, except for option ``links``."""
    return Phases(LinkState.clean(settings.parts), settings.first_epoch)


def one_slow(settings: PatternSettings) -> Pattern:
    """One owner is congested for the first half of every cycle, rounded up."""
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
        random = generator(settings.seed, "congestion/markov", owner)
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


class PatternRule(Protocol):
    """A function that makes a pattern; one of a user's own is added by ``lab.register(rule, "congestion pattern")``."""

    def __call__(self, settings: PatternSettings) -> Pattern:
        """Return the pattern, such as ``Phases(settings.slow(1.0), settings.first_epoch, settings.cycle, 2)``."""


def make_pattern(name: str, *, parts: int, **settings: Any) -> Pattern:
    """A pattern by its name.

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
    or asymmetric, oscillating); their course in time is not specified. Differs from the paper: their shapes are ours. A
    congested link is all of an owner's replies, as section VI-A congests nodes.
    """
    make: PatternRule = catalogue.entry("congestion", name).load()
    return make(PatternSettings(parts, **settings))


def _in_long_phases(settings: PatternSettings, *weights: float) -> Pattern:
    return Phases(settings.slow(*weights), settings.first_epoch, settings.cycle, (settings.cycle + 1) // 2)


# Links between ranks, where each rank computes several parts.


def links_of_ranks(links: LinkState, ranks: int) -> LinkState:
    """The links between R ranks; each rank has P / R consecutive parts.

    Between two ranks the greatest delay and the least rate of their parts hold: an exchange has come when its last rows
    have. Nothing is added within a rank.

    Raises:
        PlanError: the ranks do not divide the parts.
    """
    if ranks < 1 or links.parts % ranks:
        raise PlanError(
            f"links of {links.parts} parts cannot be those of {ranks} rank(s): each has equally many parts."
        )
    each = links.parts // ranks
    shape = (ranks, each, ranks, each)
    delay_s = links.delay_s.reshape(shape).max(axis=(1, 3))
    bytes_per_s = links.bytes_per_s.reshape(shape).min(axis=(1, 3))
    np.fill_diagonal(delay_s, 0.0)
    np.fill_diagonal(bytes_per_s, np.inf)
    return LinkState(delay_s, bytes_per_s)
