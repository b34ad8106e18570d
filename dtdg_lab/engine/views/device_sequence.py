"""A graph's snapshots on the device that computes: moved there when first used, or fed in blocks, within a limit."""

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
from dtdg_lab.graphs.snapshot import Snapshot, give_up, repeats
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot, unpack
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource, keep_freed_memory
from dtdg_lab.kernels.spmm import choose_backend, stacked

# Rows of stacked snapshots, at most. Above, a product takes longer than the call, and stacking gains nothing.
STACKED_ROWS = {"cpu": 16_384, "cuda": 1_048_576}
# Features of stacked snapshots, at most: overlapping runs of snapshots have stacks, and copies of features, each.
STACKED_NUMBERS = {"cpu": 262_144, "cuda": 16_777_216}


def stack_ranges(snapshots: range, *, rows: int, features: int, device: str) -> list[range]:
    """Consecutive snapshots in runs that are computed together, of about equal length.

    Args:
        snapshots: T consecutive ones.
        rows: of one snapshot; where ranks exchange rows, the most that any of them has.
        features: F.
        device: where they are computed.
    """
    device_type = device.partition(":")[0]
    stack_size = max(1, min(STACKED_ROWS[device_type] // rows, STACKED_NUMBERS[device_type] // (rows * features)))
    pieces = -(-len(snapshots) // stack_size)
    bounds = [snapshots.start + len(snapshots) * piece // pieces for piece in range(pieces + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


class ViewStore:
    """Spaces by their snapshots.

    They are kept while they fit; later ones are rebuilt at every request. For a pass over the sequence again and again
    this beats dropping the oldest.

    Args:
        make: makes the space of some snapshots.
        size: bytes of a space, by an estimate.
        spaces_bytes: most bytes of spaces kept.
        pulls_bytes: most bytes of first-layer pulls kept.
    """

    def __init__(
        self,
        make: Callable[[range], SnapshotView],
        size: Callable[[range], int],
        *,
        spaces_bytes: int,
        pulls_bytes: int,
    ) -> None:
        self._make, self._size = make, size
        self._spaces_bytes, self._spaces_left, self._pulls_left = spaces_bytes, spaces_bytes, pulls_bytes
        self._spaces: dict[range, SnapshotView] = {}
        self._alive: weakref.WeakValueDictionary[range, SnapshotView] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, snapshots: range) -> SnapshotView:
        """Return the view of these snapshots."""
        if snapshots in self._spaces:
            return self._spaces[snapshots]
        space = self._alive.get(snapshots)  # not kept, but somebody has it still
        if space is not None:
            return space
        space = self._make(snapshots)
        if self.keeps(snapshots):
            self._spaces_left -= self._size(snapshots)
            self._spaces[snapshots] = space
        else:
            self._alive[snapshots] = space
        return space

    def keeps(self, snapshots: range) -> bool:
        """Return whether the space is kept, or will be when it is made."""
        return snapshots in self._spaces or self._size(snapshots) <= self._spaces_left

    def make_room(self, most_bytes: int) -> None:
        """Keep spaces of that many bytes, if these are more than so far."""
        extra_bytes = max(0, most_bytes - self._spaces_bytes)
        self._spaces_bytes, self._spaces_left = self._spaces_bytes + extra_bytes, self._spaces_left + extra_bytes

    def take_pull(self, size: int) -> bool:
        """Return whether a first-layer pull of so many bytes may be kept; it is then counted."""
        with self._lock:  # snapshots are computed on several threads
            fits = size <= self._pulls_left
            self._pulls_left -= size if fits else 0
        return fits


Transferred = list[Snapshot] | list[DeviceSnapshot]


class SnapshotFeed:
    """Snapshots of a graph as copies in a rank's own memory.

    On the CPU they arrive as :class:`Snapshot`. On a CUDA device they arrive as :class:`DeviceSnapshot`: payloads are
    pinned, their copies queued, and what follows on the same stream waits for them there; the host does not.

    A payload is made once for a range of snapshots and kept on the host until a range is asked for that has some of
    the same snapshots and others: so no snapshot is in two of them. Whole snapshots for the CPU are copied from the
    graph itself.

    Args:
        graph: T snapshots.
        difference: whether snapshots that follow another one arrive as differences.
        device: where they arrive.

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
            payload = self._encoded(snapshots)  # this is the copy
        else:
            payload_here = self._kept(snapshots)
            values = None if payload_here.values is None else give_up(payload_here.values.copy())
            payload = Payload(payload_here.contents, give_up(payload_here.numbers.copy()), values)
        self._count(payload.contents, payload.nbytes)
        return decode(payload)

    def drain(self) -> list[TransferRow]:
        """Return and forget what was transferred; empty if there was nothing."""
        row = TransferRow(self._snapshots, self._bytes, self._whole_bytes)
        self._snapshots = self._bytes = self._whole_bytes = 0
        return [row] if row.snapshots else []

    def _to_device(self, snapshots: range) -> list[DeviceSnapshot]:
        if snapshots not in self._pages:
            _forget_parts_of(snapshots, self._pages)
            payload = self._encoded(snapshots)
            numbers = torch.tensor(payload.numbers).pin_memory()
            values = None if payload.values is None else torch.tensor(payload.values).pin_memory()
            self._pages[snapshots] = (payload.contents, numbers, values)
        contents, numbers, values = self._pages[snapshots]
        self._count(contents, numbers.nbytes + (0 if values is None else values.nbytes))
        values_there = None if values is None else values.to(self.device, non_blocking=True)
        return unpack(contents, numbers.to(self.device, non_blocking=True), values_there)

    def _kept(self, snapshots: range) -> Payload:
        if snapshots not in self._payloads:
            _forget_parts_of(snapshots, self._payloads)
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
    """Return whether snapshots arrive there as tensors, by pinned memory."""
    return torch.device(device).type == "cuda"


def _forget_parts_of(snapshots: range, cache: dict[range, Any]) -> None:
    """Let go of payloads that have some of these snapshots: the blocks are cut otherwise by now."""
    for key in [key for key in cache if key.start < snapshots.stop and snapshots.start < key.stop]:
        cache.pop(key)


# First-layer pulls that a sequence keeps, and what it keeps on the device beside them (features, operators).
PULLS_BYTES, SPACES_BYTES = 1 << 30, 4 << 30


class StoredSequence(SnapshotSequence):
    """Snapshots of a graph, or of what a part holds of it, whose spaces are kept in a store."""

    _store: ViewStore
    _static: Tensor | None = None

    def view(self, t: int) -> SnapshotView:
        """Snapshot t for all layers of the model."""
        return self._store.get(range(t, t + 1))

    def stack(self, snapshots: range) -> SnapshotView:
        """Return some consecutive snapshots as one view."""
        return self._store.get(snapshots)

    def _features_of(self, features: NDArray[np.float32], snapshots: range, rows: Any = slice(None)) -> Tensor:
        """Features over time, (T, N, F), of some nodes in some snapshots, (S n, F); static ones are moved once."""
        if repeats(features) and len(snapshots) == 1:
            if self._static is None:
                self._static = self._moved(features[0][rows])
            return self._static
        return self._moved(features[snapshots.start : snapshots.stop][:, rows]).flatten(0, 1)

    def _moved(self, features: NDArray[np.float32]) -> Tensor:
        return torch.tensor(np.asarray(features), device=self.device).to(self.dtype)


class DeviceSequence(StoredSequence):
    """Snapshots of a graph as :class:`SnapshotView`, for the nodes in ``rows`` (see :class:`SnapshotSequence`).

    Args:
        graph: T labelled snapshots of N nodes.
        device: where tensors live.
        dtype: type of features and products.
        kernel: ``auto``, ``dgl`` or ``torch``.
        norm: ``in`` or ``in_out``, the scaling of graph convolutions.
        self_loops: whether they add every node to its own neighbours.
        rows: nodes computed here; all where None.
        gather: where rows are a share, gives all nodes' rows from every rank's; without gradient.
        pulls_bytes: most bytes of first-layer pulls kept.
        spaces_bytes: most bytes of spaces kept, by an estimate from their edges.
        feed: brings copies of snapshots; where None, those of the graph are used as they are.
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
        pulls_bytes: int = PULLS_BYTES,
        spaces_bytes: int = SPACES_BYTES,
        feed: SnapshotFeed | None = None,
    ) -> None:
        keep_freed_memory()
        self.graph, self.device, self.dtype = graph, device, dtype
        self.rows = range(graph.num_nodes) if rows is None else rows
        self.own = len(self.rows)
        self.vertices = None if rows is None else torch.arange(rows.start, rows.stop, device=device)
        self.collective = gather is not None
        self.settings = operator_settings(graph, device=device, dtype=dtype, kernel=kernel, norm=norm, loops=self_loops)
        self._neighbours = NeighbourRows() if gather is None else Gathered(gather)
        self._store = ViewStore(self._make, self.estimated_bytes, spaces_bytes=spaces_bytes, pulls_bytes=pulls_bytes)
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}
        self.feed = feed
        self._brought: dict[int, Snapshot | DeviceSnapshot] = {}

    @property
    def backend(self) -> str:
        """``dgl`` or ``torch``."""
        return self.settings.backend

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotView]:
        """Consecutive snapshots as spaces of one or, where they are small, several snapshots each; alike for layers."""
        if self.collective:
            return [self.view(t) for t in snapshots]
        nodes, features = self.graph.num_nodes, self.graph.num_features
        ranges = stack_ranges(snapshots, rows=nodes, features=features, device=self.device)
        return [self._store.get(some) for some in ranges]

    def keep_spaces(self, most_bytes: int) -> None:
        """Keep spaces of that many bytes, if these are more than so far."""
        self._store.make_room(most_bytes)

    def fed(self, *, difference: bool) -> DeviceSequence:
        """Return the same snapshots, with only the transferred ones on the device: copies, in full or by delta."""
        feed = SnapshotFeed(self.graph, difference=difference, device=self.device)
        settings = self.settings
        return DeviceSequence(
            self.graph,
            device=self.device,
            dtype=self.dtype,
            kernel=settings.backend,
            norm=settings.norm,
            self_loops=settings.self_loops,
            spaces_bytes=0,
            feed=feed,
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
        """Features of some snapshots, and one operator of each with its transpose."""
        return operator_bytes(self.graph, snapshots, torch.finfo(self.dtype).bits // 8)

    def _operators(self, snapshots: range, rows: range) -> Operators:
        """Make the operators of some rows of snapshots, stacked where they are several."""
        snapshots_here: Any = self.graph.snapshots if self.feed is None else self._brought
        one = stacked([snapshots_here[t] for t in snapshots])
        return Operators(SnapshotSource(one, rows, self.settings), self.settings)


def operator_settings(
    graph: DynamicGraph, *, device: str, dtype: torch.dtype, kernel: str, norm: str, loops: bool
) -> OperatorSettings:
    """Return the settings of a sequence's operators; ``kernel="auto"`` is decided by the largest snapshot."""
    weighted, edges = graph.snapshots[0].weights is not None, int(max(graph.num_edges))
    backend = choose_backend(kernel, device=device, weighted=weighted, edges=edges, dtype=dtype)
    return OperatorSettings(backend, dtype, device, norm, loops)
