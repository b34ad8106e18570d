"""Parsers of edge lists: SNAP text and CSV, KONECT, Network Repository, Reddit hyperlinks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats import text as txt
from dtdg_lab.datasets.tables import EdgeTable
from dtdg_lab.graphs.snapshot import read_only


def _edges(
    text: bytes, source: str, kinds: Mapping[str, txt.ColumnKind], separator: str = " ", *, bipartite: bool = False
) -> EdgeTable:
    """Return the edges of at least two rows. In a bipartite file, the ids of targets are shifted past the sources."""
    rows = txt.read_rows(text, source, kinds, separator=separator, min_rows=2)
    target = txt.shifted(rows["source"], rows["target"], source) if bipartite else rows["target"]
    return EdgeTable(rows["source"], target, rows["time"], weight=rows.get("weight", rows.get("rating")))


# KONECT's ``out.*`` files: lines of ``source target [weight] [time]`` under header lines that start with ``%``.


_FIRST_LINE = re.compile(rb"^[^\S\n]*%[^\S\n]*(\S+)")
_KINDS = {"source": txt.ID, "target": txt.ID, "weight": txt.NUMBER, "time": txt.TIME}


def parse_konect(
    data: bytes, source: str, *, columns: tuple[str, ...] | None = None, bipartite: bool | None = None
) -> EdgeTable:
    """Return the E edges of a text such as out.flickr-growth; rows may be in any order of time.

    The first header line names the kind of network: ``% asym posweighted``. Where it is ``bip``, the two sides are
    numbered separately, and targets are shifted by the largest source + 1.

    Args:
        data: the file, uncompressed.
        source: its name, for messages.
        columns: names of the columns, where they are not ``source target weight time``.
        bipartite: whether the two sides are numbered separately; None: as the first line says. False keeps the
            numbers, so that node 1 is on both sides, as in the copies of Network Repository.

    Raises:
        DataError: rows carry no time, one has other values, or there are fewer than two.
    """
    names = columns or tuple(_KINDS)
    unknown = sorted(set(names) - set(_KINDS))
    if unknown or len(set(names)) < len(names) or not {"source", "target", "time"} <= set(names):
        raise DataError(f"columns={names!r}; source, target and time, and perhaps weight, are needed, each once.")
    text = txt.plain(data, source, comments=True, blanks=True)
    for number, line in txt.first_lines(text, 1):
        count = len(line.split(b" "))
        if columns is None and count in (2, 3):
            raise DataError(
                f"line {number} of {source} is {txt.shown(line)}: it has {count} columns; KONECT writes the time in "
                "the fourth. A network without times cannot be cut; give columns= where the third is the time."
            )
    if bipartite is None:
        first = _FIRST_LINE.match(data)
        bipartite = first is not None and first[1] == b"bip"
    return _edges(text, source, {name: _KINDS[name] for name in names}, bipartite=bipartite)


# Network Repository's temporal networks: ``.edges`` and ``.mtx`` with lines of ``source target [weight] time``.


_COLUMNS = {3: ("source", "target", "time"), 4: tuple(_KINDS)}
_BETWEEN = re.compile(rb" *[ ,] *")
_MATRIX_MARKET = b"%%MatrixMarket"


def parse_network_repository(
    data: bytes, source: str, *, bipartite: bool = False, size_line: bool | None = None
) -> EdgeTable:
    """Return the E edges of a text such as fb-forum.edges; rows may be in any order of time.

    Columns are separated by commas, spaces or tabs: by commas where the first edge has one. Lines that start with
    ``%`` or ``#`` and blank lines are skipped. Rows of four columns carry a weight, which keeps its sign.

    Args:
        data: the file, uncompressed.
        source: its name, for messages; the suffix ``.mtx`` means that it has a size line.
        bipartite: sources and targets are numbered separately: targets are shifted by the largest source + 1.
        size_line: whether the first row is ``rows columns entries`` instead of an edge. None: it is in a file named
            ``.mtx``, in one that begins with ``%%MatrixMarket``, and where it has three columns and the next row four.

    Raises:
        DataError: rows have neither three nor four columns, one has other values, there are fewer than two, or not
            as many as the size line says.
    """
    market = data.lstrip()[: len(_MATRIX_MARKET)] == _MATRIX_MARKET or source.lower().endswith(".mtx")
    text = txt.plain(data, source, comments=True, blanks=True)
    heads = txt.first_lines(text, 2)
    if size_line is None:
        size_line = market or [len(_BETWEEN.split(line)) for _, line in heads] == [3, 4]
    declared = None
    if size_line and heads:
        number, line = heads.pop(0)
        declared = _entries(line, number, source)
        text = txt.without_line(text, number)
    separator, kinds = _layout(*heads[0], source) if heads else (" ", _KINDS)
    edges = _edges(text, source, kinds, separator, bipartite=bipartite)
    if declared is not None and declared != len(edges.src):
        raise DataError(
            f"{source} holds {len(edges.src):,} edges; {declared:,} are announced in its size line. The file is "
            "cut short or was changed: fetch it again."
        )
    return edges


def _layout(number: int, line: bytes, source: str) -> tuple[str, dict[str, txt.ColumnKind]]:
    """Detect the separator and the columns from the first edge."""
    separator = "," if b"," in line else " "
    count = len(line.split(separator.encode()))
    if count not in _COLUMNS:
        raise DataError(
            f"line {number} of {source} is {txt.shown(line)}: it has {count} columns; 3 (source target time) or 4 "
            "(source target weight time) are needed. A network without times cannot be cut."
        )
    return separator, {name: _KINDS[name] for name in _COLUMNS[count]}


def _entries(line: bytes, number: int, source: str) -> int:
    """Return the number of edges in a size line."""
    fields = _BETWEEN.split(line)
    if len(fields) != 3 or not all(field.isdigit() and len(field) < 20 for field in fields):
        raise DataError(
            f"line {number} of {source} is {txt.shown(line)}; a size line of three whole numbers, 'rows columns "
            "entries', is expected there. Correct the line, or give size_line=False where the file has none."
        )
    return int(fields[2])


# Reddit's hyperlinks between communities: tab-separated text with a header, names as ids and times as text.


_WANTED = {
    "source": (txt.NAME, ("SOURCE_SUBREDDIT",)),
    "target": (txt.NAME, ("TARGET_SUBREDDIT",)),
    "time": (txt.STAMP, ("TIMESTAMP",)),
    "sentiment": (txt.NUMBER, ("LINK_SENTIMENT", "POST_LABEL")),
}


def parse_reddit_hyperlinks(data: bytes | Mapping[str, bytes], source: str) -> EdgeTable:
    """Return the E links of soc-redditHyperlinks-title.tsv or -body.tsv, or of several such files in order.

    The sentiment, -1 or 1, becomes the weight. The 86 properties of a post are not read.

    Args:
        data: the file, uncompressed, or several by name.
        source: its name, for messages.

    Returns:
        Times are seconds since 1970 (UTC); ``node_ids`` are the names of the communities.

    Raises:
        DataError: a column is missing, a line has other columns or values, or there are fewer than two.
    """
    import pyarrow as pa

    if isinstance(data, Mapping) and not data:
        raise DataError(f"{source} holds no file; the tsv of titles, of bodies, or both are needed.")
    files = (
        [_read(text, f"{source} ({name})") for name, text in data.items()]
        if isinstance(data, Mapping)
        else [_read(data, source)]
    )
    ends = [pa.chunked_array([chunk for file in files for chunk in file[end].chunks]) for end in ("source", "target")]
    src, dst, names = txt.numbered(*ends)
    time, sentiment = (read_only(np.concatenate([file[column] for file in files])) for column in ("time", "sentiment"))
    return EdgeTable(src, dst, time, weight=sentiment, node_ids=names)


def _read(data: bytes, source: str) -> dict[str, Any]:
    return txt.named_rows(data, source, _WANTED, separator="\t", min_rows=2)[0]


# SNAP's signed networks with times: lines of ``source,target,rating,time``; times may have fractions.


def parse_snap_csv(data: bytes, source: str) -> EdgeTable:
    """Return the E edges of a text such as soc-sign-bitcoinotc.csv; rows may be in any order of time.

    Lines that start with ``#`` or ``%`` and blank lines are skipped. The rating becomes the weight, with its sign.

    Args:
        data: the file, uncompressed.
        source: its name, for messages.

    Returns:
        Times are int64 where all are whole, else float64.

    Raises:
        DataError: a line is not two ids (0 to 2^31 - 1) and two finite numbers, or there are fewer than two.
    """
    text = txt.plain(data, source, comments=True)
    return _edges(text, source, {"source": txt.ID, "target": txt.ID, "rating": txt.NUMBER, "time": txt.TIME}, ",")


# SNAP's temporal text: lines of ``source target unixtime``, whole numbers separated by spaces or tabs.


def parse_snap_text(data: bytes, source: str) -> EdgeTable:
    """Return the E edges of a text such as CollegeMsg.txt; rows may be in any order of time.

    Lines that start with ``#`` or ``%`` and blank lines are skipped.

    Args:
        data: the file, uncompressed.
        source: its name, for messages.

    Raises:
        DataError: a line is not two ids (0 to 2^31 - 1) and a whole number, or there are fewer than two.
    """
    text = txt.plain(data, source, comments=True, blanks=True)
    return _edges(text, source, {"source": txt.ID, "target": txt.ID, "time": txt.WHOLE})
