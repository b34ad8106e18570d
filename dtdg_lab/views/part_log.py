"""The newest rows that parts told, each of a step, in bounded memory."""

from __future__ import annotations

from typing import Generic, TypeVar

Row = TypeVar("Row")
KEPT = 1200  # of a part


class PartLog(Generic[Row]):
    """Rows by part, or by part and another, and by step; one that is told twice counts once.

    Args:
        kept: rows of a part.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._rows: dict[tuple[int, ...], dict[int, tuple[int, Row]]] = {}  # part -> step -> attempt, row

    def add(self, part: int | tuple[int, ...], step: int, attempt: int, row: Row) -> None:
        """Add the row of a step."""
        rows = self._rows.setdefault((part,) if isinstance(part, int) else part, {})
        rows[step] = (attempt, row)
        self._trim(rows)

    def _trim(self, rows: dict[int, tuple[int, Row]]) -> None:
        if len(rows) > self._kept:
            for at in sorted(rows)[: len(rows) - self._kept]:
                del rows[at]

    def limit(self, kept: int) -> None:
        """Keep so many rows of a part from now on: fewer, where there are more parts than were thought of."""
        self._kept = kept
        for rows in self._rows.values():
            self._trim(rows)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for part, rows in self._rows.items():
            self._rows[part] = {at: kept for at, kept in rows.items() if at < step or kept[0] >= attempt}

    def of(self, part: int | tuple[int, ...], *, since: int = 0) -> list[Row]:
        """Rows of a part from step ``since`` on, in order."""
        rows = self._rows.get((part,) if isinstance(part, int) else part, {})
        return [rows[at][1] for at in sorted(rows) if at >= since]

    def all(self, *, since: int = 0) -> dict[tuple[int, ...], list[Row]]:
        """The same by part, in ascending order; parts without any are left out."""
        found = {part: self.of(part, since=since) for part in sorted(self._rows)}
        return {part: rows for part, rows in found.items() if rows}

    def steps(self, *, since: int = 0) -> dict[int, list[Row]]:
        """Rows by step in ascending order, with those of all parts that told it."""
        found: dict[int, list[Row]] = {}
        for part in sorted(self._rows):
            for at, (_, row) in self._rows[part].items():
                if at >= since:
                    found.setdefault(at, []).append(row)
        return dict(sorted(found.items()))
