"""Interface of what writes a rank's records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class Recorder(Protocol):
    """Writer of rows of the record tables; rank and attempt are its own."""

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        """Keep one row; costs about a microsecond."""

    def check(self) -> None:
        """Raise what went wrong while writing earlier rows, if anything did."""

    def flush(self) -> None:
        """Write all rows that were kept so far."""

    def reached(self, step: int, ranks: Iterable[int]) -> bool:
        """Return True if that step of this attempt, or a later one, is in the records of each of these ranks."""
