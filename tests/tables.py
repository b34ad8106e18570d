"""Small record tables of a run, for tests of charts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.tables import RunTables

START_NS = 1_700_000_000_000_000_000
STEP_NS = 10_000_000

Record = Mapping[str, Any]


def run_tables(
    config: RunConfig | Mapping[str, Any] | None = None,
    tables: Mapping[str, Sequence[Record]] | None = None,
    *,
    events: Sequence[Record] = (),
    rollups: Iterable[Rollup] = (),
    recent: int = 2_000,
) -> RunTables:
    """Return tables of rows that are given as dictionaries.

    Rank 0, attempt 1, step 0, epoch 0 and times of 10 ms a step are taken where a row does not have them; a declared
    column that no row has is unknown.
    """
    settings = config if isinstance(config, RunConfig) else RunConfig(**{"ranks": 2, **(config or {})})
    run = RunTables(settings, rollups=rollups, recent=recent)
    run.add_lines(record_lines("events", events))
    for table, rows in (tables or {}).items():
        run.add_lines(record_lines(table, rows))
    return run


def record_lines(table: str, rows: Sequence[Record]) -> Iterable[dict[str, Any]]:
    """Yield the lines in which ranks would record these rows."""
    for (rank, attempt), some in groupby(rows, lambda row: (row.get("rank", 0), row.get("attempt", 1))):
        given = [_completed(table, row) for row in some]
        columns = list(dict.fromkeys([*TABLES.get(table, ()), *(name for row in given for name in row)]))
        columns = [name for name in columns if name not in ("rank", "attempt")]
        values = [[row.get(name) for name in columns] for row in given]
        yield {"rank": rank, "attempt": attempt, "table": table, "columns": columns, "rows": values}


def _completed(table: str, row: Record) -> dict[str, Any]:
    step = row.get("step") or 0
    usual = {"step": 0, "epoch": 0, "time_ns": START_NS + STEP_NS * (step + (table != "events")), "data": {}}
    return {name: value for name, value in usual.items() if name in TABLES.get(table, (name,))} | dict(row)


class _Guarded:
    """Tables that may be read under a lock only."""

    def __init__(self, tables: RunTables, lock: threading.Lock) -> None:
        self._tables, self._lock = tables, lock

    def __getattr__(self, name: str) -> Any:
        assert self._lock.locked(), f"{name} is read without the run's lock"
        return getattr(self._tables, name)


def run_under_way(tables: RunTables) -> Any:
    """Return a run whose tables may be read under its lock only."""
    lock = threading.Lock()
    return SimpleNamespace(id="run", status="running", live=_Guarded(tables, lock), lock=lock)
