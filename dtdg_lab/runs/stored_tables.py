"""The tables of a stored run, from its Parquet files: of old rows, only the columns that sums need are read."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.event_log import ALL_KEPT, EVENTS_OF_A_KIND
from dtdg_lab.records.lines import IDENTITY, TIMED
from dtdg_lab.records.position import AttemptClock
from dtdg_lab.records.recent_rows import CLOCKS, FEW_ROWS
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows, as_objects, is_known
from dtdg_lab.records.tables import RECENT_STEPS, RunTables
from dtdg_lab.runs import parquet
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.frames import to_frame

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_CHUNK_ROWS = 100_000  # number of old rows that are summed at once


def open_tables(
    directory: RunDirectory, config: RunConfig, rollups: Iterable[Rollup] = (), *, recent: int = RECENT_STEPS
) -> RunTables:
    """Return the tables of a stored run, from Parquet files if those of all ranks are current, else from its lines.

    Args:
        directory: the run's folder.
        config: the settings with which the run began.
        rollups: all sums that charts will ask for.
        recent: number of newest steps whose rows are kept.

    Raises:
        DataError: a line is damaged or from a newer version, or Parquet files are damaged and there are no lines.
        RunStoreError: a file cannot be read.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    notes = {rank: parquet.current_note(directory, rank) for rank in parquet.ranks_of(directory)}
    current = {rank: note for rank, note in notes.items() if note is not None}
    if current and len(current) == len(notes):
        files = [parquet.files_of(directory, note) for note in current.values()]
        names = sorted({name for of_rank in files for name in of_rank})
        with suppress(pa.ArrowException, OSError), ExitStack() as opened:
            tables = RunTables(config, directory.records, rollups, recent=recent)
            paths = {name: [path for of_rank in files for path in of_rank.get(name, ())] for name in names}
            _fill(tables, {name: [opened.enter_context(ParquetFile(path)) for path in paths[name]] for name in names})
            if all(parquet.read_note(directory, rank) == note for rank, note in current.items()):
                tables.files.begin_after({rank: note["bytes"] for rank, note in current.items()})
                return tables
    for rank in notes:
        parquet.check_lines(directory, rank)
    return RunTables.open(config, directory.records, rollups, recent=recent)


def _fill(tables: RunTables, files: dict[str, list[pq.ParquetFile]]) -> None:
    """Add the rows of Parquet files, which are given by table."""
    _note_attempts(tables, files)
    tables.add_events(_events(files.get("events", [])))
    for name, of_table in files.items():
        if name != "events":
            _add_table(tables, name, of_table)


def _note_attempts(tables: RunTables, files: dict[str, list[pq.ParquetFile]]) -> None:
    """Note the steps and clocks of all attempts."""
    tables.position.note_columns(Rows.of(_columns(files.get("steps", ()), [*IDENTITY, "step", "epoch", "iteration"])))
    for name in TIMED:
        clocks = Rows.of(_columns(files.get(name, ()), ["attempt", "time_ns"]))
        for attempt, rows in clocks.by("attempt").items():
            tables.clock.note(attempt, int(rows["time_ns"].min()), int(rows["time_ns"].max()))


def _add_table(tables: RunTables, name: str, files: list[pq.ParquetFile]) -> None:
    """Add sums of a table's old rows, and all columns of its newest rows."""
    count, recent_rows = sum(file.metadata.num_rows for file in files), tables.recent_rows
    if count <= FEW_ROWS:
        recent_rows.add_columns(name, _columns(files))
    elif "step" in files[0].schema_arrow.names:
        ends = _ends(_columns(files, ["step"])["step"], tables.common_step - tables.recent)
        for after, until in pairwise([-math.inf, *ends]):
            columns = _ColumnsOnDemand(tables.clock, name, files, after, until, unknown=until == ends[-1])
            for rollup in recent_rows.rollups_of(name):
                recent_rows.add_dropped(rollup, Rows(columns, columns.indices))
        newest = _columns(files, groups=[_groups(file, ends[-1], math.inf) for file in files])
        recent = newest["step"] > ends[-1]
        recent_rows.add_columns(name, {column: values[recent] for column, values in newest.items()})
    else:
        in_order, old = _in_order_of_time(_columns(files)), count - FEW_ROWS
        rows = Rows.of(recent_rows.completed(name, {column: values[:old] for column, values in in_order.items()}))
        for rollup in recent_rows.rollups_of(name):
            recent_rows.add_dropped(rollup, rows)
        recent_rows.add_columns(name, {column: values[old:] for column, values in in_order.items()})


