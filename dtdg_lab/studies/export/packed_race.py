"""A race in few bytes, and read back: its ``race.json`` and its runs, packed."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ConfigError, DataError, RunStoreError
from dtdg_lab.core.paths import as_path
from dtdg_lab.core.records import SCHEMA as RECORDS_SCHEMA
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.exported_run import temporary_folder
from dtdg_lab.runs.json_files import dumps, read_json, store_error, write_json
from dtdg_lab.runs.open_any import EXPORT_AGAIN, pieces
from dtdg_lab.runs.packed_run import ABOUT, SCHEMA, PackedRun, pack, read_about, unpack
from dtdg_lab.runs.stored_files import reading
from dtdg_lab.studies import race_result
from dtdg_lab.studies.race_result import Race, RaceRun
from dtdg_lab.studies.race_store import FILE, FINISHED, FOLDER, RaceStore

RUNS = "runs/"  # of the pieces, those of the runs
TABLE = "table.parquet"  # the race's own table
SPARE = 65_536  # of a limit, for what is not the runs' tables


class ExportedRace(Race):
    """A race read back from an exported file, with all that a race read from its folder has.

    It is unpacked to a temporary folder, which goes when the object goes.

    Attributes:
        source: the file it was read from.
        thinned: what the file left out of the runs' tables, in words; empty where they are whole.
    """

    def __init__(self, files: Mapping[str, bytes], source: Path) -> None:
        about = read_about(files, "race")
        super().__init__(RaceStore.open(_unpack(files, temporary_folder(self))))
        self.source = source
        self.thinned: str = about.get("thinned") or ""

    @property
    def runs(self) -> tuple[RaceRun, ...]:
        """The runs; each keeps the temporary folder."""
        return tuple(replace(run, keeper=self) for run in super().runs)


def open_race(path: str | Path) -> Race:
    """A race of the past or under way from its folder, or from a page or tables that it was exported to.

    Args:
        path: its folder, such as ``runs/races/20260131-psg-blad``, the ``race.json`` in it, or what ``lab.export``
            made of it: html or parquet.

    Raises:
        RunStoreError: there is no race at that path, its file is damaged, or a newer version wrote it.
    """
    where = as_path(path, "path")
    if where.name == FILE or not where.exists() or (where.is_dir() and not (where / ABOUT).is_file()):
        return race_result.open_race(where)
    try:
        with reading(where, EXPORT_AGAIN):
            found = pieces(where)
            if found is None:
                raise RunStoreError("this is not a race. Give its folder, or an HTML or Parquet export of it.")
            return ExportedRace(found, where)
    except (ConfigError, DataError) as error:
        raise RunStoreError(f"{where} cannot be read: {error}") from error
    except RunStoreError as error:
        raise RunStoreError(f"{where}: {error}") from error


def pack_race(race: Race, *, most_bytes: int | None = None, telling: bool = False) -> PackedRun:
    """Pack a race with the newest run of every contestant and seed.

    Args:
        race: to be packed, as far as it has come.
        most_bytes: above it the runs' tables are thinned; no limit when not given.
        telling: give each table config, environment and summary as its metadata.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a file cannot be read, or not even the thinned tables fit.
    """
    whole = {run.path.name: (run, pack(run.open(), telling=telling)) for run in present(race) if run.path is not None}
    parts = {name: packed for name, (_, packed) in whole.items()}
    for name, limit in _limits({name: packed.size for name, packed in parts.items()}, most_bytes).items():
        parts[name] = pack(whole[name][0].open(), most_bytes=limit)
    thinned = "; ".join(f"run {name}: {packed.thinned}" for name, packed in parts.items() if packed.thinned)
    about = {"schema": SCHEMA, "records": RECORDS_SCHEMA, "kind": "race", "race": race.name,
             "folder": race.folder.name, "thinned": thinned}  # fmt: skip
    files = {ABOUT: dumps(about, indent=2).encode(), FILE: dumps(_told(race), indent=2).encode(), TABLE: _table(race)}
    for name, packed in parts.items():
        files |= {f"{RUNS}{name}/{piece}": content for piece, content in packed.files.items()}
    return PackedRun(files, thinned)


def _limits(sizes: Mapping[str, int], most_bytes: int | None) -> dict[str, int]:
    """What the runs may take that take more than their share; the small ones leave room to them."""
    if most_bytes is None:
        return {}
    room, limits = most_bytes - SPARE, {}
    for place, name in enumerate(sorted(sizes, key=sizes.__getitem__)):
        share = max(0, room) // (len(sizes) - place)
        if sizes[name] > share:
            limits[name] = share
        room -= min(sizes[name], share)
    return limits


def present(race: Race) -> list[RaceRun]:
    """The runs of a race whose folders are there."""
    return [run for run in race.runs if run.path is not None and RunDirectory(run.path).config_file.is_file()]


def _told(race: Race) -> dict[str, Any]:
    """What race.json says of the newest runs; those that ride along are named by their folders only."""
    told: dict[str, Any] = read_json(race.folder / FILE)
    here = {(run.label, run.seed): run.path.name for run in present(race) if run.path is not None}
    newest = {(row["label"], row["seed"]): row for row in told["runs"]}
    rows = [
        row | {"path": here.get(place)} for place, row in newest.items() if place in here or row["state"] != FINISHED
    ]
    return told | {"runs": rows}


def _table(race: Race) -> bytes:
    made = io.BytesIO()
    table = race.table.reset_index()
    for name in table.columns[table.dtypes.map(str) == "object"]:  # mixed kinds, which Parquet has not
        table[name] = [None if value is None else str(value) for value in table[name]]
    table.to_parquet(made, index=False)
    return made.getvalue()


def _unpack(files: Mapping[str, bytes], folder: Path) -> Path:
    """Lay a packed race out as folders of its runs and one of its own, which is returned."""
    by_run: dict[str, dict[str, bytes]] = {}
    for piece, content in files.items():
        if piece.startswith(RUNS):
            name, _, rest = piece.removeprefix(RUNS).partition("/")
            by_run.setdefault(name, {})[rest] = content
    for of_run in by_run.values():
        unpack(of_run, folder)
    try:
        told = json.loads(files[FILE])
        rows = [
            row | {"path": None if row["path"] is None else f"../../{row['path']}"}
            for row in told["runs"]
            if row["path"] is None or row["path"] in by_run
        ]
        where = folder / FOLDER / "exported"
        where.mkdir(parents=True)
        write_json(where / FILE, told | {"runs": rows})
    except OSError as error:
        if isinstance(error, RunStoreError):
            raise
        raise store_error("unpack to", folder, error) from error
    except (KeyError, ValueError, TypeError) as error:
        raise RunStoreError(f"its {FILE} is damaged ({error!r}). Export the race again.") from error
    return where
