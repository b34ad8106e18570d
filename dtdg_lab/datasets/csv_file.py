"""Read a dynamic graph from a text file with one edge a line."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.options import Option
from dtdg_lab.core.errors import ConfigError, DataError, shortened
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.archives import ArchiveMembers, unpacked
from dtdg_lab.datasets.formats import text as txt
from dtdg_lab.datasets.tables import warn_of_two_kinds
from dtdg_lab.datasets.user_data import (
    BIPARTITE,
    check_folder,
    different_columns,
    from_edges,
    from_vectors,
    known_only,
)
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.edge_list import MISSING_WORDS, NO_EDGE_VECTORS, missing_id
from dtdg_lab.graphs.edge_times import UNITS, parse_times
from dtdg_lab.graphs.node_numbers import number_nodes

Column = int | str
AUTO = "auto"
_COMMENTS = ("#", "%", "//")
_SKIPPED = Option(
    name="skip_footer", owner="datasets", kind=int, default=0, low=0, meaning="How many of the last lines are no rows."
)
_HEADER = Option(name="header", owner="datasets", kind=bool, default=False, meaning="Whether the first line has names.")


def from_csv(
    path: str | Path,
    src: Column = 0,
    dst: Column = 1,
    time: Column = 2,
    weight: Column | None = None,
    *,
    sep: str = ",",
    header: bool | None = None,
    comment: str | Sequence[str] | None = AUTO,
    skip_footer: int | None = None,
    encoding: str = "utf-8",
    member: str | None = None,
    features: Any = None,
    labels: Any = None,
    name: str | None = None,
    **cutting: Any,
) -> DynamicGraph:
    """Return a dynamic graph of a text file with one edge a line; plain or packed, or a file in a zip or tar.

    Ids may be anything of up to 1,000 characters. A column whose ids are whole numbers below 2^63 in every row, ``1.0``
    included, holds whole numbers; where both columns do, nodes are ordered as numbers, else as text. Nodes are
    renumbered in that order; ``graph.node_ids`` keeps their ids. Words for missing values, such as ``NA``, are refused.
    Times are numbers, or dates such as 2014-01-31 or 2014-01-31T16:39:58Z; others by ``time_format``. Values may be
    in double quotes, with line breaks in them; blank lines are skipped. gzip, bzip2, xz, zstd and lz4 are unpacked.

    Args:
        path: the file.
        src: column of the sources: its number, from 0, or its name in the header.
        dst: column of the targets.
        time: column of the times.
        weight: column of the weights, finite numbers of at least 0; None where edges carry none.
        sep: the text between columns, mostly one character; a space stands for any number of spaces and tabs.
        header: whether the first line has names. None: it has, where a column is given by name. The last comment
            line before the rows may have them, too.
        comment: the beginning of comment lines, which are skipped; one text or several. ``auto``: ``#``, ``%`` or
            ``//``, but a line that has the columns of a row, such as ``#tag,bob,3``, is refused. None: no comments.
        skip_footer: number of last lines that are no rows. None: 0, but lines that look like a footer, such as
            ``Total,60,61``, are refused.
        encoding: of the text, as Python calls it.
        member: the file in an archive: its name, or a pattern such as ``"*.csv"``. None: the only table; files such as
            README, LICENSE and ``meta.*`` are no tables.
        features: as in :func:`from_edges`.
        labels: as in :func:`from_edges`.
        name: the graph's name in runs and reports; by default the file's name.
        **cutting: ``cut=n`` or ``interval=x``, and the other options of :func:`from_edges`. The calendar of dates with
            an offset, such as +02:00, is that of the first row.

    Raises:
        DataError: the file cannot be read, lacks a column, or has a value that is not allowed; the message names the
            file and the line. Or the edges cannot be cut.
        ConfigError: an option is out of its bounds.
    """
    known_only(cutting, from_csv, from_edges)
    check_folder(cutting.get("folder"))
    path = as_path(path, "path")
    columns: dict[str, Any] = {"src": src, "dst": dst, "time": time}
    if weight is not None:
        columns["weight"] = weight
    for key, column in columns.items():
        _check_column(key, column)
    time_format = cutting.get("time_format")
    if isinstance(time_format, str) and time_format not in UNITS:
        del cutting["time_format"]  # texts are parsed here, where lines are known
    else:
        time_format = None
    skipped = 0 if skip_footer is None else _SKIPPED.check(skip_footer)
    file = _TextFile(path, sep=sep, comment=comment, encoding=encoding, member=member, skipped=skipped)
    rows = file.read(columns, header, time_format)
    bipartite, nodes = cutting.pop("bipartite", None), cutting.pop("nodes", None)
    sides = [file.ids_of(rows[role]) for role in ("src", "dst")]
    for role, (ids, positions) in zip(("src", "dst"), sides, strict=True):
        _refuse_missing(role, ids, positions, file)
    if skip_footer is None:
        _refuse_footer(sides, file)
    names = (file.column_name(src, "src"), file.column_name(dst, "dst"))
    sources, targets, node_ids = _number(rows, file, sides, bipartite=bipartite, nodes=nodes, names=names)
    return from_vectors(
        sources,
        targets,
        rows["time"],
        rows.get("weight"),
        node_ids=node_ids,
        source=f"file {path.name} in {path.absolute().parent}",
        features=features,
        labels=labels,
        name=path.name if name is None else name,
        **cutting,
    )


def _check_column(role: str, column: Any) -> None:
    """Raise DataError if a column is neither a whole number nor text."""
    if role == "weight" and isinstance(column, list | tuple):
        raise DataError(f"weight={shortened(column)} are several columns. {NO_EDGE_VECTORS}")
    if isinstance(column, bool) or not isinstance(column, (int, str, np.integer)):
        raise DataError(
            f"{role}={shortened(column)} is of type {type(column).__name__}; a column is its number, from 0, or its "
            "name in the header."
        )


# The text of the file: the member of an archive, its encoding, its comments and its line breaks.


_UNIT_SEPARATOR = "\x1f"  # stands for a separator of several characters, which the reader of rows does not take


class _TextFile:
    """A text file with one edge a line.

    Args:
        path: the file, or the archive that holds it.
        sep: the text between columns.
        comment: the beginning of comment lines.
        encoding: encoding of the text.
        member: the file of an archive; None for the only table.
        skipped: number of last lines that are no rows.
    """

    def __init__(
        self,
        path: Path,
        *,
        sep: str,
        comment: str | Sequence[str] | None,
        encoding: str,
        member: str | None,
        skipped: int,
    ) -> None:
        if not isinstance(sep, str) or not sep or not sep.isascii() or set(sep) & set('"\n\r\0'):
            raise DataError(
                f"sep={shortened(sep)}; the text between columns is needed, such as ',', ';', '::', a tab or a space."
            )
        if not os.path.isfile(path):
            raise DataError(f"{str(path)[:500]} is not a file. Give the path of a text file with one edge a line.")
        self.sep, self._written_sep = (sep if len(sep) == 1 else _UNIT_SEPARATOR), sep
        self._names: list[str] = []
        data, self.where = _content(path, member)
        _refuse_other_kinds(data, self.where)
        marks = _comment_marks(comment)
        text = txt.plain(_as_utf8(data, self.where, encoding), self.where)
        text = _join_quoted_lines(text.replace(sep.encode(), self.sep.encode()), self.sep, self.where)
        head = _last_head_comment(text, marks)
        if marks:
            comment_line = re.compile(rb"^[ \t]*(?:%s)[^\n]*" % b"|".join(map(re.escape, marks)), re.MULTILINE)
            if comment == AUTO:
                _refuse_rows_as_comments(text, comment_line, marks, self.sep, self.where)
            text = comment_line.sub(b"", text)
        text = _without_last_lines(text, skipped)
        self.text, self.head = (txt.single_blanks(text), txt.single_blanks(head)) if sep == " " else (text, head)
        self._encoding = encoding

    def read(
        self, wanted_columns: Mapping[str, Column], header: bool | None, time_format: str | None
    ) -> dict[str, Any]:
        """Return the requested columns: ids as Arrow text, weights as numpy, times as numpy or pandas.

        Raises:
            DataError: there are no rows, a column is missing, or a value is not allowed; the message names the line.
        """
        named = any(isinstance(column, str) for column in wanted_columns.values())
        header = named if header is None else _HEADER.check(header)
        positions = self._positions(wanted_columns, header)
        rows = txt.first_lines(self.text, 1)
        if not rows:
            raise DataError(f"{self.where} holds no rows{' under its header' if header else ''}.")
        different_columns(positions)
        txt.width(self.text, self.where, self.sep.encode())
        first_row = txt.cells(rows[0][1], self.sep, quoted=True)
        first_time = first_row[positions["time"]].strip() if positions["time"] < len(first_row) else b""
        kind_of_time = txt.kind_of_time(first_time, txt.OWN_TIME, txt.OWN_STAMP, txt.OWN_STAMP_UTC)
        kinds = {
            "src": txt.OWN_ID,
            "dst": txt.OWN_ID,
            "time": kind_of_time if time_format is None else txt.OWN_TEXT,
            "weight": txt.WEIGHT,
        }
        roles = {position: role for role, position in positions.items()}
        width = max(len(first_row), *(position + 1 for position in positions.values()))
        columns = [roles.get(position, f"column {position}") for position in range(width)]
        advice = f"Correct the line, or give another sep than {self.sep!r}"
        advice += "." if header else ", or header=True where the first line has names."
        read = txt.read_rows(
            self.text,
            self.where,
            {name: kinds.get(name, txt.UNREAD) for name in columns},
            separator=self.sep,
            quoted=True,
            advice=advice,
            not_utf8=f"give encoding='latin-1', or the encoding the file was saved in, in place of {self._encoding!r}",
        )
        if time_format is not None:
            read["time"] = parse_times(read["time"].to_pandas(), time_format, lambda row: f"{self.line(row)}: time")
        elif kind_of_time is txt.OWN_STAMP_UTC:
            read["time"] = _with_zone(read["time"], first_time)
        return read

    def ids_of(self, column: Any, *, as_text: bool = False) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the distinct ids of a column, and every row's position among them; see ``txt.distinct_ids``."""
        ids, positions = txt.distinct_ids(column, as_text=as_text)
        if self.sep == _UNIT_SEPARATOR and ids.dtype.kind == "U":
            ids = np.char.replace(ids, self.sep, self._written_sep)  # in quotes
        return ids, positions

    def column_name(self, column: Column, role: str) -> str:
        """Return the name of a column, or its role where it has no name."""
        if isinstance(column, str):
            return column
        return self._names[column] if column < len(self._names) else role

    def line(self, row: int) -> str:
        """Describe the line of a row, counted from 0, for messages."""
        return f"line {txt.line_of_row(self.text, row)} of {self.where}"

    def _positions(self, columns: Mapping[str, Column], header: bool) -> dict[str, int]:
        """Return the position of every column from 0, and remove the header from the text."""
        positions: dict[str, int] = {}
        for number, line in txt.first_lines(self.text, 1):
            names, source = _names_in(line, self.sep), f"line {number} of {self.where}"
            if header and not set(_texts(columns)) <= set(names):
                in_comment = _names_in(self.head, self.sep)
                if set(_texts(columns)) <= set(in_comment):
                    self._names = in_comment
                    return {
                        role: _position(role, column, in_comment, header=True, sep=self.sep, source=source)
                        for role, column in columns.items()
                    }
            positions = {
                role: _position(role, column, names, header=header, sep=self.sep, source=source)
                for role, column in columns.items()
            }
            if header:
                self._names = names
                self.text = txt.without_line(self.text, number)
        return positions


