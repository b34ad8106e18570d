"""Links that are slow because an owner of features is: all its replies come late, whoever asked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.links import BITS, LinkState

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
        ConfigError: as said; ``where`` tells what named it.
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
