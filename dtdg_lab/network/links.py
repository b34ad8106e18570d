"""Links between parts: delay and rate of replies of each owner to each requester, and their text form."""

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
                f"links of delays {delay_s.shape} and rates {bytes_per_s.shape} are no square matrices of one size. "
                "Give a row for each owner and a column for each requester."
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


MOST_MS = 10_000.0  # slower links count as a mistake, since a run would seem to hang


LEAST_MBIT = 1e-3


def slow_owners(parts: int, delay_ms: Mapping[int, float], mbit: Mapping[int, float]) -> LinkState:
    """Return the links of P parts if some owners reply slowly to all other parts; the diagonal stays clean.

    Args:
        parts: number of parts, P.
        delay_ms: owner -> milliseconds added to its replies.
        mbit: owner -> Mbit/s of each of its links; 0 or missing for no limit.

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
    """Refuse a delay that is out of bounds.

    Raises:
        ConfigError: the delay is not between 0 and ``MOST_MS``; the message names the ``source``.
    """
    if not 0 <= delay_ms <= MOST_MS:
        raise ConfigError(f"{source}: a delay of {delay_ms:g} ms is not between 0 and {MOST_MS:g} ms.")


def check_rate(mbit: float, source: str) -> None:
    """Refuse a rate that is out of bounds.

    Raises:
        ConfigError: the rate is not finite or below ``LEAST_MBIT``; the message names the ``source``.
    """
    if not LEAST_MBIT <= mbit < np.inf:
        raise ConfigError(
            f"{source}: a rate of {mbit:g} Mbit/s is not a finite number of {LEAST_MBIT:g} or more. Leave it out (0 in "
            "the options) for no limit."
        )


def read_number(text: str) -> float:
    """Read a number; NaN, which is out of all bounds, if the text is no number."""
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
    """Parse links from text; links that it does not name are clean.

    Clauses are separated by ``;``. Each names an owner, or an owner and a requester (``OWNER>REQUESTER``), by number or
    as ``*`` for all, then ``delay`` in ms, ``rate`` in Mbit/s, or both. A later clause replaces
    delay or rate of earlier ones for the same link.

    Args:
        text: as above; empty for clean links.
        parts: P.

    Raises:
        ConfigError: a clause does not have this form, names a part that does not exist or a part's link to itself, or
            has a delay or a rate out of bounds; the message quotes the clause.
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

    Numbers have twelve digits; :func:`parse_links` restores links from texts with no more digits. A part's link to
    itself is left out.
    """
    parts = range(links.parts)
    texts = {
        owner: {requester: _link_text(links, owner, requester) for requester in parts if requester != owner}
        for owner in parts
    }
    link_texts = {text for row in texts.values() for text in row.values()}
    if len(link_texts) == 1:
        only = link_texts.pop()
        return f"* {only}" if only else ""
    clauses = []
    for owner, row in texts.items():
        if len(set(row.values())) == 1:
            clauses += [f"{owner} {text}" for text in set(row.values()) if text]
        else:
            clauses += [f"{owner}>{requester} {text}" for requester, text in row.items() if text]
    return "; ".join(clauses)


def with_link(
    text: str,
    parts: int,
    link: tuple[int, int | None],
    *,
    delay_ms: float | None = None,
    mbit: float | None = None,
) -> str:
    """Change delay or rate of one link, or of all links of an owner, in a text of links.

    Args:
        text: text of the links; empty if it does not fit the parts.
        parts: number of parts, P.
        link: owner and requester; None for all requesters.
        delay_ms: new delay; None keeps the old one.
        mbit: new rate, 0 for no limit; None keeps the old one.
    """
    try:
        links = parse_links(text, parts)
    except ConfigError:  # of a run with other parts
        links = LinkState.clean(parts)
    (owner, requester), delays_s, rates = link, links.delay_s.copy(), links.bytes_per_s.copy()
    requesters = [part for part in range(parts) if part != owner] if requester is None else [requester]
    if delay_ms is not None:
        delays_s[owner, requesters] = delay_ms / 1e3
    if mbit is not None:
        rates[owner, requesters] = mbit / BITS if mbit > 0 else np.inf
    return format_links(LinkState(delays_s, rates))


def _links(ends: str, clause: str, parts: int) -> NDArray[np.bool_]:
    """Return the mask of the links of a clause, (P, P)."""
    matched = _ENDS.fullmatch(ends)
    if not matched:
        raise ConfigError(f"links {shortened(clause)}: {shortened(ends)} names no link; {_FORM}.")
    named = np.zeros((parts, parts), dtype=bool)
    owner, requester = (_part(end, clause, parts) for end in matched.groups())
    named[owner, requester] = True
    if isinstance(owner, int) and owner == requester:
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


def _link_text(links: LinkState, owner: int, requester: int) -> str:
    """Write the settings of one link; empty if it is clean."""
    delay_s, rate = links.delay_s[owner, requester], links.bytes_per_s[owner, requester]
    delay = f"delay={delay_s * 1e3:.12g}" if delay_s else ""
    return f"{delay} rate={rate * BITS:.12g}".strip() if np.isfinite(rate) else delay


def links_of_ranks(links: LinkState, ranks: int) -> LinkState:
    """Return the links between R ranks; each rank has P / R consecutive parts.

    Between two ranks, the largest delay and the lowest rate of their parts apply, since an exchange ends with its last
    rows. There is no delay within a rank.

    Raises:
        PlanError: the ranks do not divide the parts.
    """
    if ranks < 1 or links.parts % ranks:
        raise PlanError(
            f"links of {links.parts} parts do not fit {ranks} rank(s): each rank must have equally many parts."
        )
    parts_per_rank = links.parts // ranks
    shape = (ranks, parts_per_rank, ranks, parts_per_rank)
    delay_s = links.delay_s.reshape(shape).max(axis=(1, 3))
    bytes_per_s = links.bytes_per_s.reshape(shape).min(axis=(1, 3))
    np.fill_diagonal(delay_s, 0.0)
    np.fill_diagonal(bytes_per_s, np.inf)
    return LinkState(delay_s, bytes_per_s)
