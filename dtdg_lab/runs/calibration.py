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

# Costs of steps and fetches on this machine: measured cells, as files and as a calibration.


WARM_UPS = 10  # steps of a run that do not count: connections, the first cache, first-touch memory
# phases of a run by which power is measured
STATES: Mapping[str, tuple[str, ...]] = {
    "gpu_compute": ("compute",),
    "cpu_spin": ("wait", "stall"),
    "idle": ("idle",),
}


def step_seconds(run: StoredRun) -> list[float]:
    """Seconds of every step that counts, on the slowest rank.

    Raises:
        RunFailedError: the run has too few steps.
    """
    steps = run.table("steps")
    longest = steps[steps["step"] >= WARM_UPS].groupby("step")["time_s"].max()
    if longest.empty:
        raise RunFailedError(
            f"run {run.id} has {steps['step'].nunique()} steps, and the first {WARM_UPS} are excluded as warm-up: "
            "give the config more epochs."
        )
    return [float(seconds) for seconds in longest]


def power_rows(runs: Iterable[StoredRun]) -> list[dict[str, Any]]:
    """Mean watts of a rank by activity, including its GPU, over runs; nothing if a state's power is unknown.

    ``host`` names the machine's processor, and ``samples`` the number of runs.
    """
    by_run = [run.table("phase_energy") for run in runs]
    found = []
    for state, phases in STATES.items():
        of_runs = [spent(rows[rows["phase"].isin(phases)]) for rows in by_run]
        known = [of for of in of_runs if of.joules is not None and of.seconds * of.coverage > 0]
        if not known:
            return []
        watts = sum(of.joules or 0.0 for of in known) / sum(of.seconds * of.coverage for of in known)
        sources = sorted({source for of in known for source in of.sources})
        found.append({"host": "+".join(sources), "state": state, "cpu_w": watts, "gpu_w": 0.0, "samples": len(known)})
    return found


# The congestion of a run as a file that another run repeats.


def save_congestion_trace(run: StoredRun, file: str | Path) -> Path:
    """Write the link conditions of a run over time, for ``RunConfig(congestion="recorded", congestion_file=file)``.

    Manual changes during the run are included, by their effect.

    Args:
        run: with events ``congestion``: of a system that transfers features or rows between partitions.
        file: JSON lines.

    Raises:
        DataError: the run has no such events, or the file cannot be written.
    """
    events, steps = run.table("events"), run.table("steps")
    described = events[(events["kind"] == "congestion") & (events["rank"] == 0)]
    if not len(described) or not len(steps):
        raise DataError(
            f"{run.path} has no link records: only runs of systems that transfer features or rows between partitions "
            "have they have completed a step."
        )
    per_epoch = int(steps.groupby("epoch")["iteration"].max().max()) + 1
    return save_trace(described.to_dict("records"), as_path(file, "file"), steps_per_epoch=per_epoch)
