"""The tables of a stored run from the Parquet files of its ranks: of old rows, only the columns that sums need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.records import TABLES
from dtdg_lab.core.rollups import Rollup
from dtdg_lab.core.rows import Array, Rows, as_objects, is_known
from dtdg_lab.runs import parquet
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.frames import to_frame
from dtdg_lab.runs.record_lines import TIMED
from dtdg_lab.runs.tables import ALL_KEPT, CLOCKS, EVENTS_OF_A_KIND, FEW_ROWS, IDENTITY, RECENT_STEPS, RunTables

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_CHUNK_ROWS = 500_000  # summed at once


def open_tables(
    directory: RunDirectory, config: RunConfig, rollups: Iterable[Rollup] = (), *, recent: int = RECENT_STEPS
) -> RunTables:
    """Return the tables of a stored run, from Parquet where all ranks have current files, else from their lines.

    Args:
        directory: of the run.
        config: the settings with which it began.
        rollups: all that charts will ask for.
        recent: steps whose rows are kept.

    Raises:
        DataError: a line is damaged, a newer version wrote it, or Parquet files are damaged and there are no lines.
        RunStoreError: a file cannot be read.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    notes = {rank: parquet.current_note(directory, rank) for rank in parquet.ranks_of(directory)}
    known = {rank: note for rank, note in notes.items() if note is not None}
    if known and len(known) == len(notes):
        files = [parquet.files_of(directory, note) for note in known.values()]
        names = sorted({name for of_rank in files for name in of_rank})
        with suppress(pa.ArrowException, OSError), ExitStack() as opened:
            tables = RunTables(config, directory.records, rollups, recent=recent)
            paths = {name: [path for of_rank in files for path in of_rank.get(name, ())] for name in names}
            _fill(tables, {name: [opened.enter_context(ParquetFile(path)) for path in paths[name]] for name in names})
            if all(parquet.read_note(directory, rank) == note for rank, note in known.items()):
                tables.follow_after({rank: note["bytes"] for rank, note in known.items()})
                return tables
    for rank in notes:
        parquet.check_lines(directory, rank)
    return RunTables.open(config, directory.records, rollups, recent=recent)


def _fill(tables: RunTables, files: dict[str, list[pq.ParquetFile]]) -> None:
    """Add the rows of Parquet files, given by table."""
    tables.note_attempts(
        Rows.of(_columns(files.get("steps", ()), [*IDENTITY, "step", "epoch", "iteration"])),
        [Rows.of(_columns(files.get(name, ()), ["attempt", "time_ns"])) for name in TIMED],
    )
    tables.add_events(_events(files.get("events", [])))
    for name, of_table in files.items():
        if name != "events":
            _add_table(tables, name, of_table)


def _add_table(tables: RunTables, name: str, files: list[pq.ParquetFile]) -> None:
    """Add sums of old rows, and all columns of the newest."""
    count = sum(file.metadata.num_rows for file in files)
    if count <= FEW_ROWS:
        tables.add_recent(name, _columns(files), dropped=0)
        return
    if "step" in files[0].schema_arrow.names:
        steps = _columns(files, ["step"])["step"].astype(np.float64)
        ages = np.where(is_known(steps), steps, -1)  # rows without a step are in sums alone
        newest = int(np.partition(ages, count - FEW_ROWS)[count - FEW_ROWS]) - 1
        first = max(-1, min(tables.common_step - tables.recent, newest))
        recent, newest_columns = ages > first, _columns(files, after=first)
    else:
        recent = np.arange(count) >= count - FEW_ROWS
        newest_columns = {column: values[recent] for column, values in _columns(files).items()}
    rows = Rows(_ColumnsOnDemand(tables, name, files, count), np.arange(count))
    for rollup in tables.rollups_of(name):
        for chunk in _chunks(rows.where(~recent)):
            tables.add_old(rollup, chunk)
    tables.add_recent(name, newest_columns, dropped=count - int(recent.sum()))


