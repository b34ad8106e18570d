"""Computation blocks of sampled mini-batches, by our sampler or DGL's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.rng import key
from dtdg_lab.engine.minibatch_blocks import BlockShape, GatheredTargets, TargetBlocks, TargetGrowth, target_blocks
from dtdg_lab.engine.minibatches import SampledEdges, SeedBatches, sampled_edges, sampling_key, scaled_weights
from dtdg_lab.engine.replicated_part import LocalEdges, Reach
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.spmm import import_dgl

# Which models can be trained on drawn neighbours.


def check_in_edges(directions: Iterable[str], system: str) -> None:
    """Check that a model pulls along in-edges alone.

    Args:
        directions: along which edges it pulls.
        system: where it is to be trained, for the message.

    Raises:
        UnsupportedError: it pulls along other edges, which are not drawn.
    """
    other = [direction for direction in directions if direction != "in"]
    if other:
        full_batch = {family.name: family.full_batch for family in catalogue.families()}
        whole: dict[str, str] = {}  # a system of each family that has one
        for entry in catalogue.SYSTEMS:
            if entry.parts["parallel"] in full_batch[entry.family]:
                whole.setdefault(entry.family, entry.name)
        raise UnsupportedError(
            f"system={system!r} draws in-neighbours of nodes, and the model pulls along {', '.join(other)}-edges too. "
            "Choose a model that pulls along in-edges alone, or a system that has all edges, such as "
            f"{', '.join(map(repr, whole.values()))}."
        )


# DGL's neighbour sampler in place of ours.


class DglSampler:
    """Draws as :func:`dtdg_lab.engine.minibatches.sampled_edges` does, weights included, by DGL's kernel.

    What it draws does not repeat: DGL seeds the threads of its pool, not the one that calls. Layers of two hops see
    neighbours drawn twice, and batch generators refuse models with such layers.

    Raises:
        NotAvailableError: DGL cannot be imported; on the first use.

    References: Wang et al. 2019 (DGL), ``dgl.sampling.sample_neighbors``.
    """

    def __init__(self) -> None:
        self._graphs: dict[int, tuple[Snapshot, Any]] = {}

    def __call__(self, snapshot: Snapshot, rows: NDArray[np.integer], *, fanout: int, key: int) -> SampledEdges:
        """At most ``fanout`` in-neighbours of each of k different nodes; the key is not used."""
        dgl = import_dgl()
        if id(snapshot) not in self._graphs:  # the snapshot is kept with it, so that its id stays its own
            indices, edge_ids = torch.tensor(snapshot.indices, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
            edges = ("csc", (torch.tensor(snapshot.indptr), indices, edge_ids))
            self._graphs[id(snapshot)] = snapshot, dgl.graph(edges, num_nodes=snapshot.num_nodes)
        graph = self._graphs[id(snapshot)][1]
        drawn = dgl.sampling.sample_neighbors(graph, torch.tensor(rows, dtype=torch.int64), fanout)
        row_of = np.empty(snapshot.num_nodes, np.int64)
        row_of[rows] = np.arange(len(rows))
        of, places = row_of[drawn.edges()[1].numpy()], drawn.edata[dgl.EID].numpy()
        places = places[np.lexsort((places, of))]
        counts = np.bincount(of, minlength=len(rows))
        weights = None if snapshot.weights is None else snapshot.weights[places]
        found = snapshot.indptr[rows.astype(np.int64) + 1] - snapshot.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return SampledEdges(indptr, snapshot.indices[places], scaled_weights(weights, found, counts))


# A whole graph as blocks are built from it, with a few neighbours drawn of each node, and keys for features.


Draw = Callable[[int, NDArray[np.int64], int], SampledEdges]  # snapshot, nodes, layer


class WholeGraph:
    """All nodes of a graph; where features are asked for, the keys by which they are fetched, plus 1.

    0 stands for rows that only fill up a snapshot. Key of node v at snapshot t: ``t N + v``, or ``v`` where features
    never change.

    Args:
        graph: N nodes.
        reach: what layers need.
    """

    def __init__(self, graph: DynamicGraph, reach: Reach) -> None:
        self.graph, self.reach = graph, reach
        self._vertices = np.arange(graph.num_nodes, dtype=np.int32)
        self._degrees: dict[tuple[int, str], NDArray[np.float64]] = {}

    @property
    def own(self) -> int:
        """N: any node may be a target."""
        return self.graph.num_nodes

    @property
    def weighted(self) -> bool:
        """Whether edges carry weights."""
        return self.graph.weighted

    @cached_property
    def constant_features(self) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
        """Keys plus 1 of all nodes, (N, 1), where features never change."""
        if not self.graph.static_features:
            return None
        return np.arange(1, self.graph.num_nodes + 1)[:, np.newaxis], self._vertices

    def prefix(self, t: int, hops: int) -> int:
        """N, within however many hops."""
        return self.graph.num_nodes

    def vertices(self, t: int) -> NDArray[np.int32]:
        """All of them, (N,)."""
        return self._vertices

    def joined(self, name: str, snapshots: range) -> tuple[Any, NDArray[np.int64]]:
        """Keys, degrees or nodes of some snapshots, one after another.

        Raises:
            PlanError: anything else is asked for.
        """
        begins = np.arange(len(snapshots)) * self.graph.num_nodes
        if name == "features":
            return _Keys(snapshots.start * self.graph.num_nodes), begins
        kind, _, direction = name.partition("_")
        if kind == "neighbours":
            return _Neighbours(self, snapshots), begins
        if kind != "degrees":
            raise PlanError(f"{name} of a whole graph, which gives degrees, in-neighbours and keys of features.")
        return _Degrees(self, snapshots, direction), begins

    def degrees(self, t: int, direction: str) -> NDArray[np.float64]:
        """Of all nodes in a snapshot, (N,); kept, once for snapshots that are one object."""
        snapshot = self.graph.snapshots[t]
        at = id(snapshot), direction
        if at not in self._degrees:
            self._degrees[at] = snapshot.in_degrees() if direction == "in" else snapshot.out_degrees()
        return self._degrees[at]


class _Keys:
    """Keys plus 1, of places counted through some snapshots."""

    def __init__(self, first: int) -> None:
        self._first = first

    def take(self, places: NDArray[np.int64], axis: int = 0) -> NDArray[np.int64]:
        """(K, 1)."""
        return (places + (self._first + 1))[:, np.newaxis]


class _Degrees:
    """Degrees along a direction, of places counted through some snapshots."""

    def __init__(self, whole: WholeGraph, snapshots: range, direction: str) -> None:
        self._whole, self._snapshots, self._way = whole, snapshots, direction

    def take(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """(K,)."""
        if len(self._snapshots) == 1:
            return self._whole.degrees(self._snapshots[0], self._way).take(places)
        found = np.empty(len(places))
        at, vertex = np.divmod(places, self._whole.own)
        for place, t in enumerate(self._snapshots):
            here = at == place
            found[here] = self._whole.degrees(t, self._way).take(vertex[here])
        return found


class _Neighbours:
    """Numbers of in-neighbours, of places counted through some snapshots."""

    def __init__(self, whole: WholeGraph, snapshots: range) -> None:
        self._whole, self._snapshots = whole, snapshots

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """(K,)."""
        found = np.empty(len(places), np.int64)
        at, vertex = np.divmod(places, self._whole.own)
        for place, t in enumerate(self._snapshots):
            here, offsets = at == place, self._whole.graph.snapshots[t].indptr
            found[here] = offsets[vertex[here] + 1] - offsets[vertex[here]]
        return found


class SampledGrowth(TargetGrowth):
    """Nodes within ever more hops of the targets, of whose neighbours a few are drawn.

    What is drawn for a node at a layer must not depend on how often it is asked for.

    Args:
        part: the graph.
        snapshots: S consecutive ones.
        targets: (V,) nodes, ascending.
        shared: whether the nodes are the same in all snapshots.
        draw: gives the edges of some nodes.
    """

    def __init__(
        self, part: WholeGraph, snapshots: range, targets: NDArray[np.integer], *, shared: bool, draw: Draw
    ) -> None:
        super().__init__(part, snapshots, targets, shared=shared)
        self._draw = draw

    def gather(self, direction: str, layer: int) -> GatheredTargets:
        """The edges that were drawn for the rows grown so far, along ``in``, the only way there is.

        Raises:
            PlanError: along another way.
        """
        if direction != "in":
            raise PlanError(f"neighbours along {direction!r}: in-neighbours are drawn, and no others.")
        ends = np.cumsum(self.entries.counts)
        drawn = [
            self._draw(t, self.entries.place[end - count : end], layer)
            for t, end, count in zip(self._snapshots, ends, self.entries.counts, strict=True)
        ]
        return GatheredTargets(
            np.concatenate([np.diff(of.indptr) for of in drawn]),
            np.concatenate([of.indices for of in drawn]),
            np.array([len(of.indices) for of in drawn]),
            _joined_weights(drawn),
        )


def _joined_weights(drawn: list[SampledEdges]) -> NDArray[np.float32] | None:
    """Weights of all edges, 1 where those of a draw have none; None where no draw has any."""
    if all(of.weights is None for of in drawn):
        return None
    each = (np.ones(len(of.indices), np.float32) if of.weights is None else of.weights for of in drawn)
    return np.concatenate([*each])


# A mini-batch with sampled neighbours, before it has features: which rows it needs, and what they are for.


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
        """The blocks with these rows, (K, F).

        Raises:
            PlanError: there are more or fewer rows than keys.
        """
        if len(rows) != len(self.keys):
            raise PlanError(f"{len(rows)} rows of features for {len(self.keys)} keys.")
        if int(self.row_of.max()) == len(rows):  # rows that fill up read zeros
            rows = np.concatenate([rows, np.zeros((1, rows.shape[1]), rows.dtype)])
        arrays: Mapping[str, NDArray[Any]] = {**self.blocks.arrays, "features": rows, "feature_of": self.row_of}
        return replace(self.blocks, arrays=arrays)


class NeighbourSampler(Protocol):
    """Draws in-neighbours of nodes."""

    def __call__(self, snapshot: Snapshot, rows: NDArray[np.integer], *, fanout: int, key: int) -> SampledEdges:
        """At most ``fanout`` of each of k nodes; see :func:`dtdg_lab.engine.minibatches.sampled_edges`."""


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
        """The mini-batch of a step, counted through all epochs."""
        batch = self.batches.batch(number)
        draw = partial(self._drawn, number)
        growth = SampledGrowth(self._whole, batch.snapshots, batch.targets, shared=self.shape.shared, draw=draw)
        blocks = target_blocks(self._whole, batch, self.shape, growth)
        keys, row_of = _distinct_keys(blocks)
        held = {name: array for name, array in blocks.arrays.items() if name not in ("features", "feature_of")}
        return SampledBatch(number, keys, replace(blocks, arrays=held), row_of)

    def keys(self, number: int) -> NDArray[np.int64]:
        """The keys that :meth:`sample` gives, (K,) int64 ascending, in half the time: no blocks are made."""
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
    """The keys that the first layer's columns read, and which of them each has; K for those that only fill up."""
    given, of = blocks.arrays["features"][:, 0], blocks.arrays.get("feature_of")
    if of is not None:  # distinct and ascending; what fills up reads the first, and is not looked at
        return given - 1, of
    keys, row_of = np.unique(given, return_inverse=True)
    if not keys[0]:
        keys, row_of = keys[1:], np.where(row_of, row_of - 1, len(keys) - 1)
    return keys - 1, row_of.astype(np.int32)


