"""Normalize the text of a data file, and read its rows as typed columns. Lines keep their numbers."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.tables import MAX_ID
from dtdg_lab.graphs.edge_list import MAX_ID_LENGTH
from dtdg_lab.graphs.edge_times import OUT_OF_RANGE
from dtdg_lab.graphs.snapshot import read_only

# Stack columns of numbers into one array.


def side_by_side(rows: dict[str, Any], names: Iterable[str], count: int) -> NDArray[np.float32]:
    """Return the named columns as an array of shape (E, F), float32, and remove each from ``rows`` once it is copied.

    Args:
        rows: columns of E entries.
        names: names of the F columns.
        count: E.
    """
    names = list(names)
    block = np.empty((count, len(names)), dtype=np.float32)
    for number, name in enumerate(names):
        block[:, number] = rows.pop(name)
    return read_only(block)


# Dense arrays of sparse features, limited by the size of the file's content.


_FREE_CELLS = 1 << 22
_CELLS_EACH = 500  # cells for each entry the file holds; Planetoid's citation networks have 10 to 120


def allow_cells(cells: int, value_count: int, what: str, source: str) -> None:
    """Refuse an array far larger than the file's content, before memory is allocated.

    Args:
        cells: entries the array would have.
        value_count: entries, or bytes, of the array in the file.
        what: the array, for messages.
        source: the file's name, for messages.

    Raises:
        DataError: more than 500 cells for each entry held, and more than four million.
    """
    if cells > max(_FREE_CELLS, _CELLS_EACH * value_count):
        raise DataError(
            f"{source} would need {cells:,} cells for {what}, and holds {value_count:,}; at most {_CELLS_EACH} times "
            "as many are allowed, because a damaged file could ask for any memory. Fetch the file again."
        )


def dense(
    rows: NDArray[np.int64], columns: NDArray[np.int64], values: Any, shape: tuple[int, int], source: str
) -> NDArray[np.float32]:
    """Return the matrix with ``values`` at ``rows`` and ``columns`` and zeros elsewhere, shape ``shape``, float32.

    Args:
        rows: shape (K,).
        columns: shape (K,).
        values: shape (K,), or one number.
        shape: rows and columns of the matrix.
        source: the file's name, for messages.

    Raises:
        DataError: the matrix would be far larger than the file's content, or a value is not finite.
    """
    allow_cells(shape[0] * shape[1], len(rows), "features", source)
    with np.errstate(over="ignore"):
        entries = np.asarray(values).astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(entries))
    if len(wrong):
        row, column, value = rows[wrong[0]], columns[wrong[0]], np.ravel(values)[wrong[0]]
        raise DataError(
            f"{source}: the feature in row {row}, column {column} is {value}; finite numbers are needed. Fetch the "
            "file again."
        )
    matrix = np.zeros(shape, dtype=np.float32)
    matrix[rows, columns] = entries
    return matrix


MAX_COLUMNS = 4096
BREAK = b"\0"  # stands for a line break in quotes; no text has this byte otherwise
_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*", re.MULTILINE)
_EDGES_OF_LINES = re.compile(rb"^ | $", re.MULTILINE)
_MARK = re.compile(rb"\S")
_BLANKS = re.compile(rb" {2,}")


def plain(data: bytes, source: str, *, comments: bool = False, blanks: bool = False) -> bytes:
    """Return the text with line feeds as its only line ends, and as many lines as before.

    Args:
        data: the file, uncompressed; UTF-8 or ASCII, with or without a byte order mark.
        source: the file's name, for messages.
        comments: empty the lines that start with ``#`` or ``%``.
        blanks: replace runs of spaces and tabs by one space, and remove them at the ends of lines.

    Raises:
        DataError: the file has a NUL byte, so that it is no text.
    """
    data = data.removeprefix(_BOM)
    position = data.find(b"\0")
    if position >= 0:
        number = data.count(b"\n", 0, position) + 1
        raise DataError(
            f"line {number} of {source} has a NUL byte; text is expected. The file is damaged or "
            "is not a text file: fetch it again."
        )
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if comments and (b"#" in data or b"%" in data):
        data = _COMMENT.sub(b"", data)
    return single_blanks(data) if blanks else data


def single_blanks(data: bytes) -> bytes:
    """Return the text with one space in place of spaces and tabs, and none at the ends of lines."""
    data = data.replace(b"\t", b" ") if b"\t" in data else data
    data = _BLANKS.sub(b" ", data) if b"  " in data else data
    if data[:1] == b" " or data[-1:] == b" " or b"\n " in data or b" \n" in data:
        data = _EDGES_OF_LINES.sub(b"", data)
    return data


def first_lines(text: bytes, count: int) -> list[tuple[int, bytes]]:
    """Return number and content of the first ``count`` lines that are not blank, or of fewer."""
    lines: list[tuple[int, bytes]] = []
    end = 0
    while len(lines) < count and (mark := _MARK.search(text, end)) is not None:
        start = text.rfind(b"\n", 0, mark.start()) + 1
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        lines.append((text.count(b"\n", 0, start) + 1, text[start:end].strip()))
    return lines


def line_of_row(text: bytes, row: int) -> int:
    """Return the line number, from 1, at which a row begins; rows count from 0, without blank lines."""
    ends = np.append(np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")), len(text))
    line = int(np.flatnonzero(np.diff(ends, prepend=-1) > 1)[row])
    return line + 1 + (text.count(BREAK, 0, ends[line - 1]) if line else 0)


def refuse_rows(
    wrong: NDArray[np.bool_], text: bytes, source: str, describe: Callable[[int], str], *, header: int = 0
) -> None:
    """Refuse a text with wrong rows.

    Args:
        wrong: shape (E,): mask of the wrong rows.
        text: the rows.
        source: the file's name, for messages.
        describe: returns the message on a row, after its line.
        header: lines before the text.

    Raises:
        DataError: a row is wrong; the message names the line of the first.
    """
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"line {line_of_row(text, row) + header} of {source} {describe(row)}")


def width(text: bytes, source: str, separator: bytes = b",") -> int:
    """Return the number of columns in the first line that is not blank; 0 without one.

    Raises:
        DataError: there are more than ``MAX_COLUMNS``: such a table would take far more memory than the text.
    """
    for number, line in first_lines(text, 1):
        columns = line.count(separator) + 1
        if columns > MAX_COLUMNS:
            raise DataError(f"line {number} of {source} has {columns:,} columns; at most {MAX_COLUMNS:,} are allowed.")
        return columns
    return 0


def cells(line: bytes, separator: str, *, quoted: bool = False) -> list[bytes]:
    """Split a line at separators, and remove double quotes if ``quoted``."""
    if quoted:
        with contextlib.suppress(csv.Error):
            fields = next(csv.reader([line.decode("utf-8", "surrogateescape")], delimiter=separator), [])
            return [cell.encode("utf-8", "surrogateescape") for cell in fields]
    return line.split(separator.encode())


def without_line(text: bytes, number: int) -> bytes:
    """Return the text with one line emptied, counted from 1; lines keep their numbers."""
    start = 0
    for _ in range(number - 1):
        start = text.index(b"\n", start) + 1
    end = text.find(b"\n", start)
    return text[:start] + (b"" if end < 0 else text[end:])


def shown(value: bytes | str, limit: int = 80) -> str:
    """Shorten a text for messages, and escape bytes that are not UTF-8."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    text = text.replace(BREAK.decode(), "\n")
    return repr(text if len(text) <= limit else text[:limit] + "...")


