"""Record lines: parsing, checking, converting to columns, and reading them from a rank's growing file."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any

import orjson

from dtdg_lab.config.record_tables import SCHEMA, rows_of
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.system_errors import store_error

Line = dict[str, Any]
BLOCK_BYTES = 4 << 20
TAIL_BYTES = 1 << 18  # large enough to contain steps, which are written several times a second
_TAIL_BLOCK = 1 << 16
_NOT_A_LINE = "it does not have the format of record lines"
_NUMBER, _NUMBER_OR_NONE = frozenset({int}), frozenset({int, NoneType})
_NEEDED: Mapping[str, Mapping[str, frozenset[type]]] = MappingProxyType(  # required columns
    {
        "steps": {"step": _NUMBER, "epoch": _NUMBER},
        "events": {
            "step": _NUMBER_OR_NONE,
            "epoch": _NUMBER_OR_NONE,
            "time_ns": _NUMBER,
            "kind": frozenset({str}),
            "data": frozenset({dict}),
        },
    }
)


def parse_line(raw: bytes, location: str) -> Line:
    """Parse a record line.

    Args:
        raw: text of the line.
        location: location of the line, such as ``line 3 of FILE``, for errors.

    Raises:
        DataError: the line is damaged, or was written by another version.
    """
    try:
        line = from_json(raw)
        _check(line)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{location} is damaged ({error}). Restore the file from a copy, or remove it to read the rest."
        ) from error
    if line.get("v", SCHEMA) != SCHEMA:
        newer = line["v"] > SCHEMA
        remedy = "Update dtdg_lab, or open" if newer else "Train it again, or open"
        raise DataError(
            f"{location} was written by {'a newer' if newer else 'an older'} version of DTDG Lab (records of schema "
            f"{line['v']}); this version reads schema {SCHEMA}. {remedy} the run where it was made; nothing was "
            "changed."
        )
    return line


def parse_lines(raw_lines: Iterable[tuple[bytes, str]], *, damaged: list[str] | None = None) -> Iterator[Line]:
    """Yield record lines.

    Args:
        raw_lines: their texts and locations.
        damaged: gets an error for each line that cannot be read; None raises it.

    Raises:
        DataError: a line is damaged, or another version wrote it.
    """
    for raw, location in raw_lines:
        try:
            yield parse_line(raw, location)
        except DataError as error:
            if damaged is None:
                raise
            damaged.append(str(error))


def from_json(text: bytes) -> Any:
    """Return the value of a JSON text."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # stricter than json: lone surrogates, large integers
        return json.loads(text)


def to_json(value: Any) -> bytes:
    """Return JSON text of a value returned by :func:`from_json`."""
    try:
        return memoryview(orjson.dumps(value)).tobytes()  # a copy, since orjson's bytes reserve some KB
    except orjson.JSONEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _check(line: Any) -> None:
    """Raise ValueError, KeyError or TypeError if a line is not in the ranks' format."""
    columns, rows = line["columns"], line["rows"]
    if type(columns) is not list or type(rows) is not list or {*map(type, rows)} - {list}:
        raise ValueError(_NOT_A_LINE)
    if {*map(len, rows)} - {len(columns)}:
        raise ValueError("its rows do not match its columns")
    version = line.get("v", SCHEMA)
    if {*map(type, (line["rank"], line["attempt"], line.get("seq", 0), version))} - {int}:
        raise ValueError(_NOT_A_LINE)
    for index, kinds in _checked_places(version, line["table"], *columns):
        if not kinds.issuperset([type(row[index]) for row in rows]):
            raise ValueError(f"a value in column {columns[index]} of table {line['table']} has the wrong type")


@lru_cache(maxsize=256)
def _checked_places(version: int, table: str, *columns: str) -> tuple[tuple[int, frozenset[type]], ...]:
    """Return the indices of a table's columns with required types; empty if another version wrote them.

    Raises:
        ValueError: the columns are not in the ranks' format.
    """
    if {*map(type, (table, *columns))} - {str}:
        raise ValueError(_NOT_A_LINE)
    if len({*columns}) != len(columns):
        raise ValueError("a column occurs twice")
    needed = _NEEDED.get(table, {}) if version == SCHEMA else {}
    if lacking := [name for name in needed if name not in columns]:
        raise ValueError(f"table {table} lacks the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}")
    return tuple((columns.index(name), kinds) for name, kinds in needed.items())


