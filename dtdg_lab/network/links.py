"""Links between parts: delay and rate of every reply of an owner to a requester, and their text form."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, shortened

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
        delay_s, bytes_per_s = (np.array(matrix, dtype=np.float64) for matrix in (self.delay_s, self.bytes_per_s))
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
        for name, matrix in (("delay_s", delay_s), ("bytes_per_s", bytes_per_s)):
            matrix.setflags(write=False)
            object.__setattr__(self, name, matrix)

    @staticmethod
    def clean(parts: int) -> LinkState:
        """Return links between P parts without delay or limit."""
        return LinkState(np.zeros((parts, parts)), np.full((parts, parts), np.inf))

    @property
    def parts(self) -> int:
        """Number of parts, P."""
        return len(self.delay_s)

    @property
    def is_clean(self) -> bool:
        """Whether no link has a delay or limit."""
        return not self.delay_s.any() and bool(np.isinf(self.bytes_per_s).all())

    def with_(self, links: LinkState) -> LinkState:
        """Combine both: delays add up, and the lower rate applies."""
        return LinkState(self.delay_s + links.delay_s, np.minimum(self.bytes_per_s, links.bytes_per_s))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinkState):
            return NotImplemented
        return np.array_equal(self.delay_s, other.delay_s) and np.array_equal(self.bytes_per_s, other.bytes_per_s)

    def __hash__(self) -> int:
        return hash((self.delay_s.tobytes(), self.bytes_per_s.tobytes()))

    def to_dict(self) -> dict[str, Any]:
        """Return ``delay_ms`` and ``mbit`` for records, as lists of rows by owner; None is an unlimited rate."""
        mbit = [[None if np.isinf(rate) else rate * BITS for rate in row] for row in self.bytes_per_s.tolist()]
        return {"delay_ms": (self.delay_s * 1e3).tolist(), "mbit": mbit}


MOST_MS = 10_000.0  # a link slower than these is taken for a mistake: a run on it would seem to stand still


LEAST_MBIT = 1e-3


def slow_owners(parts: int, delay_ms: Mapping[int, float], mbit: Mapping[int, float]) -> LinkState:
    """Return the links of P parts where some owners reply late to all other parts.

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


def check_owner(owner: int, parts: int, source: str) -> None:
    """Refuse a part that does not exist.

    Raises:
        ConfigError: the part does not exist; the message names the ``source``.
    """
    if not 0 <= owner < parts:
        raise ConfigError(
            f"{source} names part {owner}: there are {parts}, numbered from 0 to {parts - 1}. "
            "Name one of these, or set more parts."
        )


def check_delay(delay_ms: float, source: str) -> None:
    """Refuse a delay that no link is given.

    Raises:
        ConfigError: it is not between 0 and ``MOST_MS``; the message names the ``source``.
    """
    if not 0 <= delay_ms <= MOST_MS:
        raise ConfigError(f"{source}: a delay of {delay_ms:g} ms is not between 0 and {MOST_MS:g} ms.")


def check_rate(mbit: float, source: str) -> None:
    """Refuse a rate that no link is given.

    Raises:
        ConfigError: it is not finite or below ``LEAST_MBIT``; the message names the ``source``.
    """
    if not LEAST_MBIT <= mbit < np.inf:
        raise ConfigError(
            f"{source}: a rate of {mbit:g} Mbit/s is not a finite number of {LEAST_MBIT:g} or more. Leave it out (0 in "
            "the options) for no limit."
        )


