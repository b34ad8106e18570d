"""Uniform neighbour sampling that depends only on the node, the snapshot, the layer and the epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.rng import key
from dtdg_lab.engine.views.replicated_part import LocalEdges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class SampledEdges:
    """Sampled edges of k nodes.

    Attributes:
        indptr: (k + 1,) int64: the i-th node pulls from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, numbers in the graph, ascending within a node.
        weights: (E,) float32: the edge's weight (1 if unweighted), times neighbours over sampled neighbours of its
            node. None if that is 1 for every edge.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None


def sampling_key(seed: int, epoch: int, snapshot: int, layer: int) -> int:
    """Return the random key for sampling neighbours, distinct for each epoch, snapshot and layer."""
    return key(seed, "dynagraph/sample", epoch, snapshot, layer)


def sampled_edges(snapshot: Snapshot, rows: NDArray[np.integer], *, fanout: int, key: int) -> SampledEdges:
    """Sample at most ``fanout`` in-neighbours of each node, uniformly without replacement.

    A node's sample depends only on its number and the key, so not on parts or ranks. If k of c neighbours are sampled,
    weights are scaled by c / k. Sums over sampled neighbours are then unbiased. With the degrees of the whole graph,
    so are convolutions and means over neighbours.

    Args:
        snapshot: N nodes.
        rows: (k,) the nodes.
        fanout: most neighbours of a node.
        key: see :func:`sampling_key`.

    Raises:
        PlanError: the fanout is below 1.

    References: FlareDTDG sections 2.2 and 4.1 on DynaGraph (Guan et al. 2022); Bentley, Floyd 1987 ("A sample of
    brilliance"), who draw k of c numbers with k draws.

    Differs from the paper: DynaGraph's sampling and scaling are not specified; ours are uniform and unbiased.
    """
    if fanout < 1:
        raise PlanError(f"fanout={fanout} is below 1. Sample at least 1 neighbour of each node.")
    vertices = rows.astype(np.int64)
    start = snapshot.indptr[vertices]
    degrees = snapshot.indptr[vertices + 1] - start
    counts = np.minimum(degrees, fanout)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    edge_index = np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], counts)
    many = np.flatnonzero(degrees > fanout)
    if len(many):
        offsets = _sample_offsets(vertices[many], degrees[many], fanout, key)
        edge_index[indptr[many] + np.arange(fanout)[:, np.newaxis]] = start[many] + offsets
    weights = None if snapshot.weights is None else snapshot.weights[edge_index]
    return SampledEdges(indptr, snapshot.indices[edge_index], scaled_weights(weights, degrees, counts))


def scaled_weights(
    weights: NDArray[np.float32] | None, degrees: NDArray[np.integer], counts: NDArray[np.integer]
) -> NDArray[np.float32] | None:
    """Scale the weights of sampled edges, (E,), by neighbours over sampled neighbours of each node."""
    if (degrees <= counts).all():
        return weights
    scale = np.repeat(degrees / np.maximum(counts, 1), counts)
    return (scale if weights is None else weights * scale).astype(np.float32)


def _sample_offsets(rows: NDArray[np.int64], degrees: NDArray[np.int64], fanout: int, key: int) -> NDArray[np.int64]:
    """Draw ``fanout`` distinct numbers below each row's degree, ascending: (fanout, k)."""
    offsets = np.empty((fanout, len(rows)), np.int64)
    for draw in range(fanout):
        last = degrees - fanout + draw  # the highest number of this draw; it replaces a repeated number
        number = _draw_below(last + 1, rows, draw, key)
        offsets[draw] = np.where((offsets[:draw] == number).any(axis=0), last, number)
    offsets.sort(axis=0)
    return offsets