# Rows of a text file as typed columns, read by Arrow. Where Arrow refuses a file, the first bad line is searched.


_BLOCK_BYTES = 4 << 20  # Arrow reads in blocks; a line must fit one
_HEXADECIMAL = re.compile(rb"[xX]")
_MAX_NAME = 100  # characters; names are kept in a table as wide as the longest


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """The kind of a column's values.

    Attributes:
        description: allowed values, for messages.
        arrow: name of the Arrow type; empty where the column is not read.
        minimum: smallest value allowed; for text, fewest characters.
        maximum: largest value allowed; for text, most characters.
    """

    description: str
    arrow: str
    minimum: float | None = None
    maximum: float | None = None


ID = ColumnKind(f"a whole number from 0 to {MAX_ID:,} (from_csv renumbers ids of any kind)", "int64", 0, MAX_ID)
WHOLE = ColumnKind("a whole number", "int64", -(2**63), 2**63 - 1)
NUMBER = ColumnKind("a finite number", "double")
TIME = ColumnKind("a finite number, the time", "")  # read as WHOLE where all are whole, else as NUMBER
WEIGHT = ColumnKind("a finite number of at least 0 (leave weight= out for signed ratings)", "double", 0, np.inf)
FEATURE = ColumnKind("a finite number", "float")
STAMP = ColumnKind("a time such as 2014-01-31 16:39:58", "timestamp[s]")
STAMP_UTC = ColumnKind("a time such as 2014-01-31T16:39:58Z", "timestamp[s, UTC]")
NAME = ColumnKind(f"a name of 1 to {_MAX_NAME} characters", "string", 1, _MAX_NAME)
TEXT = ColumnKind("text", "string")
LABEL = ColumnKind("a class from -1 (none) to 32,767", "int64", -1, 2**15 - 1)
UNREAD = ColumnKind("anything", "")
_ANY_TIME = "a number, or a date such as 2014-01-31 (others by time_format='%d.%m.%Y'),"
OWN_ID = ColumnKind(f"an id, a number or text of 1 to {MAX_ID_LENGTH:,} characters,", "string", 1, MAX_ID_LENGTH)
OWN_TIME = ColumnKind(_ANY_TIME, "")  # read like TIME
OWN_STAMP = ColumnKind(_ANY_TIME, "timestamp[ns]")
OWN_STAMP_UTC = ColumnKind(_ANY_TIME, "timestamp[ns, UTC]")
OWN_TEXT = ColumnKind("a time as time_format says", "string", 1, 100)
_NUMBERS = (TIME, OWN_TIME)
_STAMPS = {STAMP: ("s", None), STAMP_UTC: ("s", "UTC"), OWN_STAMP: ("ns", None), OWN_STAMP_UTC: ("ns", "UTC")}
_ZONE = re.compile(rb"(Z|[+-]\d\d:?\d\d)$")


