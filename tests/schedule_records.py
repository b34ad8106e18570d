"""Records of made-up runs whose snapshot groups are scheduled, with known times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Schedule
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import schedule_round_robin as round_robin
from tests.tables import START_NS, record_lines

EXCHANGE_S, REST_S = 0.002, 0.002  # of a step: communicate; update and control


def schedule_data(
    times_s: Sequence[float],
    assignment: Sequence[Any],
    *,
    scheduler: str = "fold",
    source: str = "profile",
    **more: Any,
) -> dict[str, Any]:
    """The data of an event ``schedule``, as JSON gives it back."""
    times = np.asarray(times_s, float)
    plan = Schedule(tuple(tuple(map(tuple, row)) for row in assignment), len(times))
    loads = plan.loads(times)
    data = {
        "scheduler": scheduler,
        "ranks": plan.parts,
        "parts": plan.parts,
        "per_rank": max(len(part) for row in plan.assignment for part in row),
        "iterations": len(plan.assignment),
        "source": source,
        "times_s": times.tolist(),
        "assignment": plan.assignment,
        "makespan_s": float(loads.max(axis=1).sum()),
        "bound_s": float(times.sum() / plan.parts),
        "gap": None,
        "notes": "",
        "solve_s": 0.004,
        "fit": None,
        "psg_makespan_s": round_robin(times, plan.parts).makespan_s(times),
    }
    return json.loads(json.dumps({**data, **more}))


def event(data: dict[str, Any], *, step: int = 0, epoch: int = 0) -> dict[str, Any]:
    """The row of an event ``schedule``."""
    return {"step": step, "epoch": epoch, "time_ns": START_NS + step, "kind": "schedule", "data": data}


def epoch_rows(
    assignment: Sequence[Any],
    times_s: Sequence[float],
    *,
    epoch: int = 0,
    first_step: int | None = None,
    slow: Sequence[float] = (),
    cpu_share: float = 1.0,
    attempt: int = 1,
    start_s: float | None = None,
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """One epoch as ranks record it: every group takes its time, times ``slow[rank]``; ranks meet after each iteration.

    A group's row ends where the next begins; waiting lasts to the slowest rank's end, the exchange 2 ms more.
    """
    ranks = len(assignment[0])
    factors = list(slow) or [1.0] * ranks
    step = epoch * len(assignment) if first_step is None else first_step
    at = START_NS + int(1e9 * (epoch * 1000.0 if start_s is None else start_s))
    for iteration, row in enumerate(assignment):
        own = [factors[rank] * sum(times_s[group] for group in row[rank]) for rank in range(ranks)]
        slowest = max(own)
        for rank in range(ranks):
            here, begin, groups = {"rank": rank, "attempt": attempt, "step": step, "epoch": epoch}, at, []
            for group in row[rank]:
                end = begin + round(1e9 * factors[rank] * times_s[group])
                cpu_s = cpu_share * (end - begin) / 1e9
                groups.append({**here, "group": group, "start_ns": begin, "end_ns": end, "cpu_s": cpu_s})
                begin = end
            met = at + round(1e9 * slowest)
            ends = {"compute": begin, "wait": met, "communicate": met + int(EXCHANGE_S * 1e9)}
            phases, seconds, start = [], {"update_s": REST_S / 2, "control_s": REST_S / 2}, at
            for phase, end in ends.items():
                phases.append({**here, "phase": phase, "start_ns": start, "end_ns": end})
                seconds[f"{phase}_s"], start = (end - start) / 1e9, end
            losses = {"iteration": iteration, "time_ns": START_NS + 20_000_000 * step, "loss": 1.0, "global_loss": 1.0}
            known = {**here, **losses, **seconds, "time_s": sum(seconds.values()), "bytes_sent": 0}
            yield from (("groups", groups), ("phases", phases), ("steps", [known]))
        at += round(1e9 * (slowest + EXCHANGE_S + REST_S))
        step += 1


def scheduled_tables(
    times_s: Sequence[float],
    assignment: Sequence[Any],
    *,
    epochs: int = 0,
    data: dict[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    **more: Any,
) -> RunTables:
    """Tables of a run with a schedule, after some epochs; more is of :func:`epoch_lines`."""
    settings = {"system": "dygnex-g", "dataset": "sbm", "ranks": len(assignment[0]), "epochs": 50, **(config or {})}
    tables = RunTables(RunConfig(**settings), rollups=all_rollups())
    add_schedule(tables, schedule_data(times_s, assignment) if data is None else data)
    for epoch in range(epochs):
        add_epoch(tables, assignment, times_s, epoch=epoch, **more)
    return tables


def add_schedule(tables: RunTables, data: dict[str, Any], *, step: int = 0, epoch: int = 0) -> None:
    """Record a schedule."""
    tables.add_lines(record_lines("events", [event(data, step=step, epoch=epoch)]))


def add_epoch(
    tables: RunTables,
    assignment: Sequence[Any],
    times_s: Sequence[float],
    *,
    epoch: int = 0,
    most: int | None = None,
    **more: Any,
) -> None:
    """Record an epoch, or its first ``most`` tables; a whole one has an event of its end."""
    recorded = list(epoch_rows(assignment, times_s, epoch=epoch, **more))
    for table, rows in recorded[:most]:
        tables.add_lines(record_lines(table, rows))
    if most is None:
        groups = [row for table, rows in recorded if table == "groups" for row in rows]
        end_ns = max(row["end_ns"] for row in groups)
        ended = {"epoch": epoch, "time_s": (end_ns - min(row["start_ns"] for row in groups)) / 1e9}
        row = {"step": groups[-1]["step"] + 1, "epoch": epoch, "time_ns": end_ns, "kind": "epoch", "data": ended}
        tables.add_lines(record_lines("events", [row | {"attempt": more.get("attempt", 1)}]))
