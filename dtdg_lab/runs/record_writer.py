"""RecordWriter: a rank's records, appended to its file by a background thread."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from dtdg_lab.config.record_tables import SCHEMA, TABLES
from dtdg_lab.core.errors import ConfigError, DataError, RunStoreError, UnknownNameError
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.records.lines import Line, last_newline, last_step
from dtdg_lab.runs.directory import record_file
from dtdg_lab.runs.json_files import finite

Row = tuple[Any, ...]


class RecordWriter:
    """Appends rows of the record tables to one rank's file, off the training thread.

    ``row`` only queues. Every ``flush_s`` seconds a daemon thread writes one JSON line per table (format in
    ``config/record_tables.py``) with a single append: flushed rows survive ``kill -9``. Line numbers (``seq``) continue
    at the end of the file, after removing a line truncated by a kill. JSON has no NaN: such a value is written as null,
    and an event ``not_finite`` records it.

    Args:
        path: path of the file, created if missing.
        rank: the rank that writes.
        attempt: number of the attempt, from 1.
        flush_s: seconds between two writes.
        sink: receives the bytes of each write (whole lines), for the live channel; it must not block. If it raises,
            it is not called again, and an event ``sink_lost`` records the reason; writing the file continues.
        tables: columns of each table; may have more tables than ``config/record_tables.py``.

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
            raise store_error("record to", self.path, error) from error
        except (ValueError, KeyError) as error:
            raise RunStoreError(
                f"{self.path} ends with a damaged line ({error!r}). Move it away to continue."
            ) from error
        self._thread = threading.Thread(target=self._run, args=(flush_s,), name=f"records-rank{rank}", daemon=True)
        self._thread.start()

    def row(self, table: str, values: Row) -> None:
        """Queue one row in about a tenth of a microsecond, without blocking.

        Raises:
            UnknownNameError: the table is unknown.
            ConfigError: the number of values differs from the number of columns.
        """
        if self._widths.get(table) != len(values):
            self._refuse(table, values)
        self._queue.append((table, values))

    def check(self) -> None:
        """Raise an error of the background thread; the training loop calls it every step.

        Raises:
            RunStoreError: rows could not be written, so further training would not be recorded.
        """
        if self._failure is not None:
            raise self._failure

    def flush(self) -> None:
        """Write all rows queued so far before returning.

        Raises:
            RunStoreError: the rows could not be written.
        """
        self._write_queued()
        self.check()

    def reached(self, step: int, ranks: Iterable[int]) -> bool:
        """Return True if each of these ranks has recorded the step, or a later one, in this attempt.

        Raises:
            RunStoreError: a file cannot be read.
        """
        for rank in ranks:
            file = record_file(self.path.parent, rank)
            try:
                newest = last_step(file, attempt=self.attempt)
            except (FileNotFoundError, DataError):  # reading the run reports a damaged line
                return False
            except OSError as error:
                raise store_error("read", file, error) from error
            if newest is None or newest < step:
                return False
        return True

    def close(self) -> None:
        """Write all queued rows, stop the thread and close the file; idempotent.

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
                while rest:  # the operating system may accept only a part at once
                    rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                self._failure = store_error("record to", self.path, error)
                self._failure.__cause__ = error
                return
            except Exception as error:  # kept for check(), since a dead thread would leave the run unrecorded
                self._failure = RunStoreError(f"cannot record to {self.path}: {error!r}. Rows must have JSON values.")
                self._failure.__cause__ = error
                return
            if self._sink is not None:
                try:
                    self._sink(block)
                except Exception as error:  # live charts may lose rows; the file records the end and its reason
                    self._sink = None
                    self._queue.append(("events", self._event("sink_lost", {"reason": repr(error)})))

    def _take(self) -> dict[str, list[Row]]:
        """Return the queued rows by table; deque operations are atomic, so training may continue to append."""
        rows: dict[str, list[Row]] = {}
        for _ in range(len(self._queue)):
            table, values = self._queue.popleft()
            rows.setdefault(table, []).append(values)
        return rows

    def _lines(self, rows: dict[str, list[Row]]) -> bytes:
        """Return one line per table, and one of events for values that JSON lacks."""
        lines, lost = [], {}
        for table, values in rows.items():
            try:
                text = _encode(values)
            except ValueError:  # a NaN or an infinity; located only now, since it is rare
                lost.update(_not_finite(table, self._tables[table], values))
                text = _encode(finite(values))
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
        values = {"step": data.get("step"), "epoch": data.get("epoch"), "time_ns": time.time_ns(), "kind": kind}
        return tuple(values.get(column, data) for column in TABLES["events"])


def _encode(rows: Any) -> str:
    return json.dumps(rows, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """Return NumPy scalars and arrays as Python values; raise for anything else, as json does."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be recorded")


def _not_finite(table: str, columns: tuple[str, ...], rows: list[Row]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return (table, column) -> the first value that JSON lacks, its step, and the number of such values."""
    failures: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        for column, value in values.items():
            try:
                _encode(value)
            except ValueError:
                first: Line = {"table": table, "column": column, "value": str(value)[:200]}
                first |= {"step": values.get("step"), "epoch": values.get("epoch"), "rows": 0}
                failures.setdefault((table, column), first)["rows"] += 1
    return failures


def _open_at_end(path: Path) -> tuple[int, int]:
    """Open a file for appending; return the descriptor and the number of the next line."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return file, 0
        size = os.fstat(file).st_size
        whole_bytes = last_newline(file, size) + 1
        if whole_bytes < size and not _is_line(os.pread(file, size - whole_bytes, whole_bytes)):
            os.ftruncate(file, whole_bytes)  # drop a line truncated by a kill
        elif whole_bytes < size:
            os.write(file, b"\n")
            whole_bytes = size + 1
        if not whole_bytes:
            return file, 0
        begin = last_newline(file, whole_bytes - 1) + 1
        return file, int(json.loads(os.pread(file, whole_bytes - begin, begin))["seq"]) + 1
    except BaseException:
        os.close(file)
        raise


def _is_line(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
