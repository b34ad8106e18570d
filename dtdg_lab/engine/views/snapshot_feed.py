"""Transfer of a block's graphs to a rank: whole, or the first whole and the others by their differences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dtdg_lab.engine.record_rows import TransferRow
from dtdg_lab.graphs.delta import CSR32, Contents, Payload, decode, encode
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, give_up
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot, unpack

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
