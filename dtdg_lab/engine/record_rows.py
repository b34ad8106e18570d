"""Rows of shared record tables that strategies write, without the columns step and epoch."""

from __future__ import annotations

from typing import NamedTuple


class GroupRow(NamedTuple):
    """When a snapshot group was computed, of the table ``groups``."""

    group: int
    start_ns: int
    end_ns: int
    cpu_s: float


class LinkRow(NamedTuple):
    """Rows sent to another rank, of the table ``links``."""

    layer: int
    pass_name: str
    to: int
    rows: int
    bytes: int


class ExchangeRow(NamedTuple):
    """Seconds of exchanges, of the table ``exchanges``.

    Attributes:
        exposed_s: seconds of ``in_flight_s`` that the rank waited.
    """

    layer: int
    pass_name: str
    collective: str
    exchanges: int
    in_flight_s: float
    exposed_s: float


class TransferRow(NamedTuple):
    """Snapshots copied to the device, of the table ``transfers``.

    Attributes:
        whole_bytes: bytes of the same snapshots sent in full.
    """

    snapshots: int
    bytes: int
    whole_bytes: int
