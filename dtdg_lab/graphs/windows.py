"""From edges with times to snapshots: base intervals, then windows of ``edge_life`` of them.

Snapshot i holds the edges of base intervals i .. i + edge_life - 1, so B intervals make B - edge_life + 1 snapshots
and an edge lives in ``edge_life`` of them, fewer at the two ends. Duplicates are merged; where edges carry weights
these are summed. Self loops are kept, and so are intervals without edges.

Source: the edge-life windows of ESDG section 5.4 and of the released code of DynaHB and FlareDTDG.

Differs from the papers: the first distinct time is not dropped, and snapshots with few edges are kept.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.snapshot import Snapshot

MAX_NODES = 2**31 - 1  # sources are kept as int32


@dataclass(frozen=True, slots=True, eq=False)
class IntervalEdges:
    """E edges dealt to B base intervals, over vertices 0 .. N - 1.

    Attributes:
        src: shape (E,): sources.
        dst: shape (E,): targets.
        interval: shape (E,): base interval of every edge, 0 .. B - 1.
        num_intervals: B.
        num_nodes: N.
        weight: shape (E,), or None.
        node_ids: shape (N,): ids in the source, or None.

    Raises:
        DataError: vectors of different lengths, or numbers outside their range.
    """

    src: NDArray[Any]
    dst: NDArray[Any]
    interval: NDArray[Any]
    num_intervals: int
    num_nodes: int
    weight: NDArray[Any] | None = None
    node_ids: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        limits = (("src", self.num_nodes), ("dst", self.num_nodes), ("interval", self.num_intervals))
        for name, limit in limits:
            array = getattr(self, name)
            if array.shape != self.src.shape or array.ndim != 1:
                raise DataError(f"{name} has shape {array.shape} and src {self.src.shape}; equal vectors are needed.")
            if len(array) and not (array.min() >= 0 and array.max() < limit):
                raise DataError(f"{name} runs from {array.min()} to {array.max()}; 0 to {limit - 1} is allowed.")
        if self.weight is not None and self.weight.shape != self.src.shape:
            raise DataError(
                f"weight has shape {self.weight.shape}; one weight for each of {len(self.src)} edges is needed."
            )


def cut_edges(
    src: ArrayLike,
    dst: ArrayLike,
    time: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    cut: int = 0,
    window: float | None = None,
) -> IntervalEdges:
    """Deal edges to base intervals by their time and number the vertices over all time, in the order of their ids.

    Args:
        src: sources, shape (E,); whole numbers or text.
        dst: targets, shape (E,).
        time: times, shape (E,), in any order: numbers, or numpy datetimes.
        weight: weights, shape (E,), finite and at least 0; None where edges carry none.
        cut: equal intervals over the whole span, the last edge in the last interval; 0 takes ``window``.
        window: length of an interval, in the unit of ``time``, counted from the first time. Used where ``cut`` is 0.

    Raises:
        DataError: no edges, vectors of different lengths, or values that are no ids, times or weights.
    """
    lengths = [np.size(values) for values in (src, dst, time)]
    if not lengths[0] or len(set(lengths)) > 1:
        raise DataError(
            f"src, dst and time have {lengths[0]}, {lengths[1]} and {lengths[2]} entries; "
            "the same number, at least 1, is needed."
        )
    sources, targets, times = _ids(src, "src"), _ids(dst, "dst"), _times(time)
    if sources.dtype.kind != targets.dtype.kind:
        raise DataError("src and dst must both be whole numbers or both be text, because they name the same vertices.")
    interval, count = _intervals(times, cut=cut, window=window)
    node_ids, numbers = np.unique(np.concatenate([sources, targets]), return_inverse=True)
    if len(node_ids) > MAX_NODES:
        raise DataError(f"{len(node_ids):,} vertices; at most {MAX_NODES:,} fit the index type.")
    return IntervalEdges(
        src=numbers[: len(sources)], dst=numbers[len(sources) :], interval=interval, num_intervals=count,
        num_nodes=len(node_ids), weight=_weights(weight, len(sources)), node_ids=give_up(node_ids),
    )  # fmt: skip


def base_snapshots(edges: IntervalEdges) -> tuple[Snapshot, ...]:
    """One snapshot for each base interval, duplicates merged; B of them, some perhaps without edges."""
    src, dst, interval, weight = edges.src, edges.dst, edges.interval, edges.weight
    if (np.diff(interval) < 0).any():
        order = np.argsort(interval, kind="stable")
        src, dst, interval = src[order], dst[order], interval[order]
        weight = None if weight is None else weight[order]
    bounds = np.searchsorted(interval, np.arange(edges.num_intervals + 1)).tolist()
    keys = dst.astype(np.int64) * edges.num_nodes + src
    return tuple(
        _from_keys(keys[a:b], None if weight is None else weight[a:b], edges.num_nodes)
        for a, b in itertools.pairwise(bounds)
    )


def merge_windows(base: tuple[Snapshot, ...], edge_life: int) -> tuple[Snapshot, ...]:
    """Snapshots of ``edge_life`` base intervals each: snapshot i merges ``base[i:i + edge_life]``.

    Args:
        base: B snapshots of one base interval each, over the same N vertices.
        edge_life: base intervals an edge lives, 1 .. B.

    Returns:
        B - edge_life + 1 snapshots.

    Raises:
        DataError: there are fewer base intervals than ``edge_life``.
    """
    if not 1 <= edge_life <= len(base):
        raise DataError(
            f"edge_life={edge_life} with {len(base)} base intervals: allowed 1 to {len(base)}. "
            "Lower edge_life, or cut more intervals."
        )
    if edge_life == 1:
        return base
    return tuple(_merged(base[i : i + edge_life]) for i in range(len(base) - edge_life + 1))


def _merged(window: tuple[Snapshot, ...]) -> Snapshot:
    num_nodes = window[0].num_nodes
    keys = np.concatenate([snapshot.rows() * num_nodes + snapshot.indices for snapshot in window])
    given = [snapshot.weights for snapshot in window if snapshot.weights is not None]
    return _from_keys(keys, np.concatenate(given).astype(np.float64) if given else None, num_nodes)


def _from_keys(keys: NDArray[np.int64], weight: NDArray[np.float64] | None, num_nodes: int) -> Snapshot:
    """The snapshot of edges given as keys target * N + source, in any order and with duplicates; weights are summed."""
    if weight is None:
        keys, weights = np.sort(keys), None
        keys = keys[np.diff(keys, prepend=-1) != 0]
    else:
        order = np.argsort(keys, kind="stable")  # stable: sums are always taken in the same order
        keys = keys[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1) != 0)
        sums = np.add.reduceat(weight[order], starts) if len(starts) else np.zeros(0)
        keys, weights = keys[starts], give_up(sums.astype(np.float32))
    dst, src = np.divmod(keys, num_nodes)
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(dst, minlength=num_nodes), out=indptr[1:])
    return Snapshot(give_up(indptr), give_up(src.astype(np.int32)), weights)


def _intervals(times: NDArray[Any], *, cut: int, window: float | None) -> tuple[NDArray[np.int64], int]:
    """The base interval of every time, shape (E,), and the number of intervals."""
    since = times - times.min()
    span = since.max()
    if cut:
        if cut < 0 or (span == 0 and cut > 1):
            raise DataError(
                f"cut={cut} over a time span of {span}: at least 1 interval and edges of different times are needed."
            )
        # whole numbers stay exact, so that an edge on a boundary falls into the later interval
        exact = times.dtype.kind == "i" and int(span) < 2**62 // cut
        where = since * cut // max(span, 1) if exact else np.floor(since / (span or 1) * cut)
        return np.minimum(where.astype(np.int64), cut - 1), cut
    if window is None or not window > 0:
        raise DataError(f"cut=0 takes the window length, and that is {window}; give cut=n, the number of intervals.")
    interval = (since // window).astype(np.int64)
    return interval, int(interval.max()) + 1


def _ids(values: ArrayLike, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        array = array.astype(str)
    if array.dtype.kind not in "iuU" or array.ndim != 1:
        raise DataError(
            f"{name} has type {array.dtype} and shape {array.shape}; a vector of whole numbers or text is needed."
        )
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


def _times(values: ArrayLike) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            raise DataError(f"time[{np.flatnonzero(np.isnat(array))[0]}] is not a time (NaT). Drop such edges.")
        array = array.astype("datetime64[ns]").astype(np.int64)
    if array.dtype.kind not in "iuf" or array.ndim != 1:
        raise DataError(
            f"time has type {array.dtype} and shape {array.shape}; a vector of numbers or datetimes is needed."
        )
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if not np.isfinite(array).all():
        raise DataError(f"time[{np.flatnonzero(~np.isfinite(array))[0]}] is not finite. Drop such edges.")
    return array.astype(np.float64)


def _weights(values: ArrayLike | None, count: int) -> NDArray[np.float64] | None:
    if values is None:
        return None
    array = np.asarray(values)
    if array.dtype.kind not in "iuf" or array.shape != (count,):
        raise DataError(f"weight has type {array.dtype} and shape {array.shape}; {count} numbers are needed.")
    array = array.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        raise DataError(
            f"weight[{wrong[0]}] is {array[wrong[0]]}; finite weights of at least 0 are needed, because degrees are "
            "sums of weights. Drop such edges, or shift the weights."
        )
    return array
