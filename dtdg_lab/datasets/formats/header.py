"""The first line of a text with named columns."""

from __future__ import annotations

from collections.abc import Mapping

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.rows import UNREAD, Kind
from dtdg_lab.datasets.formats.text import shown, width


def split_header(text: bytes, where: str, separator: str = ",") -> tuple[list[str], bytes]:
    """The names in the first line, without blanks and quotes around them, and the lines after it.

    Raises:
        DataError: the text is empty, ends with its first line, or the line is not UTF-8.
    """
    width(text, where, separator.encode())
    head, _, body = text.partition(b"\n")
    try:
        names = [name.strip().strip('"') for name in head.decode().split(separator)]
    except UnicodeDecodeError as error:
        raise DataError(f"line 1 of {where} is {shown(head)}; names of columns, in UTF-8, are expected.") from error
    if not body or body.isspace():
        raise DataError(
            f"{where} holds no rows: {'it is empty' if not head else f'its only line is {shown(head)}'}. A line of "
            "names of columns and rows after it are needed: fetch the file again."
        )
    return names, body


def columns_of(names: list[str], wanted: Mapping[str, tuple[Kind, tuple[str, ...]]], where: str) -> dict[str, Kind]:
    """What :func:`dtdg_lab.datasets.formats.rows.read_rows` is told: the wanted columns where they are, others unread.

    Args:
        names: the names in the header.
        wanted: for each column its kind and the names it may have, of which the first that is there is taken, whatever
            the case.
        where: the file's name, for messages.

    Raises:
        DataError: a column is missing, or its name is there twice.
    """
    lower = [name.lower() for name in names]
    columns: list[tuple[str, Kind]] = [(f"{place} {name}", UNREAD) for place, name in enumerate(names, start=1)]
    for column, (kind, spellings) in wanted.items():
        called = next((spelling for spelling in spellings if spelling.lower() in lower), None)
        if called is None:
            raise DataError(
                f"line 1 of {where} has the columns {shown(', '.join(names), 200)}; none is {column}, which may be "
                f"called {', '.join(spellings)}. Rename the column, or fetch the file again."
            )
        if lower.count(called.lower()) > 1:
            raise DataError(f"line 1 of {where} has {lower.count(called.lower())} columns {called!r}; one is needed.")
        columns[lower.index(called.lower())] = (column, kind)
    return dict(columns)
