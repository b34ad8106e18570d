"""Where operators get their edges from: some rows of a snapshot, the columns they pull from, and degrees of both."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.adjacency import Adjacency
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot
from dtdg_lab.kernels.operator_settings import OperatorSettings

WAYS = ("in", "out")


class EdgeSource(Protocol):
    """n rows, and the M columns that they pull from, along each of two ways.

    Along ``in`` a row pulls from its in-neighbours, along ``out`` from its out-neighbours. The two may have different
    columns. Either way, row i is itself column ``first + i``. Degrees are those of the whole graph, whatever share of
    the edges is here: sums of weights, or numbers of edges where they carry no weight.

    Attributes:
        first: the column of row 0.
    """

    @property
    def first(self) -> int:
        """The column of row 0."""
        ...

    def adjacency(self, way: str) -> Adjacency:
        """The edges that rows pull along, (n, M); the same object until ``release``."""
        ...

    def row_degrees(self, way: str) -> Tensor:
        """Weighted degree of each row along a way, (n,)."""
        ...

    def column_degrees(self, way: str) -> Tensor:
        """Weighted degree along a way of each column of ``adjacency("in")``, (M,): what a convolution scales by."""
        ...

    def release(self) -> None:
        """Let go of everything made; what is asked for again is made again."""
        ...


class SnapshotSource:
    """Rows of one snapshot (or of several, stacked), with all its vertices as columns.

    Args:
        snapshot: N vertices and E edges; row v lists the edges into v. On the device it is used where it is.
        rows: the vertices whose rows are computed.
        settings: backend, type and device of the products.
    """

    def __init__(self, snapshot: Snapshot | DeviceSnapshot, rows: range, settings: OperatorSettings) -> None:
        self._snapshot, self._rows, self._settings = snapshot, rows, settings
        self._whole: Adjacency | None = None
        self._parts: dict[str, Adjacency] = {}
        self._degrees: dict[str, Tensor] = {}

    @property
    def first(self) -> int:
        """The column of row 0: its vertex."""
        return self._rows.start

    def adjacency(self, way: str) -> Adjacency:
        """The edges that rows pull along, (n, N).

        Raises:
            UnsupportedError: there is no such way.
        """
        if way not in self._parts:
            whole = self._all(way)
            self._parts[way] = whole if len(self._rows) == whole.shape[0] else whole.part(self._rows)
        return self._parts[way]

    def row_degrees(self, way: str) -> Tensor:
        """Weighted degree of each row along a way, (n,): all its edges are here."""
        if way == "in" and way in self._degrees:
            return self._degrees[way][self._rows.start : self._rows.stop]
        return self.adjacency(way).row_sums()

    def column_degrees(self, way: str) -> Tensor:
        """Weighted in-degree or out-degree of every vertex, (N,).

        Raises:
            UnsupportedError: there is no such way.
        """
        if way not in self._degrees:
            whole = self._all("in")
            self._degrees[way] = whole.row_sums() if checked(way) == "in" else whole.column_sums()
        return self._degrees[way]

    def release(self) -> None:
        """Let go of everything made; what is asked for again is made again."""
        self._whole = None
        self._parts.clear()
        self._degrees.clear()

    def _all(self, way: str) -> Adjacency:
        checked(way)
        if self._whole is None:
            of, settings = self._snapshot, self._settings
            self._whole = Adjacency(
                of.indptr, of.indices, of.weights,
                backend=settings.backend, dtype=settings.dtype, device=settings.device,
            )  # fmt: skip
        return self._whole if way == "in" else self._whole.transposed_adjacency()


def checked(way: str) -> str:
    """The way, where it is one.

    Raises:
        UnsupportedError: there is no such way.
    """
    if way not in WAYS:
        raise UnsupportedError(f"edges along {way!r}: rows pull along {' or '.join(WAYS)}. Ask for one of them.")
    return way