def _texts(columns: Mapping[str, Column]) -> list[str]:
    return [column for column in columns.values() if isinstance(column, str)]


def _names_in(line: bytes, sep: str) -> list[str]:
    return [cell.strip().decode("utf-8", "replace") for cell in txt.cells(line, sep, quoted=True)]


def _position(role: str, column: Column, names: list[str], *, header: bool, sep: str, source: str) -> int:
    """Return the position of a column, from 0, among those of the first line."""
    if isinstance(column, str):
        if not header or names.count(column) != 1:
            has = f"the columns {txt.shown(', '.join(names), 200)}" if header else "no header (header=False)"
            raise DataError(
                f"{source}: {role}={column!r}, and it has {has}. Give the name of one column, or its number, from 0."
            )
        return names.index(column)
    if not 0 <= column < len(names):
        line = sep.join(names)
        raise DataError(
            f"{source} has {len(names)} columns: {role}={column!r} is none of 0 to {len(names) - 1}. "
            f"{_other_separator(line, column, sep)}; the line is {txt.shown(line)}."
        )
    return int(column)


def _other_separator(line: str, column: int, sep: str) -> str:
    """Suggest a separator that splits the line into enough columns, if there is one."""
    for separator, description in (
        (",", "','"),
        ("\t", "'\\t'"),
        (";", "';'"),
        ("::", "'::'"),
        ("|", "'|'"),
        (" ", "' '"),
    ):
        if separator != sep and len(line.split(separator) if separator != " " else line.split()) > column:
            return f"Give another column, or another sep than {sep!r}, such as sep={description}"
    return f"Give another column, or another sep than {sep!r}"


