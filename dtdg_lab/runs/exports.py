"""Runs packed into one file, and runs restored from exports."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.extensions import FILE as EXTENSIONS
from dtdg_lab.config.extensions import Extension, add_absent
from dtdg_lab.config.record_tables import SCHEMA as RECORDS_SCHEMA
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core import system_errors
from dtdg_lab.core.errors import ConfigError, DataError, RunStoreError, UnknownNameError
from dtdg_lab.core.units import as_path, format_bytes
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.frames import LINE_NUMBER, to_frame
from dtdg_lab.runs.json_files import dumps, read_object, reading, store_error
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.runs.run import open_run as open_run_folder

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


# A compact run: its tables as Parquet and its other files, for embedding in an exported file and for unpacking.


SCHEMA = 1
ABOUT = "export.json"  # the metadata of a packed run or race
PACKED_TABLES = "tables/"
WHOLE = "config.json", "environment.json", "status.json", "summary.json", EXTENSIONS  # files that are copied unchanged
MADE_BY = "dtdg_lab"  # entry of a timeline's otherData
PARQUET_KEY = b"dtdg_lab"  # of a table's metadata: config, environment and summary of its run
KEPT_WHOLE = ("evaluations", "events", "decisions", "rounds", "memory")
_STRIDES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LEVEL = 9
# limits on the values of a table, absolute and per byte: beyond them a file was crafted to exhaust the memory
_MOST_VALUES, _VALUES_A_BYTE = 2**26, 20
_OF_A_PIECE = 220  # overhead of a zip for a piece, whose name it stores twice


@dataclass(frozen=True, slots=True)
class PackedRun:
    """A run as named pieces of bytes.

    Attributes:
        files: name -> content; ``export.json``, the run's own JSON files, and ``tables/<table>.parquet``.
        thinned: description of omitted rows; empty if complete.
    """

    files: Mapping[str, bytes]
    thinned: str

    @property
    def size(self) -> int:
        """Bytes of all pieces, including the overhead of a zip."""
        return sum(len(content) + _OF_A_PIECE for content in self.files.values())

    def zipped(self) -> bytes:
        """The pieces as one zip file; the same run gives the same bytes."""
        return zip_of(self.files)


def zip_of(files: Mapping[str, bytes]) -> bytes:
    """A zip of named contents, the same for the same contents."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def pack(
    run: StoredRun, *, most_bytes: int | None = None, telling: bool = False, without: Collection[str] = ()
) -> PackedRun:
    """Pack a run in its current state; it may still be active.

    Args:
        run: packed from its lines: all attempts, all columns.
        most_bytes: above it tables are thinned, the largest first; no limit by default.
        telling: give each table the config, environment and summary as metadata, so that it can be read alone.
        without: names of tables to leave out.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a file cannot be read, or not even the thinned tables fit.
    """
    found = run.tables.numbered()
    tables = {name: table for name, table in found.items() if name not in without}
    others = {name: content for name in WHOLE if (content := _content(run.path / name)) is not None}
    # also without this metadata: what is damaged here could not be read there
    metadata = {name.partition(".")[0]: read_object(run.path / name) for name in others}
    metadata.pop("status", None)
    parts = {name: _parquet(table, metadata if telling else None) for name, table in tables.items()}
    spare = 1536 + _OF_A_PIECE * (1 + len(others) + len(parts))  # the first for its metadata
    room = None if most_bytes is None else most_bytes - sum(map(len, others.values())) - spare
    words = "" if room is None else _thin(tables, parts, room)
    if left_out := ", ".join(sorted(found.keys() - tables.keys())):
        words = f"{words}; without the tables {left_out}".removeprefix("; ")
    about = {"schema": SCHEMA, "records": RECORDS_SCHEMA, "kind": "run", "run": run.id, "thinned": words}
    about["rows"] = {name: table.num_rows for name, table in tables.items()}
    files = {ABOUT: dumps(about, indent=2).encode(), **others}
    return PackedRun(files | {f"{PACKED_TABLES}{name}.parquet": content for name, content in parts.items()}, words)


