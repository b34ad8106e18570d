"""Record tables: what each rank writes, one narrow table per kind of record.

A rank writes lines of JSON, each ``{"v", "rank", "attempt", "seq", "table", "columns", "rows"}``: rows of one table
with the names of their columns, so that readers keep unknown columns. Rank and attempt (how many times the
run was started, from 1) hold for all rows of a line. Times ending in ``_ns`` are nanoseconds since 1970-01-01.
``config/record_tables.toml`` has the shared tables, and ``family.toml`` of a family of systems its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dtdg_lab.config.catalogue import DECLARED

SCHEMA = 3  # 1 and 2, with other names of events and columns, are refused

MAX_CONTROL_VERSION = 2**24 - 1  # sent in a float32 slot, which is exact up to here

PHASES = ("batch", "transfer", "compute", "wait", "communicate", "update", "control")
OWN_PHASES = ("batch", "transfer", "compute")  # of a rank's own work: not waiting, not sending
BETWEEN_STEPS = ("evaluate", "checkpoint", "rebuild")  # rows of `phases` that belong to no step's sum

# table -> its columns, and column -> its meaning; each family of systems adds its own
TABLES: dict[str, tuple[str, ...]] = {
    table: tuple(columns) for declared in DECLARED.values() for table, columns in declared.get("tables", {}).items()
}
MEANINGS: dict[str, str] = {}
for _declared in DECLARED.values():
    for _column, _meaning in _declared.get("meanings", {}).items():
        MEANINGS[_column] = f"{MEANINGS[_column]}; {_meaning}" if _column in MEANINGS else _meaning
STEPS = TABLES["steps"]


def rows_of(line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the rows of a line, by the names of their columns."""
    return (dict(zip(line["columns"], row, strict=True)) for row in line["rows"])