def _in_order_of_time(columns: dict[str, Array]) -> dict[str, Array]:
    """Return the rows of all ranks in the order in which they were recorded; unchanged if they have no clock."""
    clock = next((columns[name] for name in CLOCKS if name in columns), None)
    if clock is None:
        return columns
    order = np.argsort(clock, kind="stable")
    return {name: values[order] for name, values in columns.items()}


def _ends(steps: Array, oldest_recent: int) -> list[float]:
    """Return the last steps of the chunks in which old rows are summed; recent rows follow the last one."""
    ages = np.sort(steps if steps.dtype.kind == "i" else np.where(is_known(steps), steps, -1))  # no step: old
    last = max(-1, min(oldest_recent, int(ages[len(ages) - FEW_ROWS]) - 1))
    between = np.unique(ages[_CHUNK_ROWS::_CHUNK_ROWS]).tolist()
    return [*(end for end in between if -1 < end < last), last]


class _ColumnsOnDemand(Mapping[str, Array]):
    """Columns of some rows of a table, each read when a sum first asks for it.

    Args:
        clock: the run's clock.
        name: the table's name.
        files: the table's files of all ranks.
        after: the last step before these rows.
        until: the last step of these rows.
        unknown: whether rows without a step are included.

    Attributes:
        indices: positions of these rows in the columns, in order of steps; the columns may hold more rows.
    """

    def __init__(
        self,
        clock: AttemptClock,
        name: str,
        files: Sequence[pq.ParquetFile],
        after: float,
        until: float,
        *,
        unknown: bool,
    ) -> None:
        self._clock, self._files = clock, files
        self._groups = [_groups(file, after, until) for file in files]
        recorded = [column for file in files for column in file.schema_arrow.names]
        self._clock_column = next((column for column in CLOCKS if column in recorded), None)
        self._names = dict.fromkeys([*recorded, *TABLES.get(name, ()), *(["seconds"] if self._clock_column else [])])
        self._recorded, self._read = frozenset(recorded), dict[str, Array]()
        steps = self["step"].astype(np.float64)
        selected = np.flatnonzero(((steps > after) & (steps <= until)) | (unknown & ~is_known(steps)))
        self.indices = selected[np.argsort(steps[selected], kind="stable")]  # rows without a step come last

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            self._read[name] = self._column(name)
        return self._read[name]

    def _column(self, name: str) -> Array:
        if name in self._recorded:
            return _columns(self._files, [name], groups=self._groups)[name]
        if name == "seconds" and self._clock_column:
            return self._clock.seconds_of(self["attempt"], self[self._clock_column])
        return np.full(len(self["step"]), np.nan)  # an older version did not record this column

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _groups(file: pq.ParquetFile, after: float, until: float) -> list[int]:
    """Return the groups of rows that can hold rows of these steps, or rows without a step."""
    numbers = range(file.num_row_groups)
    if "step" not in file.schema.names:
        return [*numbers]
    column_index = file.schema.names.index("step")
    of_group = [file.metadata.row_group(number).column(column_index).statistics for number in numbers]
    return [
        number
        for number, steps in enumerate(of_group)
        if steps is None or not steps.has_min_max or steps.null_count or (steps.max > after and steps.min <= until)
    ]


def _columns(
    files: Collection[pq.ParquetFile],
    names: list[str] | None = None,
    *,
    groups: Sequence[list[int]] | None = None,
) -> dict[str, Array]:
    """Return columns of files, of all rows or of chosen groups of rows; columns that no file has are left out."""
    import pyarrow as pa

    parts = []
    for index, file in enumerate(files):
        recorded = file.schema_arrow.names
        columns = recorded if names is None else [name for name in names if name in recorded]
        parts.append(file.read(columns) if groups is None else file.read_row_groups(groups[index], columns))
    if not parts:
        return {name: np.empty(0, np.int64) for name in names or ()}
    table = parquet.joined(parts)
    arrays = {name: _array(table, name) for name in table.schema.names}
    del parts, table
    pa.default_memory_pool().release_unused()
    return arrays


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
    if pa.types.is_string(field.type):  # there are few distinct texts, so equal cells share one object
        encoded = column.combine_chunks().dictionary_encode()
        texts = as_objects([*encoded.dictionary.to_pylist(), None])
        column_values: Array = texts[encoded.indices.fill_null(-1).to_numpy()]
        return column_values
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
