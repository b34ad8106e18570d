"""Congestion by a table: which owners are slow, and by how much, in each epoch of a cycle."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dtdg_lab.congestion.slow_owners import check_delay, check_owner, slow_owners
from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.core.links import LinkState

_ENTRY = re.compile(r"(\d{1,9}(?:\+\d{1,9})*):(\S+)")


@dataclass(frozen=True, slots=True)
class CycleTable:
    """Clean epochs first, then a cycle of epochs as in a table, again and again; the last epoch of a run is clean.

    Attributes:
        phases: the links of each epoch of the cycle.
        first_epoch: the first of the first cycle.
        epochs: of the run.

    References: GreenDyGNN section VI-A, congestion injection: epochs 0 to 2 clean, from 3 on 15 to 25 ms on one or two
    nodes at a time, repeated every 7 epochs. Which nodes, when, it does not tell: the table is ours.
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
    delay_ms = _milliseconds(matched[2])
    check_delay(delay_ms, f"congestion_table: {shortened(entry)}")
    owners = [int(number) for number in matched[1].split("+")]
    for owner in owners:
        check_owner(owner, parts, f"congestion_table: {shortened(entry)}")
    return slow_owners(parts, dict.fromkeys(owners, delay_ms), dict.fromkeys(owners, mbit))


def _milliseconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
