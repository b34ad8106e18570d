"""A recorder that keeps its rows in memory, for tests and for looking at a trainer without a run directory."""

from __future__ import annotations

from typing import Any

from dtdg_lab.core.records import TABLES


class RecordingMarks:
    """Takes down the phases, exchanges and blocks that are marked, in order; an exchange is ``exchange``."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.blocks: list[tuple[int, str]] = []

    def __call__(self, phase: str) -> None:
        """A phase has ended."""
        self.phases.append(phase)

    def exchange(self, wait_s: float) -> None:
        """An exchange has ended."""
        self.phases.append("exchange")

    def block(self, number: int, way: str) -> None:
        """A block of time begins."""
        self.blocks.append((number, way))


class RecordingRecorder:
    """Keeps every row as a dict of its table's columns, in the order written.

    Args:
        failure: raised by :meth:`check`, as a recorder whose disk is full would; None never fails.
    """

    def __init__(self, failure: Exception | None = None) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.failure = failure

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        """Keep one row.

        Raises:
            ValueError: it has another number of values than the table has columns.
        """
        self.tables[table].append(dict(zip(TABLES[table], values, strict=True)))

    def check(self) -> None:
        """Raise the failure this recorder was given, if any."""
        if self.failure is not None:
            raise self.failure

    def column(self, table: str, name: str) -> list[Any]:
        """One column of a table, in the order written."""
        return [row[name] for row in self.tables[table]]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind, in the order written."""
        return [row for row in self.tables["events"] if row["kind"] == kind]
