"""Mini-batches with sampled neighbours, before they have features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import key
from dtdg_lab.engine.minibatch.blocks import BlockShape, TargetBlocks, target_blocks
from dtdg_lab.engine.minibatch.neighbour_sampling import (
    NeighbourSampler,
    SampledEdges,
    sampled_edges,
)
from dtdg_lab.engine.minibatch.seed_batches import SeedBatches
from dtdg_lab.engine.minibatch.whole_graph import SampledGrowth, WholeGraph
from dtdg_lab.engine.views.replicated_part import Reach
from dtdg_lab.graphs.dynamic_graph import DynamicGraph


@dataclass(frozen=True, slots=True, eq=False)
class SampledBatch:
    """What a mini-batch is, but for the features.

    Attributes:
        number: of the batch, counted through all epochs.
        keys: (K,) int64 ascending, the rows of features that it reads, each once.
        blocks: without features.
        row_of: (C,) int32, which of the rows each column of the first layer has; K for one that only fills up.
    """

    number: int
    keys: NDArray[np.int64]
    blocks: TargetBlocks
    row_of: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return self.blocks.nbytes + self.keys.nbytes + self.row_of.nbytes

    def with_features(self, rows: NDArray[np.float32]) -> TargetBlocks:
        """Return the blocks with these rows, (K, F).

        Raises:
            PlanError: there are more or fewer rows than keys.
        """
        if len(rows) != len(self.keys):
            raise PlanError(f"{len(rows)} rows of features for {len(self.keys)} keys.")
        if int(self.row_of.max()) == len(rows):  # rows that fill up read zeros
            rows = np.concatenate([rows, np.zeros((1, rows.shape[1]), rows.dtype)])
        arrays: Mapping[str, NDArray[Any]] = {**self.blocks.arrays, "features": rows, "feature_of": self.row_of}
        return replace(self.blocks, arrays=arrays)


class BatchSampler:
    """Makes a part's mini-batches: each a pure function of seed, part and number.

    Args:
        graph: N nodes.
        batches: says which nodes at which snapshots.
        shape: of the model's blocks; layers pull along in-edges.
        fanouts: (L,) most neighbours drawn for each layer.
        sampler: draws them.

    Raises:
        PlanError: the layers need more than sampled in-neighbours.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        batches: SeedBatches,
        shape: BlockShape,
        fanouts: tuple[int, ...],
        sampler: NeighbourSampler = sampled_edges,
    ) -> None:
        if shape.directions != ("in",) or shape.truncated or len(fanouts) != shape.layers:
            raise PlanError(f"mini-batches of {shape} with fanouts {fanouts}: layers must pull along in-edges alone.")
        self.batches, self.shape = batches, shape
        self._graph, self._fanouts, self._sampler = graph, fanouts, sampler
        last = max(stretch.stop for stretch in batches.stretches)
        self._whole = WholeGraph(graph, Reach(range(last), shape.hops))

    def sample(self, number: int) -> SampledBatch:
        """Sample the mini-batch of a step, counted through all epochs."""
        batch = self.batches.batch(number)
        draw = partial(self._drawn, number)
        growth = SampledGrowth(self._whole, batch.snapshots, batch.targets, shared=self.shape.shared, draw=draw)
        blocks = target_blocks(self._whole, batch, self.shape, growth)
        keys, row_of = _distinct_keys(blocks)
        arrays = {name: array for name, array in blocks.arrays.items() if name not in ("features", "feature_of")}
        return SampledBatch(number, keys, replace(blocks, arrays=arrays), row_of)

    def keys(self, number: int) -> NDArray[np.int64]:
        """Return the keys of :meth:`sample`, (K,) int64 ascending, in half the time: no blocks are made."""
        batch = self.batches.batch(number)
        draw = partial(self._drawn, number)
        growth = SampledGrowth(self._whole, batch.snapshots, batch.targets, shared=self.shape.shared, draw=draw)
        read, begins = [], np.zeros(len(batch.snapshots), np.int64)
        if not self._graph.static_features:
            begins += self._graph.num_nodes * np.asarray(batch.snapshots)
        for hop in range(self.shape.hops):
            edges = growth.gather("in", self.shape.layers - 1 - hop // self.shape.layer_hops)
            if self.shape.inputs_once and hop == self.shape.hops - 1:
                read.append(edges.place + np.repeat(begins, edges.per_snapshot))
            else:
                growth.grow([edges])
        rows = growth.entries
        return np.unique(np.concatenate([rows.place + begins[rows.snapshot], *read]))

    def _drawn(self, number: int, t: int, vertices: NDArray[np.int64], layer: int) -> SampledEdges:
        drawn_by = key(self.batches.seed, "mini-batch/neighbours", self.batches.part, number, t, layer)
        return self._sampler(self._graph.snapshots[t], vertices, fanout=self._fanouts[layer], key=drawn_by)


def _distinct_keys(blocks: TargetBlocks) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the keys that the first layer's columns read, and the key of each column; K where it only fills up."""
    feature_keys, feature_of = blocks.arrays["features"][:, 0], blocks.arrays.get("feature_of")
    if feature_of is not None:  # distinct and ascending; what fills up reads the first, and is not looked at
        return feature_keys - 1, feature_of
    keys, row_of = np.unique(feature_keys, return_inverse=True)
    if not keys[0]:
        keys, row_of = keys[1:], np.where(row_of, row_of - 1, len(keys) - 1)
    return keys - 1, row_of.astype(np.int32)
