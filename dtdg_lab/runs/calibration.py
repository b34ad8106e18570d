"""Calibration of cache costs from runs, and traces of recorded congestion."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ConfigError, DataError, RunFailedError
from dtdg_lab.core.units import as_path
from dtdg_lab.network.patterns import save_trace
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.runs.summary import spent
from dtdg_lab.systems.feature_cache.policies.calibration import (
    FETCHES,
    POWER,
    STEPS,
    Calibration,
    calibrate,
    condition_named,
)
from dtdg_lab.systems.feature_cache.policies.costs import CacheCosts
from dtdg_lab.systems.feature_cache.policy_charts import error_rows, model_figure
from dtdg_lab.visualization.layout import Figure

# Costs of steps and fetches on this machine: measured cells, as files and as a calibration.


Cell = tuple[str, int]  # condition, window
WARM_UPS = 10  # steps of a run that do not count: connections, the first cache, first-touch memory
# phases of a run by which power is measured
STATES: Mapping[str, tuple[str, ...]] = {
    "gpu_compute": ("compute",),
    "cpu_spin": ("wait", "stall"),
    "idle": ("idle",),
}
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    STEPS: ("dataset", "condition", "window", "measured_ms"),
    FETCHES: ("dataset", "condition", "concurrent", "requester", "owner", "rows", "rtt_s", "feat_dim"),
    POWER: ("host", "state", "cpu_w", "gpu_w", "samples"),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CalibrationStudy:
    """A calibration of this machine, and the location of its measurements.

    Attributes:
        calibration: fitted to them.
        folder: with the files of :func:`dtdg_lab.control.calibrate`.
        described: what was measured, in words.
        parts: P of the runs.
    """

    calibration: Calibration
    folder: Path
    described: str
    parts: int

    def costs(self) -> CacheCosts:
        """Step costs on this machine, for the simulator and the planner."""
        return self.calibration.costs(parts=self.parts)

    def table(self) -> str:
        """Markdown: measurements, predictions, predictions of fits without a cell or its condition, and constants."""
        return f"{self.described}\n\n{self.calibration.table()}"

    def figure(self) -> Figure:
        """Errors as a map, and predicted curves with measurements, as a plotly figure dict (Figure 8)."""
        return model_figure(error_rows(self.calibration.errors()), title=self.described)

    def __repr__(self) -> str:
        return self.table()


def cells_wanted(windows: Sequence[int], conditions: Sequence[str], middle: int) -> tuple[Cell, ...]:
    """Clean links at every window, the other conditions at one; in the order of measurement.

    Args:
        windows: W.
        conditions: see :mod:`dtdg_lab.systems.feature_cache.policies.calibration`; clean is always included.
        middle: the only window of the other conditions.

    Raises:
        ConfigError: a condition is unknown, a window is below 1, or there are fewer cells than constants.
    """
    named = list(dict.fromkeys(condition_named(name).name for name in conditions))
    if not windows or min(*windows, middle) < 1:
        raise ConfigError(f"windows={tuple(windows)}, middle={middle}: windows must be at least 1 step.")
    clean = [("clean", window) for window in dict.fromkeys((*windows, middle))]
    cells = (*clean, *((name, middle) for name in named if name != "clean"))
    if len(cells) < LEAST:
        raise ConfigError(
            f"windows={tuple(windows)} and conditions={tuple(conditions)} are {len(cells)} cells to measure: at least "
            f"{LEAST} are needed, for a fit of seven constants without one of them."
        )
    return cells


LEAST = 8  # one more than the constants of a step: each cell is left out in turn


def links_of(name: str, parts: int) -> str:
    """The option ``links`` of a condition: it applies to the replies of the last partition.

    A rate is shared by everything that the owner sends, and each of the P - 1 others gets an equal share; a delay
    applies to one link, to partition 0.
    """
    of = condition_named(name)
    if of.delay_ms:
        return f"{parts - 1}>0 delay={of.delay_ms:g}"
    return "" if of.is_clean else f"{parts - 1} rate={of.mbit / (parts - 1):.9g}"


def step_seconds(run: StoredRun) -> list[float]:
    """Seconds of every step that counts, on the slowest rank.

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
    """Mean watts of a rank by activity, including its GPU, over runs; nothing if a state's power is unknown.

    ``host`` names the machine's processor, and ``samples`` the number of runs.
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


def stored_study(
    folder: Path,
    described: str,
    *,
    parts: int,
    steps: Sequence[Mapping[str, Any]],
    fetches: Sequence[Mapping[str, Any]],
    power: Sequence[Mapping[str, Any]],
) -> CalibrationStudy:
    """Write the measurements as files, and calibrate from these; ``to_dict`` describes them."""
    by = f"{power[0]['host']}, of a rank" if power else "of another cluster, because energy is unknown here"
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in ((STEPS, steps), (FETCHES, fetches), (POWER, power)):
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, _COLUMNS[name], extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue().encode()
        if rows:
            (folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
        else:
            (folder / name).unlink(missing_ok=True)  # of an earlier study
    return CalibrationStudy(calibrate(folder), folder, f"{described}; watts {by}", parts)


# The recorded congestion of a run as a file for another run.


def save_congestion(run: StoredRun, file: str | Path) -> Path:
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
            "have "
            "they have completed a step."
        )
    per_epoch = int(steps.groupby("epoch")["iteration"].max().max()) + 1
    return save_trace(described.to_dict("records"), as_path(file, "file"), steps_per_epoch=per_epoch)
