"""Mini-batches with sampled neighbours: seeds, the graph they are sampled from, and blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, DataError, PlanError
from dtdg_lab.core.plans import TargetBatch
from dtdg_lab.core.rng import generator, key
from dtdg_lab.engine.minibatch.block_growth import GatheredTargets, TargetGrowth
from dtdg_lab.engine.minibatch.blocks import BlockShape, TargetBlocks, target_blocks
from dtdg_lab.engine.minibatch.neighbour_sampling import SampledEdges, joined_weights, sampled_edges
from dtdg_lab.engine.views.replicated_part import Reach
from dtdg_lab.graphs.dynamic_graph import DynamicGraph


def fanouts_of(text: str, layers: int) -> tuple[int, ...]:
    """Parse the fanout of each layer, (L,), the first layer first; the last number holds for further layers.

    Args:
        text: integers separated by blanks.
        layers: number of layers, L.

    Raises:
        ConfigError: the text is no such list, a number is below 1, or there are more than max(L, 2) numbers.
    """
    texts = text.split()
    if not texts or not all(word.isdecimal() and int(word) > 0 for word in texts):
        raise ConfigError(
            f"fanouts={text!r} is not a list of whole numbers of 1 or more. Give one for each layer, separated by "
            "blanks, the first layer first: such as '10 25'."
        )
    numbers = [int(word) for word in texts]
    if len(numbers) > max(layers, 2):
        raise ConfigError(
            f"fanouts={text!r} has {len(numbers)} numbers for {layers} layer(s). Give one for each layer, or fewer: "
            "the last one holds for further layers."
        )
    return tuple((numbers + [numbers[-1]] * layers)[:layers])


@dataclass(frozen=True, slots=True, eq=False)
class SeedBatches:
    """The mini-batches of one part: B of its trained nodes at L consecutive snapshots, in a new order every epoch.

    In an epoch each trained node is a seed once in every stretch of L snapshots, or once in total if snapshots are
    alike. All parts have as many batches as the largest; smaller parts repeat nodes.

    Attributes:
        seed: seed of the run.
        part: number of the part.
        seeds: (k,) int64, numbers in the graph of the nodes that may be trained, ascending.
        size: batch size B; a smaller batch has all nodes of its part.
        stretches: ranges of consecutive snapshots of one length; a batch has one of them.
        rounds: batches that cover the nodes of the largest part.
        alike: whether all snapshots are the same; a batch then has a random stretch.

    Raises:
        DataError: the part has no node to train.
        PlanError: a number below 1, or no stretch.

    References: Hamilton, Ying, Leskovec 2017, algorithm 2 (mini-batches); DistDGL (Zheng et al. 2020) section 5 (every
    trainer has seeds of its own part, and as many batches as the others).
    """

    seed: int
    part: int
    seeds: NDArray[np.int64]
    size: int
    stretches: tuple[range, ...]
    rounds: int
    alike: bool = False

    def __post_init__(self) -> None:
        if not len(self.seeds):
            raise DataError(
                f"part {self.part} has no node with a training label, so its mini-batches would be empty. Choose "
                "fewer parts, or another partitioner."
            )
        if self.size < 1 or self.rounds < 1 or not self.stretches:
            raise PlanError(
                f"mini-batches of {self.size} nodes in {self.rounds} rounds of {len(self.stretches)} stretches: "
                "each must be at least 1."
            )

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        return self.rounds * (1 if self.alike else len(self.stretches))

    def batch(self, number: int) -> TargetBatch:
        """Return the batch of a step; steps count through all epochs.

        Its targets are distinct numbers in the graph, ascending.

        Raises:
            PlanError: the number is negative.
        """
        if number < 0:
            raise PlanError(f"mini-batch {number} does not exist. Numbers start at 0.")
        epoch, index = divmod(number, self.per_epoch)
        turn = _turns(self.seed, self.part, epoch, self.per_epoch)[index]
        stretch, chunk = divmod(int(turn), self.rounds)
        if self.alike:
            draw = key(self.seed, "seed-batches/stretch", self.part, number)
            stretch = draw % len(self.stretches)
        order = _order(self.seed, self.part, epoch, stretch if not self.alike else 0, len(self.seeds))
        first = chunk * self.size
        places = np.arange(first, first + min(self.size, len(order))) % len(order)
        return TargetBatch(self.part, 0, number, self.stretches[stretch], np.sort(self.seeds[order[places]]))


@lru_cache(maxsize=64)
def _turns(seed: int, part: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the order of an epoch's batches."""
    return generator(seed, "seed-batches/turns", part, epoch).permutation(count)


@lru_cache(maxsize=64)
def _order(seed: int, part: int, epoch: int, stretch: int, count: int) -> NDArray[np.int64]:
    """Return the order of the part's nodes in a stretch."""
    return generator(seed, "seed-batches/order", part, epoch, stretch).permutation(count)


