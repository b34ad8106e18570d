"""Tables of made-up runs that fetch features: batches, replies, caches and decisions of a few parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from tests.tables import run_tables

PARTS, CAPACITY, ROW_BYTES = 4, 900, 400

Record = dict[str, Any]


def features(step: int = 0, **more: Any) -> Record:
    """Return the event of a run's features."""
    data = {
        "parts": PARTS,
        "rows": 8000,
        "row_bytes": ROW_BYTES,
        "remote_share": 0.62,
        "policy": "planner",
        "window": 16,
        "cache_rows": CAPACITY,
        "steps_per_epoch": 20,
        "batch_size": 512,
        "batch_length": 1,
        "fanouts": "10 25",
    }
    return {"kind": "features", "step": step, "data": data | more}


def congestion(
    step: int = 0,
    delay_ms: Mapping[int, float] | None = None,
    mbit: Mapping[int, float] | None = None,
    *,
    parts: int = PARTS,
) -> Record:
    """Return the event of links that are slow for all who ask some owners."""
    late = [[(delay_ms or {}).get(owner, 0.0) * (owner != asker) for asker in range(parts)] for owner in range(parts)]
    rate = [[(mbit or {}).get(owner) if owner != asker else None for asker in range(parts)] for owner in range(parts)]
    data = {"pattern": "one_slow", "delay_ms": late, "mbit": rate, "by": "emulated"}
    return {"kind": "congestion", "step": step, "data": data}


def changed(step: int, version: int = 1, **changes: Any) -> Record:
    """Return the event of settings that rank 0 applied."""
    return {"kind": "settings", "step": step, "data": {"version": version, "changes": changes, "when": "step"}}


def batch(step: int, part: int, *, rate: float = 0.75, parts: int = PARTS, wait_s: float = 0.002) -> Record:
    """Return a row of ``resolved``: 100 rows of each other part, some of which are in the cache."""
    hits = [0 if owner == part else round(100 * rate) for owner in range(parts)]
    misses = [0 if owner == part else 100 - round(100 * rate) for owner in range(parts)]
    counts = {"remote": 100 * (parts - 1), "hits": hits, "misses": misses, "bytes": sum(misses) * ROW_BYTES}
    return {"step": step, "part": part, "window": 0, "rpcs": parts - 1, "resolve_s": 0.004, "wait_s": wait_s, **counts}


def cache(step: int, part: int, length: int, *, late: int = 0, parts: int = PARTS, biased: int = -1) -> Record:
    """Return a row of ``windows``: a full cache, of all other parts alike."""
    by_owner = [0 if owner == part else CAPACITY // (parts - 1) for owner in range(parts)]
    held = {"capacity": CAPACITY, "held": sum(by_owner), "copied": 0, "fetched": sum(by_owner), "by_owner": by_owner}
    row = {"step": step, "part": part, "number": 0, "first": step - late, "length": length}
    return {**row, "late_steps": late, "biased": biased, **held}


def reply(step: int, part: int, owner: int, *, ms: float = 1.0, purpose: str = "miss") -> Record:
    """Return a row of ``fetches``."""
    return {"step": step, "part": part, "owner": owner, "purpose": purpose, "rows": 10, "rtt_s": ms / 1e3}


def decision(step: int, part: int, window: int, **more: Any) -> Record:
    """Return a row of ``cache_decisions``."""
    usual = {"biased": -1, "greedy": True, "values": [], "delays_ms": [], "action": 0, "policy": "planner"}
    return {"step": step, "part": part, "window": window, **usual, **more}


def feature_tables(
    steps: int = 0,
    tables: Mapping[str, Sequence[Record]] | None = None,
    events: Iterable[Record] = (),
    *,
    parts: int = PARTS,
    every: int = 16,
    recent: int = 2_000,
    **settings: Any,
) -> RunTables:
    """Return the tables of a run of one rank that has done some steps, with a new cache every so many."""
    numbers = range(steps)
    rows: dict[str, Sequence[Record]] = {
        "steps": [{"step": s, "epoch": s // 20, "iteration": s % 20, "time_s": 0.02} for s in numbers],
        "resolved": [batch(s, part, parts=parts) for s in numbers for part in range(parts)],
        "windows": [cache(s, part, every, parts=parts) for s in numbers[::every] for part in range(parts)],
    }
    config = RunConfig(**{"system": "greendygnn", "dataset": "growing", "parts": parts, "ranks": 1, **settings})
    return run_tables(config, rows | dict(tables or {}), events=[*events], rollups=all_rollups(), recent=recent)
