"""Reddit's hyperlinks between communities: tab-separated text with a header, names as ids and times as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.header import columns_of, split_header
from dtdg_lab.datasets.formats.names import numbered
from dtdg_lab.datasets.formats.rows import NAME, NUMBER, STAMP, read_rows
from dtdg_lab.datasets.formats.text import plain
from dtdg_lab.datasets.tables import EdgeTable
from dtdg_lab.graphs.arrays import give_up

_WANTED = {
    "source": (NAME, ("SOURCE_SUBREDDIT",)),
    "target": (NAME, ("TARGET_SUBREDDIT",)),
    "time": (STAMP, ("TIMESTAMP",)),
    "sentiment": (NUMBER, ("LINK_SENTIMENT", "POST_LABEL")),
}


def parse(data: bytes | Mapping[str, bytes], where: str) -> EdgeTable:
    """The E links of soc-redditHyperlinks-title.tsv or -body.tsv, or of several such files one after the other.

    The sentiment, -1 or 1, becomes the weight; the 86 properties of a post are left unread.

    Args:
        data: the file, uncompressed, or several by name.
        where: its name, for messages.

    Returns:
        Times are seconds since 1970 (UTC); ``node_ids`` are the names of the communities.

    Raises:
        DataError: a column is missing, a line has other columns or values, or there are fewer than two.
    """
    import pyarrow as pa

    if isinstance(data, Mapping) and not data:
        raise DataError(f"{where} holds no file; the tsv of titles, of bodies, or both are needed.")
    files = [_read(text, f"{where} ({name})") for name, text in data.items()] if isinstance(data, Mapping) else [
        _read(data, where)
    ]  # fmt: skip
    ends = [pa.chunked_array([chunk for file in files for chunk in file[end].chunks]) for end in ("source", "target")]
    src, dst, names = numbered(*ends)
    time, sentiment = (give_up(np.concatenate([file[column] for file in files])) for column in ("time", "sentiment"))
    return EdgeTable(src, dst, time, weight=sentiment, node_ids=names)


def _read(data: bytes, where: str) -> dict[str, Any]:
    names, body = split_header(plain(data, where), where, "\t")
    return read_rows(body, where, columns_of(names, _WANTED, where), separator="\t", first_line=2, least=2)
