"""A cached part's snapshots as spaces on the device that computes: layers see ever fewer of its vertices."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.kernels.heap import keep_freed_memory
from dtdg_lab.kernels.operator_settings import OperatorSettings
from dtdg_lab.kernels.operators import Operators
from dtdg_lab.parallel.apart import Apart
from dtdg_lab.parallel.cached_part import CachedPart
from dtdg_lab.parallel.device_sequence import PULLS_BYTES, SPACES_BYTES
from dtdg_lab.parallel.neighbours import AllHere
from dtdg_lab.parallel.part_edges import LocalSource, PartEdges
from dtdg_lab.parallel.space import SnapshotSpace
from dtdg_lab.parallel.space_store import SpaceStore, stack_ranges


class OwnBest(AllHere):
    """All rows that a pull needs are here; the best vertices are looked for among the own ones.

    Args:
        own: n, the first rows.

    Differs from the papers: they take the best of all vertices; SYSTEMS.md's table names this approximation.
    """

    def __init__(self, own: int) -> None:
        self._own = own

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The own ones, by vertex."""
        return x[: self._own], scores[: self._own]


class CachedSequence(Apart):
    """Snapshots of a cached part as spaces (see :class:`dtdg_lab.parallel.sequence.Sequence`).

    Layer l of L, of h hops each, sees the vertices within (L - l) h hops, which are the first rows of its input, and
    pulls for those within one hop less. Nothing is exchanged. Spaces and first-layer pulls are kept as
    :class:`dtdg_lab.parallel.device_sequence.DeviceSequence` keeps them.

    Args:
        part: what the part holds.
        layer_hops: h, of each layer.
        settings: of its operators; they say where tensors live, and their type.
        pulls_bytes: most bytes of first-layer pulls kept.
        spaces_bytes: most bytes of spaces kept.

    Raises:
        PlanError: the part does not hold whole layers.
    """

    where = "layout cached_vertex, where each part computes its own rows"
    instead = "system='adgnn-t' (halo_vertex)"

    def __init__(
        self,
        part: CachedPart,
        layer_hops: int,
        settings: OperatorSettings,
        *,
        pulls_bytes: int = PULLS_BYTES,
        spaces_bytes: int = SPACES_BYTES,
    ) -> None:
        if layer_hops < 1 or part.reach.hops % layer_hops:
            raise PlanError(
                f"a cache of {part.reach.hops} hops for layers of {layer_hops}: it must hold a whole number of layers."
            )
        keep_freed_memory()
        self.part, self.settings, self.own = part, settings, part.own
        self.device, self.dtype = settings.device, settings.dtype
        own = part.vertices(part.reach.snapshots[0])[: part.own]
        self.vertices: Tensor | None = torch.tensor(own, device=self.device).long()
        self._layers = part.reach.hops // layer_hops
        self._stores = [
            SpaceStore(
                partial(self._make, hops=hops), partial(self._estimated_bytes, hops=hops),
                spaces_bytes=spaces_bytes // self._layers, pulls_bytes=pulls_bytes,
            )
            for hops in range(part.reach.hops, 0, -layer_hops)
        ]  # fmt: skip
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}
        self._features_once: Tensor | None = None

    def space(self, t: int) -> SnapshotSpace:
        """Snapshot t with all vertices held."""
        return self._stores[0].get(range(t, t + 1))

    def stacks(self, snapshots: range, layer: int) -> list[SnapshotSpace]:
        """Consecutive snapshots for one layer, several as one space where the part's vertices stay the same.

        Raises:
            PlanError: the part holds no such layer.
        """
        if not 0 <= layer < self._layers:
            raise PlanError(f"layer {layer} of a cache for {self._layers} layers.")
        ranges = [range(t, t + 1) for t in snapshots]
        if self.part.reach.static and ranges:
            rows = self.part.prefix(snapshots[0], self.part.reach.hops)
            ranges = stack_ranges(snapshots, rows=rows, features=self.part.num_features, device=self.device)
        return [self._stores[layer].get(some) for some in ranges]

    def _make(self, snapshots: range, hops: int) -> SnapshotSpace:
        source = LocalSource(lambda way: stacked_edges(self.part, snapshots, hops, way), self.settings)
        operators, neighbours = Operators(source, self.settings), OwnBest(self.own)
        if hops == self.part.reach.hops:
            return SnapshotSpace(
                operators, snapshots, self._features(snapshots), neighbours, num_nodes=self.own,
                pulled=self._pulled.setdefault(snapshots, {}), may_keep=self._stores[0].take_pull,
            )  # fmt: skip
        rows = sum(self.part.prefix(t, hops) for t in snapshots)
        unfed = torch.empty(rows, 0, dtype=self.dtype, device=self.device)  # only the first layer is fed features
        return SnapshotSpace(operators, snapshots, unfed, neighbours, num_nodes=self.own)

    def _features(self, snapshots: range) -> Tensor:
        """Features of all vertices held, (M, F), or (S M, F); those that never change are moved once."""
        if not self.part.same_features or len(snapshots) > 1:
            features = np.concatenate([self.part.features(t) for t in snapshots])
            return torch.tensor(features, device=self.device).to(self.dtype)
        if self._features_once is None:
            self._features_once = torch.tensor(self.part.features(snapshots[0]), device=self.device).to(self.dtype)
        return self._features_once

    def _estimated_bytes(self, snapshots: range, hops: int) -> int:
        """Features, and one operator with its transpose: an index and a weight for each edge, either way."""
        part, width = self.part, torch.finfo(self.dtype).bits // 8
        rows = sum(part.prefix(t, hops) for t in snapshots)
        edges = sum(part.num_edges(t, hops) for t in snapshots) + rows
        fed = part.num_features if hops == part.reach.hops else 0
        return edges * 2 * (4 + width) + rows * fed * width


def stacked_edges(part: CachedPart, snapshots: range, hops: int, way: str) -> PartEdges:
    """The edges along which the vertices within some hops pull, in S snapshots stacked block-diagonally.

    Rows whose neighbours may be farther away than that are empty.

    Args:
        part: what a part holds.
        snapshots: S consecutive ones.
        hops: 1 to D.
        way: ``in`` or ``out``.

    Raises:
        PlanError: a snapshot is not cached, or the way is not.
    """
    indptr, indices, weights, degrees = [np.zeros(1, np.int64)], [], [], []
    begin = end = 0
    for t in snapshots:
        rows, kept = part.prefix(t, hops), part.edges(t, way).first(part.edge_rows(t, hops))
        indptr += [kept.indptr[1:].astype(np.int64) + end]
        end += len(kept.indices)
        indptr += [np.full(rows + 1 - len(kept.indptr), end)]
        indices += [kept.indices + np.int32(begin) if begin else kept.indices]
        weights += [] if kept.weights is None else [kept.weights]
        degrees += [[part.degrees(t, other)[:rows] for other in (way, "out" if way == "in" else "in")]]
        begin += rows
    here, other = (np.concatenate(of).astype(np.float64) for of in zip(*degrees, strict=True))
    return PartEdges(
        np.concatenate(indptr), _joined(indices), _joined(weights) if weights else None, begin, here, other
    )  # fmt: skip


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    """One array after another; a single one as it is, so that mapped pages stay shared."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
