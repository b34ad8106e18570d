"""Races as files: how they are packed, and how they are opened again."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dtdg_lab.config.extensions import FILE as EXTENSIONS
from dtdg_lab.config.extensions import register_statements
from dtdg_lab.config.record_tables import SCHEMA as RECORDS_SCHEMA
from dtdg_lab.core.errors import ConfigError, DataError, RunStoreError
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.core.units import as_path, format_bytes
from dtdg_lab.export.artifacts import MOST_BYTES, PLACE, docstring, notebook_of, settings_code, tables_section
from dtdg_lab.export.chrome_trace import chrome_trace, written
from dtdg_lab.export.tensorboard import write_events
from dtdg_lab.runs import exports, packed_run
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.html import plotly_js, render, template
from dtdg_lab.runs.json_files import dumps, reading
from dtdg_lab.runs.provenance import provenance
from dtdg_lab.runs.registered_code import read_extensions
from dtdg_lab.runs.report import changed_settings, page_cards
from dtdg_lab.studies import race_result
from dtdg_lab.studies.race_plan import FILE, FOLDER, RacePlan
from dtdg_lab.studies.race_result import Race, RaceRun
from dtdg_lab.studies.trials import FILE as TRIALS
from dtdg_lab.studies.trials import FINISHED, TrialJournal

# A race packed with its plan, its trials and its runs, and how it is unpacked.


RUNS = "runs/"  # prefix of the names of the runs' files
TABLE = "table.parquet"  # file with the race's own table
SPARE = 65_536  # bytes reserved for everything except the runs' tables


class ExportedRace(Race):
    """A race opened from an exported file, with everything that a race in its folder has.

    It is unpacked into a temporary folder, which is deleted with the object.

    Attributes:
        source: the file from which it was read.
        thinned: which rows of the runs' tables were left out; empty if none were.
    """

    def __init__(self, files: Mapping[str, bytes], source: Path) -> None:
        about = packed_run.read_about(files, "race")
        super().__init__(_unpack(files, exports.temporary_folder(self)))
        self.source = source
        self.thinned: str = about.get("thinned") or ""

    @property
    def runs(self) -> tuple[RaceRun, ...]:
        """The runs; each of them keeps the temporary folder from being deleted."""
        return tuple(replace(run, keeper=self) for run in super().runs)


def open_race(path: str | Path) -> Race:
    """Open a past or active race from its folder, or from an exported page or its tables.

    Args:
        path: the race's folder, such as ``runs/races/20260131-psg-blad``, its ``race.json``, or an ``html`` or
            ``parquet`` export.

    Raises:
        RunStoreError: there is no race at that path, or its file is damaged or from a newer version.
    """
    source = as_path(path, "path")
    if source.name == FILE or not source.exists() or (source.is_dir() and not (source / packed_run.ABOUT).is_file()):
        return race_result.open_race(source)
    try:
        with reading(source, packed_run.EXPORT_AGAIN):
            files = exports.pieces(source)
            if files is None:
                raise RunStoreError("this is not a race. Give its folder, or an HTML or Parquet export of it.")
            return ExportedRace(files, source)
    except (ConfigError, DataError) as error:
        raise RunStoreError(f"{source} cannot be read: {error}") from error
    except RunStoreError as error:
        raise RunStoreError(f"{source}: {error}") from error


def pack_race(race: Race, *, most_bytes: int | None = None, telling: bool = False) -> packed_run.PackedRun:
    """Pack a race with the newest run of every contestant and seed.

    Args:
        race: the race, as it is now.
        most_bytes: size above which the runs' tables are thinned; by default they never are.
        telling: whether each table gets config, environment and summary as metadata.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a file cannot be read, or not even the thinned tables fit.
    """
    whole_runs = {
        run.path.name: (run, packed_run.pack(run.open(), telling=telling))
        for run in present(race)
        if run.path is not None
    }
    parts = {name: packed for name, (_, packed) in whole_runs.items()}
    for name, limit in _limits({name: packed.size for name, packed in parts.items()}, most_bytes).items():
        parts[name] = packed_run.pack(whole_runs[name][0].open(), most_bytes=limit)
    thinned = "; ".join(f"run {name}: {packed.thinned}" for name, packed in parts.items() if packed.thinned)
    about = {"schema": packed_run.SCHEMA, "records": RECORDS_SCHEMA, "kind": "race", "race": race.name}
    about |= {"folder": race.folder.name, "thinned": thinned}
    files = {packed_run.ABOUT: dumps(about, indent=2).encode(), FILE: (race.folder / FILE).read_bytes()}
    files |= {TRIALS: _trials(race), TABLE: _table(race)}
    if (race.folder / EXTENSIONS).is_file():
        files[EXTENSIONS] = (race.folder / EXTENSIONS).read_bytes()
    for name, packed in parts.items():
        files |= {f"{RUNS}{name}/{piece}": content for piece, content in packed.files.items()}
    return packed_run.PackedRun(files, thinned)


def _limits(sizes: Mapping[str, int], most_bytes: int | None) -> dict[str, int]:
    """Return limits for the runs that need more than their share; what small runs do not need goes to the others."""
    if most_bytes is None:
        return {}
    room, limits = most_bytes - SPARE, {}
    for position, name in enumerate(sorted(sizes, key=sizes.__getitem__)):
        share = max(0, room) // (len(sizes) - position)
        if sizes[name] > share:
            limits[name] = share
        room -= min(sizes[name], share)
    return limits


def present(race: Race) -> list[RaceRun]:
    """Return the runs of a race whose folders exist."""
    return [run for run in race.runs if run.path is not None and RunDirectory(run.path).config_file.is_file()]


def _trials(race: Race) -> bytes:
    """Return the journal of the newest runs, in which packed runs are named by their folders only."""
    embedded = {run.path.resolve() for run in present(race) if run.path is not None}
    with TemporaryDirectory() as folder:
        runs_dir = Path(folder)
        race_folder = runs_dir / FOLDER / "exported"
        race_folder.mkdir(parents=True)
        journal = TrialJournal(race_folder)
        for trial in TrialJournal(race.folder).read():
            run = trial.run if trial.run is not None and trial.run.resolve() in embedded else None
            if run is not None or trial.status != FINISHED:
                journal.put(replace(trial, run=None if run is None else runs_dir / run.name))
        return journal.path.read_bytes() if journal.path.exists() else b""


def _table(race: Race) -> bytes:
    buffer = io.BytesIO()
    table = race.table.reset_index()
    for name in table.columns[table.dtypes.map(str) == "object"]:  # Parquet does not support columns of mixed types
        table[name] = [None if value is None else str(value) for value in table[name]]
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _unpack(files: Mapping[str, bytes], folder: Path) -> Path:
    """Unpack a race into folders of its runs and its own folder, and return the latter."""
    by_run: dict[str, dict[str, bytes]] = {}
    for piece, content in files.items():
        if piece.startswith(RUNS):
            name, _, rest = piece.removeprefix(RUNS).partition("/")
            by_run.setdefault(name, {})[rest] = content
    for of_run in by_run.values():
        packed_run.unpack(of_run, folder)
    race_folder = folder / FOLDER / "exported"
    try:
        race_folder.mkdir(parents=True)
        for name in (FILE, TRIALS, *(name for name in files if name == EXTENSIONS)):
            (race_folder / name).write_bytes(files[name])
    except OSError as error:
        raise store_error("unpack to", folder, error) from error
    except KeyError as error:
        raise RunStoreError(f"{error} is missing in it. Export the race again.") from error
    for trial in TrialJournal(race_folder).read():
        if trial.run is not None and not (trial.run.parent == folder and trial.run.name in by_run):
            raise RunStoreError(f"its log names run {trial.run.name}, which is not in it. Export the race again.")
    return race_folder


# A race as a page, tables, events, a timeline, a script or a notebook.


_SPARE = 8_000  # bytes reserved for text next to the tables
_LONGEST = 60  # maximum number of letters of a label in a file name, at four bytes each


def race_page(race: Race, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Render a race as one page with its table, text, checks and figures, and its runs embedded.

    Args:
        race: the race, as it is now.
        most_bytes: maximum size of the page. Tables of runs that do not fit are thinned, and the page says so.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a run cannot be read, or the page cannot be made small enough.
    """
    panels = race.panels()
    page = render(
        "export/templates/race.html",
        title=f"Race {race.name}",
        race=race,
        library=plotly_js(),
        figures={name: figure for name, (figure, _) in panels.items()},
        cards=page_cards(panels),
        runs=_runs(race),
        settings={label: changed_settings(config) for label, config in race.configs.items()},
        more=PLACE,
    )
    room = (most_bytes - len(page.encode()) - _SPARE) * 3 // 4  # base64 writes three bytes as four letters
    if room <= 0:
        raise RunStoreError(
            f"the page of race {race.name} does not fit into {format_bytes(most_bytes)}. Export with kind='parquet'."
        )
    packed = pack_race(race, most_bytes=room)
    title = f"The record tables of {len(present(race))} runs"
    tables = tables_section(title, packed, f"race-{race.name}", reader="open", what="race")
    return page.replace(PLACE, tables).encode()


