"""A run packed into named pieces of bytes: its tables as Parquet and its other files."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.extensions import FILE as EXTENSIONS
from dtdg_lab.config.record_tables import SCHEMA as RECORDS_SCHEMA
from dtdg_lab.core import system_errors
from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.json_files import dumps, read_object
from dtdg_lab.runs.parquet import LINE_NUMBER
from dtdg_lab.runs.stored_run import StoredRun

if TYPE_CHECKING:
    import pyarrow as pa


SCHEMA = 1


ABOUT = "export.json"  # the metadata of a packed run or race


PACKED_TABLES = "tables/"


WHOLE = "config.json", "environment.json", "status.json", "summary.json", EXTENSIONS  # files that are copied


MADE_BY = "dtdg_lab"  # entry of a timeline's otherData


PARQUET_KEY = b"dtdg_lab"  # key of a table's metadata: config, environment and summary of its run


KEPT_WHOLE = ("evaluations", "events", "decisions", "rounds", "memory")


_STRIDES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


_LEVEL = 9


# limits on the values of a table, absolute and per byte; files beyond them were crafted to exhaust the memory
_MOST_VALUES, _VALUES_A_BYTE = 2**26, 20


_OF_A_PIECE = 220  # overhead of a zip per piece, whose name it stores twice


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
        """Return the pieces as a zip file; equal runs give equal bytes."""
        return zip_of(self.files)


def zip_of(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of named contents; equal contents give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def pack(
    run: StoredRun, *, most_bytes: int | None = None, telling: bool = False, without: Collection[str] = ()
) -> PackedRun:
    """Pack a run in its current state; it may still be active.

    Args:
        run: packed from its record lines, with all attempts and columns.
        most_bytes: size above which tables are thinned, the largest first; no limit by default.
        telling: True to give each table the config, environment and summary as metadata, so that it can be read alone.
        without: names of tables to leave out.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a file cannot be read, or even the thinned tables do not fit.
    """
    all_tables = run.tables.numbered()
    tables = {name: table for name, table in all_tables.items() if name not in without}
    copied = {name: content for name in WHOLE if (content := read_content(run.path / name)) is not None}
    # also read without ``telling``, because files damaged here could not be read from the export
    metadata = {name.partition(".")[0]: read_object(run.path / name) for name in copied}
    metadata.pop("status", None)
    parts = {name: _parquet(table, metadata if telling else None) for name, table in tables.items()}
    spare = 1536 + _OF_A_PIECE * (1 + len(copied) + len(parts))  # 1536 for export.json
    room = None if most_bytes is None else most_bytes - sum(map(len, copied.values())) - spare
    omissions = "" if room is None else _thin(tables, parts, room)
    if left_out := ", ".join(sorted(all_tables.keys() - tables.keys())):
        omissions = f"{omissions}; without the tables {left_out}".removeprefix("; ")
    about = {"schema": SCHEMA, "records": RECORDS_SCHEMA, "kind": "run", "run": run.id, "thinned": omissions}
    about["rows"] = {name: table.num_rows for name, table in tables.items()}
    files = {ABOUT: dumps(about, indent=2).encode(), **copied}
    return PackedRun(files | {f"{PACKED_TABLES}{name}.parquet": content for name, content in parts.items()}, omissions)


def unpack(files: Mapping[str, bytes], folder: Path) -> RunDirectory:
    """Restore a packed run as a run's folder with the same tables, inside ``folder``.

    Raises:
        RunStoreError: the pieces are not a run's or are damaged, or a file cannot be written.
    """
    about = read_about(files, "run")
    name = str(about["run"])
    if not name or Path(name).name != name or name.startswith(".") or "\0" in name:
        raise RunStoreError(
            f"the packed run has the name {name!r}, which is invalid for a folder. It was not made by lab.runs.export."
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
    """Read the metadata of a packed run or race.

    Raises:
        RunStoreError: they are unreadable, of another kind, or of a newer or older version.
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
            f"this was exported by a newer version (schema {schemas[0]}, records {schemas[1]}); this version reads "
            f"{SCHEMA} and {RECORDS_SCHEMA}. Update dtdg_lab."
        )
    if schemas[1] < RECORDS_SCHEMA:
        raise RunStoreError(
            f"this was exported by an older version (records {schemas[1]}); this one reads records {RECORDS_SCHEMA}. "
            "Open it with the version that made it, or train the run again."
        )
    if about.get("kind") != kind:
        remedy = {"race": " Open it with lab.races.open.", "run": " Open it with lab.runs.open."}
        actual_kind = about.get("kind")
        raise RunStoreError(f"this is an exported {actual_kind}, not a {kind}.{remedy.get(str(actual_kind), '')}")
    return about