def unpack(files: Mapping[str, bytes], folder: Path) -> RunDirectory:
    """Restore a packed run as a run's folder with the same tables; ``folder`` holds it under the run's name.

    Raises:
        RunStoreError: the pieces are not a run's, are damaged, or a file cannot be written.
    """
    about = read_about(files, "run")
    name = str(about["run"])
    if not name or Path(name).name != name or name.startswith(".") or "\0" in name:
        raise RunStoreError(
            f"the packed run has the name {name!r}, which is not valid for a folder. It was not made by "
            "lab.runs.export."
        )
    run = RunDirectory(folder / name)
    try:
        for part in ("records", "checkpoints", "live"):
            (run.path / part).mkdir(parents=True)
        for piece in WHOLE:
            if piece in files:
                (run.path / piece).write_bytes(files[piece])
        _write_records(run, files)
    except OSError as error:
        raise store_error("unpack to", run.path, error) from error
    return run


def read_about(files: Mapping[str, bytes], kind: str) -> dict[str, Any]:
    """The metadata of a packed run or race.

    Raises:
        RunStoreError: it is unreadable, of another kind, or of a newer or older version.
    """
    try:
        about = dict(json.loads(files[ABOUT]))
        schemas = int(about["schema"]), int(about.get("records", RECORDS_SCHEMA))
    except (KeyError, ValueError, TypeError) as error:
        raise RunStoreError(
            f"this is not an exported run: its {ABOUT} is missing or damaged ({error}). Export the run again."
        ) from error
    if schemas[0] > SCHEMA or schemas[1] > RECORDS_SCHEMA:
        raise RunStoreError(
            f"this was exported by a newer version (schema {schemas[0]}, records {schemas[1]}); this one reads "
            f"{SCHEMA} and {RECORDS_SCHEMA}. Update dtdg_lab."
        )
    if schemas[1] < RECORDS_SCHEMA:
        raise RunStoreError(
            f"this was exported by an older version (records {schemas[1]}); this one reads records {RECORDS_SCHEMA}. "
            "Open it with the version that made it, or train the run again."
        )
    if about.get("kind") != kind:
        remedy = {"race": " Open it with lab.races.open.", "run": " Open it with lab.runs.open."}
        described = about.get("kind")
        raise RunStoreError(f"this is an exported {described}, not a {kind}.{remedy.get(str(described), '')}")
    return about


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error("read", path, error) from error


def _parquet(table: pa.Table, metadata: dict[str, Any] | None) -> bytes:
    """A compact table: integers as differences, fractions byte by byte."""
    import pyarrow as pa
    import pyarrow.parquet

    if metadata is not None:
        table = table.replace_schema_metadata({PARQUET_KEY: dumps(metadata).encode()})
    encoding = {}
    for column in table.schema:
        if pa.types.is_int64(column.type):
            encoding[column.name] = "DELTA_BINARY_PACKED"
        elif pa.types.is_float64(column.type):
            encoding[column.name] = "BYTE_STREAM_SPLIT"
    made = io.BytesIO()
    usual = [field.name for field in table.schema if field.name not in encoding]
    how: dict[str, Any] = {"compression": "zstd", "compression_level": _LEVEL, "column_encoding": encoding or None}
    pyarrow.parquet.write_table(table, made, use_dictionary=usual, **how)
    return made.getvalue()


def _thin(tables: dict[str, pa.Table], parts: dict[str, bytes], room: int) -> str:
    """Drop rows of ``parts`` until they fit into ``room``; return a description of the omitted rows."""
    described = ""
    for spared in (("steps", *KEPT_WHOLE), KEPT_WHOLE, ()):
        thinner = [name for name in tables if name not in spared]
        if sum(len(part) for name, part in parts.items() if name not in thinner) > room:
            continue  # the protected tables alone are too large
        for stride in _STRIDES:
            if sum(map(len, parts.values())) <= room:
                return described
            for name in thinner:
                parts[name] = _parquet(_every(tables[name], stride), None)
            described = (
                f"one step in {stride} of the tables {', '.join(thinner)} is included; the other tables are complete"
            )
    if sum(map(len, parts.values())) > room:
        raise RunStoreError(
            "the run's tables do not fit into the file, even when thinned. Export kind='parquet', which has no limit."
        )
    return described


