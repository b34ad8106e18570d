"""What runs say of a machine and its links: seconds of steps, watts by state, traces of congestion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import DataError, RunFailedError
from dtdg_lab.core.units import as_path
from dtdg_lab.network.patterns import save_trace
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.runs.summary import spent

# Seconds of steps, and watts of a rank by what it does.


WARM_UPS = 10  # steps of a run that do not count: connections, the first cache, memory touched for the first time
# phases of a run that stand for a host's states
STATES: Mapping[str, tuple[str, ...]] = {
    "gpu_compute": ("compute",),
    "cpu_spin": ("wait", "stall"),
    "idle": ("idle",),
}


def step_seconds(run: StoredRun) -> list[float]:
    """Seconds of every step that counts, of the rank that took longest.

    Raises:
        RunFailedError: the run has too few steps.
    """
    steps = run.table("steps")
    longest = steps[steps["step"] >= WARM_UPS].groupby("step")["time_s"].max()
    if longest.empty:
        raise RunFailedError(
            f"run {run.id} has {steps['step'].nunique()} steps, of which the first {WARM_UPS} do not "
            "count: give the config more epochs."
        )
    return [float(seconds) for seconds in longest]


def power_rows(runs: Iterable[StoredRun]) -> list[dict[str, Any]]:
    """Mean watts of a rank by what it did, its GPU included, over runs; nothing where a state's are unknown.

    ``host`` names the sources, and ``samples`` counts the runs.
    """
    by_run = [run.table("phase_energy").to_dict("records") for run in runs]
    found = []
    for state, phases in STATES.items():
        of_runs = [spent([row for row in rows if row["phase"] in phases]) for rows in by_run]
        known = [of for of in of_runs if of.joules is not None and of.seconds * of.coverage > 0]
        if not known:
            return []
        watts = sum(of.joules or 0.0 for of in known) / sum(of.seconds * of.coverage for of in known)
        sources = sorted({source for of in known for source in of.sources})
        found.append({"host": "+".join(sources), "state": state, "cpu_w": watts, "gpu_w": 0.0, "samples": len(known)})
    return found


# The congestion of a run as a file that another run repeats.


def save_congestion(run: StoredRun, file: str | Path) -> Path:
    """Write when a run's links were how slow, for ``RunConfig(congestion="recorded", congestion_file=file)``.

    Changes that were made by hand while it ran are in it, as what they came to.

    Args:
        run: with events ``congestion``: of a system that moves features or rows between parts.
        file: JSON lines.

    Raises:
        DataError: the run has no such events, or the file cannot be written.
    """
    events, steps = run.table("events"), run.table("steps")
    described = events[(events["kind"] == "congestion") & (events["rank"] == 0)]
    if not len(described) or not len(steps):
        raise DataError(
            f"{run.path} tells nothing of its links: runs of systems that move features or rows between parts do, once "
            "they have made a step."
        )
    per_epoch = int(steps.groupby("epoch")["iteration"].max().max()) + 1
    return save_trace(described.to_dict("records"), as_path(file, "file"), steps_per_epoch=per_epoch)
