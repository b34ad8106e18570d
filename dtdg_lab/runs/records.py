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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
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
                if end is not None and place >= end:
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


_BLOCK_ROWS = 2_000
_AS_JSON = {b"encoding": b"json"}


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A pandas frame; a column of unknowns only is NaN.

    Values kept as JSON text are parsed, each text once: rows with the same text have the same object.
    """
    import pandas as pd
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    frame = table.to_pandas()
    for field in table.schema:
        if _is_json(field):
            texts = table.column(field.name).fill_null("null").combine_chunks().dictionary_encode()
            parsed = json.loads(f"[{','.join(texts.dictionary.to_pylist())}]")  # faster than each by itself
            values = pd.Series(parsed, dtype=object).to_numpy()[texts.indices.to_numpy()]
            frame[field.name] = pd.Series(values, index=frame.index, dtype=object)
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
        if not self.pending:
            return
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


def _joined_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all, each ordered by rank, in order of ranks; a column that a table lacks is null there."""
    import pyarrow as pa

    pieces: list[tuple[int, int, int, int]] = []
    for place, table in enumerate(tables):
        ranks = table.column("rank").to_numpy()
        first = np.flatnonzero(np.diff(ranks, prepend=-1))
        pieces += zip(ranks[first].tolist(), repeat(place), first.tolist(), [*first[1:].tolist(), len(ranks)])
    blocks: dict[str, list[tuple[pa.Array, bool]]] = {}
    for name in dict.fromkeys(name for table in tables for name in table.schema.names):
        blocks[name] = []
        for _, place, begin, end in sorted(pieces):
            table = tables[place]
            if name not in table.schema.names:
                blocks[name].append((pa.nulls(end - begin), False))
                continue
            as_json = _is_json(table.schema.field(name))
            blocks[name] += [(chunk, as_json) for chunk in table.column(name).slice(begin, end - begin).chunks]
    return _table_of(blocks)


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


class _HeldRows:
    """Rows of lines from ``begins`` (rank -> byte) on, that were read before."""

    def __init__(self, begins: dict[int, int]) -> None:
        self.begins = begins
        self._columns: dict[str, dict[int, _Columns]] = {}

    def add(self, line: Line) -> None:
        self._columns.setdefault(line["table"], {}).setdefault(line["rank"], _Columns()).add(line)

    def counts(self) -> dict[str, int]:
        return {table: sum(of.rows + of.pending for of in ranks.values()) for table, ranks in self._columns.items()}

    def tables(self, wanted: Collection[str] | None) -> dict[str, pa.Table]:
        return {
            table: _joined_tables([columns.finish() for columns in ranks.values()])
            for table, ranks in self._columns.items()
            if wanted is None or table in wanted
        }


# The one store of a run's records: frames, lines in order of time, and what is new.


MERGE_S = 60.0  # as long as a reader waits for a merge
_LOOKS = 3
LINE = "line_seq"  # column of numbered tables
_NUMBERS = {"rank", "attempt", "step", "epoch", "time_ns", "start_ns", "end_ns"}
# Rows at exactly the step of resuming are left out only if the second attempt has them too: such a row
# describes the model before that step, so it is valid in both attempts.
_SAME_FACT = {"evaluations": "split", "events": "kind"}


