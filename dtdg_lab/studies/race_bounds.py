"""Lower bounds on time and energy for the runs of a race: best schedule, memory-speed copies, ideal network."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from dtdg_lab.core import catalogue
from dtdg_lab.energy.phases import STALL
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.systems.snapshot_groups.charts import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s
from dtdg_lab.visualization.phases import OWN
from dtdg_lab.visualization.race import Bound, RaceLevel

if TYPE_CHECKING:
    import pandas as pd


COPIED_BYTES = 32 << 20  # larger than any core's cache
REPEATS = 5
MOST_EPOCHS = 100  # only the newest ones count
CLAIRVOYANT = "clairvoyant"
SEER = "the clairvoyant's as raced, best in the cost model"


def copy_bandwidth() -> float:
    """Bytes per second that one core of this machine copies in memory, the best of a few tries; takes about 50 ms."""
    source, target = np.ones(COPIED_BYTES, np.uint8), np.empty(COPIED_BYTES, np.uint8)
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        np.copyto(target, source)
        taken.append(time.perf_counter() - began)
    return COPIED_BYTES / min(taken)


def bounds_of(runs: Mapping[str, Sequence[StoredRun]], copy_bytes_per_s: float | None) -> list[Bound]:
    """Medians over the finished runs of each contestant, of measured values and their bounds.

    ``epoch``: seconds of an epoch, against :func:`~dtdg_lab.systems.snapshot_groups.schedulers.base.lower_bound_s` of
    the measured groups
    where they are scheduled, else against perfect balance, the mean of the ranks' own time. ``moving``: seconds that
    the rank which sends most spent in exchanges, against copying its bytes. ``energy``: joules of an epoch, against
    those
    of the clairvoyant if it takes part (best in the cost model: a real run may beat it), else without those of
    stalls for features.

    Args:
        runs: finished ones by contestant.
        copy_bytes_per_s: see :func:`copy_bandwidth`; None where it was not measured.
    """
    found: list[Bound] = []
    seer, rate = _seer_joules(runs), copy_bytes_per_s
    for label, own in runs.items():
        for pairs in (
            [_once(run, "epoch", None, partial(_epoch, run)) for run in own],
            [_once(run, "moving", rate, partial(_moving, run, rate)) for run in own] if rate else [],
            [_energy(run, seer) for run in own],
        ):
            known = [pair for pair in pairs if pair is not None]
            if known:
                measured, bound = median(pair[1] for pair in known), median(pair[2] for pair in known)
                found.append(Bound(label, known[0][0], measured, bound, known[0][3]))
    return found


Pair = tuple[str, float, float, str]  # quantity, measured, bound, name
_KNOWN: WeakKeyDictionary[StoredRun, dict[tuple[str, float | None], Pair | None]] = WeakKeyDictionary()


def _once(run: StoredRun, name: str, of: float | None, make: Callable[[], Pair | None]) -> Pair | None:
    """Results from a finished run's tables; cached, because a race is redrawn with every run that ends."""
    known = _KNOWN.setdefault(run, {})
    if (name, of) not in known:
        known[name, of] = make()
    return known[name, of]


def levels_of(bounds: Sequence[Bound], epochs: Mapping[str, float], *, whole: Mapping[str, float]) -> list[RaceLevel]:
    """Bounds of a whole race as vertical lines: seconds and joules of the epochs that were trained.

    Args:
        bounds: per epoch.
        epochs: number trained by each contestant, median over seeds.
        whole: joules of the whole run of each, median over seeds; they include evaluations, which have no bound.
    """
    found = []
    for each in bounds:
        made = epochs.get(each.label, 0)
        if not made:
            continue
        if each.quantity == "epoch":
            found.append(RaceLevel(each.label, "seconds", each.bound * made, f"{made:g} epochs, {each.name}"))
        if each.quantity == "energy" and each.name == SEER:
            if each.bound == each.measured and each.label in whole:  # its own: one line for all
                words = "as raced, knows the links, best in the cost model"
                found.append(RaceLevel(each.label, "joules", whole[each.label], words))
        elif each.quantity == "energy" and each.label in whole and each.measured > 0:
            found.append(RaceLevel(each.label, "joules", whole[each.label] * each.bound / each.measured, each.name))
    return found


