"""StoredRun: a run opened from its folder, with settings, records, charts and summary."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import RunStoreError, UnknownNameError
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups, captions_of, figures_of, save_figures
from dtdg_lab.runs.checkpoints import StoredCheckpoint
from dtdg_lab.runs.directory import ENDED, RunDirectory, read_config
from dtdg_lab.runs.frames import RunFrames
from dtdg_lab.runs.handle import R_co, ResumingSession
from dtdg_lab.runs.json_files import RESTORE, read_object, reading
from dtdg_lab.runs.report import write_report
from dtdg_lab.runs.stored_tables import open_tables
from dtdg_lab.runs.summary import SCHEMA
from dtdg_lab.visualization.changes.log import changes_frame, requested_changes
from dtdg_lab.visualization.chart import Figure, XAxis

TRAIN_STEP = "train-step"


class StoredRun:
    """A run read from its folder, in its current state; it may still be active.

    Reading changes nothing in the folder. Damaged files, or files of a newer version, raise DataError or RunStoreError
    with the file's name when they are read; the rest stays readable.

    Attributes:
        keeper: object that keeps the folder alive, such as the race of a temporary folder.
    """

    keeper: object = None

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.tables = RunFrames(directory)
        self.id = directory.id
        self.path = directory.path
        self.config: RunConfig = read_config(directory.config_file)

    def __repr__(self) -> str:
        status = self.directory.status()
        state = status["reason"].partition(":")[0] if status["state"] == "interrupted" else status["state"]
        return f"StoredRun({self.id!r}, {state!r})"

    @property
    def family(self) -> Any:
        """The family of its system."""
        return catalogue.family(catalogue.system(self.config.system).family)

    @property
    def status(self) -> str:
        """The state: starting, running, paused, stopping, finished, stopped, failed or interrupted.

        A run is interrupted if SIGTERM or SIGUSR1 ended it, or if it has not ended and no process is left: all were
        killed, or the machine was switched off. ``reason`` names the signal and the step.
        """
        return str(self.directory.status()["state"])

    @property
    def reason(self) -> str:
        """The explanation of an unusual state; empty otherwise."""
        return str(self.directory.status()["reason"])

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the whole run; empty until the run ends (see ``runs.summary.SUMMARY_MEANINGS``)."""
        file = self.directory.summary_file
        summary = read_object(file, newest=SCHEMA) if file.is_file() else {}
        if not isinstance(summary.get("metrics") or {}, dict):
            raise RunStoreError(f"{file} is damaged: its metrics are not an object. {RESTORE}")
        return summary

    @property
    def environment(self) -> dict[str, Any]:
        """The environment in which the run was trained."""
        return self.directory.environment()

    @property
    def checkpoints(self) -> tuple[StoredCheckpoint, ...]:
        """The checkpoints that a new run can start from, in order of steps."""
        return self.directory.checkpoints

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events of all attempts in order of time, each with rank, attempt, step, epoch, time_ns, kind and data.

        Events with equal data share one object, so copy it before changing it.
        """
        return self.tables.events()

    def table(self, name: str, *, all_attempts: bool = False) -> pd.DataFrame:
        """Return one record table (see ``RunFrames.frames``).

        Raises:
            UnknownNameError: the run has no such table.
        """
        frames = self.tables.frames((name,), all_attempts=all_attempts)
        if name not in frames:
            raise UnknownNameError("record table", name, self.tables.frames(all_attempts=all_attempts))
        return frames[name]

    def to_pandas(self) -> pd.DataFrame:
        """Return steps and evaluations in one table, in order of time.

        Rows of steps have ``split`` = ``train-step`` and the rank's own mean loss of the step (``global_loss`` is that
        of all ranks). Rows of evaluations have ``split`` = ``train``, ``validation`` or ``test``, their loss, a column
        for each metric, and no times. ``rank`` is the rank that wrote the row.
        """
        tables = self.tables.frames(("steps", "evaluations"))
        steps = tables["steps"].assign(split=TRAIN_STEP)
        with reading(self.directory.records):
            frames = [frame for frame in (steps, _spread_metrics(tables["evaluations"])) if len(frame)] or [steps]
            joined = pd.concat(frames, ignore_index=True)
            joined = joined.sort_values(["step", "time_ns"], kind="stable", ignore_index=True)
        first = ["rank", "epoch", "step", "split", "loss"]
        return joined[[*first, *(column for column in joined.columns if column not in first)]]

    @cached_property
    def live(self) -> RunTables:
        """The record tables of this run as columns, which charts read."""
        with reading(self.directory.records):
            return open_tables(self.directory, self.config, all_rollups())

    def requests(self) -> pd.DataFrame:
        """Return the log of requested changes: who asked for which setting, its old and new value, and the outcome.

        There is a row for each setting, indexed by the number of its request. ``time`` is seconds of training at the
        request. ``step`` is the first step under the change; if it was not applied, the step that came next. ``who`` is
        ``notebook``, ``page`` (a dashboard), ``tuner`` or the name of a program; in a replay, ``replay of`` one of
        these; and ``fork of`` a run for the changes with which a fork began. ``outcome`` is ``applied``, ``refused`` or
        ``not applied`` (with the ``reason``); for an active run also ``asked``, or ``waiting`` for the end of an epoch.
        """
        while self.live.update():
            pass
        return changes_frame(requested_changes(self.live, ended=self.status in ENDED))

    def figures(self, x: XAxis = "steps") -> dict[str, Figure]:
        """Return the charts by name, as dicts of plotly figures; the main picture of the run's system comes first."""
        return figures_of(self.live, x, ended=self.status in ENDED)

    def captions(self) -> dict[str, str]:
        """Return the caption of each chart."""
        return captions_of(self.live, ended=self.status in ENDED)

    def save_figures(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write every chart to a folder and return the paths (see ``runs.figures.save_figures``)."""
        return save_figures(self.figures(), folder, overwrite=overwrite)

    def resume(self, session: ResumingSession[R_co], **changes: Any) -> R_co:
        """Resume a run that has ended or was interrupted, on a session's engines (see ``Session.resume``)."""
        return session.resume(self, **changes)

    def report(self) -> Path:
        """Rewrite report.html and return its path. If the run cannot be read, the old report stays.

        Raises:
            DataError, RunStoreError: a file is damaged or from a newer version, or the report cannot be written.
        """
        with reading(self.path):
            return write_report(StoredRun(self.directory))  # reads the tables again


def _spread_metrics(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a column for each metric, if its rows have metrics."""
    if "metrics" not in evaluations:
        return evaluations
    metrics = [value if isinstance(value, dict) else {} for value in evaluations["metrics"]]
    spread = pd.DataFrame(metrics, index=evaluations.index, dtype=float)
    return evaluations.drop(columns="metrics").join(spread)


def open_run(path: str | Path) -> StoredRun:
    """Open a run's folder.

    Raises:
        RunStoreError: there is no run at that path, or its settings cannot be read.
    """
    return StoredRun(RunDirectory.open(path))


def newest_interrupted(runs_dir: Path) -> Path | None:
    """Return the newest run in a folder of runs, if that run was interrupted and can be resumed."""
    newest = max(runs_dir.glob("[0-9]*-[0-9]*-*"), key=lambda path: path.name, default=None)
    if newest is None:
        return None
    try:
        run = RunDirectory.open(newest)
        resumable = run.checkpoint_file.is_file() or run.recorded_status()["state"] == "interrupted"
        return newest if run.status()["state"] == "interrupted" and resumable else None
    except RunStoreError:  # damaged, or not a run: opening it reports the reason
        return None