# The file of an archive, and its kind.


_NO_TABLES = (
    "readme*",
    "read_me*",
    "license*",
    "licence*",
    "copying*",
    "citation*",
    "changelog*",
    "meta.*",
    "ent.*",
    ".*",
    "*.md",
    "*.pdf",
    "*.htm",
    "*.html",
    "*.xml",
    "*.yml",
    "*.yaml",
    "*.toml",
    "*.bib",
    "*.tex",
    "*.docx",
    "*.png",
    "*.jpg",
    "*.svg",
    "*.py",
    "*.m",
    "*.r",
    "*.sh",
    "*.ipynb",
)
_BINARY_KINDS = (  # how files begin that are no text
    (b"PAR1", "a Parquet file: use from_parquet"),
    (b"ARROW1", "an Arrow or Feather file: use from_pandas(pandas.read_feather(path))"),
    (b"ORC", "an ORC file: use from_pandas(pandas.read_orc(path))"),
    (b"\x89HDF\r\n", "an HDF5 file: use from_pandas(pandas.read_hdf(path))"),
    (b"\x93NUMPY", "a NumPy file: use from_edges with the columns of numpy.load(path)"),
    (b"SQLite format 3\0", "a database of SQLite: use from_pandas(pandas.read_sql(query, connection))"),
    (b"\xd0\xcf\x11\xe0", "a workbook of Excel: use from_pandas(pandas.read_excel(path))"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it before"),
    (b"Rar!\x1a", "a RAR archive: unpack it before"),
    (b"\x1f\x9d", "packed by compress (.Z): unpack it before"),
    *(
        (b"\x80" + bytes([protocol]), "a pickle: load it yourself if you trust it, and use from_edges or from_pandas")
        for protocol in range(2, 6)
    ),
)
_TEXT_KINDS = (  # how texts begin that have no edge a line, in small letters
    (b"%pdf-", "a PDF document"),
    (b"%%matrixmarket", "a matrix in Matrix Market format: read it with scipy.io.mmread, and use from_edges"),
    (b"version https://git-lfs", "a pointer of Git LFS, not the file itself: call git lfs pull, or download it again"),
    (b"<!doctype html", "a web page, not a table: the download saved a page in its place"),
    (b"<html", "a web page, not a table: the download saved a page in its place"),
    (b"<?xml", "an XML document, such as GraphML: read it with networkx, and use from_edges"),
    (b"*vertices", "a graph in Pajek format: read it with networkx.read_pajek, and use from_edges"),
    (b"graph [", "a graph in GML: read it with networkx.read_gml, and use from_edges"),
    (b'{"', "JSON: read it with pandas.read_json, and use from_pandas"),
)
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1a"))  # no text has these


def _content(path: Path, member: str | None) -> tuple[bytes, str]:
    """Return the unpacked bytes of the table, and its name in messages."""
    members = ArchiveMembers(path)
    member_name = _choose_member(list(members), path.name, member)
    source = member_name if path.name.startswith(member_name) else f"{path.name}/{member_name}"
    return unpacked(members[member_name], source), source


def _choose_member(names: list[str], archive: str, member: str | None) -> str:
    """Return the name of the table among those of an archive.

    Raises:
        DataError: none fits, or several do; the message lists them.
    """
    if any(name.startswith("xl/") for name in names):
        raise DataError(f"{archive} is a workbook of Excel: use from_pandas(pandas.read_excel(path)).")
    tables = [name for name in names if not name.startswith("__MACOSX/") and not _is_no_table(name)]
    if member is not None:
        if not isinstance(member, str):
            raise DataError(f"member={shortened(member)}; the name of a file in the archive is needed, or a pattern.")
        fitting = [name for name in names if member in (name, name.rpartition("/")[2])]
        fitting = fitting or [name for name in names if fnmatchcase(name, member)]
        fitting = fitting or [name for name in names if fnmatchcase(name.rpartition("/")[2], member)]
    else:
        fitting = tables if len(names) > 1 else names
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join((tables or names)[:20]) or "no files"
    problem = f"no file fits member={member!r}" if not fitting and member else f"{len(fitting)} files may be the table"
    raise DataError(f"{archive}: {problem}. It has {listed}. Choose one by member='...'.")


def _is_no_table(name: str) -> bool:
    base = name.rpartition("/")[2].lower()
    return any(fnmatchcase(base, pattern) for pattern in _NO_TABLES)


def _refuse_other_kinds(data: bytes, source: str) -> None:
    """Raise DataError if a file begins like one of another kind; the message names the kind and the remedy."""
    head = data[:4096]
    kinds = [kind for begin, kind in _TEXT_KINDS if head.lstrip().lower().startswith(begin)]
    if len(head.translate(None, _CONTROLS)) < len(head) or not txt.is_utf8(
        head[:64]
    ):  # else it may be a text, as ORCID
        kinds += [kind for begin, kind in _BINARY_KINDS if head.startswith(begin)]
    if kinds:
        raise DataError(f"{source} is {kinds[0]}.")


def _as_utf8(data: bytes, source: str, encoding: str) -> bytes:
    """Return the text in UTF-8.

    Raises:
        DataError: it is not in the encoding.
        ConfigError: there is no such encoding.
    """
    if not isinstance(encoding, str):
        raise ConfigError(f"encoding={shortened(encoding)}; a name such as 'utf-8', 'latin-1' or 'utf-16' is needed.")
    try:
        if encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig", "ascii"):
            if data.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(f"{source} is text in UTF-16, not in UTF-8: give encoding='utf-16'.")
            return data  # values in columns that are not read may be in any encoding
        return data.decode(encoding).encode()
    except LookupError as error:
        raise ConfigError(
            f"encoding={encoding!r} is none that Python knows; 'utf-8', 'latin-1', 'cp1252' or 'utf-16' are usual."
        ) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"line {line} of {source} is not in {encoding}: {error.reason}. Give the encoding the file was saved in."
        ) from error