def _epoch(run: StoredRun) -> Pair | None:
    """Means over epochs, each with its own bound, so that no mean bound exceeds the measured mean."""
    steps = run.table("steps")
    done = run.summary.get("epochs") or 0
    steps = steps[(steps["epoch"] < done) & (steps["epoch"] >= done - MOST_EPOCHS)]
    measured = steps.groupby(["epoch", "rank"])["time_s"].sum(min_count=1).groupby("epoch").max()
    facts = run.live.view("schedule").facts
    if facts is not None and not run.config.flat.get("pipelined"):  # else the times of two groups overlap
        bounds, name = _makespans(run, facts), "makespan bound"
    elif run.config.ranks > 1:
        own = steps[[f"{phase}_s" for phase in OWN]].sum(axis=1, min_count=1)
        bounds, name = own.groupby(steps["epoch"]).sum(min_count=1) / run.config.ranks, "even load"
    else:
        return None  # a single rank
    both = measured.to_frame("measured").join(bounds.rename("bound"), how="inner").dropna()
    if both.empty or not both["bound"].mean() > 0:
        return None
    return "epoch", float(both["measured"].mean()), float(both["bound"].mean()), name


def _makespans(run: StoredRun, facts: ScheduleFacts) -> pd.Series[float]:
    """Lower bound in seconds for any schedule of an epoch's groups with the measured times; complete epochs only."""
    import pandas as pd

    table = run.table("groups")
    seconds = (table["end_ns"] - table["start_ns"]) * 1e-9
    per_rank = max(1, facts.per_rank * facts.parts // facts.ranks)
    found = {
        epoch: lower_bound_s(times.to_numpy(float), facts.ranks, per_rank=per_rank)
        for epoch, times in list(seconds.groupby(table["epoch"]))[-MOST_EPOCHS:]
        if len(times) == facts.groups
    }
    return pd.Series(found, dtype=float)


def _moving(run: StoredRun, copy_bytes_per_s: float) -> Pair | None:
    sums = _by_rank(run.table("steps"))
    if sums.empty or not float(sums["bytes_sent"].max()) > 0:
        return None
    rank = sums["bytes_sent"].groupby(level="rank").sum().idxmax()
    own = sums.xs(rank, level="rank").mean()
    return "moving", float(own["communicate_s"]), float(own["bytes_sent"]) / copy_bytes_per_s, "copying in memory"


def _by_rank(steps: pd.DataFrame) -> pd.DataFrame:
    sums = steps.groupby(["epoch", "rank"])[["bytes_sent", "communicate_s"]].sum(min_count=1)
    return sums.dropna()


def _seer_joules(runs: Mapping[str, Sequence[StoredRun]]) -> float | None:
    """Joules of an epoch of the contestant that knows the link conditions in advance, if there is one."""
    found = [
        run.summary["epoch_j"]
        for own in runs.values()
        for run in own
        if run.config.flat.get("cache_policy") == CLAIRVOYANT and run.summary.get("epoch_j") is not None
    ]
    return median(found) if found else None


def _energy(run: StoredRun, seer: float | None) -> Pair | None:
    if catalogue.system(run.config.system).parts["parallel"] != "remote_feature":
        return None
    measured, phases = run.summary.get("epoch_j"), run.summary.get("phase_j")
    if measured is None:
        return None
    if seer is not None:
        return "energy", measured, seer, SEER
    stall = (phases or {}).get(STALL)
    whole = sum(value for value in (phases or {}).values() if value is not None)
    if stall is None or not whole:
        return None
    return "energy", measured, measured * (1 - stall / whole), "no waiting for features"
