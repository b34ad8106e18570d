"""Record tables on disk: written line by line, merged over ranks, and read."""

from __future__ import annotations

import contextlib
import heapq
import json
import math
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core.errors import ConfigError, DataError, LabError, RunStoreError, UnknownNameError
from dtdg_lab.core.records import SCHEMA, TABLES, rows_of
from dtdg_lab.runs import directory
from dtdg_lab.runs.directory import RunDirectory

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


# Reading record lines: complete files, growing files, and all ranks in order of time.


Line = dict[str, Any]
_CLOCKS = ("time_ns", "start_ns")


def read_lines(path: str | Path, begin: int = 0, end: int | None = None) -> Iterator[Line]:
    """The record lines of one rank's file, as parsed from JSON; those in bytes ``begin`` to ``end`` of it, if given.

    A last line without its newline that does not parse is ignored: its writer was killed.

    Raises:
        DataError: a line before the end is damaged, or a newer version wrote it; the message names it.
        RunStoreError: the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            file.seek(begin)
            place = begin
            for number, raw in enumerate(file, start=1):
                if place == end:
                    return
                place += len(raw)
                if begin and number == 1 and raw == b"\n":
                    continue  # the end of a line that was read before it had one
                if raw.endswith(b"\n"):
                    yield _parse(raw, path, f"line {number}" if not begin else f"the line that ends at byte {place}")
                    continue
                try:
                    last = _parse(raw, "", "")
                except DataError:  # torn, not only without its newline
                    return
                yield last
    except OSError as error:
        raise directory.store_error("read", path, error) from error


def tail(path: str | Path, offset: int = 0, *, most_bytes: int = -1) -> tuple[list[Line], int]:
    """Lines written since ``offset``, and the offset for the next call.

    ``most_bytes`` limits the read to about that size: call again until no lines come.

    A line still being written is left for the next call. A missing file has no lines; one that became
    shorter (a resumed run removes a truncated line) is followed from its new end.

    Raises:
        DataError: a line is damaged.
        RunStoreError: the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(min(offset, size))
            offset = file.tell()
            block = file.read(most_bytes)
            if b"\n" not in block:
                block += file.readline()  # one line longer than the limit
    except FileNotFoundError:
        return [], offset
    except OSError as error:
        raise directory.store_error("read", path, error) from error
    whole = block[: block.rfind(b"\n") + 1]
    lines, begin = [], offset
    for raw in whole.splitlines(keepends=True):
        lines.append(_parse(raw, path, f"the line at byte {begin}"))
        begin += len(raw)
    return lines, begin


TAIL_BYTES = 1 << 18  # has some steps: they are written several times a second


def last_step(path: Path, *, attempt: int | None = None) -> int | None:
    """The newest step in the last records of one rank's file, of that attempt if given; None if there is none."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL_BYTES - 1))
        whole = file.read().split(b"\n")[0 if file.tell() <= TAIL_BYTES else 1 : -1]  # torn at both ends
    for raw in reversed(whole):
        line = _parse(raw + b"\n", path, "near its end")
        if attempt not in (None, line["attempt"]):
            return None
        if line["table"] == "steps":
            return max(int(row["step"]) for row in rows_of(line))
    return None


def _timed(rank: int, lines: Iterable[Line]) -> Iterator[tuple[tuple[int, int], int, int, Line]]:
    """Lines with a key that never decreases within a file; the position avoids comparing the lines themselves."""
    latest = (0, 0)
    for position, line in enumerate(lines):
        clocks = [line["columns"].index(clock) for clock in _CLOCKS if clock in line["columns"]]
        times = [int(row[clock]) for row in line["rows"] for clock in clocks if row[clock] is not None]
        latest = max(latest, (line["attempt"], max(times, default=latest[1])))
        yield latest, rank, position, line


def _parse(raw: bytes, path: str | Path, place: str) -> Line:
    try:
        line = json.loads(raw)
        _check(line)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{place} of {path} is damaged ({error}). Restore the file from a copy, or remove it to read the rest."
        ) from error
    if line.get("v", SCHEMA) != SCHEMA:
        newer = line["v"] > SCHEMA
        remedy = "Update dtdg_lab, or open" if newer else "Train it again, or open"
        raise DataError(
            f"{place} of {path} was written by {'a newer' if newer else 'an older'} version of DTDG Lab: records of "
            f"schema {line['v']}, and this version reads schema {SCHEMA}. {remedy} the run where it was made; "
            "nothing was changed."
        )
    return line


def _check(line: Any) -> None:
    """Raise ValueError, KeyError or TypeError if a line is not in the ranks' format."""
    widths = {len(row) for row in line["rows"]}
    if widths - {len(line["columns"])} or not {"rank", "attempt", "table"} <= line.keys():
        raise ValueError("its rows do not fit its columns")
    numbers = (line["rank"], line["attempt"], line.get("v", SCHEMA))
    names = (line["table"], *line["columns"])
    lists = {type(each) for each in (line["columns"], line["rows"], *line["rows"])} <= {list}
    if not (all(type(number) is int for number in numbers) and all(type(name) is str for name in names) and lists):
        raise ValueError("it does not have the format of record lines")
    if len(set(line["columns"])) != len(line["columns"]):
        raise ValueError("a column comes twice")