# Comments, and line breaks in quotes.


def _comment_marks(comment: Any) -> list[bytes]:
    several = isinstance(comment, Sequence) and not isinstance(comment, str)
    marks = list(_COMMENTS) if comment == AUTO else list(comment) if several else [] if comment is None else [comment]
    if not all(isinstance(mark, str) and mark.strip() for mark in marks):
        raise ConfigError(
            f"comment={shortened(comment)}; texts such as '#' are needed, with which comment lines begin; or None."
        )
    return [mark.strip().encode() for mark in marks]


def _last_head_comment(text: bytes, marks: list[bytes]) -> bytes:
    """Return the last comment line before the first row, without its mark: it may hold the names of columns."""
    last = b""
    for _, line in txt.first_lines(text, 1000):
        mark = next((mark for mark in marks if line.startswith(mark)), None)
        if mark is None:
            break
        last = line[len(mark) :].strip()
    return last


_SAMPLED = 3  # lines: the first may be a header of another width


def _refuse_rows_as_comments(
    text: bytes, comment_line: re.Pattern[bytes], marks: list[bytes], sep: str, source: str
) -> None:
    """Raise DataError if a comment line may be a row, as ``#tag,bob,3`` is: it has as many columns, one with a digit.

    Every row has a digit in its time. A mark with a blank behind it, as in ``# Nodes: 5``, begins a comment.
    """
    rows = txt.first_lines(comment_line.sub(b"", text), _SAMPLED)
    width = min((len(_cells(line, sep)) for _, line in rows[-2:]), default=0)
    for match in comment_line.finditer(text):
        line = match.group().strip()
        mark = next(mark for mark in marks if line.startswith(mark))
        cells = _cells(line, sep)
        if line[len(mark) :][:1].isspace() or len(cells) < max(width, 2):
            continue
        if re.search(rb"\d", b" ".join(cells[1:])):
            number = text.count(b"\n", 0, match.start()) + 1
            raise DataError(
                f"line {number} of {source} is {txt.shown(line)}: it begins like a comment and has the columns of a "
                f"row. Give comment={mark.decode()!r} if such lines are comments, comment=None if they are rows."
            )


