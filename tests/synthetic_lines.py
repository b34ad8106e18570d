"""Record lines of made-up runs, in the format of config/record_tables.py, for tests of views and dashboard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def phase_rows(
    step: int, *, per_epoch: int = 10, step_ns: int = 20_000_000, own_s: float = 0.01, wait_s: float = 0.0
) -> list[list[Any]]:
    """Rows of ``phases`` for one step, one interval after the other."""
    at, rows = START_NS + step * step_ns, []
    for phase, seconds in (("compute", own_s), ("wait", wait_s), ("communicate", 0.002), ("update", 0.001)):
        end = at + int(seconds * 1e9)
        rows.append([step, step // per_epoch, phase, at, end])
        at = end
    return rows


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


def knob_row(
    step: int,
    version: int,
    *,
    step_ns: int = 20_000_000,
    per_epoch: int = 10,
    when: str = "step",
    duration_s: float | None = None,
    **changes: Any,
) -> list[Any]:
    """A row of ``events`` saying that a knob change was applied."""
    data = {"version": version, "changes": changes, "when": when}
    data |= {} if duration_s is None else {"duration_s": duration_s}
    return [step, step // per_epoch, START_NS + step * step_ns, "settings", data]


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


def steady_run(steps: int, *, ranks: int = 2, slow_rank: int = -1, slow_s: float = 0.0) -> Iterator[dict[str, Any]]:
    """Lines of an uneventful run of 10 steps an epoch: 10 ms of computing each, ``slow_s`` more on one rank."""
    seqs = [0] * ranks
    for step in range(steps):
        for rank in range(ranks):
            own = 0.01 + (slow_s if rank == slow_rank else 0.0)
            wait = slow_s if slow_rank >= 0 and rank != slow_rank else 0.0
            step_ns = int((0.014 + slow_s) * 1e9)
            tables: list[tuple[str, list[list[Any]]]] = [
                ("steps", [step_row(step, 1 / (1 + step), step_ns=step_ns, own_s=own, wait_s=wait)]),
                ("phases", phase_rows(step, step_ns=step_ns, own_s=own, wait_s=wait)),
            ]
            if step % 25 == 24:
                tables.append(("energy", [energy_row((step + 1) * step_ns / 1e9, 5.0 + rank)]))
            if step % 10 == 9 and rank == 0:
                found = [
                    evaluation_row(step + 1, split, 1 / (2 + step), step_ns=step_ns)
                    for split in ("train", "validation")
                ]
                tables.append(("evaluations", found))
            for table, rows in tables:
                yield line(table, rows, rank=rank, seq=seqs[rank])
                seqs[rank] += 1
