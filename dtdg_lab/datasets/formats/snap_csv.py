"""SNAP's signed networks with times: lines of ``source,target,rating,time``; times may have fractions."""

from __future__ import annotations

from dtdg_lab.datasets.formats.rows import ID, NUMBER, TIME, read_rows
from dtdg_lab.datasets.formats.text import plain
from dtdg_lab.datasets.tables import EdgeTable


def parse(data: bytes, where: str) -> EdgeTable:
    """The E edges of a text such as soc-sign-bitcoinotc.csv; rows may be in any order of time.

    Lines that start with ``#`` or ``%`` and blank lines are skipped. The rating becomes the weight, with its sign.

    Args:
        data: the file, uncompressed.
        where: its name, for messages.

    Returns:
        Times are int64 where all are whole, else float64.

    Raises:
        DataError: a line is not two ids (0 to 2^31 - 1) and two finite numbers, or there are fewer than two.
    """
    text = plain(data, where, comments=True)
    rows = read_rows(text, where, {"source": ID, "target": ID, "rating": NUMBER, "time": TIME}, least=2)
    return EdgeTable(rows["source"], rows["target"], rows["time"], weight=rows["rating"])
