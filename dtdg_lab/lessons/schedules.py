"""Experiments of the lesson on schedules: those that a run followed, and throughput on simulated ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.systems.snapshot_groups.forecast import ScheduleStudy

NAMES = {"round_robin": "psg"}  # as the lesson calls it


def schedules_of(run: StoredRun) -> pd.DataFrame:
    """Return the schedules that a run followed, in order, with the waiting of their epochs in percent.

    Waiting is the share of an epoch in which ranks wait, in the mean over the epochs of a schedule.
    """
    schedules = [event for event in run.events if event["kind"] == "schedule"]
    begins = [event["epoch"] for event in schedules]
    steps = run.table("steps")
    steps = steps.assign(schedule=np.searchsorted(begins, steps["epoch"], side="right") - 1)
    sums = steps.groupby("schedule")[["wait_s", "time_s"]].sum()
    waiting = (100 * sums["wait_s"] / sums["time_s"]).round()
    rows = [
        {
            "epoch": event["epoch"],
            "scheduler": NAMES.get(event["data"]["scheduler"], event["data"]["scheduler"]),
            "times from": event["data"]["source"],
            "iterations": event["data"]["iterations"],
            "waiting (%)": waiting.get(number),
        }
        for number, event in enumerate(schedules)
    ]
    return pd.DataFrame(rows)


def throughputs(study: ScheduleStudy, *, curve: str) -> dict[str, dict[str, float]]:
    """Return scheduler -> number of ranks -> throughput a rank, in percent of that of one rank.

    Args:
        study: result of ``lab.estimate.schedules``.
        curve: growth of the graph: ``linear`` or ``exponential``.
    """
    shares: dict[str, dict[str, float]] = {}
    for row in study.rows:
        if row["curve"] == curve:
            shares.setdefault(row["scheduler"], {})[f"{row['ranks']:,} ranks"] = 100 * row["throughput"]
    return shares