@dataclass(slots=True)
class RecordFile:
    """A rank's file with the position read so far.

    Attributes:
        path: path of the file.
        offset: number of bytes read so far.
        lines: number of lines read so far, from ``begin`` on.
        begin: byte at which reading began.
    """

    path: Path
    offset: int = 0
    lines: int = 0
    begin: int = field(init=False)

    def __post_init__(self) -> None:
        self.begin = self.offset

    def is_cut(self) -> bool:
        """Return True if the file is shorter than the part read so far."""
        return self.path.exists() and self.path.stat().st_size < self.offset

    def skip(self, size: int) -> None:
        """Skip the next line, of ``size`` bytes, because it was received otherwise."""
        self.offset, self.lines = self.offset + size, self.lines + 1

    def read(self, size: int = BLOCK_BYTES) -> list[tuple[bytes, str]]:
        """Return complete unread lines with their locations; a line that is still being written is left for later.

        Args:
            size: approximate number of bytes to read.

        Raises:
            RunStoreError: the file cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                block = file.read(size)
                while b"\n" not in block and (rest := file.read(size)):
                    block += rest
        except FileNotFoundError:
            return []
        except OSError as error:
            raise store_error("read", self.path, error) from error
        end = block.rfind(b"\n") + 1
        complete = block if end < len(block) < size and is_object(block[end:]) else block[:end]
        self.offset += len(complete)
        numbered, after = [], f" after byte {self.begin:,}" if self.begin else ""
        for raw in complete.splitlines():
            if raw:  # an empty one is the newline of a line that was read without it
                self.lines += 1
                numbered.append((raw, f"line {self.lines}{after} of {self.path}"))
        return numbered


class LineSequence:
    """The sequence numbers of the lines of each rank: a line that comes twice is not new.

    Attributes:
        missing: lines that never arrived, by the gaps between numbers.
    """

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self.missing = 0

    def is_new(self, line: Line) -> bool:
        """Return whether a line has not come before; one without a number counts as new."""
        rank, seq = line["rank"], line.get("seq")
        if seq is None:
            return True
        newest = self._newest.get(rank, seq - 1)
        if seq <= newest:
            return False
        self.missing += seq - newest - 1
        self._newest[rank] = seq
        return True


def read_lines(path: str | Path) -> Iterator[Line]:
    """Yield the record lines of one rank's file.

    An unparsable last line without a newline is ignored: its writer was killed.

    Raises:
        DataError: a line is damaged, or was written by a newer version; the message names it.
        RunStoreError: the file cannot be read.
    """
    source = RecordFile(Path(path))
    while raw_lines := source.read():
        yield from parse_lines(raw_lines)


def whole_bytes(path: Path) -> int:
    """Return the number of bytes of a file's complete lines; 0 without a file.

    Raises:
        RunStoreError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            end = last_newline(file.fileno(), size) + 1
            return size if is_object(os.pread(file.fileno(), size - end, end)) else end
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise store_error("read", path, error) from error


