"""Links set by hand, as text: ``1>0 delay=20 rate=25; 2 delay=5``."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.congestion.slow_owners import check_delay, check_owner, check_rate
from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.core.links import BITS, LinkState

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
        given[key] = _number(key, number, clause)
    if not given:
        raise ConfigError(f"links {shortened(clause)}: neither delay= nor rate= is given; {_FORM}.")
    return given


def _number(key: str, text: str, clause: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    check = check_delay if key == "delay" else check_rate
    check(number, f"links {shortened(clause)}: {shortened(f'{key}={text}')}")
    return number


def _said(links: LinkState, owner: int, asker: int) -> str:
    """The settings of one link, empty where it is clean."""
    delay_s, rate = links.delay_s[owner, asker], links.bytes_per_s[owner, asker]
    delay = f"delay={delay_s * 1e3:.12g}" if delay_s else ""
    return f"{delay} rate={rate * BITS:.12g}".strip() if np.isfinite(rate) else delay
