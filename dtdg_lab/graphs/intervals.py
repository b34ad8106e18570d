"""Cut edges into base intervals: in memory (IntervalEdges), or as a stream of intervals (IntervalStream)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError, UnknownNameError
from dtdg_lab.graphs import pieces, snapshot
from dtdg_lab.graphs.calendar import Calendar
from dtdg_lab.graphs.edge_list import check_weights, read_ids, read_weights
from dtdg_lab.graphs.edge_times import TimeFormatter, read_times
from dtdg_lab.graphs.node_numbers import number_nodes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class IntervalStream:
    """A stream of B base intervals over nodes 0 .. N - 1, with any given features, targets and classes.

    Only the snapshots are streamed. The other arrays are as large as the features of the graph, and are held.

    Attributes:
        num_intervals: B.
        num_nodes: N.
        weighted: whether the snapshots carry weights.
        make: restarts the sequence and yields its B snapshots in order, with duplicates merged.
        node_ids: shape (N,): ids in the source, or None.
        features: float32, shape (B, N, F), or (N, F) where they never change; None where there are none.
        targets: float32, shape (B, N): the values to predict at a base interval; None predicts the next in-degrees.
        persistence: float32, shape (B, N): the prediction of ``targets`` by the current values.
        classes: int16, shape (B, N), or (N,) where they never change; -1 is unlabelled.
        vertex_split: int8, shape (N,): 0 trains, 1 validates, 2 tests, -1 none.
        rows: edges in the source, duplicates included; None if unknown.

    Raises:
        DataError: an array has the wrong type or shape, or holds a value that is not allowed.
    """

    num_intervals: int
    num_nodes: int
    weighted: bool
    make: Callable[[], Iterator[snapshot.Snapshot]]
    node_ids: NDArray[Any] | None = None
    features: NDArray[np.float32] | None = None
    targets: NDArray[np.float32] | None = None
    persistence: NDArray[np.float32] | None = None
    classes: NDArray[np.int16] | None = None
    vertex_split: NDArray[np.int8] | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.num_intervals < 1 or self.num_nodes < 1:
            raise DataError(
                f"{self.num_intervals} base intervals over {self.num_nodes} nodes: at least 1 of each is needed."
            )
        if self.node_ids is not None:
            object.__setattr__(self, "node_ids", snapshot.check_ids(self.node_ids, self.num_nodes))
        snapshot.check_arrays(self, snapshot.node_arrays(self.num_nodes, self.num_intervals, self))
        if self.persistence is not None and self.targets is None:
            raise DataError("persistence is given without targets, which it predicts. Give targets too, or neither.")


class Intervals(Protocol):
    """Edges assigned to B base intervals, in memory or in files."""

    @property
    def num_intervals(self) -> int:
        """B."""

    @property
    def num_nodes(self) -> int:
        """N."""

    @property
    def node_ids(self) -> NDArray[Any] | None:
        """Ids in the source, shape (N,), or None."""

    def stream(self, **replacements: Any) -> IntervalStream:
        """Return a stream of the intervals; ``replacements`` replace features, targets and so on."""


@dataclass(frozen=True, slots=True, eq=False)
class IntervalEdges:
    """E edges assigned to B base intervals, over nodes 0 .. N - 1.

    Attributes:
        src: shape (E,): sources.
        dst: shape (E,): targets.
        interval: shape (E,): base interval of every edge, 0 .. B - 1.
        num_intervals: B.
        num_nodes: N.
        weight: shape (E,), or None.
        node_ids: shape (N,): ids in the source, or None.
        features: as in :class:`IntervalStream`, like the next three.
        targets: the values to predict.
        persistence: the prediction of the targets by the current values.
        classes: classes of the nodes.

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
    features: NDArray[np.float32] | None = None
    targets: NDArray[np.float32] | None = None
    persistence: NDArray[np.float32] | None = None
    classes: NDArray[np.int16] | None = None

    def __post_init__(self) -> None:
        limits = (("src", self.num_nodes), ("dst", self.num_nodes), ("interval", self.num_intervals))
        for name, limit in limits:
            array = getattr(self, name)
            if array.shape != self.src.shape or array.ndim != 1:
                raise DataError(f"{name} has shape {array.shape} and src {self.src.shape}; equal vectors are needed.")
            if array.dtype.kind not in "iu":
                raise DataError(f"{name} has type {array.dtype}; whole numbers are needed.")
            snapshot.check_range(name, array, 0, limit - 1)
        if self.weight is not None:
            if self.weight.shape != self.src.shape:
                raise DataError(
                    f"weight has shape {self.weight.shape}; one weight for each of {len(self.src)} edges is needed."
                )
            check_weights(self.weight)

    def stream(self, **replacements: Any) -> IntervalStream:
        """Return a stream of the same intervals; ``replacements`` replace features, targets and so on."""
        fields = {name: getattr(self, name) for name in ("features", "targets", "persistence", "classes")}
        return IntervalStream(
            num_intervals=self.num_intervals,
            num_nodes=self.num_nodes,
            weighted=self.weight is not None,
            make=self.snapshots,
            node_ids=self.node_ids,
            rows=len(self.src),
            **{**fields, **replacements},
        )

    def snapshots(self) -> Iterator[snapshot.Snapshot]:
        """Yield the B snapshots, with duplicates merged. Intervals without edges share one snapshot."""
        interval, order = self.interval, None
        if (interval[1:] < interval[:-1]).any():
            order = np.argsort(interval, kind="stable")
        counts = np.zeros(self.num_intervals, dtype=np.int64)
        for piece in pieces.slices(len(interval)):
            counts += np.bincount(interval[piece], minlength=self.num_intervals)
        bounds = [0, *np.cumsum(counts).tolist()]
        none = np.empty(0, dtype=np.int64)
        weighted = self.weight is not None
        empty = snapshot.snapshot_of_keys(none, none.astype(np.float64) if weighted else None, self.num_nodes)

        def make(start: int, stop: int) -> snapshot.Snapshot:
            if start == stop:
                return empty
            selection = slice(start, stop) if order is None else order[start:stop]
            weight = None if self.weight is None else self.weight[selection].astype(np.float64)
            return snapshot.snapshot_of_keys(
                snapshot.keys_of(self.src[selection], self.dst[selection]), weight, self.num_nodes
            )

        if len(interval) <= pieces.AT_ONCE:
            yield from itertools.starmap(make, itertools.pairwise(bounds))
            return
        with ThreadPoolExecutor(1, thread_name_prefix="snapshots") as pool:  # one ahead: sorting releases the GIL
            current: Future[snapshot.Snapshot] | None = None
            for pair in itertools.pairwise(bounds):
                current, previous = pool.submit(make, *pair), current
                if previous is not None:
                    yield previous.result()
            if current is not None:
                yield current.result()