class RunTables:
    """The record tables of one run, stored or live.

    Frames come from the merged tables, and from the ranks' lines after those. Each store remembers what
    :meth:`new_lines` has returned, so that a follower takes increments from a store of its own.

    Args:
        run_dir: the folder of the run.

    Raises:
        RunStoreError: there is no run.
    """

    def __init__(self, run_dir: str | Path | RunDirectory) -> None:
        self.run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory.open(run_dir)
        self._offsets: dict[int, int] = {}
        self._held: _HeldRows | None = None

    def frames(self, only: Collection[str] = (), *, all_attempts: bool = False) -> dict[str, pd.DataFrame]:
        """All record tables, each with the columns ``rank`` and ``attempt`` first, ordered by rank.

        Columns and tables unknown to this version are kept. A table without rows has its columns. Rows with equal data
        share one object: copy it before you change it.

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
        with directory.reading(self.run.records):
            tables = self._tables(wanted)
            frames = {table: to_frame(found) for table, found in tables.items()}
            for table in TABLES.keys() - frames.keys():
                if wanted is None or table in wanted:
                    columns = ["rank", "attempt", *TABLES[table]]
                    frames[table] = pd.DataFrame(columns=columns).astype({"rank": "int64", "attempt": "int64"})
            for table, frame in frames.items():
                self._check_numbers(table, frame)
            return frames if all_attempts else without_replaced(frames)

    def events(self, *, without: Collection[str] = (), most: int | None = None) -> list[dict[str, Any]]:
        """All events of all attempts in order of time: rank, attempt, step, epoch, time_ns, kind, data.

        Events with equal data share one object: copy it before you change it.

        Args:
            without: kinds that are left out.
            most: of each kind, at most that many first events, and the last one. Each event then has an entry
                ``left_out``: before the last one, how many are missing; else 0.

        Raises:
            DataError: a record line or the merged table is damaged, or a newer version wrote it.
            RunStoreError: the files cannot be read.
        """
        import pyarrow as pa
        import pyarrow.compute

        with directory.reading(self.run.records):
            table = self._tables({"events"}).get("events")
            if table is None:
                return []
            left_out = pyarrow.compute.is_in(table.column("kind"), pa.array(without, pa.string()))
            table = table.filter(pyarrow.compute.invert(left_out)).sort_by("time_ns")
            if most is not None:
                kinds = table.column("kind").to_pandas().groupby(table.column("kind").to_pandas())
                place, count = kinds.cumcount(), kinds.transform("size")
                kept = (place < most) | (place == count - 1)
                table = table.append_column("left_out", pa.array((count - most - 1).where(place >= most, 0)))
                table = table.filter(pa.array(kept))
            frame = to_frame(table)
            self._check_numbers("events", frame)
            return frame.to_dict("records")

    def counts(self) -> dict[str, int]:
        """Rows of each table, of all lines."""
        begins, rows = self._so_far()
        held, sizes = self._held, self.sizes()
        if held is not None and (held.begins, self._offsets) == (begins, sizes):
            new = held.counts()
        else:
            new = {name: table.num_rows for name, table in self._new_rows(begins, sizes).items()}
        return {name: rows.get(name, 0) + new.get(name, 0) for name in sorted({*rows, *new})}

    def lines(self, *, new: bool = False) -> Iterator[Line]:
        """The lines of all ranks, ordered by attempt and time as they were written, as in a live view.

        With ``new``, only complete lines that this store has not returned or skipped yet. Where reading stops before
        the last of them, all of them are still new.
        """
        begins, ends = self._offsets if new else {}, self.sizes()
        held, self._held = (self._held, None) if new else (None, self._held)  # lost where reading stops before the end
        files = self.run.record_files()
        timed = (_timed(rank, read_lines(files[rank], begins.get(rank, 0), end)) for rank, end in ends.items())
        for _, _, _, line in heapq.merge(*timed):
            if held is not None:
                held.add(line)
            yield line
        if new:
            self._offsets, self._held = {**self._offsets, **ends}, held

    def rows(self, rank: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each row of one rank with the name of its table, in the order they were written, with its ``attempt``."""
        path = self.run.record_files().get(rank)
        for line in read_lines(path) if path is not None else ():
            for row in rows_of(line):
                yield line["table"], {**row, "attempt": line["attempt"]}

    def new_lines(self, rank: int, *, most_bytes: int = -1) -> list[Line]:
        """Lines of a rank that this store has neither returned nor skipped yet; see :func:`tail`."""
        path, self._held = self.run.record_file(rank), None
        lines, self._offsets[rank] = tail(path, self._offsets.get(rank, 0), most_bytes=most_bytes)
        return lines

    def skip(self, rank: int, size: int) -> None:
        """Leave out the next ``size`` bytes of a rank's file: their lines came another way."""
        self._held, self._offsets[rank] = None, self._offsets.get(rank, 0) + size

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
        for rank, end in (self.sizes() if ends is None else ends).items():
            for line in read_lines(files[rank], begins.get(rank, 0), end):
                if wanted is None or line["table"] in wanted:
                    if numbered:
                        line["columns"] = [*line["columns"], LINE]
                        line["rows"] = [[*row, line.get("seq")] for row in line["rows"]]
                    tables.setdefault(line["table"], _Columns()).add(line)
        return {table: columns.finish() for table, columns in sorted(tables.items())}

    def merge(self, *, hold: bool = False) -> dict[str, int]:
        """Write ``records/<table>.parquet`` for every table and return the number of rows of each.

        The lines stay: a resumed run appends to them. ``records/merged.json`` records what the merged tables cover, so
        that a later merge reads only the lines after that.

        Args:
            hold: merge only the lines that :meth:`lines` has returned as new, and hold the rows of those that it
                returns from then on, so that neither :meth:`frames` nor the next such merge reads them again.

        Raises:
            DataError: a record line is damaged.
            RunStoreError: a file cannot be written.
        """
        import filelock
        import pyarrow.parquet

        with filelock.FileLock(self._lock_file):
            for left in self.run.records.glob(".*.tmp"):  # by a merge that was killed
                left.unlink()
            begins, rows = self._so_far()
            ends = dict(self._offsets) if hold else self.sizes()
            ends = {rank: max(ends.get(rank, 0), begins.get(rank, 0)) for rank in {*ends, *begins}}
            if ends == begins != {}:
                self._held = _HeldRows(ends) if hold and ends == self._offsets else None
                return rows
            new = self._new_rows(begins, ends)
            self.run.merged_file.unlink(missing_ok=True)  # a merge that is killed between two tables is repeated
            for name, content in new.items():
                file = self.run.table_file(name)
                merged = _joined_tables([pyarrow.parquet.read_table(file), content]) if name in rows else content
                with directory.replacing(file) as temporary:
                    pyarrow.parquet.write_table(merged, temporary, compression="zstd")
                rows[name] = merged.num_rows
            sizes = {str(rank): end for rank, end in ends.items()}
            directory.write_json(self.run.merged_file, {"schema": SCHEMA, "sizes": sizes, "rows": rows})
            self._held = _HeldRows(ends) if hold and ends == self._offsets else None
        return rows

    def _new_rows(
        self, begins: Mapping[int, int], ends: Mapping[int, int], wanted: Collection[str] | None = None
    ) -> dict[str, pa.Table]:
        """The tables of lines between these places, from the rows held where these are of the same lines."""
        held, parts = self._held, []
        if held is not None and held.begins == begins:
            parts.append(held.tables(wanted))
            begins = self._offsets
        if begins != ends:
            parts.append(self.collect(wanted, begins=begins, ends=ends))
        names = sorted({name for part in parts for name in part})
        return {name: _joined_tables([part[name] for part in parts if name in part]) for name in names}

    def is_current(self) -> bool:
        """Whether the merged tables are of this schema and cover all lines (a resumed run may have written more)."""
        try:
            merged = directory.read_json(self.run.merged_file)
        except RunStoreError:
            if not self.run.merged_file.is_file():  # none was made, or one is being made now
                return False
            raise
        sizes = {str(rank): end for rank, end in self.sizes().items()}
        return bool(merged["sizes"] == sizes and merged.get("schema") == SCHEMA)

    @property
    def _lock_file(self) -> Path:
        return self.run.live / "merge.lock"

    @property
    def unmerged_share(self) -> float:
        """Bytes of lines that the merged tables do not cover, as a share of all."""
        ends, (begins, _) = self.sizes(), self._so_far()
        return 1 - sum(begins.values()) / max(1, sum(ends.values()))

    def sizes(self) -> dict[int, int]:
        """Bytes of the complete lines of each rank."""
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

    def _tables(self, wanted: Collection[str] | None) -> dict[str, pa.Table]:
        """The merged tables, with the rows of later lines; read again if they are merged meanwhile."""
        import filelock

        for _ in range(_LOOKS):
            if not self.run.merged_file.exists() and self._lock_file.exists():  # a merge may be under way
                with contextlib.suppress(filelock.Timeout, OSError), filelock.FileLock(self._lock_file, MERGE_S):
                    pass
            before = self._merge_time()
            try:
                found = self._read(wanted)
            except LabError:
                if self._merge_time() == before:
                    raise
            else:
                if self._merge_time() == before:
                    return found
        with filelock.FileLock(self._lock_file):
            return self._read(wanted)

    def _merge_time(self) -> int | None:
        """When the tables were merged; None if they are not."""
        try:
            return self.run.merged_file.stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _read(self, wanted: Collection[str] | None) -> dict[str, pa.Table]:
        run, new = self.run, {}
        lines = "the ranks' lines are read instead" if run.record_files() else "the lines it was made from are missing"
        remedy = f"Remove {run.merged_file}: {lines}."
        with directory.reading(run.merged_file, f"Remove it: {lines}."):
            is_current = self.is_current()
            if is_current:
                merged = list(directory.read_object(run.merged_file, needs=("rows",))["rows"])
        if not is_current:
            begins, rows = self._so_far()
            merged, new = list(rows), self._new_rows(begins, self.sizes(), wanted)
        found = {name: [_stored(run.table_file(name), remedy)] for name in merged if wanted is None or name in wanted}
        for name, table in new.items():
            found.setdefault(name, []).append(table)
        return {name: _joined_tables(parts) for name, parts in sorted(found.items())}

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


