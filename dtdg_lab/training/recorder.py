"""Interface of a writer of a rank's records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class Recorder(Protocol):
    """Writer of rows of the record tables; it adds rank and attempt."""

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        """Buffer a row; costs about a microsecond."""

    def check(self) -> None:
        """Raise the error of an earlier write, if there was one."""

    def flush(self) -> None:
        """Write all buffered rows."""

    def reached(self, step: int, ranks: Iterable[int]) -> bool:
        """Return True if each of these ranks has recorded this step of the attempt, or a later one."""
