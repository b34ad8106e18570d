"""A run in few bytes: its tables as Parquet and its other files, to ride in an exported file and be unpacked again."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.records import SCHEMA as RECORDS_SCHEMA
from dtdg_lab.runs import merge
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.json_files import dumps, store_error
from dtdg_lab.runs.open import StoredRun
from dtdg_lab.runs.stored_files import read_object

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 1
ABOUT = "export.json"  # what a packed run, or race, says of itself
TABLES = "tables/"
WHOLE = "config.json", "environment.json", "status.json", "summary.json"  # files that are taken as they are
PARQUET_KEY = b"dtdg_lab"  # of a table's metadata: config, environment and summary of its run
KEPT_WHOLE = ("evaluations", "events", "decisions", "rounds", "memory")
_STRIDES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LEVEL = 9
# values that a table may have, and values for each of its bytes: more than that was made to fill the memory
_MOST_VALUES, _VALUES_A_BYTE = 2**26, 20
_OF_A_PIECE = 220  # bytes that a zip takes of its own for a piece, whose name it tells twice


@dataclass(frozen=True, slots=True)
class PackedRun:
    """A run as named pieces of bytes.

    Attributes:
        files: name -> content; ``export.json``, the run's own JSON files, and ``tables/<table>.parquet``.
        thinned: what was left out, in words; empty where everything is there.
    """

    files: Mapping[str, bytes]
    thinned: str

    @property
    def size(self) -> int:
        """Bytes of all pieces, with what a zip takes of its own."""
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
    """Pack a run; it may still be under way, and is taken as far as it has come.

    Args:
        run: to be packed, from its lines: all attempts, all columns.
        most_bytes: above it tables are thinned, the bulky ones first; no limit when not given.
        telling: give each table config, environment and summary as its metadata, so that it can be read alone.
        without: names of tables to leave out.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a file cannot be read, or not even the thinned tables fit.
    """
    found = merge.collect(run.directory, numbered=True)
    tables = {name: table for name, table in found.items() if name not in without}
    others = {name: content for name in WHOLE if (content := _content(run.path / name)) is not None}
    # also where it is not told: what is damaged here could not be read there
    metadata = {name.partition(".")[0]: read_object(run.path / name) for name in others}
    metadata.pop("status", None)
    parts = {name: _parquet(table, metadata if telling else None) for name, table in tables.items()}
    spare = 1536 + _OF_A_PIECE * (1 + len(others) + len(parts))  # the first for what it says of itself
    room = None if most_bytes is None else most_bytes - sum(map(len, others.values())) - spare
    words = "" if room is None else _thin(tables, parts, room)
    if left_out := ", ".join(sorted(found.keys() - tables.keys())):
        words = f"{words}; without the tables {left_out}".removeprefix("; ")
    about = {"schema": SCHEMA, "records": RECORDS_SCHEMA, "kind": "run", "run": run.id, "thinned": words}
    about["rows"] = {name: table.num_rows for name, table in tables.items()}
    files = {ABOUT: dumps(about, indent=2).encode(), **others}
    return PackedRun(files | {f"{TABLES}{name}.parquet": content for name, content in parts.items()}, words)


def unpack(files: Mapping[str, bytes], folder: Path) -> RunDirectory:
    """Lay a packed run out as a run's folder again, with the same tables; ``folder`` holds it under the run's name.

    Raises:
        RunStoreError: the pieces are not a run's, are damaged, or a file cannot be written.
    """
    about = read_about(files, "run")
    name = str(about["run"])
    if not name or Path(name).name != name or name.startswith(".") or "\0" in name:
        raise RunStoreError(f"the packed run is called {name!r}, which is no name of a folder. It was not made here.")
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
    """What a packed run or race says of itself.

    Raises:
        RunStoreError: it says nothing that is understood, is of another kind, or of a newer version.
    """
    try:
        about = dict(json.loads(files[ABOUT]))
        schemas = int(about["schema"]), int(about.get("records", RECORDS_SCHEMA))
    except (KeyError, ValueError, TypeError) as error:
        raise RunStoreError(
            f"this holds no exported run: its {ABOUT} is missing or damaged ({error}). Export the run again."
        ) from error
    if schemas[0] > SCHEMA or schemas[1] > RECORDS_SCHEMA:
        raise RunStoreError(
            f"this was exported by a newer version (schema {schemas[0]}, records {schemas[1]}); this one reads "
            f"{SCHEMA} and {RECORDS_SCHEMA}. Update dtdg_lab."
        )
    if about.get("kind") != kind:
        remedy = {"race": " Open it with lab.open_race.", "run": " Open it with lab.open_run."}
        told = about.get("kind")
        raise RunStoreError(f"this is an exported {told}, not a {kind}.{remedy.get(str(told), '')}")
    return about


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error("read", path, error) from error


def _parquet(table: pa.Table, metadata: dict[str, Any] | None) -> bytes:
    """A table in few bytes: whole numbers as differences, fractions by the bytes of their places."""
    import pyarrow as pa
    import pyarrow.parquet

    if metadata is not None:
        table = table.replace_schema_metadata({PARQUET_KEY: dumps(metadata).encode()})
    encoding = {}
    for field in table.schema:
        if pa.types.is_int64(field.type):
            encoding[field.name] = "DELTA_BINARY_PACKED"
        elif pa.types.is_float64(field.type):
            encoding[field.name] = "BYTE_STREAM_SPLIT"
    made = io.BytesIO()
    pyarrow.parquet.write_table(
        table, made, compression="zstd", compression_level=_LEVEL, column_encoding=encoding or None,
        use_dictionary=[field.name for field in table.schema if field.name not in encoding],
    )  # fmt: skip
    return made.getvalue()


def _thin(tables: dict[str, pa.Table], parts: dict[str, bytes], room: int) -> str:
    """Leave out rows of ``parts`` until they fit into ``room``; says what was left out."""
    told = ""
    for spared in (("steps", *KEPT_WHOLE), KEPT_WHOLE, ()):
        thinner = [name for name in tables if name not in spared]
        if sum(len(part) for name, part in parts.items() if name not in thinner) > room:
            continue  # the spared ones alone are too much
        for stride in _STRIDES:
            if sum(map(len, parts.values())) <= room:
                return told
            for name in thinner:
                parts[name] = _parquet(_every(tables[name], stride), None)
            told = f"one step in {stride} of the tables {', '.join(thinner)} is here; of the other tables all"
    if sum(map(len, parts.values())) > room:
        raise RunStoreError(
            "the run's tables do not fit into the file, however they are thinned. Export kind='parquet', which has "
            "no limit."
        )
    return told


def _every(table: pa.Table, stride: int) -> pa.Table:
    """Rows of every so manieth step; of tables without steps every so manieth row of a rank."""
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
        ArrowException, OSError, ValueError: it is damaged, or would fill the memory.
    """
    import pyarrow as pa
    import pyarrow.parquet

    facts = pyarrow.parquet.read_metadata(pa.BufferReader(content))
    values = facts.num_rows * facts.num_columns
    if values > max(_MOST_VALUES, _VALUES_A_BYTE * len(content)):
        raise ValueError(f"{values:,} values in {len(content):,} bytes would fill the memory: it was not made here")
    return pyarrow.parquet.read_table(pa.BufferReader(content))