def kind_of_time(first: bytes, number: ColumnKind, stamp: ColumnKind, stamp_utc: ColumnKind) -> ColumnKind:
    """Return the kind of a column of times from its first value; all others must be of the same kind."""
    with contextlib.suppress(ValueError):
        float(first)
        return number
    if b":" not in first and b"-" not in first[1:]:
        return number
    return stamp_utc if _ZONE.search(first) else stamp


def read_rows(
    text: bytes,
    source: str,
    columns: Mapping[str, ColumnKind],
    *,
    separator: str = ",",
    quoted: bool = False,
    first_line: int = 1,
    min_rows: int = 1,
    advice: str = "Correct the line, or fetch the file again.",
    not_utf8: str = "save it in UTF-8",
) -> dict[str, Any]:
    """Return the columns of a text of rows, in the order of the file.

    Args:
        text: the rows, normalized by :func:`dtdg_lab.datasets.formats.text.plain`; blank lines are skipped.
        source: the file's name, for messages.
        columns: name and kind of every column.
        separator: the one character between columns.
        quoted: whether values may be in double quotes.
        first_line: number of the text's first line in the file.
        min_rows: fewest rows allowed.
        advice: the remedy in messages on a refused line.
        not_utf8: the message on text in another encoding.

    Returns:
        Columns by name, read-only, shape (E,): int64 for whole numbers and for times in seconds since 1970, float64 or
        float32 for numbers, datetime64 for a user's dates, an Arrow array for names and text.

    Raises:
        DataError: a line has another number of columns, or a value that its column does not allow; the message names
            the first such line. Or there are fewer rows than ``min_rows``.
    """
    from pyarrow import csv as arrow_csv

    parse = arrow_csv.ParseOptions(delimiter=separator, quote_char='"' if quoted else False)
    try:
        rows, count = _read(text, columns, parse)
    except ValueError as error:
        number, line = _bad_line(text, columns, parse)
        if not _refused(line, columns, parse):
            raise DataError(f"{source} cannot be read as rows of '{_names(columns)}': {error}. {advice}") from error
        fault = _fault(line, columns, parse, not_utf8)
        raise DataError(f"line {first_line + number} of {source} is {shown(line)}: {fault}. {advice}") from error
    if count < min_rows:
        raise DataError(
            f"{source} holds {count} rows; at least {min_rows} of '{_names(columns)}' {_with(separator)} "
            f"{'is' if min_rows == 1 else 'are'} needed. The file is empty or cut short: fetch it again."
        )
    return rows


def _read(text: Any, columns: Mapping[str, ColumnKind], parse: Any) -> tuple[dict[str, Any], int]:
    """Return the columns and the number of rows.

    Raises:
        ValueError: some value is not allowed.
    """
    if not any(kind in _NUMBERS for kind in columns.values()):
        return _read_as(text, columns, parse)
    try:
        return _read_as(text, {name: WHOLE if kind in _NUMBERS else kind for name, kind in columns.items()}, parse)
    except ValueError:
        return _read_as(text, {name: NUMBER if kind in _NUMBERS else kind for name, kind in columns.items()}, parse)


