"""KONECT's ``out.*`` files: lines of ``source target [weight] [time]`` under header lines that start with ``%``."""

from __future__ import annotations

import re

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.rows import ID, NUMBER, TIME, Kind, read_rows
from dtdg_lab.datasets.formats.shifted import shifted
from dtdg_lab.datasets.formats.text import first_lines, plain, shown
from dtdg_lab.datasets.tables import EdgeTable

_FIRST_LINE = re.compile(rb"^[^\S\n]*%[^\S\n]*(\S+)")
_KINDS: dict[str, Kind] = {"source": ID, "target": ID, "weight": NUMBER, "time": TIME}


def parse(
    data: bytes, where: str, *, columns: tuple[str, ...] | None = None, bipartite: bool | None = None
) -> EdgeTable:
    """The E edges of a text such as out.flickr-growth; rows may be in any order of time.

    The first header line names the kind of network: ``% asym posweighted``. Where it is ``bip``, the two sides are
    numbered separately, and targets are shifted by the largest source + 1.

    Args:
        data: the file, uncompressed.
        where: its name, for messages.
        columns: what the columns are, where they are not ``source target weight time``.
        bipartite: whether the two sides are numbered separately; None: as the first line says. False leaves numbers
            as they are, so that vertex 1 is on both sides: so do the copies of Network Repository.

    Raises:
        DataError: rows carry no time, one has other values, or there are fewer than two.
    """
    names = columns or tuple(_KINDS)
    unknown = sorted(set(names) - set(_KINDS))
    if unknown or len(set(names)) < len(names) or not {"source", "target", "time"} <= set(names):
        raise DataError(f"columns={names!r}; source, target and time, and perhaps weight, are needed, each once.")
    text = plain(data, where, comments=True, blanks=True)
    for number, line in first_lines(text, 1):
        count = len(line.split(b" "))
        if columns is None and count in (2, 3):
            raise DataError(
                f"line {number} of {where} is {shown(line)}: it has {count} columns; KONECT writes the time in the "
                "fourth. A network without times cannot be cut; give columns= where the third is the time."
            )
    rows = read_rows(text, where, {name: _KINDS[name] for name in names}, separator=" ", least=2)
    if bipartite is None:
        first = _FIRST_LINE.match(data)
        bipartite = first is not None and first[1] == b"bip"
    target = shifted(rows["source"], rows["target"], where) if bipartite else rows["target"]
    return EdgeTable(rows["source"], target, rows["time"], weight=rows.get("weight"))
