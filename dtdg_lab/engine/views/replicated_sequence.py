"""A part's snapshots with copies of its neighbours; each layer's view has fewer nodes than the one before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.engine.views.device_sequence import StoredSequence, ViewStore, stack_ranges
from dtdg_lab.engine.views.part_edges import LocalSource, PartEdges
from dtdg_lab.engine.views.replicated_part import CachedPart, cache_size, cached_part, reach_of
from dtdg_lab.engine.views.snapshot_view import NeighbourRows, SnapshotView
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operators import Operators, OperatorSettings, keep_freed_memory
from dtdg_lab.kernels.uploads import as_tensor, upload
from dtdg_lab.models.base import DynamicModel


class OwnBest(NeighbourRows):
    """Neighbour rows that are all here; the best nodes are chosen among the own nodes only.

    Args:
        num_own: number of own nodes, n, which are the first rows.

    Differs from the papers: they take the best of all nodes; SYSTEMS.md's table names this approximation.
    """

    def __init__(self, num_own: int) -> None:
        self._own = num_own

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the own rows, by node."""
        return x[: self._own], scores[: self._own]


class CachedSequence(StoredSequence):
    """Snapshots of a cached part as views (see :class:`StoredSequence`).

    Layer l of L, with h hops each, sees the nodes within (L - l) h hops, which are the first rows of its input, and
    pulls for the nodes within one hop less. Ranks exchange nothing.

    Args:
        part: the cached part.
        layer_hops: hops of each layer, h.
        settings: settings of the operators, with device and type of tensors, and limits of what is kept.

    Raises:
        PlanError: the part's hops are no multiple of ``layer_hops``.
    """

    where = "layout cached_vertex, where each part computes its own rows"

    def __init__(self, part: CachedPart, layer_hops: int, settings: OperatorSettings) -> None:
        if layer_hops < 1 or part.reach.hops % layer_hops:
            raise PlanError(
                f"a cache of {part.reach.hops} hops does not fit layers of {layer_hops} hops: it must hold a "
                "whole number of layers."
            )
        keep_freed_memory()
        self.part, self.settings, self.own = part, settings, part.own
        self.device, self.dtype = settings.device, settings.dtype
        vertices = part.vertices(part.reach.snapshots[0])[: part.own]
        self.host_vertices = as_tensor(vertices).long()
        self.vertices: Tensor | None = upload(self.host_vertices, self.device)
        self._layers = part.reach.hops // layer_hops
        self._stores = [
            ViewStore(
                partial(self._make, hops=hops),
                partial(self._estimated_bytes, hops=hops),
                replace(settings.limits, views_bytes=settings.limits.views_bytes // self._layers),
            )
            for hops in range(part.reach.hops, 0, -layer_hops)
        ]
        self._store = self._stores[0]  # all nodes held
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}

    def stacks(self, snapshots: range, layer: int) -> list[SnapshotView]:
        """Return views of consecutive snapshots for one layer, stacked if the part's nodes stay the same.

        Raises:
            PlanError: the part holds no such layer.
        """
        if not 0 <= layer < self._layers:
            raise PlanError(f"layer {layer} is not in a cache for {self._layers} layers.")
        ranges = [range(t, t + 1) for t in snapshots]
        if self.part.reach.static and ranges:
            rows = self.part.prefix(snapshots[0], self.part.reach.hops)
            ranges = stack_ranges(snapshots, rows=rows, features=self.part.num_features, device=self.device)
        return [self._stores[layer].get(stack) for stack in ranges]

    def _make(self, snapshots: range, hops: int) -> SnapshotView:
        source = LocalSource(lambda direction: stacked_edges(self.part, snapshots, hops, direction), self.settings)
        operators, neighbours = Operators(source, self.settings), OwnBest(self.own)
        if hops == self.part.reach.hops:
            return SnapshotView(
                operators,
                snapshots,
                self._features(snapshots),
                neighbours,
                num_nodes=self.own,
                pulled=self._pulled.setdefault(snapshots, {}),
                may_keep=self._store.take_pull,
            )
        rows = sum(self.part.prefix(t, hops) for t in snapshots)
        no_features = torch.empty(rows, 0, dtype=self.dtype, device=self.device)  # only the first layer reads features
        return SnapshotView(operators, snapshots, no_features, neighbours, num_nodes=self.own)

    def _features(self, snapshots: range) -> Tensor:
        """Return the features of all nodes held, (M, F) or (S M, F); static ones are moved to the device once."""
        if not self.part.same_features or len(snapshots) > 1:
            return self._moved(np.concatenate([self.part.features(t) for t in snapshots]))
        if self._static is None:
            self._static = self._moved(self.part.features(snapshots[0]))
        return self._static

    def _estimated_bytes(self, snapshots: range, hops: int) -> int:
        """Estimate the bytes of the features, and of one operator with its transpose."""
        part, width = self.part, torch.finfo(self.dtype).bits // 8
        rows = sum(part.prefix(t, hops) for t in snapshots)
        edges = sum(part.num_edges(t, hops) for t in snapshots) + rows
        features = part.num_features if hops == part.reach.hops else 0
        return edges * 2 * (4 + width) + rows * features * width


