"""Dealing edges with times to base intervals, and numbering their vertices over all time.

Edges may come in any order, with any times that are finite numbers: negative, fractional, equal. Self loops and
duplicates stay; duplicates are merged when snapshots are made. Intervals without edges stay too.

Three ways to cut, all covering every edge once:

* ``cut=B``: B intervals of equal length from the first time to the last; interval i holds first + i·span/B up to, not
  including, first + (i + 1)·span/B, and the edges at the very last time belong to the last interval.
* ``cut=0, window=w``: intervals of length w from the first time on; the last may be shorter.
* ``cut_by="edges"``: in the order of time, E/B edges for each interval, or w of them. Edges of one time stay together,
  in the interval of the first of them, so that an interval may hold more than its share and the next ones less.

Source: equal intervals and the dropped first time of the released code of DynaHB and FlareDTDG.

Differs from the papers: their code leaves out the edges at the very last time, because its last window ends before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError, UnknownNameError
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.edge_vectors import read_ids, read_times, read_weights
from dtdg_lab.graphs.intervals import IntervalEdges

MAX_NODES = 2**31 - 1  # sources are kept as int32
MAX_INTERVALS = 1_000_000
WAYS = ("time", "edges")

_Vector = NDArray[Any]


def cut_edges(
    src: ArrayLike,
    dst: ArrayLike,
    time: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    cut: int = 0,
    cut_by: str = "time",
    window: float | None = None,
    drop_first: bool = False,
) -> IntervalEdges:
    """Deal edges to base intervals and number the vertices over all time, in the order of their ids.

    Args:
        src: sources, shape (E,); whole numbers or text.
        dst: targets, shape (E,).
        time: times, shape (E,), in any order: numbers, or numpy datetimes, which become nanoseconds.
        weight: weights, shape (E,), finite and at least 0; None where edges carry none.
        cut: B, the number of intervals; 0 takes ``window``.
        cut_by: what the intervals share equally: ``time`` or ``edges``.
        window: length of an interval where ``cut`` is 0: in the unit of ``time``, or a number of edges.
        drop_first: leave out the edges of the first distinct time; their vertices keep their numbers.

    Raises:
        DataError: no edges, vectors of different lengths, values that are no ids, times or weights, or intervals that
            cannot be: longer than the data, or too many.
        UnknownNameError: another ``cut_by``.
    """
    if cut_by not in WAYS:
        raise UnknownNameError("value of cut_by", cut_by, WAYS)
    sources, targets, times = _vectors(src, dst, time)
    weights = read_weights(weight, len(sources))
    node_ids, sources, targets = _numbered(sources, targets)
    if drop_first:
        later = times > times.min()
        if not later.any():
            raise DataError(
                f"all {len(times)} edges have time {times[0]}, and drop_first leaves the edges of the first time out. "
                "Use drop_first=False, or data with more than one time."
            )
        sources, targets, times = sources[later], targets[later], times[later]
        weights = None if weights is None else weights[later]
    deal = _by_time if cut_by == "time" else _by_edges
    interval, count = deal(times, cut, window)
    return IntervalEdges(
        src=sources, dst=targets, interval=interval, num_intervals=count, num_nodes=len(node_ids), weight=weights,
        node_ids=give_up(node_ids),
    )  # fmt: skip


def _vectors(src: ArrayLike, dst: ArrayLike, time: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The three vectors, read and of equal length."""
    lengths = [np.size(values) for values in (src, dst, time)]
    if not lengths[0] or len(set(lengths)) > 1:
        raise DataError(
            f"src, dst and time have {lengths[0]}, {lengths[1]} and {lengths[2]} entries; "
            "the same number, at least 1, is needed."
        )
    sources, targets = read_ids(src, "src"), read_ids(dst, "dst")
    if sources.dtype.kind != targets.dtype.kind:
        raise DataError("src and dst must both be whole numbers or both be text, because they name the same vertices.")
    return sources, targets, read_times(time)