def last_newline(file: int, end: int) -> int:
    """Return the offset of the last newline of an open file before ``end``, or -1."""
    while end > 0:
        begin = max(0, end - _TAIL_BLOCK)
        newline = os.pread(file, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline
        end = begin
    return -1


def is_object(text: bytes) -> bool:
    """Return True if a text is a complete JSON object."""
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False


def last_step(path: Path, *, attempt: int | None = None) -> int | None:
    """Return the newest step in the last records of a rank's file, of ``attempt`` if given; None without one."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES - 1))
        lines = file.read().split(b"\n")[0 if file.tell() <= TAIL_BYTES else 1 : -1]  # torn at both ends
    for raw in reversed(lines):
        line = parse_line(raw, f"a line near the end of {path}")
        if attempt not in (None, line["attempt"]):
            return None
        if line["table"] == "steps":
            return max(int(row["step"]) for row in rows_of(line))
    return None


# Beginnings and ends of attempts in a rank's file, by bisection: attempt numbers only increase in a file.


TIMED = ("events", "energy", "steps")  # tables whose clocks show the duration of an attempt


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """Place and time of one rank's attempt.

    Attributes:
        attempt: number of the attempt, from 1.
        rank: rank that wrote it.
        step: its first step, if any.
        started_ns: start of the attempt on rank 0, from its event ``started``; None if unknown.
        times_ns: first and newest clock; None without rows with a clock.
    """

    attempt: int
    rank: int
    step: int | None
    started_ns: int | None
    times_ns: tuple[int, int] | None


def attempt_spans(path: Path) -> Iterator[AttemptSpan]:
    """Yield the attempts of a rank's file; damaged lines are skipped."""
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        begin = 0
        while (head := _attempt_after(text, begin)) is not None:
            end = _end_of_attempt(text, begin, head[0])
            yield _span_of(text, begin, end, head[0])
            begin = end


def _span_of(text: mmap.mmap, begin: int, end: int, attempt: int) -> AttemptSpan:
    """Return the span of the attempt between two bytes."""
    rank, step, started_ns, first_ns = -1, None, None, list[int]()
    for line in _lines_between(text, begin, end):
        rank, columns = line["rank"], line["columns"]
        first_ns += clocks_of(line)
        if line["table"] == "events" and rank == 0:
            clock, kind = columns.index("time_ns"), columns.index("kind")
            started_ns = next((row[clock] for row in line["rows"] if row[kind] == "started"), started_ns)
        if line["table"] == "steps" and line["rows"]:
            index = columns.index("step")
            step = min(row[index] for row in line["rows"])
            break
    newest_ns, size = list[int](), TAIL_BYTES
    while first_ns and not newest_ns:
        tail = text.find(b"\n", end - size - 1) + 1 if end - size > begin else begin
        newest_ns, size = [time_ns for line in _lines_between(text, tail, end) for time_ns in clocks_of(line)], 4 * size
    times_ns = (min(first_ns), max(newest_ns)) if first_ns else None
    return AttemptSpan(attempt, rank, step, started_ns, times_ns)


def clocks_of(line: Line) -> list[int]:
    """Return the times of a line's rows in ns, for tables whose clocks show the duration of an attempt."""
    if line["table"] not in TIMED or "time_ns" not in line["columns"]:
        return []
    clock = line["columns"].index("time_ns")
    return [row[clock] for row in line["rows"] if isinstance(row[clock], int)]


def _lines_between(text: mmap.mmap, begin: int, end: int) -> Iterator[Line]:
    while begin < end and (newline := text.find(b"\n", begin, end)) >= 0:
        with suppress(DataError):  # reading the whole file reports the error
            yield parse_line(text[begin:newline], "")
        begin = newline + 1


def _attempt_after(text: mmap.mmap, begin: int) -> tuple[int, int] | None:
    """Return the attempt of the first line after a byte, and the end of that line; None without a line."""
    while (end := text.find(b"\n", begin)) >= 0:
        key = text.find(b'"attempt":', begin, end)
        digits = text[key + 10 : text.find(b",", key, end)].strip() if key >= 0 else b""
        if digits.isdigit():
            return int(digits), end + 1
        begin = end + 1
    return None


def _end_of_attempt(text: mmap.mmap, begin: int, attempt: int) -> int:
    """Return the first byte after an attempt that begins at ``begin``."""
    low, high = begin, len(text)
    while high - low > 4096:
        middle = text.find(b"\n", (low + high) // 2) + 1
        head = _attempt_after(text, middle) if 0 < middle < high else None
        if head is not None and head[0] == attempt:
            low = middle
        else:
            high = (low + high) // 2
    while (head := _attempt_after(text, low)) is not None and head[0] == attempt:
        low = head[1]
    return low


Shape = tuple[str, ...]  # name of a table, then names of its columns
IDENTITY = ("rank", "attempt")


@dataclass(slots=True)
class LineColumns:
    """Lines with equal table and columns, as Python values by column."""

    names: tuple[str, ...]
    values: dict[str, list[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.values = {name: [] for name in (*IDENTITY, *self.names)}

    def __len__(self) -> int:
        return len(self.values["rank"])

    def add(self, line: Line) -> None:
        """Add the rows of a line."""
        for name in IDENTITY:
            self.values[name] += [line[name]] * len(line["rows"])
        for name, column in zip(self.names, zip(*line["rows"], strict=True), strict=True):
            self.values[name].extend(column)


def add_to_shape(shapes: dict[Shape, LineColumns], line: Line) -> None:
    """Add a line to the lines of its shape."""
    shape = (line["table"], *line["columns"])
    if shape not in shapes:
        shapes[shape] = LineColumns(shape[1:])
    shapes[shape].add(line)


def by_shape(lines: Iterable[Line]) -> dict[Shape, LineColumns]:
    """Group lines with rows by their shape."""
    shapes: dict[Shape, LineColumns] = {}
    for line in lines:
        if line["rows"]:
            add_to_shape(shapes, line)
    return shapes