# One part's nodes with the neighbours drawn for them in one epoch: what its layers need in each snapshot.


@dataclass(frozen=True, slots=True)
class Drawing:
    """How neighbours are drawn for a model.

    Attributes:
        snapshots: those that are trained.
        layers: L of the model.
        layer_hops: h of each layer, whose pulls share what is drawn for the layer.
        lasting: whether what a layer gives to the next must be there in all snapshots, because nodes are run
            through time in every layer.
        fanout: the most in-neighbours drawn of a node.
        seed: of the run.
        epoch: another one draws other neighbours.

    Raises:
        PlanError: no snapshot, layer, hop or neighbour.
    """

    snapshots: range
    layers: int
    layer_hops: int
    lasting: bool
    fanout: int
    seed: int
    epoch: int

    def __post_init__(self) -> None:
        if not self.snapshots or min(self.layers, self.layer_hops, self.fanout) < 1:
            raise PlanError(
                f"{len(self.snapshots)} snapshots, {self.layers} layers of {self.layer_hops} hops, "
                f"fanout={self.fanout}: each must be at least 1."
            )

    def layer_of(self, hop: int) -> int:
        """The layer that makes this hop; hops are counted from the own nodes, from 1, layers from the features."""
        return self.layers - 1 - (hop - 1) // self.layer_hops

    def edges(self, graph: DynamicGraph, t: int, rows: NDArray[np.integer], layer: int) -> SampledEdges:
        """What is drawn for some nodes in snapshot t, for a layer."""
        drawn_by = sampling_key(self.seed, self.epoch, t, layer)
        return sampled_edges(graph.snapshots[t], rows, fanout=self.fanout, key=drawn_by)


