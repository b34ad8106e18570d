"""A graph's snapshots on a device: moved on first use within a memory limit, or fed block by block."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.engine.record_rows import TransferRow
from dtdg_lab.engine.views.sequence import SnapshotSequence
from dtdg_lab.engine.views.snapshot_view import Gathered, NeighbourRows, SnapshotView
from dtdg_lab.graphs.delta import CSR32, Contents, Payload, decode, encode, operator_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, read_only, repeats
from dtdg_lab.kernels.backend_choice import choose_backend
from dtdg_lab.kernels.device_memory import USUAL_LIMITS, MemoryLimits
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot, unpack
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource, keep_freed_memory
from dtdg_lab.kernels.spmm import stacked
from dtdg_lab.kernels.uploads import upload

# These limits are for speed, not memory, and bits depend on them: they do not follow the memory of the device.
# Most rows of stacked snapshots. Above, stacking gains nothing: a product takes longer than the call overhead.
STACKED_ROWS = {"cpu": 16_384, "cuda": 1_048_576}
# Most feature values of stacked snapshots: overlapping ranges of snapshots have a copy each.
STACKED_NUMBERS = {"cpu": 262_144, "cuda": 16_777_216}


def stack_ranges(snapshots: range, *, rows: int, features: int, device: str) -> list[range]:
    """Split consecutive snapshots into stacks of about equal length.

    Args:
        snapshots: T consecutive snapshots.
        rows: rows of one snapshot; the most of any rank if ranks exchange rows.
        features: number of features, F.
        device: device that computes.
    """
    device_type = device.partition(":")[0]
    stack_size = max(1, min(STACKED_ROWS[device_type] // rows, STACKED_NUMBERS[device_type] // (rows * features)))
    pieces = -(-len(snapshots) // stack_size)
    bounds = [snapshots.start + len(snapshots) * piece // pieces for piece in range(pieces + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


class ViewStore:
    """Size-bounded cache of views, by their snapshots.

    The first views that fit stay; others are rebuilt at every request. For repeated passes over the sequence this
    beats evicting the oldest.

    Args:
        make: makes the view of some snapshots.
        size: estimates the bytes of a view.
        limits: most bytes of cached views, and of cached first-layer pulls.
    """

    def __init__(
        self, make: Callable[[range], SnapshotView], size: Callable[[range], int], limits: MemoryLimits
    ) -> None:
        self._make, self._size = make, size
        self._views_bytes = self._views_left = limits.views_bytes
        self._pulls_left = limits.pulls_bytes
        self._views: dict[range, SnapshotView] = {}
        self._alive: weakref.WeakValueDictionary[range, SnapshotView] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, snapshots: range) -> SnapshotView:
        """Return the view of these snapshots."""
        if snapshots in self._views:
            return self._views[snapshots]
        view = self._alive.get(snapshots)  # not cached, but still in use
        if view is not None:
            return view
        view = self._make(snapshots)
        if self.keeps(snapshots):
            self._views_left -= self._size(snapshots)
            self._views[snapshots] = view
        else:
            self._alive[snapshots] = view
        return view

    def keeps(self, snapshots: range) -> bool:
        """Return whether the view is cached, or will be once it is made."""
        return snapshots in self._views or self._size(snapshots) <= self._views_left

    def make_room(self, most_bytes: int) -> None:
        """Raise the limit of cached views to ``most_bytes``, if it is lower."""
        extra_bytes = max(0, most_bytes - self._views_bytes)
        self._views_bytes, self._views_left = self._views_bytes + extra_bytes, self._views_left + extra_bytes

    def take_pull(self, size: int) -> bool:
        """Reserve ``size`` bytes for a first-layer pull; return False if they exceed the limit."""
        with self._lock:  # snapshots are computed on several threads
            fits = size <= self._pulls_left
            self._pulls_left -= size if fits else 0
        return fits


Transferred = list[Snapshot] | list[DeviceSnapshot]


class SnapshotFeed:
    """Transfers snapshots of a graph into a rank's own memory.

    On the CPU they arrive as :class:`Snapshot`. On a CUDA device they arrive as :class:`DeviceSnapshot`: payloads are
    pinned and copied by :mod:`dtdg_lab.kernels.uploads`, while the device computes.
    A payload is encoded once for a range of snapshots and cached on the host. A request for an overlapping range
    evicts it, so no snapshot is in two payloads. Snapshots sent in full to the CPU are copied from the graph itself.

    Args:
        graph: T snapshots.
        difference: whether all snapshots but the first of a range arrive as differences.
        device: target device.

    References: ESDG section 3.2 (differences, pinned memory).
    """

    def __init__(self, graph: DynamicGraph, *, difference: bool, device: str) -> None:
        self.graph, self.difference, self.device = graph, difference, device
        self._tensors = _takes_tensors(device)
        self._payloads: dict[range, Payload] = {}
        self._pages: dict[range, tuple[Contents, Tensor, Tensor | None]] = {}
        self._snapshots = self._bytes = self._whole_bytes = 0

    def bring(self, snapshots: range) -> Transferred:
        """Transfer consecutive snapshots; the first is always transferred in full.

        Raises:
            DataError: the snapshots cannot be encoded.
        """
        if not len(snapshots):
            return []
        if self._tensors:
            return self._to_device(snapshots)
        if not self.difference:
            payload = self._encoded(snapshots)  # encoding copies
        else:
            cached = self._cached(snapshots)
            values = None if cached.values is None else read_only(cached.values.copy())
            payload = Payload(cached.contents, read_only(cached.numbers.copy()), values)
        self._count(payload.contents, payload.nbytes)
        return decode(payload)

    def drain(self) -> list[TransferRow]:
        """Return the transfers since the last call; empty if there were none."""
        row = TransferRow(self._snapshots, self._bytes, self._whole_bytes)
        self._snapshots = self._bytes = self._whole_bytes = 0
        return [row] if row.snapshots else []

    def _to_device(self, snapshots: range) -> list[DeviceSnapshot]:
        if snapshots not in self._pages:
            _evict_overlapping(snapshots, self._pages)
            payload = self._encoded(snapshots)
            numbers = torch.tensor(payload.numbers).pin_memory()
            values = None if payload.values is None else torch.tensor(payload.values).pin_memory()
            self._pages[snapshots] = (payload.contents, numbers, values)
        contents, numbers, values = self._pages[snapshots]
        self._count(contents, numbers.nbytes + (0 if values is None else values.nbytes))
        device_values = None if values is None else upload(values, self.device)
        return unpack(contents, upload(numbers, self.device), device_values)

    def _cached(self, snapshots: range) -> Payload:
        if snapshots not in self._payloads:
            _evict_overlapping(snapshots, self._payloads)
            self._payloads[snapshots] = self._encoded(snapshots)
        return self._payloads[snapshots]

    def _encoded(self, snapshots: range) -> Payload:
        return encode([self.graph.snapshots[t] for t in snapshots], CSR32, difference=self.difference)

    def _count(self, contents: Contents, sent: int) -> None:
        self._snapshots += len(contents.parts)
        self._bytes += sent
        for part in contents.parts:
            numbers = CSR32.whole_numbers(contents.nodes, part.edges)
            self._whole_bytes += numbers * CSR32.index_bytes + CSR32.value_bytes(part.edges, contents.weighted)


def _takes_tensors(device: str) -> bool:
    """Return whether snapshots arrive as tensors, through pinned memory."""
    return torch.device(device).type == "cuda"


def _evict_overlapping(snapshots: range, cache: dict[range, Any]) -> None:
    """Remove payloads that overlap these snapshots."""
    for key in [key for key in cache if key.start < snapshots.stop and snapshots.start < key.stop]:
        cache.pop(key)


class StoredSequence(SnapshotSequence):
    """Snapshots of a graph, or of one part, whose views are cached in a store."""

    _store: ViewStore
    _static: Tensor | None = None

    def view(self, t: int) -> SnapshotView:
        """Return snapshot t for all layers of the model."""
        return self._store.get(range(t, t + 1))

    def stack(self, snapshots: range) -> SnapshotView:
        """Return consecutive snapshots as one stacked view."""
        return self._store.get(snapshots)

    def _features_of(self, features: NDArray[np.float32], snapshots: range, rows: Any = slice(None)) -> Tensor:
        """Move the features of some nodes and snapshots to the device, (T, N, F) -> (S n, F); static ones once."""
        if repeats(features) and len(snapshots) == 1:
            if self._static is None:
                self._static = self._moved(features[0][rows])
            return self._static
        return self._moved(features[snapshots.start : snapshots.stop][:, rows]).flatten(0, 1)

    def _moved(self, features: NDArray[np.float32]) -> Tensor:
        return upload(np.asarray(features), self.device).to(self.dtype)


class DeviceSequence(StoredSequence):
    """Snapshots of a graph as :class:`SnapshotView`, for the nodes in ``rows`` (see :class:`SnapshotSequence`).

    Args:
        graph: T labelled snapshots of N nodes.
        device: device of tensors.
        dtype: type of features and products.
        kernel: ``auto``, ``dgl`` or ``torch``.
        norm: normalisation of graph convolutions, ``in`` or ``in_out``.
        self_loops: whether graph convolutions add self-loops.
        rows: nodes computed here; None for all.
        gather: gathers the rows of all nodes from all ranks, without gradient; only with ``rows``.
        limits: bytes kept; those of views are estimated from their edges.
        feed: transfers copies of snapshots; None to use the graph's snapshots themselves.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        *,
        device: str,
        dtype: torch.dtype,
        kernel: str,
        norm: str = "in",
        self_loops: bool = True,
        rows: range | None = None,
        gather: Callable[..., Tensor] | None = None,
        limits: MemoryLimits = USUAL_LIMITS,
        feed: SnapshotFeed | None = None,
    ) -> None:
        keep_freed_memory()
        self.graph, self.device, self.dtype = graph, device, dtype
        self.rows = range(graph.num_nodes) if rows is None else rows
        self.own = len(self.rows)
        self.vertices = None if rows is None else torch.arange(rows.start, rows.stop, device=device)
        self.collective = gather is not None
        backend = choose_backend(kernel, device=device, dtype=dtype)
        self.settings = OperatorSettings(backend, dtype, device, norm, self_loops, limits)
        self._neighbours = NeighbourRows() if gather is None else Gathered(gather)
        self._store = ViewStore(self._make, self.estimated_bytes, limits)
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}
        self.feed = feed
        self._brought: dict[int, Snapshot | DeviceSnapshot] = {}

    @property
    def backend(self) -> str:
        """Kernel backend, ``dgl`` or ``torch``."""
        return self.settings.backend

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotView]:
        """Return views of consecutive snapshots, small snapshots stacked; the same for all layers."""
        if self.collective:
            return [self.view(t) for t in snapshots]
        nodes, features = self.graph.num_nodes, self.graph.num_features
        ranges = stack_ranges(snapshots, rows=nodes, features=features, device=self.device)
        return [self._store.get(stack) for stack in ranges]

    def keep_views(self, most_bytes: int) -> None:
        """Raise the limit of cached views to ``most_bytes``, if it is lower."""
        self._store.make_room(most_bytes)

    def fed(self, *, difference: bool) -> DeviceSequence:
        """Return a sequence that transfers snapshots block by block, in full or as differences."""
        feed = SnapshotFeed(self.graph, difference=difference, device=self.device)
        return self._of_same_data(limits=self.settings.limits.without_views(), feed=feed)

    def twin(self) -> DeviceSequence:
        """Return a sequence of the same data with views of its own, for another thread."""
        return self._of_same_data(limits=self.settings.limits)

    def _of_same_data(self, **different: Any) -> DeviceSequence:
        settings = self.settings
        return DeviceSequence(
            self.graph,
            device=self.device,
            dtype=self.dtype,
            kernel=settings.backend,
            norm=settings.norm,
            self_loops=settings.self_loops,
            **different,
        )

    def bring(self, snapshots: range) -> None:
        """Release earlier copies and transfer these snapshots, if there is a feed."""
        if self.feed is not None:
            self._brought.clear()  # first, because both may not fit in memory
            self._brought.update(zip(snapshots, self.feed.bring(snapshots), strict=True))

    def _make(self, snapshots: range) -> SnapshotView:
        rows = self.rows if len(snapshots) == 1 else range(len(snapshots) * self.graph.num_nodes)
        features = self._features_of(self.graph.features, snapshots)
        return SnapshotView(
            self._operators(snapshots, rows),
            snapshots,
            features if len(rows) == len(features) else features[rows.start : rows.stop],
            self._neighbours,
            num_nodes=self.graph.num_nodes,
            all_inputs=features,
            pulled=self._pulled.setdefault(snapshots, {}),
            may_keep=self._store.take_pull,
        )

    def estimated_bytes(self, snapshots: range) -> int:
        """Estimate the bytes of the features of some snapshots, and of one operator each with its transpose."""
        return operator_bytes(self.graph, snapshots, torch.finfo(self.dtype).bits // 8)

    def _operators(self, snapshots: range, rows: range) -> Operators:
        source: Any = self.graph.snapshots if self.feed is None else self._brought
        snapshot = stacked([source[t] for t in snapshots])
        return Operators(SnapshotSource(snapshot, rows, self.settings), self.settings)
