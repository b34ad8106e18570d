"""Record lines of made-up runs, in the format of config/record_tables.py, for tests of views and dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtdg_lab.config.record_tables import PHASES, SCHEMA, TABLES

START_NS = 1_700_000_000_000_000_000


def line(table: str, rows: Sequence[Sequence[Any]], *, rank: int = 0, attempt: int = 1, seq: int = 0) -> dict[str, Any]:
    """One parsed JSON line."""
    return {
        "v": SCHEMA,
        "rank": rank,
        "attempt": attempt,
        "seq": seq,
        "table": table,
        "columns": list(TABLES[table]),
        "rows": [list(row) for row in rows],
    }


def step_row(
    step: int,
    loss: float | None,
    *,
    per_epoch: int = 10,
    step_ns: int = 20_000_000,
    own_s: float = 0.01,
    wait_s: float = 0.0,
    energy_j: float | None = None,
    source: str | None = None,
) -> list[Any]:
    """A row of ``steps``: ``own_s`` of computing, ``wait_s`` of waiting, 4 ms of the rest."""
    seconds = {
        "batch": 0.0,
        "transfer": 0.0,
        "compute": own_s,
        "wait": wait_s,
        "communicate": 0.002,
        "update": 0.001,
        "control": 0.001,
    }
    known = {f"{phase}_s": seconds[phase] for phase in PHASES} | {
        "step": step,
        "epoch": step // per_epoch,
        "iteration": step % per_epoch,
        "time_ns": START_NS + step * step_ns,
        "time_s": sum(seconds.values()),
        "loss": loss,
        "global_loss": loss,
        "energy_j": energy_j,
        "energy_source": source,
        "control_version": 0,
        "bytes_sent": 0,
        "bytes_received": 0,
    }
    return [known.get(column) for column in TABLES["steps"]]


def evaluation_row(
    step: int,
    split: str,
    loss: float,
    *,
    persistence: float = 0.5,
    step_ns: int = 20_000_000,
    per_epoch: int = 10,
    metrics: dict[str, float] | None = None,
) -> list[Any]:
    """A row of ``evaluations``; the mean baseline is 0.9."""
    return [step, step // per_epoch, START_NS + step * step_ns, split, loss, persistence, 0.9, 8, metrics]


def energy_row(
    time_s: float,
    joules: float | None,
    *,
    source: str = "modelled",
    scope: str = "rank",
    interval_s: float = 0.5,
    reader: str = "model",
    device: str = "processor",
    node: str = "a",
) -> list[Any]:
    """A row of ``energy``."""
    watts = None if joules is None else joules / interval_s
    return [START_NS + int(time_s * 1e9), interval_s, joules, watts, 0.4, reader, source, scope, device, node]