def stretches_of(snapshots: range, length: int) -> tuple[range, ...]:
    """Cut the training split into stretches of L consecutive snapshots; the last two may overlap.

    Raises:
        ConfigError: the training split is shorter than L.
    """
    if length > len(snapshots):
        raise ConfigError(
            f"batch_length={length} exceeds the training split of {len(snapshots)} snapshots. Choose at most "
            f"{len(snapshots)}."
        )
    firsts = [*range(snapshots.start, snapshots.stop - length + 1, length)]
    if firsts[-1] + length < snapshots.stop:
        firsts.append(snapshots.stop - length)
    return tuple(range(first, first + length) for first in firsts)


def rounds_of(trained: Sequence[int], size: int) -> int:
    """Return the number of batches of ``size`` nodes that cover the largest part."""
    return max(1, -(-max(trained) // size))


Draw = Callable[[int, NDArray[np.int64], int], SampledEdges]  # snapshot, nodes, layer


class WholeGraph:
    """All nodes of a graph as a source of blocks, with feature keys plus 1 in place of features.

    0 marks padding rows. The key of node v at snapshot t is ``t N + v``, or ``v`` for static features.

    Args:
        graph: N nodes.
        reach: the nodes that layers need.
    """

    def __init__(self, graph: DynamicGraph, reach: Reach) -> None:
        self.graph, self.reach = graph, reach
        self._vertices = np.arange(graph.num_nodes, dtype=np.int32)
        self._degrees: dict[tuple[int, str], NDArray[np.float64]] = {}

    @property
    def own(self) -> int:
        """Number of nodes, N; any node may be a target."""
        return self.graph.num_nodes

    @property
    def weighted(self) -> bool:
        """Whether edges carry weights."""
        return self.graph.weighted

    @cached_property
    def constant_features(self) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
        """Keys plus 1 of all nodes, (N, 1), and the nodes; None if features change over time."""
        if not self.graph.static_features:
            return None
        return np.arange(1, self.graph.num_nodes + 1)[:, np.newaxis], self._vertices

    def prefix(self, t: int, hops: int) -> int:
        """Return N for any number of hops."""
        return self.graph.num_nodes

    def vertices(self, t: int) -> NDArray[np.int32]:
        """Return all nodes, (N,)."""
        return self._vertices

    def joined(self, name: str, snapshots: range) -> tuple[Any, NDArray[np.int64]]:
        """Return keys, degrees or in-neighbour counts of some snapshots, and the offset of each snapshot.

        Raises:
            PlanError: the name is another one.
        """
        begins = np.arange(len(snapshots)) * self.graph.num_nodes
        if name == "features":
            return _Keys(snapshots.start * self.graph.num_nodes), begins
        kind, _, direction = name.partition("_")
        if kind == "neighbours":
            return _Neighbours(self, snapshots), begins
        if kind != "degrees":
            raise PlanError(f"a whole graph has no array {name!r}: it has features, degrees and neighbours.")
        return _Degrees(self, snapshots, direction), begins

    def degrees(self, t: int, direction: str) -> NDArray[np.float64]:
        """Return the degrees of all nodes in a snapshot, (N,), cached by snapshot object."""
        snapshot = self.graph.snapshots[t]
        cache_key = id(snapshot), direction
        if cache_key not in self._degrees:
            self._degrees[cache_key] = snapshot.in_degrees() if direction == "in" else snapshot.out_degrees()
        return self._degrees[cache_key]


class _Keys:
    """Virtual array of keys plus 1; places count through the snapshots, N for each."""

    def __init__(self, first: int) -> None:
        self._first = first

    def take(self, places: NDArray[np.int64], axis: int = 0) -> NDArray[np.int64]:
        """Return the keys plus 1 of places, (K, 1)."""
        return (places + (self._first + 1))[:, np.newaxis]


class _Degrees:
    """Virtual array of degrees along a direction; places count through the snapshots, N for each."""

    def __init__(self, graph: WholeGraph, snapshots: range, direction: str) -> None:
        self._graph, self._snapshots, self._direction = graph, snapshots, direction

    def take(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the degrees of places, (K,)."""
        if len(self._snapshots) == 1:
            return self._graph.degrees(self._snapshots[0], self._direction).take(places)
        degrees = np.empty(len(places))
        index, vertex = np.divmod(places, self._graph.own)
        for number, t in enumerate(self._snapshots):
            in_snapshot = index == number
            degrees[in_snapshot] = self._graph.degrees(t, self._direction).take(vertex[in_snapshot])
        return degrees


class _Neighbours:
    """Virtual array of in-neighbour counts; places count through the snapshots, N for each."""

    def __init__(self, graph: WholeGraph, snapshots: range) -> None:
        self._graph, self._snapshots = graph, snapshots

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the in-neighbour counts of places, (K,)."""
        counts = np.empty(len(places), np.int64)
        index, vertex = np.divmod(places, self._graph.own)
        for number, t in enumerate(self._snapshots):
            in_snapshot, offsets = index == number, self._graph.graph.snapshots[t].indptr
            counts[in_snapshot] = offsets[vertex[in_snapshot] + 1] - offsets[vertex[in_snapshot]]
        return counts


class SampledGrowth(TargetGrowth):
    """Expansion of the targets by sampled neighbours.

    Args:
        part: the graph.
        snapshots: S consecutive snapshots.
        targets: (V,) nodes, ascending.
        shared: whether the nodes are the same in all snapshots.
        draw: samples the edges of some nodes; repeated calls must give the same edges.
    """

    def __init__(
        self, part: WholeGraph, snapshots: range, targets: NDArray[np.integer], *, shared: bool, draw: Draw
    ) -> None:
        super().__init__(part, snapshots, targets, shared=shared)
        self._draw = draw

    def gather(self, direction: str, layer: int) -> GatheredTargets:
        """Sample edges of the current rows.

        Raises:
            PlanError: the direction is not ``in``.
        """
        if direction != "in":
            raise PlanError(f"direction={direction!r} is not supported: only in-neighbours are sampled.")
        ends = np.cumsum(self.entries.counts)
        samples = [
            self._draw(t, self.entries.place[end - count : end], layer)
            for t, end, count in zip(self._snapshots, ends, self.entries.counts, strict=True)
        ]
        return GatheredTargets(
            np.concatenate([np.diff(edges.indptr) for edges in samples]),
            np.concatenate([edges.indices for edges in samples]),
            np.array([len(edges.indices) for edges in samples]),
            joined_weights(samples),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SampledBatch:
    """A mini-batch without features.

    Attributes:
        number: number of the batch, counted through all epochs.
        keys: (K,) int64 ascending, the distinct keys of the feature rows that it reads.
        blocks: blocks without features.
        row_of: (C,) int32, the feature row of each column of the first layer; K for padding.
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
        """Return the blocks with these feature rows, (K, F).

        Raises:
            PlanError: the number of rows is not the number of keys.
        """
        if len(rows) != len(self.keys):
            raise PlanError(f"{len(rows)} rows of features for {len(self.keys)} keys.")
        if int(self.row_of.max()) == len(rows):  # padding reads zeros
            rows = np.concatenate([rows, np.zeros((1, rows.shape[1]), rows.dtype)])
        arrays: Mapping[str, NDArray[Any]] = {**self.blocks.arrays, "features": rows, "feature_of": self.row_of}
        return replace(self.blocks, arrays=arrays)


class BatchSampler:
    """Samples a part's mini-batches, each a pure function of seed, part and number.

    Args:
        graph: N nodes.
        batches: seeds and snapshots of each batch.
        shape: shape of the model's blocks; layers pull along in-edges.
        fanouts: (L,) most neighbours of a node in each layer.

    Raises:
        PlanError: the layers need more than sampled in-neighbours.
    """

    def __init__(self, graph: DynamicGraph, batches: SeedBatches, shape: BlockShape, fanouts: tuple[int, ...]) -> None:
        if shape.directions != ("in",) or shape.truncated or len(fanouts) != shape.layers:
            raise PlanError(
                f"mini-batches of {shape} with fanouts {fanouts} are not supported: layers must pull along in-edges "
                "alone, and each needs one fanout."
            )
        self.batches, self.shape = batches, shape
        self._graph, self._fanouts = graph, fanouts
        last = max(stretch.stop for stretch in batches.stretches)
        self._whole_graph = WholeGraph(graph, Reach(range(last), shape.hops))

    def sample(self, number: int) -> SampledBatch:
        """Sample the mini-batch of a step; steps count through all epochs."""
        batch = self.batches.batch(number)
        draw = partial(self._draw_edges, number)
        growth = SampledGrowth(self._whole_graph, batch.snapshots, batch.targets, shared=self.shape.shared, draw=draw)
        blocks = target_blocks(self._whole_graph, batch, self.shape, growth)
        keys, row_of = _distinct_keys(blocks)
        arrays = {name: array for name, array in blocks.arrays.items() if name not in ("features", "feature_of")}
        return SampledBatch(number, keys, replace(blocks, arrays=arrays), row_of)

    def keys(self, number: int) -> NDArray[np.int64]:
        """Return the keys of :meth:`sample`, (K,) int64 ascending, without building blocks, in half the time."""
        batch = self.batches.batch(number)
        draw = partial(self._draw_edges, number)
        growth = SampledGrowth(self._whole_graph, batch.snapshots, batch.targets, shared=self.shape.shared, draw=draw)
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

    def _draw_edges(self, number: int, t: int, vertices: NDArray[np.int64], layer: int) -> SampledEdges:
        random_key = key(self.batches.seed, "mini-batch/neighbours", self.batches.part, number, t, layer)
        return sampled_edges(self._graph.snapshots[t], vertices, fanout=self._fanouts[layer], key=random_key)


def _distinct_keys(blocks: TargetBlocks) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the distinct keys of the first layer's columns, and each column's index among them; K for padding."""
    feature_keys, feature_of = blocks.arrays["features"][:, 0], blocks.arrays.get("feature_of")
    if feature_of is not None:  # distinct and ascending already; padding reads the first row, which has no effect
        return feature_keys - 1, feature_of
    keys, row_of = np.unique(feature_keys, return_inverse=True)
    if not keys[0]:
        keys, row_of = keys[1:], np.where(row_of, row_of - 1, len(keys) - 1)
    return keys - 1, row_of.astype(np.int32)
