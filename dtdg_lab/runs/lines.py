"""Reading record lines: whole files, while they grow, and all ranks in order of time."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.records import SCHEMA
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.json_files import store_error

Line = dict[str, Any]
_CLOCKS = ("time_ns", "start_ns")


def read_lines(path: str | Path) -> Iterator[Line]:
    """The record lines of one rank's file, as parsed from JSON.

    A last line without its newline that does not parse is left out: the writer was killed in the middle of it.

    Raises:
        DataError: a line before the end is damaged, or a newer version wrote it; the message names it.
        RunStoreError: the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.endswith(b"\n"):
                    yield _parse(raw, path, f"line {number}")
                elif (last := _parse_torn(raw)) is not None:
                    yield last
    except OSError as error:
        raise store_error("read", path, error) from error


def tail(path: str | Path, offset: int = 0, *, most_bytes: int = -1) -> tuple[list[Line], int]:
    """Lines written since ``offset``, and the offset to ask for next time.

    With ``most_bytes`` no more than about so many are read at once: ask again until no lines come.

    A line still being written is left for the next call. A file that is not there yet has no lines; one that became
    shorter (a resumed run cuts off a torn line) is followed from its new end.

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
        raise store_error("read", path, error) from error
    whole = block[: block.rfind(b"\n") + 1]
    lines, begin = [], offset
    for raw in whole.splitlines(keepends=True):
        lines.append(_parse(raw, path, f"the line at byte {begin}"))
        begin += len(raw)
    return lines, begin


def merged_lines(run: RunDirectory) -> Iterator[Line]:
    """The lines of all ranks, ordered by attempt and time as they were written, as a live view would get them."""
    return (line for _, _, _, line in heapq.merge(*(_timed(rank, path) for rank, path in run.record_files().items())))


def _timed(rank: int, path: Path) -> Iterator[tuple[tuple[int, int], int, int, Line]]:
    """Lines with a key that never falls within a file; position keeps ties from comparing the lines themselves."""
    latest = (0, 0)
    for position, line in enumerate(read_lines(path)):
        times = [
            row[line["columns"].index(clock)] for clock in _CLOCKS if clock in line["columns"] for row in line["rows"]
        ]
        latest = max(
            latest, (line["attempt"], max((int(time) for time in times if time is not None), default=latest[1]))
        )
        yield latest, rank, position, line


def _parse(raw: bytes, path: str | Path, place: str) -> Line:
    try:
        line = json.loads(raw)
        _check(line)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{place} of {path} is damaged ({error}). Restore the file from a copy, or remove it to read the rest."
        ) from error
    if line.get("v", SCHEMA) > SCHEMA:
        raise DataError(
            f"{place} of {path} was written by a newer version of DTDG Lab: records of schema {line['v']}, and this "
            f"version reads up to {SCHEMA}. Update dtdg_lab, or open the run where it was made; nothing was changed."
        )
    return line


def _check(line: Any) -> None:
    """Raise ValueError, KeyError or TypeError where a line is not what a rank writes."""
    widths = {len(row) for row in line["rows"]}
    if widths - {len(line["columns"])} or not {"rank", "attempt", "table"} <= line.keys():
        raise ValueError("its rows do not fit its columns")
    numbers = (line["rank"], line["attempt"], line.get("v", SCHEMA))
    names = (line["table"], *line["columns"])
    lists = {type(each) for each in (line["columns"], line["rows"], *line["rows"])} <= {list}
    if not (all(type(number) is int for number in numbers) and all(type(name) is str for name in names) and lists):
        raise ValueError("it is not made as record lines are")
    if len(set(line["columns"])) != len(line["columns"]):
        raise ValueError("a column comes twice")


def _parse_torn(raw: bytes) -> Line | None:
    """The last line, if only its newline is missing."""
    try:
        return _parse(raw, "", "")
    except DataError:
        return None
