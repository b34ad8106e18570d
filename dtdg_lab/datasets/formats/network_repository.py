"""Network Repository's temporal networks: ``.edges`` and ``.mtx`` with lines of ``source target [weight] time``."""

from __future__ import annotations

import re

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.rows import ID, NUMBER, TIME, Kind, read_rows
from dtdg_lab.datasets.formats.shifted import shifted
from dtdg_lab.datasets.formats.text import first_lines, plain, shown, without_line
from dtdg_lab.datasets.tables import EdgeTable

_COLUMNS: dict[int, dict[str, Kind]] = {
    3: {"source": ID, "target": ID, "time": TIME},
    4: {"source": ID, "target": ID, "weight": NUMBER, "time": TIME},
}
_BETWEEN = re.compile(rb" *[ ,] *")
_MATRIX_MARKET = b"%%MatrixMarket"


def parse(data: bytes, where: str, *, bipartite: bool = False, size_line: bool | None = None) -> EdgeTable:
    """The E edges of a text such as fb-forum.edges; rows may be in any order of time.

    Columns are separated by commas, spaces or tabs: by commas where the first edge has one. Lines that start with
    ``%`` or ``#`` and blank lines are skipped. Rows of four columns carry a weight, which keeps its sign.

    Args:
        data: the file, uncompressed.
        where: its name, for messages; ``.mtx`` at its end says that it has a size line.
        bipartite: sources and targets are numbered separately: targets are shifted by the largest source + 1.
        size_line: whether the first row is ``rows columns entries`` instead of an edge. None: it is in a file called
            ``.mtx`` or opened by ``%%MatrixMarket``, and where it has three columns and the next row has four.

    Raises:
        DataError: rows have neither three nor four columns, one has other values, there are fewer than two, or not
            as many as the size line says.
    """
    market = data.lstrip()[: len(_MATRIX_MARKET)] == _MATRIX_MARKET or where.lower().endswith(".mtx")
    text = plain(data, where, comments=True, blanks=True)
    heads = first_lines(text, 2)
    if size_line is None:
        size_line = market or [len(_BETWEEN.split(line)) for _, line in heads] == [3, 4]
    declared = None
    if size_line and heads:
        number, line = heads.pop(0)
        declared = _entries(line, number, where)
        text = without_line(text, number)
    separator, kinds = _layout(*heads[0], where) if heads else (" ", _COLUMNS[3])
    rows = read_rows(text, where, kinds, separator=separator, least=2)
    if declared is not None and declared != len(rows["source"]):
        raise DataError(
            f"{where} holds {len(rows['source']):,} edges; {declared:,} are announced in its size line. The file is "
            "cut short or was changed: fetch it again."
        )
    target = shifted(rows["source"], rows["target"], where) if bipartite else rows["target"]
    return EdgeTable(rows["source"], target, rows["time"], weight=rows.get("weight"))


def _layout(number: int, line: bytes, where: str) -> tuple[str, dict[str, Kind]]:
    """Separator and columns, from the first edge."""
    separator = "," if b"," in line else " "
    count = len(line.split(separator.encode()))
    if count not in _COLUMNS:
        raise DataError(
            f"line {number} of {where} is {shown(line)}: it has {count} columns; 3 (source target time) or 4 (source "
            "target weight time) are needed. A network without times cannot be cut."
        )
    return separator, _COLUMNS[count]


def _entries(line: bytes, number: int, where: str) -> int:
    """The number of edges a size line announces."""
    fields = _BETWEEN.split(line)
    if len(fields) != 3 or not all(field.isdigit() and len(field) < 20 for field in fields):
        raise DataError(
            f"line {number} of {where} is {shown(line)}; a size line of three whole numbers, 'rows columns entries', "
            "is expected there. Correct the line, or give size_line=False where the file has none."
        )
    return int(fields[2])