# Assign edges with times to base intervals, and number their nodes over all time.
#
# Edges may come in any order, with any finite times: negative, fractional, equal. Self loops, duplicates and intervals
# without edges are kept. Duplicates are merged when snapshots are made.
#
# Three ways to cut; each assigns every edge to one interval:
#
# * ``cut=B``: B intervals of equal length from the first time to the last; interval i holds first + i·span/B up to, not
#   including, first + (i + 1)·span/B, and the edges at the very last time belong to the last interval.
# * ``cut=0, window=w``: intervals of length w from the first time on; the last may be shorter. A calendar in place of w
#   makes intervals from midnight to midnight.
# * ``cut_by="edges"``: in the order of time, E/B edges for each interval, or w of them. Edges of equal time stay in one
#   interval, that of the first of them. An interval may thus hold more than its share, and the next ones less.
#
# Where times or lengths are floats, a time that lies less than a millionth of an interval before a boundary counts as
# on it, or less than 4 rounding steps of the times' own type where that is more: 3/24 is the start of the fourth
# interval of 1/24, although 3/24 // (1/24) is 2.
#
# With ``drop_partial`` the last interval is dropped where it is not full: its snapshot would be a label of few edges.
#
# Source: equal intervals and the dropped first time of the released code of DynaHB and FlareDTDG.
#
# Differs from the papers: their code leaves out the edges at the very last time, because its last window ends before
# it.


MAX_INTERVALS = 100_000  # upper bound of the option cut: a graph has a row of features for each interval
WAYS = ("time", "edges")

