"""Tables whose two columns name nodes of two kinds, such as users and items that both count from 0."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST = 10  # nodes of each kind: smaller tables are dense by chance
# of the ends of the two columns: in a graph of one kind, the last nodes may have no edge in one direction
_DIFFERENCE, _LEAST_DIFFERENCE = 0.01, 5
_ACTORS = r"user|customer|client|reviewer|rater|reader|listener|viewer|visitor|buyer|student|author|patient|editor"
_OBJECTS = (
    r"item|product|movie|film|book|song|track|artist|page|article|business|shop|merchant|course|video|thread|venue"
)


def warn_of_two_kinds(src: NDArray[Any], dst: NDArray[Any], columns: tuple[str, str]) -> None:
    """Warn where sources and targets look like nodes of two kinds that share ids.

    Two signs: all ids of either column count from 0, or from 1, without a gap, to another end; or the columns are
    called like users and like items, and share ids.

    Args:
        src: ids of the sources, of every edge or once each, int64 or text.
        dst: ids of the targets.
        columns: names of the two columns.
    """
    why = ""
    if src.dtype.kind == dst.dtype.kind == "i" and len(src):
        ends = _dense_range(src), _dense_range(dst)
        if ends[0] is not None and ends[1] is not None and ends[0][0] == ends[1][0]:
            (low, first), (_, second) = ends[0], ends[1]
            if abs(first - second) >= max(_LEAST_DIFFERENCE, _DIFFERENCE * max(first, second)):
                why = f"both count from {low} without a gap, to {first} and to {second}"
    if not why and _are_user_and_item(columns) and src.dtype.kind == dst.dtype.kind and np.isin(dst, src).any():
        why = "they are called so, and have ids in common"
    if why:
        warnings.warn(
            f"{columns[0]} and {columns[1]} look like nodes of two kinds: {why}. A node of one kind and a node of the "
            "other with the same id are one node now. Give bipartite=True if they are of two kinds, bipartite=False if "
            "they are not.",
            stacklevel=5,
        )


def _dense_range(ids: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return the smallest and the largest id if these are 0 or 1 and on, and all between occur."""
    low, high = int(ids.min()), int(ids.max())
    if low not in (0, 1) or not _LEAST <= high - low + 1 <= len(ids):
        return None
    occurs = np.zeros(high + 1, dtype=bool)
    occurs[ids] = True
    return (low, high) if occurs[low:].all() else None


def _are_user_and_item(columns: tuple[str, str]) -> bool:
    first, second = (str(column).lower() for column in columns)
    return any(
        re.search(_ACTORS, one) and re.search(_OBJECTS, other_kind) and not re.search(_ACTORS, other_kind)
        for one, other_kind in ((first, second), (second, first))
    )
