"""Measurements of a machine and its links from stored runs: seconds of steps, watts by state, congestion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import DataError, RunFailedError
from dtdg_lab.core.units import as_path
from dtdg_lab.network.traces import save_trace
from dtdg_lab.runs.summary import spent

if TYPE_CHECKING:
    from dtdg_lab.runs.stored_run import StoredRun


WARM_UPS = 10  # number of excluded first steps: connections, the first cache, first-touch memory


# phases of a run that power is measured in
STATES: Mapping[str, tuple[str, ...]] = {"gpu_compute": ("compute",), "cpu_spin": ("wait", "stall"), "idle": ("idle",)}


def step_seconds(run: StoredRun) -> list[float]:
    """Return the seconds of every step after the warm-up, on the slowest rank.

    Raises:
        RunFailedError: the run has too few steps.
    """
    steps = run.table("steps")
    longest = steps[steps["step"] >= WARM_UPS].groupby("step")["time_s"].max()
    if longest.empty:
        raise RunFailedError(
            f"run {run.id} has {steps['step'].nunique()} steps, but the first {WARM_UPS} are excluded as warm-up. "
            "Set more epochs."
        )
    return [float(seconds) for seconds in longest]


def power_rows(runs: Iterable[StoredRun]) -> list[dict[str, Any]]:
    """Return mean watts of a rank by state, including its GPU, over runs; empty if the power of a state is unknown.

    ``host`` names the source of the power readings, and ``samples`` the number of runs.
    """
    by_run = [run.table("phase_energy") for run in runs]
    power = []
    for state, phases in STATES.items():
        of_runs = [spent(rows[rows["phase"].isin(phases)]) for rows in by_run]
        measured = [part for part in of_runs if part.joules is not None and part.seconds * part.coverage > 0]
        if not measured:
            return []
        watts = sum(part.joules or 0.0 for part in measured) / sum(part.seconds * part.coverage for part in measured)
        sources = sorted({source for part in measured for source in part.sources})
        power.append(
            {"host": "+".join(sources), "state": state, "cpu_w": watts, "gpu_w": 0.0, "samples": len(measured)}
        )
    return power


def save_congestion_trace(run: StoredRun, file: str | Path) -> Path:
    """Write the link conditions of a run over time, for ``RunConfig(congestion="recorded", congestion_file=file)``.

    Manual changes during the run are included by their effect.

    Args:
        run: run with events ``congestion``, of a system that transfers features or rows between partitions.
        file: JSON lines file to write.

    Raises:
        DataError: the run has no such events, or the file cannot be written.
    """
    events, steps = run.table("events"), run.table("steps")
    conditions = events[(events["kind"] == "congestion") & (events["rank"] == 0)]
    if not len(conditions) or not len(steps):
        raise DataError(
            f"{run.path} has no link records. Only runs of systems that transfer features or rows between partitions "
            "have them, after their first step."
        )
    per_epoch = int(steps.groupby("epoch")["iteration"].max().max()) + 1
    return save_trace(conditions.to_dict("records"), as_path(file, "file"), steps_per_epoch=per_epoch)
