"""Seconds that exchanges of rows took, and how much of them the rank stood still for, by layer, way and leg."""

from __future__ import annotations

from dtdg_lab.comm.pending_rows import Arrived

LegRow = tuple[int, str, str, int, float, float]


class LegTimes:
    """What has been waited for since the last drain."""

    def __init__(self) -> None:
        self._spent: dict[tuple[int, str, str], tuple[int, float, float]] = {}

    def add(self, layer: int, way: str, leg: str, found: Arrived) -> None:
        """Note an exchange that has been waited for."""
        count, in_flight_s, exposed_s = self._spent.get((layer, way, leg), (0, 0.0, 0.0))
        self._spent[layer, way, leg] = (count + 1, in_flight_s + found.in_flight_s, exposed_s + found.exposed_s)

    def drain(self) -> list[LegRow]:
        """(layer, way, leg, exchanges, in_flight_s, exposed_s); forgets them."""
        spent, self._spent = self._spent, {}
        return [(*key, *values) for key, values in spent.items()]
