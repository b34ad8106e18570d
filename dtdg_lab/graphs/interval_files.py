"""Cut edges that do not fit into memory: sorted by base interval, a piece at a time, into a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.calendar import Calendar
from dtdg_lab.graphs.edge_list import read_ids, read_weights
from dtdg_lab.graphs.edge_times import TimeFormatter, read_times
from dtdg_lab.graphs.intervals import IntervalStream, interval_by_time
from dtdg_lab.graphs.node_numbers import read_nodes
from dtdg_lab.graphs.snapshot import Snapshot, check_range, keys_of, read_only, snapshot_of_keys
from dtdg_lab.graphs.storage import Draft


@dataclass(frozen=True, slots=True, eq=False)
class EdgePiece:
    """Some edges in a row.

    Attributes:
        src: sources, shape (E',), whole numbers.
        dst: targets, shape (E',).
        time: times, shape (E',), whole numbers or datetimes.
        weight: weights, shape (E',), or None.
        first: number of the first of them among all edges.
    """

    src: Any
    dst: Any
    time: Any
    weight: Any = None
    first: int = 0

    @contextmanager
    def named(self) -> Iterator[None]:
        """Say in errors, which count rows from the piece's first, which rows these are."""
        try:
            yield
        except DataError as error:
            if not self.first:
                raise
            raise DataError(f"in the edges from number {self.first:,} on: {error}") from error


EdgePieces = Callable[[], Iterator[EdgePiece]]  # starts again at each call, with the same pieces


class TimeRange:
    """The first and the last of all times, and the greatest common divisor of their distances.

    Args:
        pieces: all edges.

    Raises:
        DataError: there are no edges, or times are no whole numbers and no datetimes.
    """

    def __init__(self, pieces: EdgePieces) -> None:
        first: list[int] = []
        last: list[int] = []
        kinds, unit = set(), 0
        for piece in pieces():
            with piece.named():
                times = read_times(piece.time)
            kinds.add(times.dtype.kind)
            if kinds - {"i", "M"} or len(kinds) > 1:
                raise DataError("time must be whole numbers, or datetimes, in all pieces of an edge list on disk.")
            whole = times.view(np.int64)
            first.append(int(whole.min()))
            last.append(int(whole.max()))
            distances = (whole - first[-1]).view(np.uint64)  # up to 2^64 apart
            unit = math.gcd(unit, int(np.gcd.reduce(distances)), first[-1] - first[0])
        if not first:
            raise DataError("there are no edges.")
        self.first, self.last, self.are_dates = min(first), max(last), kinds == {"M"}
        self._unit = math.gcd(unit, first[0] - self.first)

    @property
    def sample(self) -> NDArray[np.int64]:
        """Up to three times, from which the same intervals follow as from all."""
        return np.unique([self.first, min(self.first + self._unit, self.last), self.last]).astype(np.int64)


class IntervalFiles:
    """Edges assigned to B base intervals, over nodes 0 .. N - 1, in files.

    Memory holds a piece, a base interval at a time, and B + 1 numbers for each piece.

    Args:
        pieces: all edges.
        draft: the folder of the files, which exist as long as it does.
        nodes: N.
        times: their times.
        cut: as in :func:`dtdg_lab.graphs.intervals.cut_edges`.
        window: likewise.

    Attributes:
        num_intervals: B.
        num_nodes: N.
        node_ids: shape (N,): 0 .. N - 1.
        rows: E.
        weighted: whether edges carry weights.

    Raises:
        DataError: an end is no node, a weight is negative, an interval is longer than the data, or there are too many.
    """

    def __init__(
        self,
        pieces: EdgePieces,
        draft: Draft,
        *,
        nodes: int,
        times: TimeRange,
        cut: int = 0,
        window: float | Calendar | None = None,
    ) -> None:
        self.node_ids = read_only(read_nodes(nodes, "nodes"))
        self.num_nodes, self.rows, self.weighted = len(self.node_ids), 0, False
        spoken = TimeFormatter(times.sample, dates=times.are_dates)
        interval_of, self.num_intervals = interval_by_time(times.sample, cut, window, spoken)
        self._draft = draft
        self._bounds: list[NDArray[np.int64]] = []  # of the intervals in the files, for each piece
        for piece in pieces():
            intervals = interval_of(read_times(piece.time).view(np.int64)).astype(np.int32)
            with piece.named():
                self._add(piece, intervals)
        draft.close_files()

    def _add(self, piece: EdgePiece, intervals: NDArray[np.int32]) -> None:
        sources, targets = self._ends("src", piece.src), self._ends("dst", piece.dst)
        weights = read_weights(piece.weight, len(sources))
        if not len(sources) == len(targets) == len(intervals):
            raise DataError(f"src, dst and time have {len(sources)}, {len(targets)} and {len(intervals)} entries.")
        order = np.argsort(intervals, kind="stable")
        self._draft.file("keys", np.int64).extend(keys_of(sources[order], targets[order]))
        if weights is not None:
            self.weighted = True
            self._draft.file("weights", np.float64).extend(weights[order])
        counts = np.bincount(intervals, minlength=self.num_intervals)
        self._bounds.append(self.rows + np.concatenate([[0], np.cumsum(counts)]))
        self.rows += len(sources)

    def _ends(self, name: str, ids: Any) -> NDArray[Any]:
        numbers = read_ids(ids, name)
        if numbers.dtype.kind != "i":
            raise DataError(f"{name} is text; with nodes={self.num_nodes}, whole numbers are needed.")
        check_range(name, numbers, 0, self.num_nodes - 1)
        return numbers

    def stream(self, **given: Any) -> IntervalStream:
        """Return a stream of the intervals; ``given`` are features, classes and so on."""
        return IntervalStream(
            num_intervals=self.num_intervals,
            num_nodes=self.num_nodes,
            weighted=self.weighted,
            make=self._snapshots,
            node_ids=self.node_ids,
            rows=self.rows,
            **given,
        )

    def _snapshots(self) -> Iterator[Snapshot]:
        keys = self._draft.files["keys"].mapped()
        weights = self._draft.files["weights"].mapped() if self.weighted else None
        for interval in range(self.num_intervals):
            parts = [slice(*bounds[interval : interval + 2]) for bounds in self._bounds]  # in the order of the pieces
            of_interval = None if weights is None else np.concatenate([weights[part] for part in parts])
            yield snapshot_of_keys(np.concatenate([keys[part] for part in parts]), of_interval, self.num_nodes)