def _write_records(run: RunDirectory, files: Mapping[str, bytes]) -> None:
    """The merged tables as they were, and the ranks' lines that they were merged from."""
    import pyarrow as pa
    import pyarrow.parquet

    lines: dict[int, dict[int, str]] = {}
    rows: dict[str, int] = {}
    for piece, content in files.items():
        if not (piece.startswith(TABLES) and piece.endswith(".parquet")):
            continue
        name = Path(piece).stem
        try:
            table = read_table(content)
            for rank, of_rank in lines_of(name, table).items():
                lines.setdefault(rank, {}).update(of_rank)
            bare = table.drop_columns([merge.LINE]).replace_schema_metadata(None)
        except (pa.ArrowException, KeyError, ValueError, OSError) as error:
            raise RunStoreError(f"the exported table {name!r} is damaged ({error}). Export the run again.") from error
        pyarrow.parquet.write_table(bare, run.table_file(name), compression="zstd")
        rows[name] = table.num_rows
    for rank, of_rank in lines.items():
        text = "".join(f"{of_rank[number]}\n" for number in sorted(of_rank))
        run.record_file(rank).write_text(text, encoding="utf-8")
    sizes = {str(rank): path.stat().st_size for rank, path in run.record_files().items()}
    run.merged_file.write_text(dumps({"sizes": sizes, "rows": rows}), encoding="utf-8")


def lines_of(name: str, table: pa.Table) -> dict[int, dict[int, str]]:
    """Rank -> number of a line -> the line again, as JSON, of a numbered table.

    Raises:
        KeyError, ValueError: it was not made here.
    """
    kept = [field for field in table.schema if field.name not in ("rank", "attempt", merge.LINE)]
    columns = [_values(table, field) for field in kept]
    head = {"v": RECORDS_SCHEMA, "rank": 0, "attempt": 0, "seq": 0, "table": name,
            "columns": [field.name for field in kept]}  # fmt: skip
    found: dict[tuple[int, int, int], list[tuple[Any, ...]]] = {}
    places = list(zip(*(table.column(of).to_pylist() for of in ("rank", merge.LINE, "attempt")), strict=True))
    if not all(type(number) is int and number >= 0 for place in set(places) for number in place):
        raise ValueError("its ranks, lines or attempts are no numbers from 0")
    for place, row in zip(places, zip(*columns, strict=True), strict=True):
        found.setdefault(place, []).append(row)
    lines: dict[int, dict[int, str]] = {}
    for (rank, seq, attempt), rows in found.items():
        told = {**head, "rank": rank, "attempt": attempt, "seq": seq, "rows": rows}
        lines.setdefault(rank, {})[seq] = dumps(told)
    return lines


def _values(table: pa.Table, field: pa.Field) -> list[Any]:
    values: list[Any] = table.column(field.name).to_pylist()
    if (field.metadata or {}).get(b"encoding") == b"json":
        return [None if value is None else json.loads(value) for value in values]
    return values