def _every(table: pa.Table, stride: int) -> pa.Table:
    """Rows of every nth step; for tables without steps, every nth row of a rank."""
    import numpy as np

    if "step" in table.schema.names:
        steps = table.column("step").to_numpy(zero_copy_only=False).astype(float)
        return table.filter(np.isnan(steps) | (steps % stride == 0))
    ranks = table.column("rank").to_numpy(zero_copy_only=False)
    keep = np.zeros(len(ranks), dtype=bool)
    for rank in np.unique(ranks):
        keep[np.flatnonzero(ranks == rank)[::stride]] = True
    return table.filter(keep)


def read_table(content: bytes) -> pa.Table:
    """A table from the bytes of a Parquet file.

    Raises:
        ArrowException, OSError, ValueError: it is damaged, or would exhaust the memory.
    """
    import pyarrow as pa
    import pyarrow.parquet

    facts = pyarrow.parquet.read_metadata(pa.BufferReader(content))
    values = facts.num_rows * facts.num_columns
    if values > max(_MOST_VALUES, _VALUES_A_BYTE * len(content)):
        raise ValueError(
            f"{values:,} values in {len(content):,} bytes would exhaust the memory: it was not made by lab.runs.export"
        )
    return pyarrow.parquet.read_table(pa.BufferReader(content))


def _unpacking(what: str) -> AbstractContextManager[None]:
    """Tell damage of what an exported file holds from a refusal of the system."""
    return system_errors.reading(None, what, remedy=EXPORT_AGAIN, raises=RunStoreError)


def _write_records(run: RunDirectory, files: Mapping[str, bytes]) -> None:
    """Write the ranks' lines that the tables were made from."""
    lines: dict[int, dict[int, str]] = {}
    for piece, content in files.items():
        if not (piece.startswith(PACKED_TABLES) and piece.endswith(".parquet")):
            continue
        name = Path(piece).stem
        with _unpacking(f"the exported table {name!r}"):
            table = read_table(content)
            for rank, of_rank in lines_of(name, table).items():
                lines.setdefault(rank, {}).update(of_rank)
    for rank, of_rank in lines.items():
        text = "".join(f"{of_rank[number]}\n" for number in sorted(of_rank))
        run.record_file(rank).write_text(text, encoding="utf-8")


def lines_of(name: str, table: pa.Table) -> dict[int, dict[int, str]]:
    """Rank -> line number -> the original line as JSON, from a numbered table.

    Raises:
        KeyError, ValueError: it was not made by this program.
    """
    kept = [field for field in table.schema if field.name not in ("rank", "attempt", LINE_NUMBER)]
    columns = [_values(table, field) for field in kept]
    head = {"v": RECORDS_SCHEMA, "rank": 0, "attempt": 0, "seq": 0, "table": name, "columns": [of.name for of in kept]}
    found: dict[tuple[int, int, int], list[tuple[Any, ...]]] = {}
    places = list(zip(*(table.column(of).to_pylist() for of in ("rank", LINE_NUMBER, "attempt")), strict=True))
    if not all(type(number) is int and number >= 0 for place in set(places) for number in place):
        raise ValueError("its ranks, lines or attempts are not numbers from 0")
    for place, row in zip(places, zip(*columns, strict=True), strict=True):
        found.setdefault(place, []).append(row)
    lines: dict[int, dict[int, str]] = {}
    for (rank, seq, attempt), rows in found.items():
        described = {**head, "rank": rank, "attempt": attempt, "seq": seq, "rows": rows}
        lines.setdefault(rank, {})[seq] = dumps(described)
    return lines


def _values(table: pa.Table, field: pa.Field) -> list[Any]:
    values: list[Any] = table.column(field.name).to_pylist()
    if (field.metadata or {}).get(b"encoding") == b"json":
        return [None if value is None else json.loads(value) for value in values]
    return values


# Runs restored from exported files: complete ones, and the part of a run that other files hold.


