"""The user's own edges from a text file with one edge a line."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.core.options import Option
from dtdg_lab.core.paths import as_path
from dtdg_lab.datasets.arguments import check_column, different_columns, known_only
from dtdg_lab.datasets.contents import content
from dtdg_lab.datasets.formats.names import numbered
from dtdg_lab.datasets.formats.text import MAX_COLUMNS, first_lines, plain, shown, without_line
from dtdg_lab.datasets.own import built, cut_own, from_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.edge_vectors import MAX_ID_LENGTH

Column = int | str
_BLOCK_BYTES = 4 << 20  # Arrow reads in blocks; a line must fit one
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how such files begin
_HEADER = Option(name="header", owner="datasets", kind=bool, default=False, meaning="Whether the first line has names.")
_CUTTING = ("cut", "cut_by", "interval", "drop_first", "drop_partial")


def from_csv(
    path: str | Path,
    src: Column = 0,
    dst: Column = 1,
    time: Column = 2,
    weight: Column | None = None,
    *,
    sep: str = ",",
    header: bool | None = None,
    features: Any = None,
    labels: Any = None,
    name: str | None = None,
    **cutting: Any,
) -> DynamicGraph:
    """A dynamic graph from a text file with one edge a line; plain, gzip, bzip2, or the only file in a zip or tar.

    Ids may be anything of up to 1,000 characters: where all of them are whole numbers below 2^63 they are ordered as
    numbers, else as text. Vertices are numbered anew in that order, so that numbers may be as large or as far apart as
    they like; ``graph.node_ids`` keeps them.
    Times are numbers, or dates such as 2014-01-31 or 2014-01-31T16:39:58Z, which count in nanoseconds. Values may be
    in double quotes; blank lines are skipped.

    Args:
        path: the file.
        src: column of the sources: its number, from 0, or its name in the header.
        dst: column of the targets.
        time: column of the times.
        weight: column of the weights, finite numbers of at least 0; None where edges carry none.
        sep: the character between columns; a space stands for any number of spaces and tabs.
        header: whether the first line has names. None: it has, where a column is given by name.
        features: as :func:`from_edges` takes them.
        labels: as :func:`from_edges` takes them.
        name: what runs and reports call the graph; by default the file's name.
        **cutting: ``cut=n`` or ``interval=x``, and the other options of :func:`from_edges`.

    Raises:
        DataError: the file cannot be read, lacks a column, or has a value that is not allowed: the message names the
            file and the line. Or the edges cannot be cut.
        ConfigError: an option is out of its bounds.
    """
    known_only(cutting, from_csv, from_edges)
    path = as_path(path, "path")
    wanted: dict[str, Any] = {"src": src, "dst": dst, "time": time}
    if weight is not None:
        wanted["weight"] = weight
    for key, column in wanted.items():
        check_column(key, column)
    named = any(isinstance(column, str) for column in wanted.values())
    table = _Table(path, sep, named if header is None else _HEADER.check(header))
    columns = table.columns(wanted)
    sources, targets, node_ids = numbered(columns["src"], columns["dst"])
    times = table.converted("time", columns, _time_reader(columns["time"]), "a number, or a date such as 2014-01-31,")
    weights = None
    if weight is not None:
        weights = table.converted("weight", columns, _as_weights, "a finite number of at least 0")
    for_cutting = {key: cutting.pop(key) for key in _CUTTING if key in cutting}
    edges = cut_own(sources, targets, times, weights, node_ids=node_ids, **for_cutting)
    source = f"file {path.name} in {path.absolute().parent}"
    return built(edges, features, labels, name=path.name if name is None else name, source=source, **cutting)


class _Table:
    """A text file as columns of text, which knows the line of every row.

    Args:
        path: the file.
        sep: the character between columns.
        header: whether the first line has names.

    Raises:
        DataError: it cannot be read, or holds no rows.
    """

    def __init__(self, path: Path, sep: str, header: bool) -> None:
        if not isinstance(sep, str) or len(sep) != 1 or not sep.isascii() or sep in '"\n\r\0':
            raise DataError(f"sep={shortened(sep)}; one character is needed, such as ',', ';', a tab or a space.")
        if not os.path.isfile(path):
            raise DataError(f"{str(path)[:500]} is not a file. Give the path of a text file with one edge a line.")
        data, self.where = content(path)
        if data.startswith(_UTF_16):
            raise DataError(f"{self.where} is text in UTF-16; UTF-8 is needed. Save it again in that encoding.")
        self._sep, self._text = sep, plain(data, self.where, blanks=sep == " ")
        heads = first_lines(self._text, 1)
        self._line = heads[0][0] if heads else 1  # of the first row, or of the header
        self._first = self._decoded(heads[0][1]) if heads else ""
        first = self._cells(self._first) if heads else []
        self._width, self._header = len(first), [cell.strip() for cell in first] if header else None
        if self._width > MAX_COLUMNS:
            raise DataError(
                f"line {self._line} of {self.where} has {self._width:,} columns; at most {MAX_COLUMNS:,} are allowed. "
                "One edge a line is needed."
            )
        if header and heads:
            self._text = without_line(self._text, heads[0][0])
        if not self._text.strip():
            raise DataError(f"{self.where} holds no rows{' under its header' if header and heads else ''}.")

    def columns(self, wanted: dict[str, Column]) -> dict[str, Any]:
        """The columns asked for, as Arrow text without blanks around it.

        Raises:
            DataError: one is missing, a line has another number of columns, or an id is empty or very long.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import csv as arrow_csv

        numbers = {key: self._place(key, column) for key, column in wanted.items()}
        different_columns(numbers)
        places = {key: str(number) for key, number in numbers.items()}
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(pa.py_buffer(self._text)),
                read_options=arrow_csv.ReadOptions(
                    column_names=[str(place) for place in range(self._width)], block_size=_BLOCK_BYTES
                ),
                parse_options=arrow_csv.ParseOptions(delimiter=self._sep),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(places.values(), pa.string()), strings_can_be_null=False,
                    include_columns=list(dict.fromkeys(places.values())),
                ),
            )  # fmt: skip
        except pa.ArrowInvalid as error:
            raise self._bad_shape(error) from error
        found = {key: pc.utf8_trim_whitespace(table[place]) for key, place in places.items()}
        for key in ("src", "dst"):
            empty = pc.index(found[key], "").as_py()
            if empty >= 0:
                raise self._bad_value(key, empty, "", "an id, a number or text,")
            lengths = pc.utf8_length(found[key])
            longest = pc.max(lengths).as_py() or 0
            if longest > MAX_ID_LENGTH:
                place = pc.index(lengths, longest).as_py()
                raise self._bad_value(
                    key, place, found[key][place].as_py(), f"an id of at most {MAX_ID_LENGTH:,} characters"
                )
        return found

    def converted(
        self, key: str, columns: dict[str, Any], convert: Callable[[Any], NDArray[Any]], allowed: str
    ) -> NDArray[Any]:
        """A column in another type.

        Raises:
            DataError: a value cannot be converted; the line of the first is named.
        """
        column = columns[key]
        try:
            return convert(column)
        except ValueError as error:
            low, high = 0, len(column)  # the first refused value lies there
            while high - low > 1:
                middle = (low + high) // 2
                try:
                    convert(column[low:middle])
                    low = middle
                except ValueError:
                    high = middle
            raise self._bad_value(key, low, column[low].as_py(), allowed) from error

    def _cells(self, line: str) -> list[str]:
        """The cells of the first line."""
        try:
            return next(csv.reader([line], delimiter=self._sep))
        except csv.Error as error:
            raise self._unreadable(self._line, error) from error

    def _unreadable(self, line: int, error: Exception) -> DataError:
        return DataError(
            f"line {line} of {self.where} cannot be read: {error}. One edge a line is needed, with columns separated "
            f"by {self._sep!r}; look for a quotation mark that is never closed, or give another sep."
        )

    def _place(self, key: str, column: Column) -> int:
        names = self._header
        if isinstance(column, str):
            if names is None or names.count(column) != 1:
                has = f"the columns {shown(', '.join(names), 200)}" if names is not None else "no header (header=False)"
                raise DataError(
                    f"line {self._line} of {self.where}: {key}={column!r}, and it has {has}. Give the name of one "
                    "column, or its number, from 0."
                )
            return names.index(column)
        if not 0 <= column < self._width:
            raise DataError(
                f"line {self._line} of {self.where} has {self._width} columns: {key}={column!r} is none of 0 to "
                f"{self._width - 1}. Give another column, or another sep than {self._sep!r}; the line is "
                f"{shown(self._first)}."
            )
        return int(column)

    def _bad_shape(self, error: Exception) -> DataError:
        for line, row in self._rows():
            if len(row) != self._width:
                return DataError(
                    f"line {line} of {self.where} is {shown(self._sep.join(row))}: it has {len(row)} columns where the "
                    f"first line has {self._width}. Correct the line, or give another sep than {self._sep!r}."
                )
        return DataError(f"{self.where} cannot be read: {error}. Correct the file.")

    def _bad_value(self, key: str, place: int, found: str, allowed: str) -> DataError:
        line = next((line for number, (line, _) in enumerate(self._rows()) if number == place), 0)
        return DataError(
            f"line {line} of {self.where} has {shown(found)} as {key}; {allowed} is needed. Correct the line"
            f"{', or give header=True where that is a name' if place == 0 and self._header is None else ''}."
        )

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of every row, slowly: only for messages."""
        reader = csv.reader(io.StringIO(self._text.decode("utf-8", "replace")), delimiter=self._sep)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise self._unreadable(reader.line_num, error) from error

    def _decoded(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"line {self._line} of {self.where} is {shown(line)}; text in UTF-8 is needed.") from error


def _as_weights(column: Any) -> NDArray[np.float64]:
    """Weights: finite numbers of at least 0.

    Raises:
        ValueError: one is not.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    array: NDArray[np.float64] = pc.cast(column, pa.float64()).to_numpy()
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError("a weight is not finite, or below 0")
    return array


def _time_reader(column: Any) -> Callable[[Any], NDArray[Any]]:
    """What reads the times of a column: its first value says of which kind they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def numbers(part: Any) -> NDArray[Any]:
        try:
            return np.asarray(pc.cast(part, pa.int64()).to_numpy())
        except pa.ArrowInvalid:
            array: NDArray[Any] = pc.cast(part, pa.float64()).to_numpy()
            if not np.isfinite(array).all():
                raise ValueError("a time is not finite") from None
            return array

    def dates(part: Any) -> NDArray[Any]:
        zone = "UTC" if pc.any(pc.match_substring_regex(part, r"(Z|[+-]\d\d:?\d\d)$")).as_py() else None
        return np.asarray(pc.cast(part, pa.timestamp("ns", tz=zone)).to_numpy())

    try:
        numbers(column[:1])
    except ValueError:
        return dates
    return numbers