def _numbered(sources: _Vector, targets: _Vector) -> tuple[_Vector, NDArray[np.int32], NDArray[np.int32]]:
    """The sorted ids, and the vertices of sources and targets as places in them."""
    whole = sources.dtype.kind == "i"
    low = int(min(sources.min(), targets.min())) if whole else 0
    high = int(max(sources.max(), targets.max())) if whole else 0
    if whole and high - low < 4 * len(sources) + 1024:
        # ids lie close: marking those that occur is faster than sorting all of them
        occurs = np.zeros(high - low + 1, dtype=bool)
        occurs[sources - low] = True
        occurs[targets - low] = True
        node_ids = np.flatnonzero(occurs) + low
        place = np.cumsum(occurs) - 1
        numbers = place[sources - low], place[targets - low]
    else:
        node_ids, every = np.unique(np.concatenate([sources, targets]), return_inverse=True)
        numbers = every[: len(sources)], every[len(sources) :]
    if len(node_ids) > MAX_NODES:
        raise DataError(f"{len(node_ids):,} vertices; at most {MAX_NODES:,} fit the index type.")
    return node_ids, numbers[0].astype(np.int32), numbers[1].astype(np.int32)


def _by_time(times: NDArray[Any], cut: int, window: float | None) -> tuple[NDArray[np.int32], int]:
    """The base interval of every time, shape (E,), and the number of intervals."""
    first, last = times.min(), times.max()
    if times.dtype.kind == "i" and int(last) - int(first) >= 2**63:
        raise DataError(f"times run from {first} to {last}; a span below 2^63 is needed. Use a coarser unit of time.")
    with np.errstate(over="ignore"):  # said below
        since, span = times - first, last - first
    if not np.isfinite(span):
        raise DataError(f"times run from {first} to {last}; their span is too large. Use a coarser unit of time.")
    if cut:
        _check_count(cut, "cut", int(cut))
        if span == 0 and cut > 1:
            raise DataError(
                f"cut={cut} over a time span of 0: all {len(times)} edges have time {first}. Edges of "
                "different times are needed."
            )
        # whole numbers stay exact, so that an edge on a boundary falls into the later interval
        exact = times.dtype.kind == "i" and int(span) < 2**62 // cut
        where = since * cut // max(span, 1) if exact else np.floor(since / (span or 1) * cut)
        return np.minimum(where, cut - 1).astype(np.int32), cut
    length = _window(window)
    if length > span > 0:
        raise DataError(
            f"window={window:g} is longer than the data: times run from {first} to {last}, a span of {span}. "
            "Give a shorter window, or cut=n, the number of intervals."
        )
    count = int(span // length) + 1
    _check_count(window, "window", count)
    return (since // length).astype(np.int32), count


def _by_edges(times: NDArray[Any], cut: int, window: float | None) -> tuple[NDArray[np.int32], int]:
    """The base interval of every edge by its rank in time, shape (E,), and the number of intervals."""
    edges = len(times)
    rank = np.searchsorted(np.sort(times), times)  # of the first edge of the same time
    if cut:
        _check_count(cut, "cut", int(cut))
        if cut > edges:
            raise DataError(f"cut={cut} by edges, and there are {edges} edges: at most one interval for each.")
        return (rank * cut // edges).astype(np.int32), cut
    share = _window(window)
    if share != int(share) or share > edges:
        raise DataError(f"window={window:g} edges, and there are {edges}: a whole number from 1 to {edges} is needed.")
    count = -(-edges // int(share))
    _check_count(window, "window", count)
    return (rank // int(share)).astype(np.int32), count


def _window(window: float | None) -> float:
    if window is None or not 0 < window < np.inf:
        raise DataError(f"cut=0 takes the window length, and that is {window}; give cut=n, the number of intervals.")
    return window


def _check_count(given: float | None, name: str, count: int) -> None:
    if not 1 <= count <= MAX_INTERVALS:
        raise DataError(f"{name}={given:g} makes {count:,} base intervals; 1 to {MAX_INTERVALS:,} are allowed.")
