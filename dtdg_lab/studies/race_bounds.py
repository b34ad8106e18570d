"""Lower bounds on time and energy: best schedule, memory-speed copies, ideal network."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.config.record_tables import OWN_PHASES
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.visualization.studies.race_bounds import Bound

if TYPE_CHECKING:
    pass


COPIED_BYTES = 32 << 20  # larger than any core's cache
REPEATS = 5
MOST_EPOCHS = 100  # only the newest ones count


def copy_bandwidth() -> float:
    """Measure bytes per second that one core of this machine copies in memory, in about 50 ms."""
    source, target = np.ones(COPIED_BYTES, np.uint8), np.empty(COPIED_BYTES, np.uint8)
    durations = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        np.copyto(target, source)
        durations.append(time.perf_counter() - started)
    return COPIED_BYTES / min(durations)


Pair = tuple[str, float, float, str, bool]  # quantity, measured, bound, its name, True if it is of a contestant


def bounds_of(
    runs: Mapping[str, Sequence[StoredRun]], copy_bytes_per_s: float | None, cache: dict[StoredRun, list[Pair | None]]
) -> list[Bound]:
    """Return medians over the finished runs of each contestant, of measured values and their bounds.

    ``epoch``: seconds of an epoch, against what no schedule of the measured tasks can beat, where tasks are scheduled,
    else against perfect balance, the mean of the ranks' own time. ``moving``: seconds that the rank which sends most
    spent in exchanges, against copying its bytes. ``energy``: joules of an epoch, against the bound of its family.

    Args:
        runs: finished ones by contestant.
        copy_bytes_per_s: see :func:`copy_bandwidth`; None where it was not measured.
        cache: bounds of the runs read before, which grows: a race is redrawn after every run.
    """
    bounds: list[Bound] = []
    raced = [run for group in runs.values() for run in group]
    for label, group in runs.items():
        for run in group:
            if run not in cache:
                cache[run] = [_epoch(run), _moving(run, copy_bytes_per_s) if copy_bytes_per_s else None]
        for pairs in zip(*([*cache[run], _energy(run, raced)] for run in group), strict=True):
            present = [pair for pair in pairs if pair is not None]
            if present:
                quantity, _, _, name, is_raced = present[0]
                measured, bound = median(pair[1] for pair in present), median(pair[2] for pair in present)
                bounds.append(Bound(label, quantity, measured, bound, name, is_raced))
    return bounds


def _epoch(run: StoredRun) -> Pair | None:
    """Return means over epochs, each with its own bound, so that no mean bound exceeds the measured mean."""
    steps = run.table("steps")
    epochs = run.summary.get("epochs") or 0
    steps = steps[(steps["epoch"] < epochs) & (steps["epoch"] >= epochs - MOST_EPOCHS)]
    measured = steps.groupby(["epoch", "rank"])["time_s"].sum(min_count=1).groupby("epoch").max()
    bounds, name = run.family.epoch_bounds(run, MOST_EPOCHS), "makespan bound"
    if bounds is None and run.config.ranks == 1:
        return None
    if bounds is None:
        own_s = steps[[f"{phase}_s" for phase in OWN_PHASES]].sum(axis=1, min_count=1)
        bounds, name = own_s.groupby(steps["epoch"]).sum(min_count=1) / run.config.ranks, "even load"
    both = measured.to_frame("measured").join(bounds.rename("bound"), how="inner").dropna()
    if both.empty or not both["bound"].mean() > 0:
        return None
    return "epoch", float(both["measured"].mean()), float(both["bound"].mean()), name, False


def _moving(run: StoredRun, copy_bytes_per_s: float) -> Pair | None:
    sums = run.table("steps").groupby(["epoch", "rank"])[["bytes_sent", "communicate_s"]].sum(min_count=1).dropna()
    if sums.empty or not float(sums["bytes_sent"].max()) > 0:
        return None
    rank = sums["bytes_sent"].groupby(level="rank").sum().idxmax()
    means = sums.xs(rank, level="rank").mean()
    copying_s = float(means["bytes_sent"]) / copy_bytes_per_s
    return "moving", float(means["communicate_s"]), copying_s, "copying in memory", False


def _energy(run: StoredRun, raced: Sequence[StoredRun]) -> Pair | None:
    measured = run.summary.get("epoch_j")
    bound = None if measured is None else run.family.energy_bound(run, raced)
    return None if measured is None or bound is None else ("energy", measured, *bound)