_Vector = NDArray[Any]
IntervalRule = tuple[Callable[[_Vector], _Vector], int]  # gives times their base interval; the number of intervals


def _intervals(times: _Vector, count: int, interval_of: Callable[[_Vector], _Vector]) -> NDArray[Any]:
    """Return the base interval of every time, shape (E,), in the smallest type for ``count`` intervals."""
    # of 16 bits, numpy sorts by radix
    intervals = np.empty(len(times), dtype=np.uint16 if count <= 2**16 else np.int32)

    def fill(piece: slice) -> None:
        intervals[piece] = interval_of(times[piece])

    pieces.work_on(len(times), fill)
    return intervals


def cut_edges(
    src: ArrayLike,
    dst: ArrayLike,
    time: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    cut: int = 0,
    cut_by: str = "time",
    window: float | Calendar | None = None,
    drop_first: bool = False,
    drop_partial: bool = False,
    bipartite: bool = False,
    nodes: Any = None,
) -> IntervalEdges:
    """Assign edges to base intervals, and number the nodes over all time in the order of their ids.

    Args:
        src: sources, shape (E,); whole numbers or text.
        dst: targets, shape (E,).
        time: times, shape (E,), in any order: numbers, or datetimes, which become nanoseconds.
        weight: weights, shape (E,), finite and at least 0; None where edges carry none.
        cut: B, the number of intervals; 0 takes ``window``.
        cut_by: the quantity divided equally among the intervals: ``time`` or ``edges``.
        window: length of an interval where ``cut`` is 0: in the unit of ``time``, or a number of edges; or a calendar
            where times are datetimes. Messages call it interval, as the option is called.
        drop_first: drop the edges of the first distinct time; their nodes keep their numbers.
        drop_partial: drop the edges of a last interval that is not full; their nodes keep their numbers.
            An interval of a fixed length is full where the last time, and the unit of time after it (the largest
            that all times are multiples of, counted from the first), reach its end; one of the calendar where the
            last time and a tenth more than the usual step after it do; one of edges with its share.
        bipartite: sources and targets are nodes of two kinds, each with its own ids: see :func:`two_sides`.
        nodes: the ids of all nodes in the order of their numbers, shape (N,), those without edges too; or N, which
            stands for 0 .. N - 1; a pair of these where ``bipartite``. None takes the nodes that have edges.

    Raises:
        DataError: there are no edges; vectors differ in length; values are no ids, times or weights; an interval is
            longer than the data; or there are too many intervals.
        UnknownNameError: another ``cut_by``.
    """
    if cut_by not in WAYS:
        raise UnknownNameError("value of cut_by", cut_by, WAYS)
    if not 0 <= cut <= MAX_INTERVALS:
        raise DataError(f"cut={cut} base intervals; 1 to {MAX_INTERVALS:,} are allowed, or 0 to give their length.")
    sources, targets, times = _vectors(src, dst, time)
    dates = times.dtype.kind == "M"
    times = times.view(np.int64) if dates else times
    spoken = TimeFormatter(times, dates=dates)
    weights = read_weights(weight, len(sources))
    node_ids, sources, targets = number_nodes(sources, targets, bipartite=bipartite, nodes=nodes)
    if drop_first:
        later = times > times.min()
        if not later.any():
            raise DataError(
                f"all {len(times)} edges have time {spoken.time(times[0])}, and drop_first leaves the edges of the "
                "first time out. Use drop_first=False, or data with more than one time."
            )
        sources, targets, times = sources[later], targets[later], times[later]
        weights = None if weights is None else weights[later]
    rule = interval_by_time if cut_by == "time" else _by_edges
    interval_of, count = rule(times, cut, window, TimeFormatter(times, dates=dates))
    interval = _intervals(times, count, interval_of)
    del interval_of  # may hold the sorted times
    if drop_partial and not cut and not _is_full(times, _window(window), count, cut_by):
        if count == 1:
            raise DataError(
                f"the only interval is not full, and drop_partial leaves it out: interval={window} is more than the "
                "data have. Give a shorter interval, or drop_partial=False."
            )
        is_whole = interval < count - 1
        sources, targets, interval, count = sources[is_whole], targets[is_whole], interval[is_whole], count - 1
        weights = None if weights is None else weights[is_whole]
    return IntervalEdges(
        src=sources,
        dst=targets,
        interval=interval,
        num_intervals=count,
        num_nodes=len(node_ids),
        weight=weights,
        node_ids=snapshot.read_only(node_ids),
    )