def _runs(race: Race) -> list[tuple[Any, ...]]:
    """Return a table row for each run, with where its data and settings came from."""
    exported, rows = present(race), []
    for run in race.runs:
        ground = provenance(run.open()) if run in exported else {}
        name = "none" if run.path is None else run.path.name
        provenance_cells = (ground.get(name_of_cell, "") for name_of_cell in ("protocol", "purge", "data"))
        rows.append((run.label, run.seed, run.state, name, *provenance_cells, run.why))
    return rows


def race_tables(race: Race) -> dict[str, bytes]:
    """Return the race's table, its ``race.json``, and all tables of its runs.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a run cannot be read.
    """
    return dict(pack_race(race, telling=True).files)


def race_events(race: Race, folder: Path) -> None:
    """Fill a folder with events of the runs, in one folder per run, which TensorBoard overlays."""
    for run in present(race):
        label = "".join(letter if letter.isalnum() or letter in "._-+" else "_" for letter in run.label)[:_LONGEST]
        run_folder = folder / f"{label}-seed{run.seed}"
        for number in itertools.count(2):  # another label may lead to the same name
            if not run_folder.exists():
                break
            run_folder = folder / f"{label}-seed{run.seed}-{number}"
        run_folder.mkdir()
        write_events(run.open(), run_folder)
    about = {"schema": packed_run.SCHEMA, "kind": "folder of TensorBoard events of a race", "race": race.name}
    (folder / packed_run.ABOUT).write_text(dumps(about), encoding="utf-8")


