"""Text of a data file made plain: one kind of line end, no comments, single blanks; lines keep their numbers."""

from __future__ import annotations

import re

import numpy as np

from dtdg_lab.core.errors import DataError

MAX_COLUMNS = 4096
_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*", re.MULTILINE)
_EDGES_OF_LINES = re.compile(rb"^ | $", re.MULTILINE)
_MARK = re.compile(rb"\S")
_BLANKS = re.compile(rb" {2,}")


def plain(data: bytes, where: str, *, comments: bool = False, blanks: bool = False) -> bytes:
    """The text with line feeds as its only line ends, and as many lines as before.

    Args:
        data: the file, uncompressed; UTF-8 or ASCII, with or without a byte order mark.
        where: the file's name, for messages.
        comments: empty the lines that start with ``#`` or ``%``.
        blanks: columns are separated by spaces or tabs: make that one space, with none at the ends of lines.

    Raises:
        DataError: a NUL byte, which no text has.
    """
    data = data.removeprefix(_BOM)
    at = data.find(b"\0")
    if at >= 0:
        number = data.count(b"\n", 0, at) + 1
        raise DataError(
            f"line {number} of {where} has a NUL byte; text is expected. The file is damaged or "
            "is not a text file: fetch it again."
        )
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if comments and (b"#" in data or b"%" in data):
        data = _COMMENT.sub(b"", data)
    return _single_blanks(data) if blanks else data


def _single_blanks(data: bytes) -> bytes:
    data = data.replace(b"\t", b" ") if b"\t" in data else data
    data = _BLANKS.sub(b" ", data) if b"  " in data else data
    if data[:1] == b" " or data[-1:] == b" " or b"\n " in data or b" \n" in data:
        data = _EDGES_OF_LINES.sub(b"", data)
    return data


def first_lines(text: bytes, count: int) -> list[tuple[int, bytes]]:
    """Number and content of the first ``count`` lines that are not blank, fewer where there are fewer."""
    found: list[tuple[int, bytes]] = []
    end = 0
    while len(found) < count and (mark := _MARK.search(text, end)) is not None:
        start = text.rfind(b"\n", 0, mark.start()) + 1
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        found.append((text.count(b"\n", 0, start) + 1, text[start:end].strip()))
    return found


def line_of_row(text: bytes, row: int) -> int:
    """Number, counted from 1, of the line that holds a row, counted from 0; blank lines hold none."""
    ends = np.append(np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")), len(text))
    return int(np.flatnonzero(np.diff(ends, prepend=-1) > 1)[row]) + 1


def width(text: bytes, where: str, separator: bytes = b",") -> int:
    """How many columns the first line that is not blank has; 0 where there is none.

    Raises:
        DataError: more than any data set has: a table of so many columns would take far more memory than the text.
    """
    for number, line in first_lines(text, 1):
        columns = line.count(separator) + 1
        if columns > MAX_COLUMNS:
            raise DataError(f"line {number} of {where} has {columns:,} columns; at most {MAX_COLUMNS:,} are allowed.")
        return columns
    return 0


def without_line(text: bytes, number: int) -> bytes:
    """The text with the content of one line, counted from 1, taken out; lines keep their numbers."""
    start = 0
    for _ in range(number - 1):
        start = text.index(b"\n", start) + 1
    end = text.find(b"\n", start)
    return text[:start] + (b"" if end < 0 else text[end:])


def shown(found: bytes | str, most: int = 80) -> str:
    """What was found, as a message shows it: short, with bytes that are no UTF-8 written out."""
    text = found.decode("utf-8", "backslashreplace") if isinstance(found, bytes) else found
    return repr(text if len(text) <= most else text[:most] + "...")