def _cells(line: bytes, sep: str) -> list[bytes]:
    return line.split() if sep == " " else txt.cells(line, sep, quoted=True)


def _without_last_lines(text: bytes, count: int) -> bytes:
    """Return the text without its last lines that are not blank."""
    for _ in range(count):
        text = text.rstrip()
        text = text[: text.rfind(b"\n") + 1]
    return text


def _join_quoted_lines(text: bytes, sep: str, source: str) -> bytes:
    """Return the text with one line for each row: a line break in quotes becomes a byte that no text has.

    Python's csv module decides which lines belong together.

    Raises:
        DataError: a quotation mark is never closed.
    """
    if b'"' not in text or not any(line.count(b'"') % 2 for line in text.splitlines()):
        return text
    lines = text.decode("utf-8", "surrogateescape").split("\n")
    reader = csv.reader((f"{line}\n" for line in lines), delimiter="\t" if sep == " " else sep, strict=True)
    joined, start = io.StringIO(), 0
    try:
        for _ in reader:
            joined.write(txt.BREAK.decode().join(lines[start : reader.line_num]) + "\n")
            start = reader.line_num
    except csv.Error as error:
        if "expected after" in str(error):  # text behind a closing mark, which the reader of rows accepts
            return text
        raise DataError(
            f"line {start + 1} of {source} is {txt.shown(lines[start])}: it has a quotation mark that is never closed. "
            "Close it, or write it twice where it is part of the text."
        ) from error
    return joined.getvalue().encode("utf-8", "surrogateescape")


