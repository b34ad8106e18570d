"""Every kind of pull from one snapshot (or several, stacked) as an operator, made when it is first asked for."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.message_passing import DIRECTIONS
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.attention import AttentionOperator
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot
from dtdg_lab.kernels.spmm import Adjacency, ScaledOperator

# How operators are made, the same for all snapshots of a sequence.


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """How operators are made, the same for all snapshots of a sequence.

    Attributes:
        backend: ``dgl`` or ``torch`` (see :func:`dtdg_lab.kernels.spmm.choose_backend`).
        dtype: type of the products.
        device: where they run.
        norm: ``in`` or ``in_out``, the scaling of ``gcn``.
        self_loops: whether ``gcn`` adds every node to its own neighbours.
    """

    backend: str = "torch"
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    norm: str = "in"
    self_loops: bool = True


# Where operators get their edges from: some rows of a snapshot, the columns they pull from, and degrees of both.


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

    def adjacency(self, direction: str) -> Adjacency:
        """The edges that rows pull along, (n, M); the same object until ``release``."""
        ...

    def row_degrees(self, direction: str) -> Tensor:
        """Weighted degree of each row along a direction, (n,)."""
        ...

    def column_degrees(self, direction: str) -> Tensor:
        """Weighted degree along a direction of each column of ``adjacency("in")``, (M,): convolutions scale by it."""
        ...

    def release(self) -> None:
        """Let go of everything made; what is asked for again is made again."""
        ...


class SnapshotSource:
    """Rows of one snapshot (or of several, stacked), with all its nodes as columns.

    Args:
        snapshot: N nodes and E edges; row v lists the edges into v. On the device it is used where it is.
        rows: the nodes whose rows are computed.
        settings: backend, type and device of the products.
    """

    def __init__(self, snapshot: Snapshot | DeviceSnapshot, rows: range, settings: OperatorSettings) -> None:
        self._snapshot, self._rows, self._settings = snapshot, rows, settings
        self._whole: Adjacency | None = None
        self._parts: dict[str, Adjacency] = {}
        self._degrees: dict[str, Tensor] = {}

    @property
    def first(self) -> int:
        """The column of row 0: its node."""
        return self._rows.start

    def adjacency(self, direction: str) -> Adjacency:
        """The edges that rows pull along, (n, N).

        Raises:
            UnsupportedError: there is no such direction.
        """
        if direction not in self._parts:
            whole = self._all(direction)
            self._parts[direction] = whole if len(self._rows) == whole.shape[0] else whole.part(self._rows)
        return self._parts[direction]

    def row_degrees(self, direction: str) -> Tensor:
        """Weighted degree of each row along a direction, (n,): all its edges are here."""
        if direction == "in" and direction in self._degrees:
            return self._degrees[direction][self._rows.start : self._rows.stop]
        return self.adjacency(direction).row_sums()

    def column_degrees(self, direction: str) -> Tensor:
        """Weighted in-degree or out-degree of every node, (N,).

        Raises:
            UnsupportedError: there is no such direction.
        """
        if direction not in self._degrees:
            whole = self._all("in")
            self._degrees[direction] = whole.row_sums() if checked(direction) == "in" else whole.column_sums()
        return self._degrees[direction]

    def release(self) -> None:
        """Let go of everything made; what is asked for again is made again."""
        self._whole = None
        self._parts.clear()
        self._degrees.clear()

    def _all(self, direction: str) -> Adjacency:
        checked(direction)
        if self._whole is None:
            of, settings = self._snapshot, self._settings
            self._whole = Adjacency(
                of.indptr,
                of.indices,
                of.weights,
                backend=settings.backend,
                dtype=settings.dtype,
                device=settings.device,
            )
        return self._whole if direction == "in" else self._whole.transposed_adjacency()


def checked(direction: str) -> str:
    """The way, where it is one.

    Raises:
        UnsupportedError: there is no such direction.
    """
    if direction not in DIRECTIONS:
        raise UnsupportedError(
            f"edges along {direction!r}: rows pull along {' or '.join(DIRECTIONS)}. Ask for one of them."
        )
    return direction


# Freed memory stays with the process: arrays of the same sizes are made again and again.


KEPT_BYTES = 1 << 30
_LARGEST_FROM_HEAP = 32 << 20  # the most that glibc allows
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # M_TRIM_THRESHOLD and so on, of malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Make the C library return freed memory only beyond ``KEPT_BYTES``, process-wide; True if supported.

    By default glibc maps large arrays with mmap and unmaps them when they are freed. Every page is then cleared again,
    which took up to half the time of an epoch. Threads share one heap, since per-thread heaps are small and always
    returned. Other C libraries are left as they are.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    settings = ((_MMAP_THRESHOLD, _LARGEST_FROM_HEAP), (_TRIM_THRESHOLD, KEPT_BYTES), (_ARENA_MAX, 1))
    return all([library.mallopt(name, value) == 1 for name, value in settings])


KINDS = ("gcn", "mean", "diffusion-in", "diffusion-out", "attention")


class Operators:
    """The operators of some rows, whose neighbours are columns that may be more than the rows.

    - ``gcn``: D^-1/2 (A + I) D^-1/2 with D = 1 + weighted in-degree (SYSTEMS.md, notation). ``norm="in_out"`` has the
      sources' out-degrees on the right: w / sqrt(in(v) out(u)). Without self loops there is no I and no 1; a node
      without edges then gets 0.
    - ``mean``, ``diffusion-in``: D_in^-1 A, the weighted mean over in-neighbours; 0 where there are none.
    - ``diffusion-out``: D_out^-1 A^T, the weighted mean over out-neighbours; 0 where there are none.
    - ``attention``: see :class:`dtdg_lab.kernels.attention.AttentionOperator`.

    Args:
        source: the edges of the n rows and the degrees of the M columns; row v of A lists the edges into v.
        settings: scaling; the rest of it is the source's.

    References: ``norm="in_out"`` without self loops: FlareDTDG, released code.
    """

    def __init__(self, source: EdgeSource, settings: OperatorSettings) -> None:
        self._source, self._settings = source, settings
        self._scaled: dict[str, ScaledOperator] = {}
        self._attention: AttentionOperator | None = None

    def scaled(self, kind: str) -> ScaledOperator:
        """The operator of any kind but ``attention``.

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind not in self._scaled:
            if kind == "gcn":
                self._scaled[kind] = self._convolution()
            elif kind in {"mean", "diffusion-in"}:
                self._scaled["mean"] = self._scaled["diffusion-in"] = self._mean("in")
            elif kind == "diffusion-out":
                self._scaled[kind] = self._mean("out")
            else:
                raise UnsupportedError(f"pull of kind {kind!r}: allowed are {', '.join(KINDS)}. Change the model.")
        return self._scaled[kind]

    def attention(self) -> AttentionOperator:
        """The attention over in-neighbours and the node itself."""
        if self._attention is None:
            self._attention = AttentionOperator(self._source.adjacency("in"), first=self._source.first)
        return self._attention

    def release(self) -> None:
        """Let go of everything made; what is asked for again is made again."""
        self._attention = None
        self._scaled.clear()
        self._source.release()

    def _mean(self, direction: str) -> ScaledOperator:
        return ScaledOperator(self._source.adjacency(direction), _over(self._source.row_degrees(direction)), None)

    def _convolution(self) -> ScaledOperator:
        source, loops = self._source, self._settings.self_loops
        extra = 1.0 if loops else 0.0
        columns = source.column_degrees("in" if self._settings.norm == "in" else "out")
        right = _over(torch.sqrt(columns + extra))
        left = _over(torch.sqrt(source.row_degrees("in") + extra))
        return ScaledOperator(source.adjacency("in"), left, right, add_self=loops, first=source.first)


def _over(numbers: Tensor) -> Tensor:
    """1 / d, and 0 where d is 0."""
    return torch.where(numbers > 0, 1.0 / numbers, torch.zeros_like(numbers))
