"""Parquet files of a rank's records: written from its lines in one pass, and read as Arrow tables.

``records/<table>.rank<number>.parquet`` has the rows of all attempts. Rows after a change of the schema (a new column
or type) are in ``<table>.rank<number>-1.parquet``. ``records/rank<number>.json`` gives the number of bytes of lines
that they cover; it is written last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.config.record_tables import SCHEMA
from dtdg_lab.core.errors import DataError, LabError
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.records.lines import Line, LineColumns, RecordFile, by_shape, parse_line, to_json, whole_bytes
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.json_files import RESTORE, read_object, write_json

if TYPE_CHECKING:
    import pyarrow as pa

Note = Mapping[str, Any]
LINE_NUMBER = "line_seq"  # column of numbered tables
AS_JSON = {b"encoding": b"json"}  # metadata of a column whose values are JSON text


def arrow_column(values: list[Any]) -> tuple[pa.Array, bool]:
    """Return values as an Arrow array, and True if they became JSON text: objects, lists and mixed types do."""
    import pyarrow as pa

    first = next((value for value in values if value is not None), None)
    if first is None:
        return pa.nulls(len(values)), False
    if isinstance(first, list | dict):
        return json_column(values), True
    if type(first) in (int, float):
        with suppress(ValueError, OverflowError):
            column = np.array(values)  # via NumPy, twice as fast
            if column.dtype.kind in "if":
                return pa.array(column), False
    with suppress(pa.ArrowException, OverflowError, UnicodeError):
        array = pa.array(values)
        if not pa.types.is_nested(array.type):
            return array, False
    return json_column(values), True


def json_column(values: Iterable[Any]) -> pa.Array:
    """Return values as JSON text."""
    import pyarrow as pa

    return pa.array([None if value is None else to_json(value).decode() for value in values], pa.string())


def arrow_table(columns: LineColumns) -> pa.Table:
    """Return columns of lines as an Arrow table."""
    import pyarrow as pa

    fields, arrays = [], []
    for name, values in columns.values.items():
        array, is_json = arrow_column(values)
        fields.append(pa.field(name, array.type, metadata=AS_JSON if is_json else None))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def is_json(column: pa.Field) -> bool:
    """Return True if a column's values are JSON text."""
    return (column.metadata or {}).get(b"encoding") == b"json"


def joined(tables: Iterable[pa.Table]) -> pa.Table:
    """Concatenate tables; missing columns are null.

    If types differ, integers become floats, and other mixtures JSON text.
    """
    import pyarrow as pa

    parts = list(tables)
    schema = parts[0].schema
    for part in parts[1:]:
        schema = joined_schema(schema, part.schema)
    return pa.concat_tables([cast(part, schema) for part in parts])


def joined_schema(one: pa.Schema, second: pa.Schema) -> pa.Schema:
    """Return a schema for the rows of both, with the columns of the first one first."""
    import pyarrow as pa

    fields = []
    for name in dict.fromkeys([*one.names, *second.names]):
        candidates = [schema.field(name) for schema in (one, second) if name in schema.names]
        candidates = [column for column in candidates if not pa.types.is_null(column.type)] or candidates[:1]
        kinds = {(column.type, is_json(column)) for column in candidates}
        if len(kinds) == 1:
            fields.append(candidates[0])
        elif all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind, _ in kinds):
            fields.append(pa.field(name, pa.float64()))
        else:
            fields.append(pa.field(name, pa.string(), metadata=AS_JSON))
    return pa.schema(fields)


def cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table to a schema that ``joined_schema`` made from its own."""
    import pyarrow as pa

    arrays = []
    for column in schema:
        if column.name not in table.schema.names:
            arrays.append(pa.chunked_array([pa.nulls(len(table), column.type)]))
            continue
        array, old_field = table.column(column.name), table.schema.field(column.name)
        if is_json(column) and not is_json(old_field) and not pa.types.is_null(old_field.type):
            arrays.append(pa.chunked_array([json_column(array.to_pylist())]))
        else:
            arrays.append(array.cast(column.type, safe=False))
    return pa.Table.from_arrays(arrays, schema=schema)


# Writing: a rank converts its own lines to files.


class _TableFiles:
    """The files of one table of a rank; a change of the schema starts a new file.

    Args:
        folder: folder of the files.
        stem: stem of their names.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self._writer: Any = None
        self._schema: pa.Schema | None = None
        self.rows: dict[str, int] = {}

    def write(self, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        schema = table.schema if self._schema is None else joined_schema(self._schema, table.schema)
        if self._writer is None or not schema.equals(self._schema, check_metadata=True):
            self.close()
            number = len(self.rows)
            name = f"{self._stem}{f'-{number}' if number else ''}.parquet"
            self._schema, self.rows[name] = schema, 0
            self._writer = pq.ParquetWriter(self._folder / name, schema, compression="zstd", compression_level=1)
        self._writer.write_table(cast(table, schema))
        self.rows[next(reversed(self.rows))] += len(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def write_rank(directory: RunDirectory, rank: int) -> None:
    """Write the Parquet files of all of a rank's lines, unless they are current.

    Raises:
        DataError: a line is damaged.
        RunStoreError: a file cannot be read or written.
    """
    import filelock

    with filelock.FileLock(directory.live / f"rank{rank}.parquet.lock"):  # several processes may complete the run
        if not is_current(directory, rank):
            _write_rank(directory, rank)


def _write_rank(directory: RunDirectory, rank: int) -> None:
    note = _note(directory, rank)
    note.unlink(missing_ok=True)  # if this process is killed, lines are read
    source, tables = RecordFile(directory.record_file(rank)), dict[str, _TableFiles]()
    try:
        for stale_file in directory.records.glob(f"*.rank{rank}.parquet"):
            stale_file.unlink()
        for stale_file in directory.records.glob(f"*.rank{rank}-*.parquet"):
            stale_file.unlink()
        for name, table in read_blocks(source):
            files = tables.setdefault(name, _TableFiles(directory.records, f"{name}.rank{rank}"))
            files.write(table)
        for files in tables.values():
            files.close()
    except OSError as error:
        raise store_error("write", directory.records, error) from error
    rows = {name: files.rows for name, files in sorted(tables.items())}
    write_json(note, {"schema": SCHEMA, "bytes": source.offset, "tables": rows})


def read_blocks(source: RecordFile, *, numbered: bool = False) -> Iterator[tuple[str, pa.Table]]:
    """Yield the unread lines of a file as Arrow tables with their names, block by block.

    Args:
        source: the file.
        numbered: True to add the line number of each row, in the column ``LINE_NUMBER``.

    Raises:
        DataError: a line is damaged.
        RunStoreError: the file cannot be read.
    """
    while raw_lines := source.read():
        lines = (parse_line(raw, location) for raw, location in raw_lines)
        shapes = by_shape(map(_with_number, lines) if numbered else lines)
        yield from ((shape[0], arrow_table(columns)) for shape, columns in shapes.items())


def _with_number(line: Line) -> Line:
    number = line.get("seq")
    return {**line, "columns": [*line["columns"], LINE_NUMBER], "rows": [[*row, number] for row in line["rows"]]}


def joined_by_name(tables: Iterable[tuple[str, pa.Table]]) -> dict[str, pa.Table]:
    """Concatenate tables of equal names."""
    parts: dict[str, list[pa.Table]] = {}
    for name, table in tables:
        parts.setdefault(name, []).append(table)
    return {name: joined(same_name) for name, same_name in parts.items()}


# Reading


def ranks_of(directory: RunDirectory) -> list[int]:
    """Return the ranks that have lines or Parquet files."""
    return sorted({*directory.record_files(), *directory.rank_files(".json")})


def is_current(directory: RunDirectory, rank: int) -> bool:
    """Return True if a rank's Parquet files can be read instead of its lines."""
    return current_note(directory, rank) is not None


def current_note(directory: RunDirectory, rank: int) -> Note | None:
    """Return the note of a rank's Parquet files if they cover all lines, or if no lines are left; otherwise None.

    A resumed run may rewrite the files while they are read: they are complete only if the note is unchanged afterwards.
    """
    note, path = read_note(directory, rank), directory.record_file(rank)
    is_whole = note is not None and (not path.exists() or note["bytes"] == whole_bytes(path))
    return note if is_whole else None


def read_note(directory: RunDirectory, rank: int) -> Note | None:
    """Return the note on a rank's Parquet files (``bytes`` and ``tables``); None if they are missing or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        note = read_object(_note(directory, rank), needs=("bytes", "tables"))
        if note.get("schema") != SCHEMA:
            return None
        for files in note["tables"].values():
            for name, rows in files.items():
                if pq.read_metadata(directory.records / name).num_rows != rows:
                    return None
    except (LabError, pa.ArrowException, OSError, ValueError, AttributeError):
        return None
    return note


def read_tables(
    directory: RunDirectory, rank: int, names: Collection[str] | None = None, columns: Collection[str] = ()
) -> dict[str, pa.Table]:
    """Return the tables of a rank, from Parquet where that is current, else from its lines.

    Args:
        directory: of the run.
        rank: of the rank.
        names: of the tables; None for all.
        columns: those of them that are read, as far as there are any; all where empty.

    Raises:
        DataError: a line is damaged; or Parquet files are damaged, and there are no lines.
        RunStoreError: the lines are needed and cannot be read.
    """
    import pyarrow as pa

    note = current_note(directory, rank)
    if note is not None:
        with suppress(pa.ArrowException, OSError):
            tables = {
                name: joined(_read_columns(file, columns) for file in paths)
                for name, paths in files_of(directory, note).items()
                if names is None or name in names
            }
            if read_note(directory, rank) == note:
                return tables
    check_lines(directory, rank)
    blocks = read_blocks(RecordFile(directory.record_file(rank)))
    return joined_by_name(
        (name, _with_columns(table, columns)) for name, table in blocks if names is None or name in names
    )


def _read_columns(file: Path, columns: Collection[str]) -> pa.Table:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as opened:
        return opened.read([name for name in opened.schema_arrow.names if name in columns] if columns else None)


def _with_columns(table: pa.Table, columns: Collection[str]) -> pa.Table:
    return table.select([name for name in table.schema.names if name in columns]) if columns else table


def check_lines(directory: RunDirectory, rank: int) -> None:
    """Raise if a rank's lines are missing.

    Raises:
        DataError: the lines are missing.
    """
    path = directory.record_file(rank)
    if not path.exists():
        raise DataError(f"{path} is missing, and the Parquet files beside it are damaged. {RESTORE}")


def files_of(directory: RunDirectory, note: Note) -> dict[str, list[Path]]:
    """Return the Parquet files of each table of a rank."""
    return {name: [directory.records / file for file in files] for name, files in note["tables"].items()}


def _note(directory: RunDirectory, rank: int) -> Path:
    return directory.records / f"rank{rank}.json"