def temporary_folder(owner: object) -> Path:
    """A new folder that is deleted with its owner, even if creating the owner fails."""
    folder = tempfile.mkdtemp(prefix="dtdg-lab-export-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class ExportedRun(StoredRun):
    """A run restored from an exported file, with everything but checkpoints.

    It is unpacked to a temporary folder (``path``), which is deleted with the object.

    Attributes:
        source: the file it was read from.
        thinned: description of omitted table rows; empty if complete.
    """

    def __init__(self, files: Mapping[str, bytes], source: Path) -> None:
        about = read_about(files, "run")
        super().__init__(unpack(files, temporary_folder(self)))
        self.source = source
        self.thinned: str = about.get("thinned") or ""

    def __repr__(self) -> str:
        note = f", thinned: {self.thinned}" if self.thinned else ""
        return f"ExportedRun({self.id!r}, {self.status!r}, from {str(self.source)!r}{note})"


@dataclass(frozen=True, slots=True, eq=False)
class PartialRun:
    """The part of a run that an incomplete exported file holds.

    Attributes:
        id: of the run.
        kind: of the file: ``script``, ``notebook`` or ``table``.
        source: the file or folder it was read from.
        config: the settings at the start of the run.
        tables: record tables, or parts of their columns, by name.
        summary: the numbers of the whole run, if the file holds them.
        environment: the run's environment, if the file holds it.
        holds: description of the available part.
    """

    id: str
    kind: str
    source: Path
    config: RunConfig
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    holds: str = ""

    def __repr__(self) -> str:
        return f"PartialRun({self.id!r}, from the {self.kind} {str(self.source)!r}: {self.holds})"

    def table(self, name: str) -> pd.DataFrame:
        """One of ``tables``.

        Raises:
            UnknownNameError: the file does not hold it.
        """
        if name not in self.tables:
            advice = "An HTML or Parquet export, or the run's folder, has all tables."
            raise UnknownNameError(f"record table of a {self.kind}", name, self.tables, advice)
        return self.tables[name]


# ``lab.runs.open``: a run from its folder, or from any of its exports.


CONFIG = "config.json"
PACKED = "dtdg-lab-packed"  # id of the element, or name of the entry, that holds a packed run as base64
CONFIG_MARK = "# settings of the run, read back by dtdg_lab.runs.open: "
PACKED_MARK = "# what was recorded of the run, read back by dtdg_lab.runs.open: "
EXPORT_AGAIN = "Export the run again."
# packed content expands ten- to twentyfold: files that would exhaust the memory were crafted to do so
_MOST_UNPACKED, _MOST_TIMES = 2**28, 100
_ELEMENT = re.compile(rf"<script[^>]*\bid=['\"]{PACKED}['\"][^>]*>([A-Za-z0-9+/=\s]*)</script>")
_ALLOWED = "a run's folder, or a file that lab.runs.export made of one (html, parquet, script or notebook)"


def open_run(path: str | Path) -> StoredRun | PartialRun:
    """Open a run: its folder, or a file that ``lab.runs.export`` made from it.

    A page (html) and exported tables (parquet: a zip or a folder) give the complete run, with the exported tables.
    A script, a notebook or a single table gives the part that it holds; a script or notebook of a run with live
    changes gives the whole run, as far as it was recorded there.

    Raises:
        RunStoreError: there is nothing at that path, it was not made by this program, is damaged, or is a race.
    """
    where = as_path(path, "path")
    if not where.exists():
        raise RunStoreError(f"{where} is not a run: there is nothing at that path. Give {_ALLOWED}.")
    if where.is_dir() and not (where / ABOUT).is_file():
        return open_run_folder(where)
    try:
        with reading(where, EXPORT_AGAIN):
            found = _opened(where)
    except ConfigError as error:
        raise RunStoreError(f"{where} holds settings that cannot be read: {error}") from error
    except DataError as error:
        said = str(error)
        raise RunStoreError(said if said.startswith(str(where)) else f"{where}: {said}") from error
    except RunStoreError as error:
        raise RunStoreError(f"{where}: {error}") from error
    if found is None:
        raise RunStoreError(f"{where} is neither a run nor an export of one. Give {_ALLOWED}.")
    return found


def pieces(path: str | Path) -> dict[str, bytes] | None:
    """The named pieces of an exported run or race, from its page, zip, folder, script or notebook; None without any.

    Raises:
        RunStoreError: the file cannot be read, or is damaged.
    """
    where = as_path(path, "path")
    try:
        if where.is_dir():
            names = [file for file in where.rglob("*") if file.is_file()] if (where / ABOUT).is_file() else []
            return {file.relative_to(where).as_posix(): file.read_bytes() for file in names} or None
        return _pieces_in(where.read_bytes())
    except OSError as error:
        raise store_error("read", where, error) from error


def _opened(where: Path) -> StoredRun | PartialRun | None:
    packed = pieces(where)
    if packed is not None:
        return ExportedRun(packed, where)
    content = b"" if where.is_dir() else _content(where) or b""
    if content[:4] == b"PAR1":
        return _one_table(where, content)
    text = _as_text(content)
    if text is None:
        return None
    start = text.lstrip()
    if start[:15].lower() == "<!doctype html>":
        raise RunStoreError(
            "this page holds no tables: it is the report of a run. Open the run's folder, or export(run, kind='html')."
        )
    if start[:1] == "{":
        kind, read = "notebook", _json(text)
        noted = _metadata(read) if "cells" in read else {}
    else:
        lines = [line for line in text.splitlines() if line.startswith(CONFIG_MARK)]
        kind, noted = "script", _json(lines[0].removeprefix(CONFIG_MARK)) if lines else {}
    if "config" not in noted:
        return None
    _learn(noted)
    config = RunConfig.from_json(json.dumps(noted.get("config")))
    return PartialRun(str(noted.get("run")), kind, where, config, holds="its settings")


def _as_text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _pieces_in(content: bytes) -> dict[str, bytes] | None:
    """The packed run in a zip, page, script or notebook."""
    if content[:4] == b"PK\x03\x04":
        return _unzipped(content)
    text = _as_text(content)
    if text is None or not (PACKED in text or PACKED_MARK in text):
        return None
    element = _ELEMENT.search(text)
    line = next((line for line in text.splitlines() if line.startswith(PACKED_MARK)), None)
    if element is not None:
        held = element.group(1)
    elif line is not None:
        held = line.removeprefix(PACKED_MARK)
    else:
        held = _metadata(_json(text)).get(PACKED) if text.lstrip()[:1] == "{" else None
    if not isinstance(held, str):
        return None
    try:
        return _unzipped(base64.b64decode("".join(held.split()), validate=True))
    except ValueError as error:
        raise RunStoreError(f"the run packed in it is damaged ({error}). {EXPORT_AGAIN}") from error


def _unzipped(content: bytes) -> dict[str, bytes] | None:
    """Its files; None for an unrelated zip."""
    with _unpacking("the run packed in it"), zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        if ABOUT not in names:
            return None
        most = max(_MOST_UNPACKED, _MOST_TIMES * len(content))
        if sum(each.file_size for each in archive.infolist()) > most:
            raise RunStoreError(
                f"it would take more than {format_bytes(most)} of memory unpacked, which no exported run does: it "
                "was not made by lab.runs.export. Check its origin."
            )
        return {name: archive.read(name) for name in names}


def _json(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise RunStoreError(f"it starts as JSON but is damaged ({error}). Export the run again.") from error
    return read if isinstance(read, dict) else {}


def _metadata(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that this program stores in a notebook."""
    metadata = notebook.get("metadata")
    noted = metadata.get("dtdg_lab") if isinstance(metadata, dict) else None
    return noted if isinstance(noted, dict) else {}


def _learn(noted: Mapping[str, Any]) -> None:
    """Let configs name the registered code that an exported file describes.

    Raises:
        RunStoreError: the description is damaged.
    """
    try:
        add_absent(map(Extension.from_dict, noted.get("extensions", ())))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunStoreError(f"its description of registered code is damaged ({error!r}). {EXPORT_AGAIN}") from error


def _one_table(where: Path, content: bytes) -> PartialRun:
    """A table taken from an exported run: its metadata name the run."""
    with _unpacking("the Parquet table in it"):
        table = read_table(content)
    described = (table.schema.metadata or {}).get(PARQUET_KEY)
    if described is None:
        raise RunStoreError("it is a Parquet file that was not exported from a run. Open the run's folder instead.")
    facts = _json(described.decode())
    _learn(facts.get("extensions") or {})
    config = RunConfig.from_json(json.dumps(facts["config"]))
    bare = table.drop_columns([LINE_NUMBER]) if LINE_NUMBER in table.schema.names else table
    held = {name: facts.get(name) or {} for name in ("environment", "summary")}
    run = str(held["summary"].get("run", where.stem))
    words = f"its table {where.stem}, settings, environment and summary"
    return PartialRun(run, "table", where, config, {where.stem: to_frame(bare)}, **held, holds=words)