def _stored(file: Path, remedy: str) -> pa.Table:
    import pyarrow.parquet

    with directory.reading(file, remedy):
        if not file.is_file():
            raise RunStoreError(f"{file} is missing. {remedy}")
        return pyarrow.parquet.read_table(file)


def without_replaced(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables, ``steps`` among them, without rows that a later attempt replaced; see :meth:`RunTables.frames`."""
    steps = frames["steps"]
    if steps["attempt"].nunique() < 2:
        return frames
    # Rank, attempt -> the first step of any later attempt of this rank, or of the others if it wrote none in it
    first = steps.groupby(["rank", "attempt"])["step"].min().unstack("attempt")
    later = {table: frame for table, frame in frames.items() if "step" in frame}
    ranks = sorted({int(rank) for frame in later.values() for rank in frame["rank"].unique()})
    attempts = sorted({int(attempt) for frame in later.values() for attempt in frame["attempt"].unique()})
    whole = first.reindex(index=ranks, columns=attempts)
    known = whole.fillna(whole.min()).fillna(math.inf)
    limits = known.iloc[:, ::-1].cummin(axis=1).iloc[:, ::-1].shift(-1, axis=1, fill_value=math.inf)
    return {**frames, **{table: _kept(table, frame, limits.stack()) for table, frame in later.items() if len(frame)}}


def _kept(table: str, frame: pd.DataFrame, limits: pd.Series[float]) -> pd.DataFrame:
    """``frame`` without rows that a later attempt replaced, by the limits of (rank, attempt)."""
    import pandas as pd

    attempts = int(frame["attempt"].max()) + 1
    places, found = pd.factorize(frame["rank"].to_numpy() * attempts + frame["attempt"].to_numpy())
    limit = np.array([limits[divmod(int(each), attempts)] for each in found])[places]
    if table not in _SAME_FACT:
        return frame[~(frame["step"] >= limit)].reset_index(drop=True)
    fact = ["rank", "step", _SAME_FACT[table]]
    repeated = frame["attempt"] < frame.groupby(fact, dropna=False)["attempt"].transform("max")
    return frame[~((frame["step"] > limit) | ((frame["step"] == limit) & repeated))].reset_index(drop=True)


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
        """Whether each of these ranks has recorded that step, or a later one, in this attempt.

        Raises:
            RunStoreError: a file cannot be read.
        """
        for rank in ranks:
            file = directory.record_file(self.path.parent, rank)
            try:
                newest = last_step(file, attempt=self.attempt)
            except (FileNotFoundError, DataError):  # a damaged line is an error where the run is read
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