# The ranks' lines as one Arrow table per table, without losing a row or a column.


_BLOCK_ROWS = 20_000
_AS_JSON = {b"encoding": b"json"}


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A pandas frame; values kept as JSON text are parsed, and a column of unknowns only is NaN."""
    import pandas as pd
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    frame = table.to_pandas()
    for field in table.schema:
        if _is_json(field):
            texts = table.column(field.name).fill_null("null").to_pylist()
            parsed = json.loads(f"[{','.join(texts)}]")  # once for all: several times faster than each by itself
            frame[field.name] = pd.Series(parsed, index=frame.index, dtype=object)
    return frame


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
        """A column that earlier lines did not have is null there."""
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
        self._flush()
        return _table_of(self.blocks)


def _table_of(blocks: Mapping[str, list[tuple[pa.Array, bool]]]) -> pa.Table:
    """Arrow arrays of each column, and whether they are JSON text, as one table."""
    import pyarrow as pa

    fields, columns = [], []
    for name, arrays in blocks.items():
        column, as_json = _joined(arrays)
        fields.append(pa.field(name, column.type, metadata=_AS_JSON if as_json else None))
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _appended(old: pa.Table, new: pa.Table) -> pa.Table:
    """The rows of both, ordered by rank; a column that one of them lacks is null there."""
    import pyarrow as pa

    blocks: dict[str, list[tuple[pa.Array, bool]]] = {}
    for name in dict.fromkeys([*old.schema.names, *new.schema.names]):
        blocks[name] = []
        for table in (old, new):
            if name not in table.schema.names:
                blocks[name].append((pa.nulls(table.num_rows), False))
                continue
            as_json = _is_json(table.schema.field(name))
            blocks[name] += [(chunk, as_json) for chunk in table.column(name).chunks]
    return _table_of(blocks).sort_by("rank")


def _is_json(field: pa.Field) -> bool:
    return (field.metadata or {}).get(b"encoding") == b"json"


def _array(values: list[Any]) -> tuple[pa.Array, bool]:
    """An arrow array, and whether the values had to be stored as JSON text (dicts, lists, mixed types)."""
    import pyarrow as pa

    try:
        array = pa.array(values)
        if not pa.types.is_nested(array.type):
            return array, False
    except (pa.ArrowException, OverflowError):
        pass  # incompatible types: stored as JSON text
    return _as_json(values), True


def _joined(blocks: list[tuple[pa.Array, bool]]) -> tuple[pa.ChunkedArray, bool]:
    """One column from its blocks; integers become float beside fractions, other mixtures JSON text."""
    import pyarrow as pa

    kinds = {array.type for array, _ in blocks} - {pa.null()}
    numbers = kinds == {pa.int64(), pa.float64()}
    if not any(as_json for _, as_json in blocks) and (len(kinds) < 2 or numbers):
        kind = pa.float64() if numbers else next(iter(kinds), pa.null())
        with contextlib.suppress(pa.ArrowInvalid):  # an integer too large for a float: stored as text below
            return pa.chunked_array([array.cast(kind) for array, _ in blocks], kind), False
    texts = [array if as_json else _as_json(array.to_pylist()) for array, as_json in blocks]
    return pa.chunked_array(texts, pa.string()), True


def _as_json(values: list[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())


# The one store of a run's records: frames, lines in order of time, and what is new.


LINE = "line_seq"  # column of numbered tables
_NUMBERS = {"rank", "attempt", "step", "epoch", "time_ns", "start_ns", "end_ns"}
# Rows at exactly the step of resuming are left out only if the second attempt has them too: such a row
# describes the model before that step, so it is valid in both attempts.
_SAME_FACT = {"evaluations": "split", "events": "kind"}


class RunTables:
    """The record tables of one run, stored or live.

    Frames come from the merged tables where they are up to date, else from the ranks' lines. Each store remembers what
    :meth:`new_lines` has returned, so that a follower takes increments from a store of its own.

    Args:
        run_dir: the folder of the run.

    Raises:
        RunStoreError: there is no run.
    """

    def __init__(self, run_dir: str | Path | RunDirectory) -> None:
        self.run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory.open(run_dir)
        self._offsets: dict[int, int] = {}

    def frames(self, only: Collection[str] = (), *, all_attempts: bool = False) -> dict[str, pd.DataFrame]:
        """All record tables, each with the columns ``rank`` and ``attempt`` first, ordered by rank.

        Columns and tables unknown to this version are kept. A table without rows has its columns.

        A resumed run repeats the steps after its checkpoint. By default the replaced rows are left out: for
        each rank, rows of an attempt from the first step of a later attempt on. Rows without a step (energy) were
        really spent and stay; an evaluation or event at exactly that step stays unless the later attempt has it too.

        Args:
            only: names of the wanted tables; all when empty.
            all_attempts: keep the replaced rows.

        Raises:
            DataError: a record line or a merged table is damaged, or a newer version wrote it.
            RunStoreError: the files cannot be read.
        """
        import pandas as pd

        wanted = {*only, "steps"} if only else None  # steps show where attempts begin
        frames = self._merged(wanted)
        with directory.reading(self.run.records):
            if frames is None:
                frames = {table: to_frame(found) for table, found in self.collect(wanted).items()}
            for table in TABLES.keys() - frames.keys():
                if wanted is None or table in wanted:
                    columns = ["rank", "attempt", *TABLES[table]]
                    frames[table] = pd.DataFrame(columns=columns).astype({"rank": "int64", "attempt": "int64"})
            for table, frame in frames.items():
                self._check_numbers(table, frame)
            return frames if all_attempts else without_replaced(frames)

    def lines(self, *, new: bool = False) -> Iterator[Line]:
        """The lines of all ranks, ordered by attempt and time as they were written, as in a live view.

        With ``new``, only complete lines that this store has not returned or skipped yet. Where reading stops before
        the last of them, all of them are still new.
        """
        begins, ends = self._offsets if new else {}, self._ends()
        files = self.run.record_files()
        timed = (_timed(rank, read_lines(files[rank], begins.get(rank, 0), end)) for rank, end in ends.items())
        for _, _, _, line in heapq.merge(*timed):
            yield line
        if new:
            self._offsets = {**self._offsets, **ends}

    def rows(self, rank: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each row of one rank with the name of its table, in the order they were written, with its ``attempt``."""
        path = self.run.record_files().get(rank)
        for line in read_lines(path) if path is not None else ():
            for row in rows_of(line):
                yield line["table"], {**row, "attempt": line["attempt"]}

    def new_lines(self, rank: int, *, most_bytes: int = -1) -> list[Line]:
        """Lines of a rank that this store has neither returned nor skipped yet; see :func:`tail`."""
        path = self.run.record_file(rank)
        lines, self._offsets[rank] = tail(path, self._offsets.get(rank, 0), most_bytes=most_bytes)
        return lines

    def skip(self, rank: int, size: int) -> None:
        """Leave out the next ``size`` bytes of a rank's file: their lines came another way."""
        self._offsets[rank] = self._offsets.get(rank, 0) + size

    def collect(
        self,
        wanted: Collection[str] | None = None,
        *,
        numbered: bool = False,
        begins: Mapping[int, int] = MappingProxyType({}),
        ends: Mapping[int, int] | None = None,
    ) -> dict[str, pa.Table]:
        """The tables of all ranks' lines, only those ``wanted`` if given; ``rank`` and ``attempt`` are columns.

        With ``numbered``, so is the number of a row's line (``LINE``): with rank and table it identifies the line.
        ``begins`` and ``ends`` limit the bytes of a rank's file that are read, by default those of all complete lines.

        Raises:
            DataError: a record line is damaged.
        """
        tables: dict[str, _Columns] = {}
        files = self.run.record_files()
        for rank, end in (self._ends() if ends is None else ends).items():
            for line in read_lines(files[rank], begins.get(rank, 0), end):
                if wanted is None or line["table"] in wanted:
                    if numbered:
                        line["columns"] = [*line["columns"], LINE]
                        line["rows"] = [[*row, line.get("seq")] for row in line["rows"]]
                    tables.setdefault(line["table"], _Columns()).add(line)
        return {table: columns.finish() for table, columns in sorted(tables.items())}

    def merge(self) -> dict[str, int]:
        """Write ``records/<table>.parquet`` for every table and return the number of rows of each.

        The lines stay: a resumed run appends to them. ``records/merged.json`` records what the merged tables cover, so
        that a later merge reads only the lines after that.

        Raises:
            DataError: a record line is damaged.
            RunStoreError: a file cannot be written.
        """
        import filelock
        import pyarrow.parquet

        with filelock.FileLock(self.run.live / "merge.lock"):
            for left in self.run.records.glob(".*.tmp"):  # by a merge that was killed
                left.unlink()
            ends, (begins, rows) = self._ends(), self._so_far()
            new = self.collect(begins=begins, ends=ends)
            self.run.merged_file.unlink(missing_ok=True)  # a merge that is killed between two tables is repeated
            for name, content in new.items():
                file = self.run.table_file(name)
                merged = _appended(pyarrow.parquet.read_table(file), content) if name in rows else content
                with directory.replacing(file) as temporary:
                    pyarrow.parquet.write_table(merged, temporary, compression="zstd")
                rows[name] = merged.num_rows
            sizes = {str(rank): end for rank, end in ends.items()}
            directory.write_json(self.run.merged_file, {"schema": SCHEMA, "sizes": sizes, "rows": rows})
        return rows

    def is_current(self) -> bool:
        """Whether the merged tables are of this schema and cover all lines (a resumed run may have written more)."""
        try:
            merged = directory.read_json(self.run.merged_file)
        except RunStoreError:
            if not self.run.merged_file.is_file():  # none was made, or one is being made now
                return False
            raise
        sizes = {str(rank): end for rank, end in self._ends().items()}
        return bool(merged["sizes"] == sizes and merged.get("schema") == SCHEMA)

    @property
    def unmerged_share(self) -> float:
        """Bytes of lines that the merged tables do not cover, as a share of all."""
        ends, (begins, _) = self._ends(), self._so_far()
        return 1 - sum(begins.values()) / max(1, sum(ends.values()))

    def _ends(self) -> dict[int, int]:
        """Where the complete lines of each rank end, in bytes."""
        found = {}
        for rank, path in self.run.record_files().items():
            try:
                with path.open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    whole = _last_newline(file.fileno(), size) + 1
                    found[rank] = size if _is_line(os.pread(file.fileno(), size - whole, whole)) else whole
            except OSError as error:
                raise directory.store_error("read", path, error) from error
        return found

    def _so_far(self) -> tuple[dict[int, int], dict[str, int]]:
        """Where the lines of each rank end that are merged, and rows by table.

        Nothing where everything is merged again: tables are missing, damaged, or of other lines.
        """
        import pyarrow as pa
        import pyarrow.parquet

        try:
            merged = directory.read_object(self.run.merged_file, needs=("sizes", "rows"))
            begins, files = {int(rank): int(size) for rank, size in merged["sizes"].items()}, self.run.record_files()
            continued = merged.get("schema") == SCHEMA and all(
                rank in files and (not size or _byte(files[rank], size - 1) == b"\n") for rank, size in begins.items()
            )
            for name, rows in merged["rows"].items():
                facts = pyarrow.parquet.read_metadata(self.run.table_file(name))
                continued = continued and facts.num_rows == rows
        except (LabError, pa.ArrowException, OSError, ValueError, AttributeError):
            return {}, {}
        return (begins, dict(merged["rows"])) if continued else ({}, {})

    def _merged(self, wanted: Collection[str] | None) -> dict[str, pd.DataFrame] | None:
        """The merged tables; None if they do not cover all lines, or there are none."""
        run = self.run
        lines = "the ranks' lines are read instead" if run.record_files() else "the lines it was made from are missing"
        with directory.reading(run.merged_file, f"Remove it: {lines}."):
            if not self.is_current():
                return None
            names = [str(table) for table in directory.read_object(run.merged_file, needs=("rows",))["rows"]]
        remedy = f"Remove {run.merged_file}: {lines}."
        return {name: _stored(run.table_file(name), remedy) for name in names if wanted is None or name in wanted}

    def _check_numbers(self, table: str, frame: pd.DataFrame) -> None:
        """Refuse a table with non-numeric values in numeric columns."""
        from pandas.api.types import is_numeric_dtype

        numbers = _NUMBERS if table != "steps" else set(TABLES["steps"]) - {"energy_source"}
        for column in frame.columns:
            if column in numbers and len(frame) and not is_numeric_dtype(frame[column]):
                raise DataError(
                    f"{self.run.records} is damaged: {column} of table {table} holds a value that is not a number. "
                    f"{directory.RESTORE}"
                )


