"""``lab.runs.export`` writes a run or race as a file; ``lab.open`` opens whatever was saved."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.core.units import as_path
from dtdg_lab.export import artifacts
from dtdg_lab.export.chrome_trace import trace_file
from dtdg_lab.export.race import open_race, race_events, race_notebook, race_page, race_script, race_tables, race_trace
from dtdg_lab.export.tensorboard import write_events
from dtdg_lab.runs.exports import CONFIG, PartialRun, open_run, pieces
from dtdg_lab.runs.packed_run import ABOUT
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.studies.race_plan import FILE
from dtdg_lab.studies.race_result import Race
from dtdg_lab.studies.study import SWEEP_FILE, Study, open_study


@dataclass(frozen=True, slots=True)
class ExportKind:
    """A kind of file: its default name (with ``{}`` for the run's name), its content, and how it is written."""

    name: str
    content: Callable[[Any], Any]
    place: Callable[..., Path] = artifacts.place_file


def export(run: Any, path: str | Path | None = None, kind: str = "html", *, overwrite: bool = False) -> Path:
    """Write a run or a race as one file or folder.

    ``html`` is the report as one offline page of less than 10 MB with embedded tables; tables that do not fit are
    thinned, and the page says so. ``parquet`` is all tables with settings, environment and summary: a zip file if the
    name ends in ``.zip``, else a folder. ``tensorboard`` is a folder of events. ``trace`` is a timeline for
    ui.perfetto.dev (compressed if the name ends in ``.gz``). ``script`` and ``notebook`` repeat the run. Files are
    written atomically. ``lab.open`` reads pages and tables of runs and races, and scripts and notebooks of runs.

    Args:
        run: a run (also an active one, as it is now), a race, or the folder of either.
        path: the file to write, or an existing folder; by default the current folder.
        kind: ``html``, ``parquet``, ``tensorboard``, ``trace``, ``script`` or ``notebook``.
        overwrite: whether an earlier export may be overwritten.

    Returns:
        The path of the file or folder.

    Raises:
        UnknownNameError: there is no such kind.
        ConfigError: the argument is neither a run nor a race, or lacks the data to export.
        DataError: a record line is damaged.
        NotAvailableError: ``tensorboard`` is not installed.
        RunStoreError: there is no run, something exists at the path already, or it cannot be written.
    """
    if kind not in KINDS:
        raise UnknownNameError("kind of export", kind, KINDS)
    race = _race(run)
    stored: Any = _stored(run) if race is None else race
    name, artifact = (stored.id, KINDS[kind]) if race is None else (race.name, RACE_KINDS[kind])
    destination = artifacts.target(path, artifact.name.format(name), overwrite=overwrite)
    return artifact.place(destination, artifact.content(stored), overwrite=overwrite)


def open_saved(path: str | Path) -> StoredRun | PartialRun | Race | Study:
    """Open a run, a race or a study from its folder, or a run or race from a file that was exported.

    Args:
        path: a folder such as ``runs/<id>``, ``runs/races/<name>`` or ``runs/studies/<name>``, or a file written by
            ``lab.runs.export``.

    Raises:
        RunStoreError: there is none of these at that path, or it is damaged.
    """
    source = as_path(path, "path")
    if source.is_dir():
        if (source / SWEEP_FILE).is_file():
            return open_study(source)
        if (source / FILE).is_file():
            return open_race(source)
        if not ((source / CONFIG).is_file() or (source / ABOUT).is_file()):
            raise RunStoreError(
                f"{source} is not a run, race or study, since it has no {CONFIG}, {FILE} or {SWEEP_FILE}. Give the "
                "folder of one, such as runs/<id>, runs/races/<name> or runs/studies/<name>, or an exported file."
            )
    elif not source.exists():
        raise RunStoreError(f"{source} is not a run, race or study: there is nothing at that path.")
    elif source.name == FILE:
        return open_race(source)
    return open_race(source) if FILE in (pieces(source) or ()) else open_run(source)


def _race(source: Any) -> Race | None:
    """Return the given race; None if the argument is not one."""
    if isinstance(source, Race):
        return source
    if isinstance(source, str | Path) and (Path(source) / FILE).is_file():
        return open_race(source)
    return None


def _stored(run: Any) -> StoredRun:
    """Return the given run as it is on disk."""
    if isinstance(run, str | Path):
        run = open_run(run)
    if isinstance(run, StoredRun):
        return run
    if isinstance(run, PartialRun):
        raise ConfigError(
            f"export() needs a whole run, but this {run.kind} of run {run.id} only has {run.holds}. Give the run's "
            "folder, or an HTML or Parquet export of it."
        )
    path = getattr(run, "path", None)
    if isinstance(path, Path) and hasattr(run, "status"):  # an active run
        return _stored(path)
    raise ConfigError(
        f"export() cannot write an object of type {type(run).__name__}. Give a run, a race, or the folder "
        "of one, such as lab.runs.export('runs/20260131-120000-psg-1a2b3c4d')."
    )


def _place_timeline(destination: Path, content: bytes, *, overwrite: bool) -> Path:
    packed = gzip.compress(content, 6, mtime=0) if destination.suffix == ".gz" else content
    return artifacts.place_file(destination, packed, overwrite=overwrite)


def _place_notebook(destination: Path, run: StoredRun, *, overwrite: bool) -> Path:
    return artifacts.place_file(destination, artifacts.notebook(run, destination.name), overwrite=overwrite)


KINDS = {
    "html": ExportKind("{}.html", artifacts.run_page),
    "parquet": ExportKind("{}.parquet.zip", artifacts.run_tables, artifacts.place_tables),
    "tensorboard": ExportKind("{}.tensorboard", lambda run: partial(write_events, run), artifacts.place_folder),
    "trace": ExportKind("{}.trace.json", trace_file, _place_timeline),
    "script": ExportKind("repeat-{}.py", artifacts.script),
    "notebook": ExportKind("repeat-{}.ipynb", lambda run: run, _place_notebook),
}
RACE_KINDS = {
    "html": ExportKind("race-{}.html", race_page),
    "parquet": ExportKind("race-{}.parquet.zip", race_tables, artifacts.place_tables),
    "tensorboard": ExportKind("race-{}.tensorboard", lambda race: partial(race_events, race), artifacts.place_folder),
    "trace": ExportKind("race-{}.trace.json", race_trace, _place_timeline),
    "script": ExportKind("repeat-race-{}.py", race_script),
    "notebook": ExportKind("repeat-race-{}.ipynb", race_notebook),
}