@dataclass(frozen=True, slots=True, eq=False)
class SampledSnapshot:
    """A part's nodes of one snapshot, nearest first, and for each layer the edges along which it pulls.

    Attributes:
        vertices: (M,) int64, numbers in the graph: the n own ones, ascending, then those that hop 1, 2 .. D adds.
        bounds: (D + 1,) int64: how many of them are there after 0, 1 .. D hops.
        edges: for each layer, from the features, the rows of those nodes that must be right after it.
    """

    vertices: NDArray[np.int64]
    bounds: NDArray[np.int64]
    edges: tuple[LocalEdges, ...]

    @property
    def num_edges(self) -> int:
        """Edges of all layers."""
        return sum(len(edges.indices) for edges in self.edges)

    def rows(self, layer: int) -> int:
        """How many nodes, the first ones, a layer sees."""
        hops = (len(self.bounds) - 1) // len(self.edges)
        return int(self.bounds[(len(self.edges) - layer) * hops])


class SampledPart:
    """The own nodes of a part and what is drawn for them, snapshot by snapshot; the same whenever it is asked for.

    Where nodes are run through time, those that a layer hands to the next are the same in all snapshots: what is
    drawn in any snapshot of the epoch. Only what the first layer reads, features, is each snapshot's own.

    Args:
        graph: N nodes.
        own: (n,) the part's nodes, ascending.
        drawing: for which model and epoch.
    """

    def __init__(self, graph: DynamicGraph, own: NDArray[np.integer], drawing: Drawing) -> None:
        self.vertices, self.drawing = np.asarray(own, np.int64), drawing
        self._graph = graph
        self._place = np.full(graph.num_nodes, -1, np.int32)
        lasting = (drawing.layers - 1) * drawing.layer_hops if drawing.lasting else 0
        levels = [self.vertices]
        for hop in range(1, lasting + 1):
            rows, met = np.concatenate(levels), np.zeros(graph.num_nodes, bool)
            for t in drawing.snapshots:
                met[drawing.edges(graph, t, rows, drawing.layer_of(hop)).indices] = True
            met[rows] = False
            levels.append(np.flatnonzero(met))
        self._levels = levels
        self._lasting = np.concatenate(levels)

    @property
    def own(self) -> int:
        """n, the part's own nodes."""
        return len(self.vertices)

    def snapshot(self, t: int) -> SampledSnapshot:
        """What the part needs of snapshot t.

        Raises:
            PlanError: it is not among the trained ones.
        """
        drawing = self.drawing
        if t not in drawing.snapshots:
            raise PlanError(f"snapshot {t} is not among the trained ones, {drawing.snapshots}.")
        levels = [*self._levels]
        known = np.zeros(self._graph.num_nodes, bool)
        known[self._lasting] = True
        drawn: list[list[SampledEdges]] = [[] for _ in range(drawing.layers)]
        for hop in range(1, drawing.layers * drawing.layer_hops + 1):
            of_layer = drawn[drawing.layer_of(hop)]
            # the pulls of a layer share what is drawn: only nodes that the hop before has added are missing
            rows = levels[hop - 1] if of_layer else np.concatenate(levels[:hop])
            of_layer.append(drawing.edges(self._graph, t, rows, drawing.layer_of(hop)))
            if hop == len(levels):
                met = of_layer[-1].indices
                levels.append(_distinct(met[~known[met]]))
                known[levels[-1]] = True
        vertices = np.concatenate(levels)
        self._place[vertices] = np.arange(len(vertices), dtype=np.int32)
        edges = tuple(_joined(of_layer, self._place) for of_layer in drawn)
        return SampledSnapshot(vertices, np.cumsum([len(level) for level in levels]), edges)


def _distinct(vertices: NDArray[np.int32]) -> NDArray[np.int64]:
    """Each once, ascending."""
    vertices.sort()
    first = np.ones(len(vertices), bool)
    np.not_equal(vertices[1:], vertices[:-1], out=first[1:])
    return vertices[first].astype(np.int64)


def _joined(drawn: list[SampledEdges], place: NDArray[np.int32]) -> LocalEdges:
    """Rows one below the other, with the places of the nodes they pull from."""
    lengths = np.concatenate([np.diff(edges.indptr) for edges in drawn])
    indices = place[np.concatenate([edges.indices for edges in drawn])]
    return LocalEdges(np.concatenate([[0], np.cumsum(lengths)]), indices, _joined_weights(drawn))