def _read_as(text: Any, columns: Mapping[str, ColumnKind], parse: Any) -> tuple[dict[str, Any], int]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    requested = {
        name: pa.timestamp(*_STAMPS[kind]) if kind in _STAMPS else pa.type_for_alias(kind.arrow)
        for name, kind in columns.items()
        if kind.arrow
    }
    if not len(text):
        return {name: np.zeros(0) for name in requested}, 0
    if not any(kind.arrow == "string" for kind in columns.values()) and _HEXADECIMAL.search(text):
        raise ValueError("0x10 is no number here, though Arrow would take it for 16")
    table = arrow_csv.read_csv(
        pa.BufferReader(pa.py_buffer(text)),
        read_options=arrow_csv.ReadOptions(column_names=list(columns), block_size=_BLOCK_BYTES),
        parse_options=parse,
        convert_options=arrow_csv.ConvertOptions(
            column_types=requested, include_columns=list(requested), null_values=[], strings_can_be_null=False
        ),
    )
    return {name: _checked(table[name], columns[name]) for name in requested}, table.num_rows


def _checked(column: Any, kind: ColumnKind) -> Any:
    """Check the values of a column, and return it as numpy, or as Arrow for text."""
    import pyarrow.compute as pc

    if kind.arrow == "string":
        column = pc.utf8_trim_whitespace(column)
        values = pc.utf8_length(column).to_numpy() if kind.maximum is not None else np.zeros(0)
    else:
        values = column.to_numpy()
        if kind in (STAMP, STAMP_UTC):
            values = values.astype("datetime64[s]").astype(np.int64)
        column = read_only(values)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    if kind.minimum is not None and kind.maximum is not None and len(values):
        smallest, largest = values.min(), values.max()
        if smallest < kind.minimum or largest > kind.maximum:
            raise ValueError(f"{smallest} to {largest} is outside {kind.description}")
    return column


def _bad_line(text: bytes, columns: Mapping[str, ColumnKind], parse: Any) -> tuple[int, bytes]:
    """Return the number, from 0, and the content of the first line that Arrow refuses, found by halving the text."""
    view = memoryview(text)
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")) + 1
    starts = np.concatenate([[0], ends, [len(text)] if not len(ends) or ends[-1] < len(text) else []]).astype(np.int64)
    low, high = 0, len(starts) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _refused(view[starts[low] : starts[middle]], columns, parse):
            high = middle
        else:
            low = middle
    return low + text.count(BREAK, 0, starts[low]), bytes(view[starts[low] : starts[high]]).strip(b"\n")


def _refused(text: Any, columns: Mapping[str, ColumnKind], parse: Any) -> bool:
    try:
        _read(text, columns, parse)
    except ValueError:
        return True
    return False


def _fault(line: bytes, columns: Mapping[str, ColumnKind], parse: Any, not_utf8: str) -> str:
    """Describe the fault of a refused line."""
    separator, quoted = parse.delimiter, bool(parse.quote_char)
    if quoted and line.count(b'"') % 2:
        return "it has a quotation mark that is never closed"
    fields = [field.strip() for field in cells(line, separator, quoted=quoted)]
    if len(fields) != len(columns):
        return f"it has {len(fields)} columns; {len(columns)} are needed, '{_names(columns)}' {_with(separator)}"
    for number, (field, (name, kind)) in enumerate(zip(fields, columns.items(), strict=True), start=1):
        alone = b'"' + field.replace(b'"', b'""') + b'"' if quoted else field
        empty = not field and kind not in (TEXT, UNREAD)
        if empty or (kind is not UNREAD and _refused(alone, {name: kind}, parse)):
            return f"column {number} ({name}) is {shown(field)}; {_remedy(field, {name: kind}, parse, not_utf8)}"
    return f"it cannot be read; '{_names(columns)}' {_with(separator)} is allowed"


_DECIMAL_COMMA = re.compile(rb"-?\d+,\d+")


