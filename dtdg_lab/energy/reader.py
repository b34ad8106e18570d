"""What every energy reader gives: joules since its last reading, with where they come from.

Unknown is ``None``, never 0: a counter that did not move, a window too short to mean anything and a value no device
could draw are unknown, and their energy is carried into the next reading where the counter still holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Source = Literal["counter", "polled", "modelled"]
Scope = Literal["rank", "node"]
Device = Literal["processor", "gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Energy of one window.

    ``source``: ``counter`` (the device counts its joules), ``polled`` (sampled watts, integrated) or ``modelled``
    (assumed watts times processor time). ``scope``: ``rank`` where the joules belong to the reading rank alone,
    ``node`` where they cover the whole machine and are to be counted once for it. ``device``: ``processor`` (with its
    memory where that is counted) or ``gpu``.
    """

    joules: float
    interval_s: float
    watts: float
    source: Source
    reader: str
    scope: Scope
    device: Device


class EnergyReader(Protocol):
    """A source of energy readings, owned by one rank."""

    @property
    def name(self) -> str:
        """What is read, such as ``rapl`` or ``nvml:GPU-5f3a...``; the ``reader`` column of the records."""

    @property
    def source(self) -> Source:
        """How its joules come about."""

    @property
    def scope(self) -> Scope:
        """Whose joules they are."""

    @property
    def device(self) -> Device:
        """What draws them."""

    def read(self) -> Reading | None:
        """Energy since the last reading (or since construction); None where it is unknown.

        Raises:
            NotAvailableError: what could be read before can no longer be read.
        """

    def close(self) -> None:
        """Give back handles and threads; calling it twice is harmless."""