def read_content(path: Path) -> bytes | None:
    """Return the bytes of a file; None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error("read", path, error) from error


def _parquet(table: pa.Table, metadata: dict[str, Any] | None) -> bytes:
    """Return a table as compact Parquet: integers as differences, floats byte by byte."""
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
    buffer = io.BytesIO()
    usual = [field.name for field in table.schema if field.name not in encoding]
    how: dict[str, Any] = {"compression": "zstd", "compression_level": _LEVEL, "column_encoding": encoding or None}
    pyarrow.parquet.write_table(table, buffer, use_dictionary=usual, **how)
    return buffer.getvalue()


def _thin(tables: dict[str, pa.Table], parts: dict[str, bytes], room: int) -> str:
    """Drop rows of ``parts`` until they fit into ``room``; return a description of the omitted rows."""
    omissions = ""
    for spared in (("steps", *KEPT_WHOLE), KEPT_WHOLE, ()):
        thinner = [name for name in tables if name not in spared]
        if sum(len(part) for name, part in parts.items() if name not in thinner) > room:
            continue  # even the protected tables are too large
        for stride in _STRIDES:
            if sum(map(len, parts.values())) <= room:
                return omissions
            for name in thinner:
                parts[name] = _parquet(_every(tables[name], stride), None)
            omissions = (
                f"one step in {stride} of the tables {', '.join(thinner)} is included; the other tables are complete"
            )
    if sum(map(len, parts.values())) > room:
        raise RunStoreError(
            "the run's tables do not fit into the file, even when thinned. Export kind='parquet', which has no limit."
        )
    return omissions


def _every(table: pa.Table, stride: int) -> pa.Table:
    """Return the rows of every n-th step; for tables without steps, every n-th row of a rank."""
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
    """Read a table from the bytes of a Parquet file.

    Raises:
        ArrowException, OSError, ValueError: it is damaged, or would exhaust the memory.
    """
    import pyarrow as pa
    import pyarrow.parquet

    facts = pyarrow.parquet.read_metadata(pa.BufferReader(content))
    values = facts.num_rows * facts.num_columns
    if values > max(_MOST_VALUES, _VALUES_A_BYTE * len(content)):
        raise ValueError(
            f"{values:,} values in {len(content):,} bytes would exhaust the memory: lab.runs.export did not make it"
        )
    return pyarrow.parquet.read_table(pa.BufferReader(content))


def unpacking(what: str) -> AbstractContextManager[None]:
    """Distinguish a damaged export from system errors."""
    return system_errors.reading(None, what, remedy=EXPORT_AGAIN, raises=RunStoreError)


def _write_records(run: RunDirectory, files: Mapping[str, bytes]) -> None:
    """Write the ranks' lines from the tables."""
    lines: dict[int, dict[int, str]] = {}
    for piece, content in files.items():
        if not (piece.startswith(PACKED_TABLES) and piece.endswith(".parquet")):
            continue
        name = Path(piece).stem
        with unpacking(f"the exported table {name!r}"):
            table = read_table(content)
            for rank, of_rank in lines_of(name, table).items():
                lines.setdefault(rank, {}).update(of_rank)
    for rank, of_rank in lines.items():
        text = "".join(f"{of_rank[number]}\n" for number in sorted(of_rank))
        run.record_file(rank).write_text(text, encoding="utf-8")


def lines_of(name: str, table: pa.Table) -> dict[int, dict[int, str]]:
    """Return rank -> line number -> original line as JSON, from a numbered table.

    Raises:
        KeyError, ValueError: the table was not made by this program.
    """
    identity = ("rank", "attempt", LINE_NUMBER)
    fields = [field for field in table.schema if field.name not in identity]
    shape = {"table": name, "columns": [field.name for field in fields]}
    keys = list(zip(*(table.column(column).to_pylist() for column in identity), strict=True))
    if not all(type(number) is int and number >= 0 for key in set(keys) for number in key):
        raise ValueError("its ranks, lines or attempts are not numbers from 0")
    rows_by_key: dict[tuple[int, int, int], list[tuple[Any, ...]]] = {}
    for key, row in zip(keys, zip(*(_values(table, field) for field in fields), strict=True), strict=True):
        rows_by_key.setdefault(key, []).append(row)
    lines: dict[int, dict[int, str]] = {}
    for (rank, attempt, seq), rows in rows_by_key.items():
        identity_facts = {"v": RECORDS_SCHEMA, "rank": rank, "attempt": attempt, "seq": seq}
        lines.setdefault(rank, {})[seq] = dumps({**identity_facts, **shape, "rows": rows})
    return lines


def _values(table: pa.Table, field: pa.Field) -> list[Any]:
    values: list[Any] = table.column(field.name).to_pylist()
    if (field.metadata or {}).get(b"encoding") == b"json":
        return [None if value is None else json.loads(value) for value in values]
    return values


EXPORT_AGAIN = "Export the run again."
