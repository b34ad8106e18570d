"""Seconds in which rows travelled, and how much of them the rank stood still for, by layer, way and leg."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtdg_lab.comm.pending_rows import Arrived

LegRow = tuple[int, str, str, int, float, float]


@dataclass(slots=True)
class _Spent:
    """Flights of one leg: when each began and ended, and the seconds that were waited for."""

    flights: list[tuple[float, float]] = field(default_factory=list)
    exposed_s: float = 0.0


class LegTimes:
    """What has been waited for since the last drain. Seconds in which several exchanges travel count once."""

    def __init__(self) -> None:
        self._spent: dict[tuple[int, str, str], _Spent] = {}

    def add(self, layer: int, way: str, leg: str, found: Arrived) -> None:
        """Note an exchange that has been waited for."""
        spent = self._spent.setdefault((layer, way, leg), _Spent())
        spent.flights.append((found.started_s, found.started_s + found.in_flight_s))
        spent.exposed_s += found.exposed_s

    def drain(self) -> list[LegRow]:
        """(layer, way, leg, exchanges, in_flight_s, exposed_s); forgets them."""
        spent, self._spent = self._spent, {}
        return [(*key, len(of.flights), covered_s(of.flights), of.exposed_s) for key, of in spent.items()]


def covered_s(flights: list[tuple[float, float]]) -> float:
    """Seconds in which at least one of some intervals (begin, end) lies."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(flights):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