# Ids and times of the rows.


def _with_zone(times: NDArray[Any], first_time: bytes) -> Any:
    """Return times in UTC as pandas datetimes in the zone of the first time, whose calendar counts."""
    import pandas as pd

    zone = datetime.fromisoformat(first_time.decode().replace(" ", "T", 1)).tzinfo
    return pd.DatetimeIndex(times).tz_localize("UTC").tz_convert(zone)


def _number(
    rows: Mapping[str, Any],
    file: _TextFile,
    sides: list[tuple[NDArray[Any], NDArray[np.int64]]],
    *,
    bipartite: bool | None,
    nodes: Any,
    names: tuple[str, str],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return sources and targets as positions in the ids of the nodes, shape (E,) each, and these ids, shape (N,)."""
    (users, source_rows), (items, target_rows) = sides
    if bipartite is None:
        warn_of_two_kinds(users, items, names)
    two_kinds = bipartite is not None and BIPARTITE.check(bipartite)
    if not two_kinds and users.dtype.kind != items.dtype.kind:  # both as text
        (users, source_rows), (items, target_rows) = (file.ids_of(rows[role], as_text=True) for role in ("src", "dst"))
    node_ids, source_nodes, target_nodes = number_nodes(users, items, bipartite=two_kinds, nodes=nodes)
    return source_nodes[source_rows], target_nodes[target_rows], node_ids


def _refuse_missing(role: str, ids: NDArray[Any], positions: NDArray[Any], file: _TextFile) -> None:
    """Raise DataError if an id is a word for a missing value; the message names the line."""
    if ids.dtype.kind != "U":
        return
    missing = np.flatnonzero(np.isin(ids, list(MISSING_WORDS)))
    if len(missing):
        row = int(np.isin(positions, missing).argmax())
        raise DataError(f"{file.line(row)}: {role} is {missing_id(str(ids[positions[row]]))}.")


_FOOTERS = frozenset(("total", "totals", "grand total", "subtotal", "sum", "average", "mean", "count", "end", "eof"))
_MOST_FOOTERS = 3  # lines


def _refuse_footer(sides: list[tuple[NDArray[Any], NDArray[Any]]], file: _TextFile) -> None:
    """Raise DataError if the last lines may be no rows: an id is text where all before them are numbers.

    In a table of names, only a word such as Total beside a number, where other rows have names, looks like a footer.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(sides[0][1])
    odd, named = np.zeros(count, dtype=bool), False
    for ids, positions in sides:
        if ids.dtype.kind != "U":
            continue
        matches = pc.match_substring_regex(pa.array(ids.tolist()), r"^[+-]?\d+(\.\d*)?$")
        numeric = matches.to_numpy(zero_copy_only=False)[positions]
        named |= ids[positions[-1]].strip(" :=").casefold() in _FOOTERS
        if (~numeric).sum() <= min(_MOST_FOOTERS, count // 3):
            odd |= ~numeric
        elif named and numeric[-1] and not numeric[:-1].any():
            odd[-1] = True
    last = int(odd.argmax())
    if odd.any() and odd[last:].all():
        lines = count - last
        raise DataError(
            f"{file.line(last)} looks like a footer, not like an edge: its ids are not like those of the rows before. "
            f"Give skip_footer={lines} to leave {'it' if lines == 1 else 'them'} out, skip_footer=0 if it is an edge."
        )