def _remedy(field: bytes, column: Mapping[str, ColumnKind], parse: Any, not_utf8: str) -> str:
    """Describe why a value is refused, or the allowed values of its column."""
    ((name, kind),) = column.items()
    if kind.arrow == "string" and not is_utf8(field):
        return f"it is not text in UTF-8 but reads {shown(field.decode('latin-1'))} in Latin-1: {not_utf8}"
    if _DECIMAL_COMMA.fullmatch(field) and (kind in _NUMBERS or kind.arrow == "double"):
        return "it has a decimal comma; write a point"
    if kind in (OWN_STAMP, OWN_STAMP_UTC):
        zoned = kind is OWN_STAMP_UTC
        if not _refused(field, {name: OWN_STAMP if zoned else OWN_STAMP_UTC}, parse):
            return f"it has {'no' if zoned else 'a'} time zone, and the first row has {'one' if zoned else 'none'}"
        if not _refused(field, {name: STAMP_UTC if zoned else STAMP}, parse):
            return OUT_OF_RANGE.rstrip(".")
    return f"{kind.description} is allowed"


def is_utf8(text: bytes) -> bool:
    """Return True if bytes are text in UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _names(columns: Mapping[str, ColumnKind]) -> str:
    names = list(columns)
    return " ".join(names if len(names) <= 8 else [*names[:6], "...", names[-1]])


def _with(separator: str) -> str:
    separator_names = {" ": "spaces or tabs", ",": "commas", "\t": "tabs"}
    return f"separated by {separator_names.get(separator, repr(separator))}"


# The first line of a text with named columns.


def split_header(text: bytes, source: str, separator: str = ",") -> tuple[list[str], bytes]:
    """Return the names in the first line, without blanks and quotes around them, and the lines after it.

    Raises:
        DataError: the text is empty, ends with its first line, or the line is not UTF-8.
    """
    width(text, source, separator.encode())
    head, _, body = text.partition(b"\n")
    try:
        names = [name.strip().strip('"') for name in head.decode().split(separator)]
    except UnicodeDecodeError as error:
        raise DataError(f"line 1 of {source} is {shown(head)}; names of columns, in UTF-8, are expected.") from error
    if not body or body.isspace():
        raise DataError(
            f"{source} holds no rows: {'it is empty' if not head else f'its only line is {shown(head)}'}. A line of "
            "names of columns and rows after it are needed: fetch the file again."
        )
    return names, body


def columns_of(
    names: list[str], requested: Mapping[str, tuple[ColumnKind, tuple[str, ...]]], source: str
) -> dict[str, ColumnKind]:
    """Return the columns for :func:`read_rows`: the requested ones with their kinds, the others unread.

    Args:
        names: the names in the header.
        requested: for each column its kind and the names it may have; the first present is used. Case is ignored.
        source: the file's name, for messages.

    Raises:
        DataError: a column is missing, or its name occurs twice.
    """
    lower = [name.lower() for name in names]
    columns: list[tuple[str, ColumnKind]] = [(f"{number} {name}", UNREAD) for number, name in enumerate(names, start=1)]
    for column, (kind, spellings) in requested.items():
        called = next((spelling for spelling in spellings if spelling.lower() in lower), None)
        if called is None:
            raise DataError(
                f"line 1 of {source} has the columns {shown(', '.join(names), 200)}; none is {column}, which may be "
                f"called {', '.join(spellings)}. Rename the column, or fetch the file again."
            )
        if lower.count(called.lower()) > 1:
            raise DataError(f"line 1 of {source} has {lower.count(called.lower())} columns {called!r}; one is needed.")
        columns[lower.index(called.lower())] = (column, kind)
    return dict(columns)


def named_rows(
    data: bytes, source: str, columns: Mapping[str, tuple[ColumnKind, tuple[str, ...]]], **reading: Any
) -> tuple[dict[str, Any], bytes]:
    """Return the requested columns of a text with a header, and the rows under the header.

    Args:
        data: the file, uncompressed.
        source: its name, for messages.
        columns: the requested columns, as for :func:`columns_of`.
        **reading: arguments of :func:`read_rows`.

    Raises:
        DataError: a column is missing, or a line has other columns or values.
    """
    names, body = split_header(plain(data, source), source, reading.get("separator", ","))
    return read_rows(body, source, columns_of(names, columns, source), first_line=2, **reading), body


def codes_of_words(
    texts: Any, codes: Mapping[str, int], called: Callable[[str], str], body: bytes, source: str
) -> NDArray[np.int64]:
    """Return the code of every word of a column under a header, shape (E,).

    Args:
        texts: the column, as an Arrow array of text.
        codes: word -> code.
        called: the message's words for an unknown word.
        body: the rows under the header.
        source: the file's name, for messages.

    Raises:
        DataError: a word has no code; the message names the line.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    places = pc.index_in(texts, value_set=pa.array(list(codes)))
    unknown = np.asarray(pc.is_null(places))
    refuse_rows(unknown, body, source, lambda row: called(shown(texts[row].as_py())), header=1)
    return np.array(list(codes.values()), dtype=np.int64)[places.to_numpy()]


