"""JODIE's interaction csv: a header, then ``user,item,timestamp,state label,features...``, in order of time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.blocks import side_by_side
from dtdg_lab.datasets.formats.header import split_header
from dtdg_lab.datasets.formats.rows import FEATURE, ID, NUMBER, TIME, UNREAD, Kind, read_rows
from dtdg_lab.datasets.formats.shifted import shifted
from dtdg_lab.datasets.formats.text import first_lines, line_of_row, plain, shown, width
from dtdg_lab.datasets.tables import EdgeTable

_KINDS: dict[str, Kind] = {"user": ID, "item": ID, "time": TIME, "state label": NUMBER}


def parse(data: bytes, where: str) -> EdgeTable:
    """The E interactions of a text such as wikipedia.csv, as edges from users to items.

    Users and items are numbered separately: an item becomes ``users + item``, with users = largest user + 1. State
    labels and features are left unread: :func:`read_features` reads them.

    Args:
        data: the file, uncompressed.
        where: its name, for messages.

    Raises:
        DataError: there is no header, a line has other columns or values, a time is before the one above it, or
            there are fewer than two rows.
    """
    body, total = _rows(data, where)
    kinds = {**_KINDS, "state label": UNREAD, **_features(total, UNREAD)}
    rows = read_rows(body, where, kinds, first_line=2, least=2)
    falls = np.flatnonzero(np.diff(rows["time"]) < 0)
    if len(falls):
        before, now = rows["time"][falls[0]], rows["time"][falls[0] + 1]
        raise DataError(
            f"line {line_of_row(body, int(falls[0]) + 1) + 1} of {where} has time {now}, after {before} in the row "
            "before; rows must be in order of time. Sort them, or fetch the file again."
        )
    return EdgeTable(rows["user"], shifted(rows["user"], rows["item"], where), rows["time"])


def read_features(data: bytes, where: str) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """State labels, shape (E,), and features, shape (E, F), of the interactions; F may be 0.

    Args:
        data: the file, uncompressed.
        where: its name, for messages.

    Raises:
        DataError: as :func:`parse`; or a label or feature is not a finite number.
    """
    body, total = _rows(data, where)
    features = _features(total, FEATURE)
    unread = dict.fromkeys(("user", "item", "time"), UNREAD)
    rows = read_rows(body, where, {**unread, "state label": NUMBER, **features}, first_line=2)
    return rows["state label"], side_by_side(rows, features, len(rows["state label"]))


def _rows(data: bytes, where: str) -> tuple[bytes, int]:
    """The lines under the header, and the columns of the first: the header has one name for all features."""
    names, body = split_header(plain(data, where), where)
    number, line = first_lines(body, 1)[0]
    total = width(body, where)
    if len(names) < len(_KINDS) or total < len(_KINDS):
        raise DataError(
            f"line {number + 1} of {where} is {shown(line)}, under the header {shown(','.join(names))}; at least four "
            "columns are needed: user, item, timestamp, state label. Fetch the file again."
        )
    return body, total


def _features(total: int, kind: Kind) -> dict[str, Kind]:
    return {f"feature {place}": kind for place in range(total - len(_KINDS))}
