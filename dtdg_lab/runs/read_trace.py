"""Reading back a timeline (Chrome trace) that a run was exported to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.records import TABLES
from dtdg_lab.runs.exported_run import PartialRun

if TYPE_CHECKING:
    import pandas as pd

MADE_BY = "dtdg_lab"  # entry of otherData with config, run and the time that timestamps count from
KEPT = {"phase": "phases", "step": "steps", "evaluation": "evaluations", "group": "groups"}  # category -> table


def read_trace(where: Path, read: Mapping[str, Any]) -> PartialRun:
    """What a timeline holds of its run: settings, steps, phases, groups and evaluations.

    Args:
        where: the file.
        read: what it holds, from JSON.

    Raises:
        ConfigError: its settings are not understood.
        RunStoreError: it is somebody else's trace, or damaged.
    """
    other = read.get("otherData")
    noted = other.get(MADE_BY) if isinstance(other, dict) else None
    if not isinstance(noted, dict) or "config" not in noted:
        raise RunStoreError("this is a trace, but none that lab.export made of one run: open it in Perfetto.")
    config = RunConfig.from_json(json.dumps(noted["config"]))
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in KEPT.values()}
    try:
        for event in read["traceEvents"]:
            table = KEPT.get(event.get("cat", ""))
            if table is not None:
                rows[table].append(_row(table, event, int(noted["origin_ns"])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunStoreError(f"the trace is damaged ({error!r}). Export the run again.") from error
    tables = {table: _frame(table, of) for table, of in rows.items() if of}
    holds = "its settings and " + (", ".join(tables) or "no steps")
    return PartialRun(str(noted.get("run")), "trace", where, config, tables, noted.get("summary") or {}, {}, holds)


def _row(table: str, event: Mapping[str, Any], origin_ns: int) -> dict[str, Any]:
    """The row of a record table that an event was made of."""
    row = dict(event["args"])
    if table in ("phases", "groups"):
        row["start_ns"] = origin_ns + round(event["ts"] * 1000)
        row["end_ns"] = row["start_ns"] + round(event["dur"] * 1000)
    if table == "phases":
        row["phase"] = event["name"]
    return row


def _frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows)
    order = [name for name in ("rank", "attempt", *TABLES[table]) if name in frame]
    frame = frame[[*order, *(name for name in frame if name not in order)]]
    return frame.sort_values(["rank", "attempt"], kind="stable", ignore_index=True)