# Number named nodes in the order of their names.


def numbered(src: Any, dst: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """Number the names of sources and targets 0 .. N - 1.

    Args:
        src: names of the E sources, as an Arrow array of text.
        dst: names of the targets.

    Returns:
        Sources and targets as numbers, shape (E,) each, and the names, shape (N,), sorted: int64 where every name
        is the usual spelling of a whole number, else text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    both = pa.chunked_array([*src.chunks, *dst.chunks], type=pa.string())
    names = pc.unique(both)
    integers = _whole(names)
    names = names.take(pc.sort_indices(names if integers is None else integers))
    numbers = pc.index_in(both, value_set=names).to_numpy().astype(np.int64)
    ids = np.array(names.to_pylist()) if integers is None else np.sort(integers.to_numpy())
    return read_only(numbers[: len(src)]), read_only(numbers[len(src) :]), read_only(ids)


def distinct_ids(names: Any, *, as_text: bool = False) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct ids of a column, and the position of every row's id among them.

    Args:
        names: E ids, as an Arrow array of text.
        as_text: whether whole numbers stay text.

    Returns:
        The ids, rising: int64 where all are whole numbers, also ``1.0`` or ``1e5``, but not ``007``; else text. And
        positions, shape (E,).
    """
    import pyarrow.compute as pc

    written = pc.unique(names)
    positions = pc.index_in(names, value_set=written).to_numpy().astype(np.int64)
    integers = None if as_text else _whole(_spelled_as_integers(written))
    names_of_text = (name.replace(BREAK.decode(), "\n") for name in written.to_pylist())
    values = np.array(list(names_of_text)) if integers is None else integers.to_numpy()
    ids, order = np.unique(values, return_inverse=True)  # 1 and 1.0 are one id
    return ids, order[positions]


_EXPONENT = r"^[+-]?\d+(\.\d*)?[eE]\+?\d{1,2}$"


def _spelled_as_integers(names: Any) -> Any:
    """Return names with whole numbers such as ``1.0``, ``+1``, ``-0`` and ``1e5`` in their usual spelling."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.match_substring_regex(names, _EXPONENT)).as_py():
        names = pa.array([_without_exponent(name) if re.match(_EXPONENT, name) else name for name in names.to_pylist()])
    for pattern, usual in ((r"^([+-]?\d+)\.0*$", r"\1"), (r"^\+(\d+)$", r"\1"), (r"^-0$", "0")):
        names = pc.replace_substring_regex(names, pattern, usual)
    return names


def _without_exponent(name: str) -> str:
    number = Decimal(name)
    return str(int(number)) if number % 1 == 0 else name


def _whole(names: Any) -> Any:
    """Return the names as whole numbers; None where a name is no number, or has another spelling (``007``)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        integers = pc.cast(names, pa.int64())
    except pa.ArrowInvalid:
        return None
    return integers if pc.all(pc.equal(pc.cast(integers, pa.string()), names)).as_py() else None


# Bipartite files number both sides from the same number on. The second side is shifted past the first.


def shifted(users: NDArray[np.int64], items: NDArray[np.int64], source: str) -> NDArray[np.int64]:
    """Return the items, shape (E,), with the largest user + 1 added, so that no item is a user.

    Args:
        users: shape (E,), E at least 1.
        items: shape (E,).
        source: the file's name, for messages.

    Raises:
        DataError: the largest shifted id exceeds 2^31 - 1.
    """
    moved = items + (int(users.max()) + 1)
    if moved.max() > MAX_ID:
        raise DataError(
            f"{source} numbers one side to {users.max():,} and the other to {items.max():,}; together at most "
            f"{MAX_ID:,} is allowed. Renumber the nodes, for example with from_csv."
        )
    return read_only(moved)


# Undirected links as edges: each in both directions, without repeats and links of a node to itself.


def doubled(src: NDArray[np.int64], dst: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sources and targets of the distinct edges, 2E in all, sorted by source, then target.

    Args:
        src: shape (K,), one end of each link, 0 .. 2^31 - 1; a link may be given in one direction or in both.
        dst: shape (K,), the other end.
    """
    apart = src != dst
    src, dst = src[apart], dst[apart]
    keys = np.unique(np.concatenate([src << 32 | dst, dst << 32 | src]))
    return read_only(keys >> 32), read_only(keys & (2**32 - 1))
