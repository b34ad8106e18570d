"""SNAP's temporal text: lines of ``source target unixtime``, whole numbers separated by spaces or tabs."""

from __future__ import annotations

from dtdg_lab.datasets.formats.rows import ID, WHOLE, read_rows
from dtdg_lab.datasets.formats.text import plain
from dtdg_lab.datasets.tables import EdgeTable


def parse(data: bytes, where: str) -> EdgeTable:
    """The E edges of a text such as CollegeMsg.txt; rows may be in any order of time.

    Lines that start with ``#`` or ``%`` and blank lines are skipped.

    Args:
        data: the file, uncompressed.
        where: its name, for messages.

    Raises:
        DataError: a line is not two ids (0 to 2^31 - 1) and a whole number, or there are fewer than two.
    """
    text = plain(data, where, comments=True, blanks=True)
    rows = read_rows(text, where, {"source": ID, "target": ID, "time": WHOLE}, separator=" ", least=2)
    return EdgeTable(rows["source"], rows["target"], rows["time"])
