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

# What steps and fetches cost on this machine: cells that were measured, as files and as a calibration.


Cell = tuple[str, int]  # condition, window
WARM_UPS = 10  # steps of a run that do not count: connections, the first cache, memory touched for the first time
# phases of a run that a host's states are told by
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
    """A calibration of this machine, and where its measurements are.

    Attributes:
        calibration: fitted to them.
        folder: with the files of :func:`dtdg_lab.control.calibrate`.
        told: what was measured, in words.
        parts: P of the runs.
    """

    calibration: Calibration
    folder: Path
    described: str
    parts: int

    def costs(self) -> CacheCosts:
        """What steps cost here, as the simulator and the planner take it."""
        return self.calibration.costs(parts=self.parts)

    def table(self) -> str:
        """Measured beside predicted, what a fit without a cell or its condition predicts, and constants: Markdown."""
        return f"{self.described}\n\n{self.calibration.table()}"

    def figure(self) -> Figure:
        """Errors as a map, and curves with what was measured, as a plotly figure dict (Figure 8)."""
        return model_figure(error_rows(self.calibration.errors()), title=self.described)

    def __repr__(self) -> str:
        return self.table()


def cells_wanted(windows: Sequence[int], conditions: Sequence[str], middle: int) -> tuple[Cell, ...]:
    """Clean links at every window, the other conditions at one; in the order that they are measured in.

    Args:
        windows: W.
        conditions: see :mod:`dtdg_lab.systems.feature_cache.policies.calibration`; clean need not be among them.
        middle: the one window of conditions that are not clean.

    Raises:
        ConfigError: no such condition, a window below 1, or fewer cells than constants.
    """
    named = list(dict.fromkeys(condition_named(name).name for name in conditions))
    if not windows or min(*windows, middle) < 1:
        raise ConfigError(f"windows={tuple(windows)}, middle={middle}: windows of at least 1 step are needed.")
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
    """The option ``links`` of a condition: what it does is done to the last part, as it replies.

    A rate is that of everything that the owner sends, and each of the P - 1 others gets as much of it; a delay is that
    of one link, to part 0.
    """
    of = condition_named(name)
    if of.delay_ms:
        return f"{parts - 1}>0 delay={of.delay_ms:g}"
    return "" if of.is_clean else f"{parts - 1} rate={of.mbit / (parts - 1):.9g}"


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

    ``host`` tells what they are known by, and ``samples`` how many runs tell.
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
    """Write what was measured as files, and calibrate from these; ``to_dict`` says what it was."""
    by = f"{power[0]['host']}, of a rank" if power else "of another cluster, for energy is unknown here"
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