def read_number(text: str) -> float:
    """Read a number; NaN, which no bounds allow, if the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


_FORM = (
    "write 'OWNER>REQUESTER delay=MS rate=MBIT' or 'OWNER delay=MS', parts by number or *, ';' between links; such as "
    "'1>0 delay=20 rate=25; 2 delay=5'"
)


_ENDS = re.compile(r"(\*|\d{1,9})(?:>(\*|\d{1,9}))?")


def parse_links(text: str, parts: int) -> LinkState:
    """Read the links that a text describes; those that it does not name are clean.

    Clauses are separated by ``;``. Each names an owner, or an owner and a requester (``OWNER>REQUESTER``), by number or
    as ``*`` for all, then ``delay`` in ms, ``rate`` in Mbit/s, or both. A later clause replaces
    delay or rate of earlier ones for the same link.

    Args:
        text: as above; empty for clean links.
        parts: P.

    Raises:
        ConfigError: a clause does not have this form, names a part that does not exist or a part's link to itself, or
            gives a delay or a rate out of bounds. The clause is quoted.
    """
    delays_s, rates = np.zeros((parts, parts)), np.full((parts, parts), np.inf)
    for clause in (part.strip() for part in text.split(";")):
        if clause:
            ends, *settings = clause.replace(" >", ">").replace("> ", ">").split()
            links = _links(ends, clause, parts)
            numbers = _settings(settings, clause)
            if "delay" in numbers:
                delays_s[links] = numbers["delay"] / 1e3
            if "rate" in numbers:
                rates[links] = numbers["rate"] / BITS
    return LinkState(delays_s, rates)


def format_links(links: LinkState) -> str:
    """Write links as text; equal links of an owner, or of all owners, share a clause; empty if all are clean.

    Twelve digits of each number are kept: :func:`parse_links` reads the same links where they came of a text with no
    more. What is added to a part's link to itself is left out.
    """
    parts = range(links.parts)
    texts = {owner: {asker: _said(links, owner, asker) for asker in parts if asker != owner} for owner in parts}
    everything = {text for row in texts.values() for text in row.values()}
    if len(everything) == 1:
        only = everything.pop()
        return f"* {only}" if only else ""
    clauses = []
    for owner, row in texts.items():
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
    askers = [part for part in range(parts) if part != owner] if asker is None else [asker]
    if delay_ms is not None:
        delays_s[owner, askers] = delay_ms / 1e3
    if mbit is not None:
        rates[owner, askers] = mbit / BITS if mbit > 0 else np.inf
    return format_links(LinkState(delays_s, rates))


def _links(ends: str, clause: str, parts: int) -> NDArray[np.bool_]:
    """Return (P, P) which links a clause is about."""
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
    """Return delay in ms and rate in Mbit/s, if given."""
    numbers: dict[str, float] = {}
    for setting in settings:
        key, equals, number = setting.partition("=")
        if key not in ("delay", "rate") or not equals or key in numbers:
            raise ConfigError(f"links {shortened(clause)}: {shortened(setting)} is not understood; {_FORM}.")
        check = check_delay if key == "delay" else check_rate
        check(read_number(number), f"links {shortened(clause)}: {shortened(setting)}")
        numbers[key] = float(number)
    if not numbers:
        raise ConfigError(f"links {shortened(clause)}: neither delay= nor rate= is given; {_FORM}.")
    return numbers


def _said(links: LinkState, owner: int, asker: int) -> str:
    """Write the settings of one link; empty if it is clean."""
    delay_s, rate = links.delay_s[owner, asker], links.bytes_per_s[owner, asker]
    delay = f"delay={delay_s * 1e3:.12g}" if delay_s else ""
    return f"{delay} rate={rate * BITS:.12g}".strip() if np.isfinite(rate) else delay


def links_of_ranks(links: LinkState, ranks: int) -> LinkState:
    """Return the links between R ranks; each rank has P / R consecutive parts.

    Between two ranks the greatest delay and the least rate of their parts hold: an exchange has come when its last rows
    have. Nothing is added within a rank.

    Raises:
        PlanError: the ranks do not divide the parts.
    """
    if ranks < 1 or links.parts % ranks:
        raise PlanError(
            f"links of {links.parts} parts cannot be those of {ranks} rank(s): each has equally many parts."
        )
    parts_per_rank = links.parts // ranks
    shape = (ranks, parts_per_rank, ranks, parts_per_rank)
    delay_s = links.delay_s.reshape(shape).max(axis=(1, 3))
    bytes_per_s = links.bytes_per_s.reshape(shape).min(axis=(1, 3))
    np.fill_diagonal(delay_s, 0.0)
    np.fill_diagonal(bytes_per_s, np.inf)
    return LinkState(delay_s, bytes_per_s)
