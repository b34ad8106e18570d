"""Merging the ranks' lines into one Parquet file a table, without losing a row or a column."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.json_files import discard, read_json, store_error, write_json
from dtdg_lab.runs.lines import read_lines

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

LINE = "line_seq"  # column of numbered tables
_BLOCK_ROWS = 20_000
_AS_JSON = {b"encoding": b"json"}


def merge(run: RunDirectory) -> dict[str, int]:
    """Write ``records/<table>.parquet`` for every table and return the number of rows of each.

    The lines stay: a resumed run appends to them. ``records/merged.json`` says what the merged tables hold.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: a file cannot be written.
    """
    import pyarrow.parquet

    sizes = _sizes(run)
    merged = collect(run)
    for table, content in merged.items():
        target = run.table_file(table)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            pyarrow.parquet.write_table(content, temporary, compression="zstd")
            temporary.replace(target)
        except OSError as error:
            discard(temporary)
            raise store_error("write", target, error) from error
    rows = {table: content.num_rows for table, content in merged.items()}
    write_json(run.merged_file, {"sizes": sizes, "rows": rows})
    return rows


def is_current(run: RunDirectory) -> bool:
    """Whether the merged tables hold all lines there are (a resumed run has written more)."""
    return run.merged_file.is_file() and read_json(run.merged_file)["sizes"] == _sizes(run)


def collect(run: RunDirectory, wanted: Collection[str] | None = None, *, numbered: bool = False) -> dict[str, pa.Table]:
    """The tables of all ranks' lines, only those ``wanted`` if given; ``rank`` and ``attempt`` are columns.

    With ``numbered`` so is the number of a row's line (``LINE``): with rank and table it tells which rows were one.

    Raises:
        DataError: a record line is damaged.
    """
    tables: dict[str, _Columns] = {}
    for path in run.record_files().values():
        for line in read_lines(path):
            if wanted is None or line["table"] in wanted:
                if numbered:
                    line["columns"] = [*line["columns"], LINE]
                    line["rows"] = [[*row, line.get("seq")] for row in line["rows"]]
                tables.setdefault(line["table"], _Columns()).add(line)
    return {table: columns.finish() for table, columns in sorted(tables.items())}


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A pandas frame; values kept as JSON text are parsed, and a column of unknowns only is NaN."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    frame = table.to_pandas()
    for field in table.schema:
        if (field.metadata or {}).get(b"encoding") == b"json":
            texts = table.column(field.name).to_pylist()
            frame[field.name] = _objects([None if text is None else json.loads(text) for text in texts])
    return frame


def _objects(values: list[Any]) -> pd.Series:
    import pandas as pd

    return pd.Series(values, dtype=object)


def _sizes(run: RunDirectory) -> dict[str, int]:
    return {str(rank): path.stat().st_size for rank, path in run.record_files().items()}


class _Columns:
    """The columns of one table while lines are read: Python values of a block, then arrow arrays."""

    def __init__(self) -> None:
        self.rows = 0
        self.pending = 0
        self.values: dict[str, list[Any]] = {"rank": [], "attempt": []}
        self.blocks: dict[str, list[tuple[pa.Array, bool]]] = {"rank": [], "attempt": []}

    def add(self, line: dict[str, Any]) -> None:
        count = len(line["rows"])
        columns = {name: [row[place] for row in line["rows"]] for place, name in enumerate(line["columns"])}
        columns |= {"rank": [line["rank"]] * count, "attempt": [line["attempt"]] * count}
        for name in [name for name in columns if name not in self.values]:
            self._new(name)
        for name, values in self.values.items():
            values.extend(columns.get(name) or [None] * count)
        self.pending += count
        if self.pending >= _BLOCK_ROWS:
            self._flush()

    def _new(self, name: str) -> None:
        """A column that earlier lines did not have is unknown there."""
        import pyarrow as pa

        self.values[name] = [None] * self.pending
        self.blocks[name] = [(pa.nulls(self.rows), False)] if self.rows else []

    def _flush(self) -> None:
        for name, values in self.values.items():
            self.blocks[name].append(_array(values))
            self.values[name] = []
        self.rows += self.pending
        self.pending = 0

    def finish(self) -> pa.Table:
        import pyarrow as pa

        self._flush()
        fields, columns = [], []
        for name, blocks in self.blocks.items():
            column, as_json = _joined(blocks)
            fields.append(pa.field(name, column.type, metadata=_AS_JSON if as_json else None))
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _array(values: list[Any]) -> tuple[pa.Array, bool]:
    """An arrow array, and whether the values had to be kept as JSON text (dicts, lists, mixed kinds)."""
    import pyarrow as pa

    try:
        array = pa.array(values)
        if not pa.types.is_nested(array.type):
            return array, False
    except (pa.ArrowException, OverflowError):
        pass  # kinds that do not go together: JSON text holds them all
    return pa.array([None if value is None else json.dumps(value) for value in values], pa.string()), True


def _joined(blocks: list[tuple[pa.Array, bool]]) -> tuple[pa.ChunkedArray, bool]:
    """One column of the blocks of one; whole numbers become float beside fractions, other mixtures JSON text."""
    import pyarrow as pa

    kinds = {array.type for array, _ in blocks} - {pa.null()}
    numbers = kinds == {pa.int64(), pa.float64()}
    if not any(as_json for _, as_json in blocks) and (len(kinds) < 2 or numbers):
        kind = pa.float64() if numbers else next(iter(kinds), pa.null())
        with contextlib.suppress(pa.ArrowInvalid):  # a whole number too large for a float: kept as text below
            return pa.chunked_array([array.cast(kind) for array, _ in blocks], kind), False
    texts = [array if as_json else _array_as_json(array) for array, as_json in blocks]
    return pa.chunked_array(texts, pa.string()), True


def _array_as_json(array: pa.Array) -> pa.Array:
    import pyarrow as pa

    return pa.array([None if value is None else json.dumps(value) for value in array.to_pylist()], pa.string())