def _stored(file: Path, remedy: str) -> pd.DataFrame:
    import pyarrow.parquet

    with directory.reading(file, remedy):
        if not file.is_file():
            raise RunStoreError(f"{file} is missing. {remedy}")
        try:
            return to_frame(pyarrow.parquet.read_table(file))
        except OSError as error:
            raise RunStoreError(f"{file} is damaged ({error}). {remedy}") from error


def without_replaced(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables, ``steps`` among them, without rows that a later attempt replaced; see :meth:`RunTables.frames`."""
    steps = frames["steps"]
    if steps["attempt"].nunique() < 2:
        return frames
    first = steps.groupby(["rank", "attempt"])["step"].min().unstack("attempt")
    return {table: _kept(table, frame, first) for table, frame in frames.items()}


def _kept(table: str, frame: pd.DataFrame, first: pd.DataFrame) -> pd.DataFrame:
    """``frame`` without rows that a later attempt replaced; ``first`` has ranks as rows and attempts as columns."""
    if "step" not in frame or frame.empty:
        return frame
    limit = np.empty(len(frame))
    for (rank, attempt), places in frame.groupby(["rank", "attempt"]).indices.items():
        limit[places] = _limit(first, rank, attempt)
    if table not in _SAME_FACT:
        return frame[~(frame["step"] >= limit)].reset_index(drop=True)
    fact = ["rank", "step", _SAME_FACT[table]]
    repeated = frame["attempt"] < frame.groupby(fact, dropna=False)["attempt"].transform("max")
    return frame[~((frame["step"] > limit) | ((frame["step"] == limit) & repeated))].reset_index(drop=True)


def _limit(first: pd.DataFrame, rank: int, attempt: int) -> float:
    """First step of any later attempt of this rank, or of the others if this rank wrote none in it."""
    limits = []
    for later in first.columns[first.columns > attempt]:
        own = float(first.at[rank, later]) if rank in first.index else math.nan
        limits.append(float(first[later].min()) if math.isnan(own) else own)
    return min(limits, default=math.inf)


# RecordWriter: a rank's records, appended to its file by a background thread.


Row = tuple[Any, ...]
_BLOCK = 1 << 16


class RecordWriter:
    """Appends rows of the record tables to one rank's file, off the training thread.

    ``row`` only queues. Every ``flush_s`` seconds a daemon thread writes one JSON line per table (format in
    ``core/records.py``) with a single append: what was flushed survives ``kill -9``. Line
    numbers (``seq``) continue where the file ended, and a line truncated by a kill is removed first. JSON has no NaN:
    such a value is written as null, and an event ``not_finite`` keeps the fact.

    Args:
        path: the file, created if missing.
        rank: the rank that writes.
        attempt: number of the attempt, from 1.
        flush_s: seconds between two writes.
        sink: receives the bytes of each write (whole lines), for the live channel; it must not block. If it raises,
            it is not called again and an event ``sink_lost`` keeps the reason; writing the file continues.
        tables: columns of each table; more may be added to those of ``core/records.py``.

    Raises:
        RunStoreError: the file cannot be opened.
    """

    def __init__(
        self,
        path: str | Path,
        rank: int,
        attempt: int,
        *,
        flush_s: float = 0.1,
        sink: Callable[[bytes], Any] | None = None,
        tables: Mapping[str, tuple[str, ...]] = TABLES,
    ) -> None:
        self.path = Path(path)
        self.rank = rank
        self.attempt = attempt
        self._tables = dict(tables)
        self._widths = {table: len(columns) for table, columns in self._tables.items()}
        self._queue: deque[tuple[str, Row]] = deque()
        self._sink = sink
        self._failure: RunStoreError | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._closed = False
        try:
            self._file, self._seq = _open_at_end(self.path)
        except OSError as error:
            raise directory.store_error("record to", self.path, error) from error
        except (ValueError, KeyError) as error:
            raise RunStoreError(
                f"{self.path} ends with a damaged line ({error!r}). Move it away to continue."
            ) from error
        self._thread = threading.Thread(target=self._run, args=(flush_s,), name=f"records-rank{rank}", daemon=True)
        self._thread.start()

    def row(self, table: str, values: Row) -> None:
        """Queue one row; about a tenth of a microsecond, never blocks.

        Raises:
            UnknownNameError: there is no such table.
            ConfigError: the row does not have one value per column.
        """
        if self._widths.get(table) != len(values):
            self._refuse(table, values)
        self._queue.append((table, values))

    def check(self) -> None:
        """Raise an error of the background thread; the training loop calls it every step.

        Raises:
            RunStoreError: rows could not be written, so further training would be unrecorded.
        """
        if self._failure is not None:
            raise self._failure

    def flush(self) -> None:
        """Write all rows queued so far before returning.

        Raises:
            RunStoreError: they could not be written.
        """
        self._write_queued()
        self.check()

    def reached(self, step: int, ranks: Iterable[int]) -> bool:
        """Whether that step of this attempt, or a later one, is in the files of these ranks, which are beside this one.

        Raises:
            DataError: a line is damaged.
            RunStoreError: a file cannot be read.
        """
        for rank in ranks:
            file = directory.record_file(self.path.parent, rank)
            try:
                newest = last_step(file, attempt=self.attempt)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise directory.store_error("read", file, error) from error
            if newest is None or newest < step:
                return False
        return True

    def close(self) -> None:
        """Write what is queued, stop the thread and close the file; a second call has no effect.

        Raises:
            RunStoreError: rows could not be written.
        """
        if not self._closed:
            self._closed = True
            self._stop.set()
            self._thread.join()
            self._write_queued()
            os.close(self._file)
        self.check()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse(self, table: str, values: Row) -> None:
        if table not in self._tables:
            raise UnknownNameError("record table", table, self._tables)
        columns = self._tables[table]
        raise ConfigError(f"a row of {table!r} needs {len(columns)} values, not {len(values)}: {', '.join(columns)}.")

    def _run(self, flush_s: float) -> None:
        while not self._stop.wait(flush_s) and self._failure is None:
            self._write_queued()

    def _write_queued(self) -> None:
        with self._lock:
            if self._failure is not None or not self._queue:
                return
            try:
                block = self._lines(self._take())
                rest = memoryview(block)
                while rest:  # the operating system may accept only a part at a time
                    rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                self._failure = directory.store_error("record to", self.path, error)
                self._failure.__cause__ = error
                return
            except Exception as error:  # kept for check(): a dead thread would leave the run unrecorded
                self._failure = RunStoreError(f"cannot record to {self.path}: {error!r}. Rows hold only JSON values.")
                self._failure.__cause__ = error
                return
            if self._sink is not None:
                try:
                    self._sink(block)
                except Exception as error:  # the live view is lossy by design; the file records that it ended and why
                    self._sink = None
                    self._queue.append(("events", self._event("sink_lost", {"reason": repr(error)})))

    def _take(self) -> dict[str, list[Row]]:
        """Rows queued so far by table; deque operations are atomic, so the training thread may continue to append."""
        rows: dict[str, list[Row]] = {}
        for _ in range(len(self._queue)):
            table, values = self._queue.popleft()
            rows.setdefault(table, []).append(values)
        return rows

    def _lines(self, rows: dict[str, list[Row]]) -> bytes:
        """One line per table, and one of events for values JSON cannot hold."""
        lines, lost = [], {}
        for table, values in rows.items():
            try:
                text = _encode(values)
            except ValueError:  # a NaN or an infinity; located only then, since it is rare
                lost.update(_not_finite(table, self._tables[table], values))
                text = _encode(directory.finite(values))
            lines.append(self._line(table, text))
        if lost:
            lines.append(self._line("events", _encode([self._event("not_finite", fact) for fact in lost.values()])))
        return b"".join(lines)

    def _line(self, table: str, rows: str) -> bytes:
        facts = {"v": SCHEMA, "rank": self.rank, "attempt": self.attempt, "seq": self._seq, "table": table}
        head = {**facts, "columns": self._tables[table]}
        self._seq += 1
        return f'{json.dumps(head)[:-1]}, "rows": {rows}}}\n'.encode()

    def _event(self, kind: str, data: dict[str, Any]) -> Row:
        known = {"step": data.get("step"), "epoch": data.get("epoch"), "time_ns": time.time_ns(), "kind": kind}
        return tuple(known.get(column, data) for column in TABLES["events"])


def _encode(rows: Any) -> str:
    return json.dumps(rows, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """Numpy scalars and arrays as Python's; anything else is refused, as by json."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be recorded")


def _not_finite(table: str, columns: tuple[str, ...], rows: list[Row]) -> dict[tuple[str, str], dict[str, Any]]:
    """(table, column) -> the first value that JSON cannot hold, its step, and the count of such values."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        place = dict(zip(columns, row, strict=True))
        for column, value in place.items():
            try:
                _encode(value)
            except ValueError:
                first: Line = {"table": table, "column": column, "value": str(value)[:200]}
                first |= {"step": place.get("step"), "epoch": place.get("epoch"), "rows": 0}
                found.setdefault((table, column), first)["rows"] += 1
    return found


def _open_at_end(path: Path) -> tuple[int, int]:
    """Open for appending; returns the descriptor and the number of the next line."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return file, 0
        size = os.fstat(file).st_size
        whole = _last_newline(file, size) + 1
        if whole < size and not _is_line(os.pread(file, size - whole, whole)):
            os.ftruncate(file, whole)  # a line truncated by a kill: its rows are lost in any case
        elif whole < size:
            os.write(file, b"\n")
            whole = size + 1
        if not whole:
            return file, 0
        begin = _last_newline(file, whole - 1) + 1
        return file, int(json.loads(os.pread(file, whole - begin, begin))["seq"]) + 1
    except BaseException:
        os.close(file)
        raise


def _byte(path: Path, place: int) -> bytes:
    with path.open("rb") as file:
        file.seek(place)
        return file.read(1)


def _last_newline(file: int, end: int) -> int:
    """Offset of the last newline before ``end``, or -1."""
    while end > 0:
        begin = max(0, end - _BLOCK)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found
        end = begin
    return -1


def _is_line(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