def stacked_edges(part: CachedPart, snapshots: range, hops: int, direction: str) -> PartEdges:
    """Return the edges along which the nodes within ``hops`` pull, in S snapshots stacked block-diagonally.

    The farthest nodes, whose neighbours may be outside, have empty rows.

    Args:
        part: the cached part.
        snapshots: S consecutive snapshots.
        hops: 1 to D.
        direction: ``in`` or ``out``.

    Raises:
        PlanError: a snapshot or the direction is not cached.
    """
    indptr, indices, weights, degrees = [np.zeros(1, np.int64)], [], [], []
    begin = end = 0
    for t in snapshots:
        rows, edges = part.prefix(t, hops), part.edges(t, direction).first(part.edge_rows(t, hops))
        indptr += [edges.indptr[1:].astype(np.int64) + end]
        end += len(edges.indices)
        indptr += [np.full(rows + 1 - len(edges.indptr), end)]
        indices += [edges.indices + np.int32(begin) if begin else edges.indices]
        weights += [] if edges.weights is None else [edges.weights]
        degrees += [[part.degrees(t, way)[:rows] for way in (direction, "out" if direction == "in" else "in")]]
        begin += rows
    in_degrees, other_degrees = (np.concatenate(arrays).astype(np.float64) for arrays in zip(*degrees, strict=True))
    return PartEdges(
        np.concatenate(indptr),
        _joined(indices),
        _joined(weights) if weights else None,
        begin,
        in_degrees,
        other_degrees,
    )


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    """Concatenate arrays; a single array is not copied, so that its mapped pages stay shared."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def cached_sequences(
    graph: DynamicGraph,
    partition: Partition,
    parts: Iterable[int],
    model: DynamicModel,
    train: range,
    *,
    cache_gib: float,
    settings: OperatorSettings,
) -> list[CachedSequence]:
    """Return the sequences of a rank's parts; missing caches are written.

    All ranks decide alike about the size, since all check all parts together.

    Args:
        graph: N nodes.
        partition: partition of the nodes into P parts.
        parts: this rank's parts.
        model: the model.
        train: the trained snapshots.
        cache_gib: most GiB of all P parts together.
        settings: settings of the operators, the same for all parts; the parts of a rank share its limits.

    Raises:
        UnsupportedError: the parts exceed ``cache_gib``; nothing is written then.
        DataError: a cache cannot be written.
    """
    facts = model.facts
    reach = reach_of(facts.memory, facts.hops, train, directions=facts.directions)
    cache_size(graph, partition, reach).refuse_above(cache_gib, graph.num_nodes * len(train))
    part_numbers = tuple(parts)
    settings = replace(settings, limits=settings.limits.divided(max(1, len(part_numbers))))
    cached_parts = [cached_part(graph, partition.vertices(part), reach) for part in part_numbers]
    return [CachedSequence(part, facts.hops_per_layer, settings) for part in cached_parts]
