"""Record lines of made-up runs whose snapshot groups are scheduled, with known times, for tests of views."""

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
from tests.synthetic_lines import START_NS, line, step_row

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


def event(data: dict[str, Any], *, step: int = 0, epoch: int = 0, attempt: int = 1) -> dict[str, Any]:
    """The line of an event ``schedule``."""
    return line("events", [[step, epoch, START_NS + step, "schedule", data]], attempt=attempt)


def epoch_lines(
    assignment: Sequence[Any],
    times_s: Sequence[float],
    *,
    epoch: int = 0,
    first_step: int | None = None,
    slow: Sequence[float] = (),
    cpu_share: float = 1.0,
    attempt: int = 1,
    start_s: float | None = None,
) -> Iterator[dict[str, Any]]:
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
            begin, groups = at, []
            for group in row[rank]:
                end = begin + round(1e9 * factors[rank] * times_s[group])
                groups.append([step, epoch, group, begin, end, cpu_share * (end - begin) / 1e9])
                begin = end
            met = at + round(1e9 * slowest)
            phases = [
                [step, epoch, "compute", at, begin],
                [step, epoch, "wait", begin, met],
                [step, epoch, "communicate", met, met + int(EXCHANGE_S * 1e9)],
            ]
            known = step_row(step, 1.0, per_epoch=len(assignment), own_s=own[rank], wait_s=slowest - own[rank])
            known[1], known[2] = epoch, iteration
            for table, rows in (("groups", groups), ("phases", phases), ("steps", [known])):
                if rows:
                    yield line(table, rows, rank=rank, attempt=attempt)
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
    tables.add_lines([_anew(event(data, step=step, epoch=epoch))])


def add_epoch(
    tables: RunTables,
    assignment: Sequence[Any],
    times_s: Sequence[float],
    *,
    epoch: int = 0,
    most: int | None = None,
    **more: Any,
) -> None:
    """Record an epoch, or its first ``most`` lines; a whole one has an event of its end."""
    lines = [_anew(each) for each in epoch_lines(assignment, times_s, epoch=epoch, **more)]
    tables.add_lines(lines[:most])
    if most is None:
        groups = [row for each in lines if each["table"] == "groups" for row in each["rows"]]
        begin_ns, end_ns, step = min(row[3] for row in groups), max(row[4] for row in groups), groups[-1][0]
        ended = {"epoch": epoch, "time_s": (end_ns - begin_ns) / 1e9}
        row = [step + 1, epoch, end_ns, "epoch", ended]
        tables.add_lines([_anew(line("events", [row], attempt=more.get("attempt", 1)))])


def _anew(known: dict[str, Any]) -> dict[str, Any]:
    """A line without its number: lines of one number are one line."""
    return {name: value for name, value in known.items() if name != "seq"}