def _draw_below(bounds: NDArray[np.int64], rows: NDArray[np.int64], draw: int, key: int) -> NDArray[np.int64]:
    """Draw a number below each row's bound, which is below 2^31, as a hash of row, draw and key."""
    state: NDArray[Any] = (rows.astype(np.uint64) << np.uint64(32)) + np.uint64(draw)
    # SplitMix64's output function (Steele, Lea, Flood 2014), a bijection of 64-bit numbers that the key chooses
    state = state * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key & ((1 << 64) - 1))
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = (state ^ (state >> np.uint64(31))) >> np.uint64(32)
    return ((state * bounds.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def check_in_edges(directions: Iterable[str], system: str) -> None:
    """Check that a model pulls only along in-edges.

    Args:
        directions: edge directions along which it pulls.
        system: the system, for the message.

    Raises:
        UnsupportedError: it also pulls along edges that are not sampled.
    """
    other_directions = [direction for direction in directions if direction != "in"]
    if other_directions:
        full_batch = {family.name: family.full_batch for family in catalogue.families()}
        systems_by_family: dict[str, str] = {}  # a system of each family that has one
        for entry in catalogue.SYSTEMS:
            if entry.parts["parallel"] in full_batch[entry.family]:
                systems_by_family.setdefault(entry.family, entry.name)
        raise UnsupportedError(
            f"system={system!r} samples in-neighbours, but the model also pulls along "
            f"{', '.join(other_directions)}-edges. Choose a model that pulls only along in-edges, or a system "
            f"that trains on all edges, such as {', '.join(map(repr, systems_by_family.values()))}."
        )


def joined_weights(samples: list[SampledEdges]) -> NDArray[np.float32] | None:
    """Concatenate the weights of samples, with 1 for unweighted samples; None if all are unweighted."""
    if all(edges.weights is None for edges in samples):
        return None
    weights = (np.ones(len(edges.indices), np.float32) if edges.weights is None else edges.weights for edges in samples)
    return np.concatenate([*weights])


@dataclass(frozen=True, slots=True)
class Drawing:
    """Settings of neighbour sampling for a model and an epoch.

    Attributes:
        snapshots: the trained snapshots.
        layers: layers of the model, L.
        layer_hops: hops of each layer, h; the hops of a layer share its samples.
        lasting: whether the output nodes of inner layers must be the same in all snapshots, because every layer runs
            its nodes through time.
        fanout: most in-neighbours of a node.
        seed: seed of the run.
        epoch: the epoch; each one has its own samples.

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
        """Return the layer of a hop; hops count from the own nodes, from 1, layers from the features."""
        return self.layers - 1 - (hop - 1) // self.layer_hops

    def edges(self, graph: DynamicGraph, t: int, rows: NDArray[np.integer], layer: int) -> SampledEdges:
        """Sample the neighbours of some nodes in snapshot t, for a layer."""
        random_key = sampling_key(self.seed, self.epoch, t, layer)
        return sampled_edges(graph.snapshots[t], rows, fanout=self.fanout, key=random_key)


@dataclass(frozen=True, slots=True, eq=False)
class SampledSnapshot:
    """A part's nodes of one snapshot, nearest first, and the edges of each layer.

    Attributes:
        vertices: (M,) int64, numbers in the graph: the n own nodes, ascending, then the nodes added by hop 1, 2 .. D.
        bounds: (D + 1,) int64: number of nodes within 0, 1 .. D hops.
        edges: edges of the output nodes of each layer, starting with the layer that reads features.
    """

    vertices: NDArray[np.int64]
    bounds: NDArray[np.int64]
    edges: tuple[LocalEdges, ...]

    @property
    def num_edges(self) -> int:
        """Edges of all layers."""
        return sum(len(edges.indices) for edges in self.edges)

    def rows(self, layer: int) -> int:
        """Return the number of input nodes of a layer; they are the first nodes."""
        hops = (len(self.bounds) - 1) // len(self.edges)
        return int(self.bounds[(len(self.edges) - layer) * hops])


class SampledPart:
    """The own nodes of a part with sampled neighbours, by snapshot; repeated calls give the same sample.

    If nodes run through time, the nodes between two layers are the same in all snapshots: those sampled in any
    snapshot of the epoch. Only the nodes whose features the first layer reads differ by snapshot.

    Args:
        graph: N nodes.
        vertices: (n,) the part's nodes, ascending.
        drawing: settings of sampling.
    """

    def __init__(self, graph: DynamicGraph, vertices: NDArray[np.integer], drawing: Drawing) -> None:
        self.vertices, self.drawing = np.asarray(vertices, np.int64), drawing
        self._graph = graph
        self._place = np.full(graph.num_nodes, -1, np.int32)
        lasting = (drawing.layers - 1) * drawing.layer_hops if drawing.lasting else 0
        levels = [self.vertices]
        for hop in range(1, lasting + 1):
            rows, reached = np.concatenate(levels), np.zeros(graph.num_nodes, bool)
            for t in drawing.snapshots:
                reached[drawing.edges(graph, t, rows, drawing.layer_of(hop)).indices] = True
            reached[rows] = False
            levels.append(np.flatnonzero(reached))
        self._levels = levels
        self._lasting = np.concatenate(levels)

    @property
    def own(self) -> int:
        """Number of the part's own nodes, n."""
        return len(self.vertices)

    def snapshot(self, t: int) -> SampledSnapshot:
        """Return the part's nodes and edges of snapshot t.

        Raises:
            PlanError: it is not one of the trained snapshots.
        """
        drawing = self.drawing
        if t not in drawing.snapshots:
            raise PlanError(f"snapshot {t} is not among the trained ones, {drawing.snapshots}.")
        levels = [*self._levels]
        is_reached = np.zeros(self._graph.num_nodes, bool)
        is_reached[self._lasting] = True
        samples: list[list[SampledEdges]] = [[] for _ in range(drawing.layers)]
        for hop in range(1, drawing.layers * drawing.layer_hops + 1):
            layer_samples = samples[drawing.layer_of(hop)]
            # the hops of a layer share its samples: only nodes added by the previous hop need new ones
            rows = levels[hop - 1] if layer_samples else np.concatenate(levels[:hop])
            layer_samples.append(drawing.edges(self._graph, t, rows, drawing.layer_of(hop)))
            if hop == len(levels):
                reached = layer_samples[-1].indices
                levels.append(_distinct(reached[~is_reached[reached]]))
                is_reached[levels[-1]] = True
        vertices = np.concatenate(levels)
        self._place[vertices] = np.arange(len(vertices), dtype=np.int32)
        edges = tuple(_joined(layer_samples, self._place) for layer_samples in samples)
        return SampledSnapshot(vertices, np.cumsum([len(level) for level in levels]), edges)


def _distinct(vertices: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the distinct values, ascending; ``vertices`` is sorted in place."""
    vertices.sort()
    first = np.ones(len(vertices), bool)
    np.not_equal(vertices[1:], vertices[:-1], out=first[1:])
    return vertices[first].astype(np.int64)


def _joined(samples: list[SampledEdges], row_of: NDArray[np.int32]) -> LocalEdges:
    """Concatenate the rows of samples, with local indices of the source nodes."""
    lengths = np.concatenate([np.diff(edges.indptr) for edges in samples])
    indices = row_of[np.concatenate([edges.indices for edges in samples])]
    return LocalEdges(np.concatenate([[0], np.cumsum(lengths)]), indices, joined_weights(samples))
