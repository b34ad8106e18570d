"""A snapshot as tensors on a device, and the unpacking of payloads there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dtdg_lab.graphs.delta import Contents
from dtdg_lab.graphs.snapshot import TARGET_BITS


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSnapshot:
    """N nodes and E edges, as in :class:`dtdg_lab.graphs.snapshot.Snapshot`; the tensors are read-only by convention.

    Attributes:
        indptr: (N + 1,) int32 offsets.
        indices: (E,) int32 sources, sorted in each row.
        weights: (E,) float32; None if edges carry no weight.
    """

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges, E."""
        return len(self.indices)


def stacked_on_device(snapshots: Sequence[DeviceSnapshot]) -> DeviceSnapshot:
    """Return S snapshots of N nodes as one of S N: node v of snapshot s becomes s N + v."""
    nodes, end = snapshots[0].num_nodes, 0
    offsets = [snapshots[0].indptr[:1]]
    for snapshot in snapshots:
        offsets.append(snapshot.indptr[1:] + end)
        end += snapshot.num_edges
    indices = torch.cat([snapshot.indices + s * nodes for s, snapshot in enumerate(snapshots)])
    weights = [snapshot.weights for snapshot in snapshots if snapshot.weights is not None]
    return DeviceSnapshot(torch.cat(offsets), indices, torch.cat(weights) if weights else None)


# :mod:`dtdg_lab.graphs.delta` decodes payloads on the host. Here sizes are known in advance, so that the host never
# waits for the device: every kernel is queued behind the copy.


_SOURCES = (1 << TARGET_BITS) - 1


def unpack(contents: Contents, numbers: Tensor, values: Tensor | None) -> list[DeviceSnapshot]:
    """Return the snapshots of a payload in the form ``CSR32``; whole snapshots and all weights are views of it.

    Args:
        contents: description of the payload.
        numbers: (W,) int32.
        values: (sum of E,) float32; None without weights.
    """
    snapshots: list[DeviceSnapshot] = []
    keys: Tensor | None = None
    for part, spans, value_span in contents.pieces():
        arrays = [numbers[span] for span in spans]
        weights = None if values is None else values[value_span]
        if part.is_whole:
            keys = None
            snapshots.append(DeviceSnapshot(arrays[0], arrays[1], weights))
            continue
        previous = snapshots[-1]
        keys = _keys(previous.indices, edge_rows(previous.indptr, previous.num_edges)) if keys is None else keys
        removed, targets, sources = arrays
        indptr = previous.indptr + _offsets(targets, keys[removed.long()] >> TARGET_BITS, contents.nodes)
        keys = replaced(keys, removed, _keys(sources, targets))
        snapshots.append(DeviceSnapshot(indptr, (keys & _SOURCES).to(torch.int32), weights))
    return snapshots


def unpack_pairs(contents: Contents, numbers: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return targets and sources, (E,) int64 each, of every snapshot of a payload in the form ``COO64``.

    This is ESDG's format, for comparisons only.
    """
    pairs: list[tuple[Tensor, Tensor]] = []
    keys: Tensor | None = None
    for part, spans, _ in contents.pieces():
        arrays = [numbers[span] for span in spans]
        if part.is_whole:
            keys = None
            pairs.append((arrays[0], arrays[1]))
            continue
        keys = _keys(pairs[-1][1], pairs[-1][0]) if keys is None else keys
        removed = torch.searchsorted(keys, _keys(arrays[1], arrays[0]))
        keys = replaced(keys, removed, _keys(arrays[3], arrays[2]))
        pairs.append((keys >> TARGET_BITS, keys & _SOURCES))
    return pairs


def replaced(keys: Tensor, removed: Tensor, added: Tensor) -> Tensor:
    """Return ascending keys without those at positions ``removed``, merged with ascending keys ``added``.

    The j-th remaining key moves down by the number of removed keys with at most j remaining keys before them.
    """
    device = keys.device
    if len(removed):
        remaining_before = removed - torch.arange(len(removed), device=device)
        position = torch.arange(len(keys) - len(removed), device=device)
        keys = keys[position + torch.searchsorted(remaining_before, position, right=True)]
    if not len(added):
        return keys
    position = torch.searchsorted(keys, added)
    merged = keys.new_empty(len(keys) + len(added))
    merged[position + torch.arange(len(added), device=device)] = added
    kept = torch.arange(len(keys), device=device)
    merged[kept + torch.searchsorted(position, kept, right=True)] = keys
    return merged


def edge_rows(indptr: Tensor, edges: int) -> Tensor:
    """Return the row of each of E edges, (E,) int64."""
    rows = torch.arange(len(indptr) - 1, device=indptr.device)
    return torch.repeat_interleave(rows, indptr.diff(), output_size=edges)


def _keys(sources: Tensor, targets: Tensor) -> Tensor:
    return (targets.long() << TARGET_BITS) + sources


def _offsets(added: Tensor, removed: Tensor, nodes: int) -> Tensor:
    """Return the changes of row offsets when edges into these targets are added and removed, (N + 1,) int32."""
    changes = torch.zeros(nodes + 1, dtype=torch.int32, device=added.device)
    for targets, sign in ((added, 1), (removed, -1)):
        ones = torch.full((1,), sign, dtype=torch.int32, device=changes.device).expand(len(targets))
        changes.index_add_(0, targets + 1, ones)
    return changes.cumsum(0, dtype=torch.int32)