class _ColumnsOnDemand(Mapping[str, Array]):
    """Columns of all rows of a table, each read when a sum first asks for it.

    Args:
        tables: that know when attempts began.
        name: of the table.
        files: of all ranks.
        count: rows.
    """

    def __init__(self, tables: RunTables, name: str, files: Sequence[pq.ParquetFile], count: int) -> None:
        self._tables, self._files, self._count = tables, files, count
        recorded = [column for file in files for column in file.schema_arrow.names]
        self._clock = next((clock for clock in CLOCKS if clock in recorded), None)
        self._names = dict.fromkeys([*recorded, *TABLES.get(name, ()), *(["seconds"] if self._clock else [])])
        self._recorded, self._read = frozenset(recorded), dict[str, Array]()

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            self._read[name] = self._column(name)
        return self._read[name]

    def _column(self, name: str) -> Array:
        if name in self._recorded:
            return _columns(self._files, [name])[name]
        if name == "seconds" and self._clock:
            return self._tables.seconds_of(self["attempt"], self[self._clock])
        return np.full(self._count, np.nan)  # declared, and not recorded by an older version

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _chunks(rows: Rows) -> Iterable[Rows]:
    """Yield rows in order of steps, some at a time, all rows of a step together."""
    if "step" not in rows:
        yield rows
        return
    rows = rows.sort("step")  # those without one last
    step, begin = rows["step"], 0
    while begin < len(rows):
        end = min(begin + _CHUNK_ROWS, len(rows))
        end = int(np.searchsorted(step, step[end - 1], "right"))
        yield rows.where(slice(begin, end))
        begin = end


def _columns(
    files: Collection[pq.ParquetFile], names: list[str] | None = None, *, after: int | None = None
) -> dict[str, Array]:
    """Return columns of all rows of files, or those after a step; without columns that no file has."""
    parts = []
    for file in files:
        known = file.schema_arrow.names
        wanted = known if names is None else [name for name in names if name in known]
        parts.append(file.read(wanted) if after is None else _rows_after(file, wanted, after))
    if not parts:
        return {name: np.empty(0, np.int64) for name in names or ()}
    table = parquet.joined(parts)
    return {name: _array(table, name) for name in table.schema.names}


def _rows_after(file: pq.ParquetFile, names: list[str], step: int) -> pa.Table:
    """Return the rows of a file after a step, without reading the groups of rows that end before it."""
    import pyarrow.compute as pc

    place = file.schema_arrow.names.index("step")
    groups = [file.metadata.row_group(number).column(place).statistics for number in range(file.num_row_groups)]
    recent = [number for number, of in enumerate(groups) if of is None or not of.has_min_max or of.max > step]
    table = file.read_row_groups(recent, names)
    return table.filter(pc.greater(table["step"], step))


def _array(table: pa.Table, name: str) -> Array:
    import pyarrow as pa

    column, field = table.column(name), table.schema.field(name)
    if pa.types.is_integer(field.type) and not column.null_count:
        return column.to_numpy()
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_null(field.type):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if parquet.is_json(field):
        values: Array = to_frame(table.select([name]))[name].to_numpy()
        return values
    if pa.types.is_string(field.type):  # few distinct ones, and an object for each
        encoded = column.combine_chunks().dictionary_encode()
        texts = as_objects([*encoded.dictionary.to_pylist(), None])
        chosen: Array = texts[encoded.indices.fill_null(-1).to_numpy()]
        return chosen
    return as_objects(column.to_pylist())


def _events(files: list[pq.ParquetFile]) -> list[dict[str, Any]]:
    """Return the newest events of each kind and rank, in order of time."""
    if not files:
        return []
    frame = to_frame(parquet.joined(file.read() for file in files))
    from_end = frame.groupby(["kind", "rank"], sort=False).cumcount(ascending=False)
    frame = frame[(from_end < EVENTS_OF_A_KIND) | frame["kind"].isin(ALL_KEPT)].copy()
    for column in ("step", "epoch"):
        frame[column] = frame[column].astype("Int64").astype(object).where(frame[column].notna(), None)
    events: list[dict[str, Any]] = frame.sort_values("time_ns", kind="stable").to_dict("records")
    return events
