"""Record lines of made-up runs whose snapshot groups are scheduled, with known times, for tests of views."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from synthetic_lines import START_NS, line, step_row

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import schedule_round_robin as round_robin

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
        "scheduler": scheduler, "ranks": plan.parts, "parts": plan.parts,
        "per_rank": max(len(part) for row in plan.assignment for part in row), "iterations": len(plan.assignment),
        "source": source, "times_s": times.tolist(), "assignment": plan.assignment,
        "makespan_s": float(loads.max(axis=1).sum()), "bound_s": float(times.sum() / plan.parts), "gap": None,
        "notes": "", "solve_s": 0.004, "fit": None,
        "psg_makespan_s": round_robin(times, plan.parts).makespan_s(times),
    }  # fmt: skip
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