def race_trace(race: Race) -> bytes:
    """Return the timelines of all runs below each other, each from its own start."""
    events, process = [], 1
    for run in present(race):
        stored = run.open()
        run_events = chrome_trace(stored, first_process=process, named=f"{run.label} · seed {run.seed}")
        process = max(event["pid"] for event in run_events) + 1
        events += run_events
    named = [event for event in events if event["ph"] == "M"]
    timed = sorted(
        (event for event in events if event["ph"] != "M"), key=lambda event: (event["ts"], -event.get("dur", 0.0))
    )
    return written([*named, *timed], {"race": race.name})


def _code(race: Race) -> str:
    plan = RacePlan.load(race.folder)
    engines = max(config.ranks for config in race.configs.values()) * (1 + plan.parallel)
    rule = ""
    if plan.stop is not None:
        rule = f", stop=lab.StopRule({', '.join(f'{name}={value!r}' for name, value in plan.stop.to_dict().items())})"
    arguments = f"seeds={tuple(race.seeds)!r}, name={race.name + '-again'!r}, parallel={plan.parallel}"
    return template("export/templates/race.py.jinja").render(
        configs=[(repr(label), settings_code(config)) for label, config in race.configs.items()],
        most=engines,
        call=f"lab.race(CONFIGS, {arguments}{rule}",
    )


def _register(race: Race) -> str:
    """Return the statements that register the code that a race uses; empty if it uses none."""
    return register_statements(read_extensions(race.folder))


def race_script(race: Race) -> bytes:
    """Return a script that repeats a race.

    Raises:
        RunStoreError: race.json cannot be read.
    """
    head = docstring(f"Repeats a race of DTDG Lab: {race.name}.\n\nStart it with: python FILE [FOLDER FOR RUNS]\n")
    end = 'if __name__ == "__main__":\n    race = repeat(*sys.argv[1:2])\n'
    end += "    print(race.summary())\n    print(race.table)\n"
    register = _register(race)
    return f"{head}\nimport sys\n\nimport dtdg_lab as lab\n\n{register}{_code(race)}\n\n{end}".encode()


def race_notebook(race: Race) -> bytes:
    """Return a notebook that repeats a race, without outputs.

    Raises:
        RunStoreError: race.json cannot be read.
    """
    text = template("export/templates/race_notebook.jinja").render(
        name=race.name, register=_register(race), code=_code(race).rstrip()
    )
    return notebook_of(text, {"race": race.name})