def _vectors(src: ArrayLike, dst: ArrayLike, time: ArrayLike) -> tuple[_Vector, _Vector, _Vector]:
    """Read the three vectors, which must be of equal length."""
    sources, targets, times = read_ids(src, "src"), read_ids(dst, "dst"), read_times(time)
    lengths = [len(vector) for vector in (sources, targets, times)]
    if not lengths[0] or len(set(lengths)) > 1:
        raise DataError(
            f"src, dst and time have {lengths[0]}, {lengths[1]} and {lengths[2]} entries; "
            "the same number, at least 1, is needed."
        )
    return sources, targets, times


def interval_by_time(times: _Vector, cut: int, window: float | Calendar | None, spoken: TimeFormatter) -> IntervalRule:
    """Return the rule that gives times their base interval, and the number of intervals.

    Args:
        times: at least the first and the last time, and for whole numbers another one, so that the distances from the
            first have the greatest common divisor of all distances.
        cut: as in :func:`cut_edges`.
        window: as in :func:`cut_edges`.
        spoken: writes times in messages.

    Raises:
        DataError: an interval is longer than the data, or there are too many.
    """
    first, last = times.min(), times.max()
    if isinstance(window, Calendar) and not cut:
        starts = window.starts(int(first), int(last), MAX_INTERVALS)
        count = len(starts) - 1
        return lambda part_of_times: np.searchsorted(starts, part_of_times, side="right") - 1, count
    rounding = np.finfo(times.dtype).eps * max(abs(float(first)), abs(float(last))) if times.dtype.kind == "f" else 0.0
    if times.dtype.kind == "f":
        first, last = np.float64(first), np.float64(last)
    if times.dtype.kind == "i" and int(last) - int(first) >= 2**63:
        raise DataError(
            f"times run from {spoken.time(first)} to {spoken.time(last)}; a span below 2^63 is needed, which is 292 "
            "years for dates. Use a coarser unit of time, as numbers."
        )
    with np.errstate(over="ignore"):  # refused below
        span = last - first
    if not np.isfinite(span):
        raise DataError(f"times run from {first} to {last}; their span is too large. Use a coarser unit of time.")
    if cut:
        if span == 0 and cut > 1:
            raise DataError(
                f"cut={cut} over a time span of 0: all edges have time {spoken.time(first)}. Edges of "
                "different times are needed."
            )
        return _equal_shares(times, first, span, cut, rounding), cut
    length = _window(window)
    assert isinstance(length, float | int)
    if span > 0 and length > span + _ROUNDING_STEPS * rounding:
        raise DataError(
            f"interval={spoken.length(length)} is longer than the data: {spoken.range()}. "
            "Give a shorter interval, or cut=n, the number of intervals."
        )
    if float(span) / length >= MAX_INTERVALS:
        raise DataError(
            f"interval={spoken.length(length)} makes {_many(float(span) / length + 1)} base intervals: "
            f"{spoken.range()}. At most {MAX_INTERVALS:,} are allowed: give an interval above "
            f"{spoken.length(span / MAX_INTERVALS)}, or cut=n, the number of intervals."
        )
    if times.dtype.kind == "i" and float(length).is_integer():
        count = int(span) // int(length) + 1
        return lambda part_of_times: (part_of_times - first) // int(length), count
    if _ROUNDING_STEPS * rounding / length > _MOST_TOLERANCE:
        raise DataError(
            f"interval={spoken.length(length)} is too short for times up to {last:g} in {times.dtype}, which are only "
            f"exact to {rounding:.1g}: give times as whole numbers, or subtract the first time before they are rounded."
        )
    count = int(_whole_steps(np.float64(span / length), rounding / length)) + 1
    return lambda part_of_times: _whole_steps((part_of_times - first) / length, rounding / length), count


_TOLERANCE = 1e-6  # of an interval: decimals that are written with six or more digits are on the boundary they mean
_MOST_TOLERANCE = 0.25
_ROUNDING_STEPS = 4  # subtracting, dividing and the interval's own rounding add up to less


