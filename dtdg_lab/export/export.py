"""``lab.export``: a run or a race as a file for elsewhere."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.export.artifacts import (
    notebook,
    place_file,
    place_folder,
    run_page,
    run_tables,
    script,
    target,
    write_tables,
)
from dtdg_lab.export.chrome_trace import trace_file
from dtdg_lab.export.race import (
    open_race,
    race_events,
    race_notebook,
    race_page,
    race_script,
    race_tables,
    race_trace,
)
from dtdg_lab.export.tensorboard import write_events
from dtdg_lab.runs.exports import PartialRun, open_run
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.studies.race_result import Race
from dtdg_lab.studies.race_store import FILE

Writer = Callable[[Any, Path, bool], Path]


@dataclass(frozen=True, slots=True)
class ExportKind:
    """A kind of file: what it is called where no name is given (``{}`` is the run's), and how it is written."""

    name: str
    write: Writer


def export(run: Any, path: str | Path | None = None, kind: str = "html", *, again: bool = False) -> Path:
    """Write a run or a race as one file, or folder, for elsewhere; ``lab.open_run`` reads it back.

    ``html`` is the report as one page that opens offline and stays under 10 MB, the tables packed into it (thinned
    where they would not fit, which it says); ``parquet`` all tables with settings, environment and summary, a zip
    where the name ends in ``.zip``, else a folder; ``tensorboard`` a folder of events; ``trace`` a timeline for
    ui.perfetto.dev (compressed where the name ends in ``.gz``); ``script`` and ``notebook`` repeat the run. The file
    appears whole or not at all.

    Args:
        run: a run (also one under way, as far as it has come), a race, or the folder of either.
        path: the file, or a folder that is there; the present folder where not given.
        kind: ``html``, ``parquet``, ``tensorboard``, ``trace``, ``script`` or ``notebook``.
        again: replace what was exported there before.

    Returns:
        The path of the file or folder.

    Raises:
        UnknownNameError: there is no such kind.
        ConfigError: what is given is neither a run nor a race, or does not hold what is to be exported.
        DataError: a record line is damaged.
        NotAvailableError: ``tensorboard`` is not installed.
        RunStoreError: there is no run, something is there already, or it cannot be written.
    """
    if kind not in KINDS:
        raise UnknownNameError("kind of export", kind, KINDS)
    race = _race(run)
    stored: Any = _stored(run) if race is None else race
    name, of = (stored.id, KINDS[kind]) if race is None else (race.name, RACE_KINDS[kind])
    return of.write(stored, target(path, of.name.format(name), again=again), again)


def _race(given: Any) -> Race | None:
    """The race that is given; None where it is something else."""
    if isinstance(given, Race):
        return given
    if isinstance(given, str | Path) and (Path(given) / FILE).is_file():
        return open_race(given)
    return None


def _stored(run: Any) -> StoredRun:
    """The run as it is on the disk."""
    if isinstance(run, str | Path):
        run = open_run(run)
    if isinstance(run, StoredRun):
        return run
    if isinstance(run, PartialRun):
        raise ConfigError(
            f"export() got what a {run.kind} holds of run {run.id} ({run.holds}): give the run's folder, or an HTML "
            "or Parquet export of it."
        )
    path = getattr(run, "path", None)
    if isinstance(path, Path) and hasattr(run, "status"):  # a handle of a run under way
        return _stored(path)
    raise ConfigError(
        f"export() got a {type(run).__name__}: a run, a race, or the folder of one is needed, such as "
        "lab.export('runs/20260131-120000-psg-1a2b3c4d')."
    )


def _file(content: Callable[[Any], bytes]) -> Writer:
    return lambda shown, where, again: place_file(where, content(shown), again=again)


def _tables(files: Callable[[Any], dict[str, bytes]]) -> Writer:
    return lambda shown, where, again: write_tables(files(shown), where, again=again)


def _folder(fill: Callable[[Any, Path], None]) -> Writer:
    return lambda shown, where, again: place_folder(where, lambda folder: fill(shown, folder), again=again)


def _timeline(content: Callable[[Any], bytes]) -> Writer:
    def write(shown: Any, where: Path, again: bool) -> Path:
        made = content(shown)
        return place_file(where, gzip.compress(made, 6, mtime=0) if where.suffix == ".gz" else made, again=again)

    return write


def _notebook(run: StoredRun, where: Path, again: bool) -> Path:
    return place_file(where, notebook(run, where.name), again=again)


KINDS = {
    "html": ExportKind("{}.html", _file(run_page)),
    "parquet": ExportKind("{}.parquet.zip", _tables(run_tables)),
    "tensorboard": ExportKind("{}.tensorboard", _folder(write_events)),
    "trace": ExportKind("{}.trace.json", _timeline(trace_file)),
    "script": ExportKind("repeat-{}.py", _file(script)),
    "notebook": ExportKind("repeat-{}.ipynb", _notebook),
}
RACE_KINDS = {
    "html": ExportKind("race-{}.html", _file(race_page)),
    "parquet": ExportKind("race-{}.parquet.zip", _tables(race_tables)),
    "tensorboard": ExportKind("race-{}.tensorboard", _folder(race_events)),
    "trace": ExportKind("race-{}.trace.json", _timeline(race_trace)),
    "script": ExportKind("repeat-race-{}.py", _file(race_script)),
    "notebook": ExportKind("repeat-race-{}.ipynb", _file(race_notebook)),
}
