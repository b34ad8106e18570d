"""Rows of a text file as typed columns, read by Arrow; a file it refuses is searched for its first bad line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.text import shown
from dtdg_lab.datasets.tables import MAX_ID
from dtdg_lab.graphs.arrays import give_up

_BLOCK_BYTES = 4 << 20  # Arrow reads in blocks; a line must fit one
_HEXADECIMAL = re.compile(rb"[xX]")
_MAX_NAME = 100  # characters; names are kept in a table as wide as the longest


@dataclass(frozen=True, slots=True)
class Kind:
    """What a column holds.

    Attributes:
        words: what is allowed, for messages.
        arrow: name of the Arrow type; empty where the column is not read.
        least: smallest value allowed; for text, fewest characters.
        most: largest value allowed; for text, most characters.
    """

    words: str
    arrow: str
    least: float | None = None
    most: float | None = None


ID = Kind(f"a whole number from 0 to {MAX_ID:,} (from_csv numbers ids of any kind anew)", "int64", 0, MAX_ID)
WHOLE = Kind("a whole number", "int64", -(2**63), 2**63 - 1)
NUMBER = Kind("a finite number", "double")
TIME = Kind("a finite number, the time", "")  # read as WHOLE where all are, else as NUMBER
FEATURE = Kind("a finite number", "float")
STAMP = Kind("a time such as 2014-01-31 16:39:58", "timestamp[s]")
STAMP_UTC = Kind("a time such as 2014-01-31T16:39:58Z", "timestamp[s, UTC]")
NAME = Kind(f"a name of 1 to {_MAX_NAME} characters", "string", 1, _MAX_NAME)
TEXT = Kind("text", "string")
LABEL = Kind("a class from -1 (none) to 32,767", "int64", -1, 2**15 - 1)
UNREAD = Kind("anything", "")


def read_rows(
    text: bytes,
    where: str,
    columns: Mapping[str, Kind],
    *,
    separator: str = ",",
    first_line: int = 1,
    least: int = 1,
) -> dict[str, Any]:
    """The columns of a text of rows, in the order of the file.

    Args:
        text: the rows, made plain by :func:`dtdg_lab.datasets.formats.text.plain`; blank lines are skipped.
        where: the file's name, for messages.
        columns: name and kind of every column.
        separator: the one character between columns.
        first_line: number of the text's first line in the file.
        least: fewest rows allowed.

    Returns:
        By name, for every column that is read: a read-only vector, shape (E,): int64 for whole numbers and for
        times in seconds since 1970, float64 or float32 for numbers; an Arrow array for names and text.

    Raises:
        DataError: a line has another number of columns, or a value its column does not allow: the first such line is
            named. Or there are fewer rows than ``least``.
    """
    try:
        rows, count = _read(text, columns, separator)
    except ValueError as error:
        raise _bad_line(text, where, columns, separator, first_line=first_line, error=error) from error
    if count < least:
        raise DataError(
            f"{where} holds {count} rows; at least {least} of '{_names(columns)}' {_with(separator)} "
            f"{'is' if least == 1 else 'are'} needed. The file is empty or cut short: fetch it again."
        )
    return rows


def _read(text: Any, columns: Mapping[str, Kind], separator: str) -> tuple[dict[str, Any], int]:
    """The columns and the number of rows.

    Raises:
        ValueError: something is not allowed somewhere.
    """
    if TIME not in columns.values():
        return _read_as(text, columns, separator)
    try:
        return _read_as(text, {name: WHOLE if kind is TIME else kind for name, kind in columns.items()}, separator)
    except ValueError:
        return _read_as(text, {name: NUMBER if kind is TIME else kind for name, kind in columns.items()}, separator)


def _read_as(text: Any, columns: Mapping[str, Kind], separator: str) -> tuple[dict[str, Any], int]:
    import pyarrow as pa
    from pyarrow import csv

    wanted = {name: _arrow_type(kind) for name, kind in columns.items() if kind.arrow}
    if not len(text):
        return {name: np.zeros(0) for name in wanted}, 0
    if not any(kind.arrow == "string" for kind in columns.values()) and _HEXADECIMAL.search(text):
        raise ValueError("0x10 is no number here, though Arrow would take it for 16")
    table = csv.read_csv(
        pa.BufferReader(pa.py_buffer(text)),
        read_options=csv.ReadOptions(column_names=list(columns), block_size=_BLOCK_BYTES),
        parse_options=csv.ParseOptions(delimiter=separator, quote_char=False),
        convert_options=csv.ConvertOptions(
            column_types=wanted, include_columns=list(wanted), null_values=[], strings_can_be_null=False,
        ),
    )  # fmt: skip
    return {name: _checked(table[name], columns[name]) for name in wanted}, table.num_rows


def _arrow_type(kind: Kind) -> Any:
    import pyarrow as pa

    return pa.timestamp("s", tz="UTC") if kind is STAMP_UTC else pa.type_for_alias(kind.arrow)


def _checked(column: Any, kind: Kind) -> Any:
    """The column as numpy (text stays with Arrow) once its values are known to be allowed."""
    import pyarrow.compute as pc

    if kind.arrow == "string":
        column = pc.utf8_trim_whitespace(column)
        if kind.most is not None and len(column):
            lengths = pc.min_max(pc.utf8_length(column)).as_py()
            _refuse_outside(lengths["min"], lengths["max"], kind)
        return column
    values: NDArray[Any] = column.to_numpy()
    if kind in (STAMP, STAMP_UTC):
        values = values.astype("datetime64[s]").astype(np.int64)
    if kind.least is not None and len(values):
        _refuse_outside(values.min(), values.max(), kind)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    return give_up(values)


def _refuse_outside(least: Any, most: Any, kind: Kind) -> None:
    if kind.least is None or kind.most is None or least < kind.least or most > kind.most:
        raise ValueError(f"{least} to {most} is outside {kind.words}")


def _bad_line(
    text: bytes, where: str, columns: Mapping[str, Kind], separator: str, *, first_line: int, error: ValueError
) -> DataError:
    """The error that names the first line Arrow refuses, found by halving the text."""
    view = memoryview(text)
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")) + 1
    starts = np.concatenate([[0], ends, [len(text)] if not len(ends) or ends[-1] < len(text) else []]).astype(np.int64)
    low, high = 0, len(starts) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _refused(view[starts[low] : starts[middle]], columns, separator):
            high = middle
        else:
            low = middle
    line = bytes(view[starts[low] : starts[high]]).strip(b"\n")
    if not _refused(line, columns, separator):
        return DataError(f"{where} cannot be read as rows of '{_names(columns)}': {error}. Fetch the file again.")
    return DataError(
        f"line {first_line + low} of {where} is {shown(line)}: {_fault(line, columns, separator)}. "
        "Correct the line, or fetch the file again."
    )


def _refused(text: Any, columns: Mapping[str, Kind], separator: str) -> bool:
    try:
        _read(text, columns, separator)
    except ValueError:
        return True
    return False


def _fault(line: bytes, columns: Mapping[str, Kind], separator: str) -> str:
    """What is wrong with a line that is refused."""
    fields = line.split(separator.encode())
    if len(fields) != len(columns):
        return f"it has {len(fields)} columns; {len(columns)} are needed, '{_names(columns)}' {_with(separator)}"
    for place, (name, kind) in enumerate(columns.items()):
        field = fields[place].strip()
        empty = not field and kind not in (TEXT, UNREAD)
        if empty or (kind is not UNREAD and _refused(field, {name: kind}, separator)):
            return f"column {place + 1} ({name}) is {shown(field)}; {kind.words} is allowed"
    return f"it cannot be read; '{_names(columns)}' {_with(separator)} is allowed"


def _names(columns: Mapping[str, Kind]) -> str:
    names = list(columns)
    return " ".join(names if len(names) <= 8 else [*names[:6], "...", names[-1]])


def _with(separator: str) -> str:
    return {" ": "separated by spaces or tabs", ",": "separated by commas"}.get(separator, "separated by tabs")