def _whole_steps(steps: Any, rounding: float) -> Any:
    """Return floor(steps), or the next whole number where rounding explains the gap to it.

    Args:
        steps: times in units of an interval, from the first on.
        rounding: the rounding of a time, in the same unit.
    """
    nearest = np.rint(steps)
    tolerance = min(max(_TOLERANCE, _ROUNDING_STEPS * rounding), _MOST_TOLERANCE)
    return np.where(np.abs(steps - nearest) <= tolerance, nearest, np.floor(steps))


def _equal_shares(times: _Vector, first: Any, span: Any, cut: int, rounding: float) -> Callable[[_Vector], _Vector]:
    """Return the rule floor((time - first) / span * cut), and cut - 1 for the last time. Exact for whole numbers."""
    unit, is_integer = 1, times.dtype.kind == "i"
    if is_integer and int(span) >= 2**62 // cut:  # such as days in nanoseconds
        unit = math.gcd(*(int(np.gcd.reduce(times[piece] - first)) for piece in pieces.slices(len(times))))
        span //= unit

    def share(part_of_times: _Vector) -> _Vector:
        since = part_of_times - first
        if unit > 1:
            since //= unit
        if is_integer and int(span) < 2**62 // cut:
            return np.minimum(since * cut // max(span, 1), cut - 1)
        return np.minimum(_whole_steps(since / (span or 1) * cut, rounding * cut / (float(span) or 1.0)), cut - 1)

    return share


def _many(count: float) -> str:
    return f"{int(count):,}" if count < 1e15 else f"{count:.2g}"


def _by_edges(times: _Vector, cut: int, window: float | Calendar | None, spoken: TimeFormatter) -> IntervalRule:
    """Return the rule that gives times their base interval by rank, and the number of intervals."""
    edges, ascending = len(times), np.sort(times)

    def shared(count: int, interval_of: Callable[[_Vector], _Vector]) -> IntervalRule:
        # by the rank of the first edge of the same time
        return lambda part_of_times: interval_of(np.searchsorted(ascending, part_of_times)), count

    if cut:
        if cut > edges:
            raise DataError(f"cut={cut} by edges, and there are {edges} edges; at most {edges} intervals are allowed.")
        return shared(cut, lambda rank: rank * cut // edges)
    share = _window(window)
    assert not isinstance(share, Calendar)  # refused where the interval is read
    if share != int(share) or share > edges:
        raise DataError(f"interval={share:g} edges, and there are {edges}: a whole number from 1 to {edges} is needed.")
    count = -(-edges // int(share))
    if count > MAX_INTERVALS:
        raise DataError(
            f"interval={share:g} edges makes {count:,} base intervals of {edges:,} edges; at most {MAX_INTERVALS:,} "
            f"are allowed. Give at least {-(-edges // MAX_INTERVALS)}, or cut=n, the number of intervals."
        )
    return shared(count, lambda rank: rank // int(share))


def _is_full(times: _Vector, length: float | Calendar, count: int, cut_by: str) -> bool:
    """Return whether the last of ``count`` intervals has its full length, or its full share of edges."""
    if cut_by == "edges":
        assert not isinstance(length, Calendar)
        return len(times) >= count * int(length)
    first, last = times.min(), times.max()
    steps = np.diff(np.unique(times))
    if isinstance(length, Calendar):  # months differ in length, and so do days where clocks change
        usual = 0.0 if not len(steps) else _CALENDAR_MARGIN * float(np.median(steps))
        return bool(float(last) + usual >= length.starts(int(first), int(last), MAX_INTERVALS)[-1])
    unit = 0 if not len(steps) else np.gcd.reduce(steps) if steps.dtype.kind == "i" else steps.min()
    return bool(float(last - first + unit) / length >= count - _TOLERANCE)


_CALENDAR_MARGIN = 1.1


def _window(window: float | Calendar | None) -> float | Calendar:
    if isinstance(window, Calendar):
        return window
    if window is None or not 0 < window < np.inf:
        raise DataError(
            f"cut=0 takes intervals of a fixed length, and interval={window}; give cut=n, the number of intervals."
        )
    return window
