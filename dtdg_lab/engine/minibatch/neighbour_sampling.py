"""A few in-neighbours of each node, drawn so that its number, the snapshot and the epoch alone decide which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.rng import key
from dtdg_lab.engine.views.replicated_part import LocalEdges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.spmm import import_dgl


@dataclass(frozen=True, slots=True, eq=False)
class SampledEdges:
    """The edges that were drawn for k nodes.

    Attributes:
        indptr: (k + 1,) int64: the i-th node pulls from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, numbers in the graph, ascending within a node.
        weights: (E,) float32: an edge's own weight (1 where edges carry none), times neighbours over drawn neighbours.
            None where that is 1 for every edge.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None


def sampling_key(seed: int, epoch: int, snapshot: int, layer: int) -> int:
    """Return the key by which neighbours are drawn, another one for every epoch, snapshot and layer of the model."""
    return key(seed, "dynagraph/sample", epoch, snapshot, layer)


def sampled_edges(snapshot: Snapshot, rows: NDArray[np.integer], *, fanout: int, key: int) -> SampledEdges:
    """At most ``fanout`` of the in-neighbours of each node, evenly and without repetition; all where there are fewer.

    What is drawn for a node depends on its number and the key alone: not on what else is asked for, and so neither
    on parts nor on ranks. If k of c neighbours are sampled, weights are scaled by c / k. A sum over drawn neighbours is
    then on average the sum over all, whatever each is scaled by; with the degrees of the whole graph, convolutions and
    means over neighbours are so too.

    Args:
        snapshot: N nodes.
        rows: (k,) the nodes.
        fanout: the most neighbours drawn of one.
        key: see :func:`sampling_key`.

    Raises:
        PlanError: the fanout is below 1.

    References: FlareDTDG sections 2.2 and 4.1 on DynaGraph (Guan et al. 2022); Bentley, Floyd 1987 ("A sample of
    brilliance"), who draw k of c numbers with k draws.

    Differs from the paper: DynaGraph's sampling and scaling are not specified; ours are uniform and unbiased.
    """
    if fanout < 1:
        raise PlanError(f"fanout={fanout}: at least 1 neighbour of each node must be drawn.")
    vertices = rows.astype(np.int64)
    start = snapshot.indptr[vertices]
    degrees = snapshot.indptr[vertices + 1] - start
    counts = np.minimum(degrees, fanout)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    edge_index = np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], counts)
    many = np.flatnonzero(degrees > fanout)
    if len(many):
        offsets = _chosen(vertices[many], degrees[many], fanout, key)
        edge_index[indptr[many] + np.arange(fanout)[:, np.newaxis]] = start[many] + offsets
    weights = None if snapshot.weights is None else snapshot.weights[edge_index]
    return SampledEdges(indptr, snapshot.indices[edge_index], scaled_weights(weights, degrees, counts))


def scaled_weights(
    weights: NDArray[np.float32] | None, degrees: NDArray[np.integer], counts: NDArray[np.integer]
) -> NDArray[np.float32] | None:
    """Weights of drawn edges, (E,): an edge's own, times the neighbours found over those drawn of each node."""
    if (degrees <= counts).all():
        return weights
    grown = np.repeat(degrees / np.maximum(counts, 1), counts)
    return (grown if weights is None else weights * grown).astype(np.float32)


def _chosen(rows: NDArray[np.int64], degrees: NDArray[np.int64], fanout: int, key: int) -> NDArray[np.int64]:
    """For each row ``fanout`` different numbers below the number of neighbours found, ascending: (fanout, k)."""
    offsets = np.empty((fanout, len(rows)), np.int64)
    for draw in range(fanout):
        last = degrees - fanout + draw  # the highest that may be drawn; it stands in for one that has been drawn before
        number = _below(last + 1, rows, draw, key)
        offsets[draw] = np.where((offsets[:draw] == number).any(axis=0), last, number)
    offsets.sort(axis=0)
    return offsets


def _below(bounds: NDArray[np.int64], rows: NDArray[np.int64], draw: int, key: int) -> NDArray[np.int64]:
    """For each row a number from 0 to below its bound, which is less than 2^31: a function of row, place and key."""
    state: NDArray[Any] = (rows.astype(np.uint64) << np.uint64(32)) + np.uint64(draw)
    # SplitMix64's output function (Steele, Lea, Flood 2014), a bijection of 64-bit numbers that the key chooses
    state = state * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key & ((1 << 64) - 1))
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = (state ^ (state >> np.uint64(31))) >> np.uint64(32)
    return ((state * bounds.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def check_in_edges(directions: Iterable[str], system: str) -> None:
    """Check that a model pulls along in-edges alone.

    Args:
        directions: along which edges it pulls.
        system: where it is to be trained, for the message.

    Raises:
        UnsupportedError: it pulls along other edges, which are not drawn.
    """
    other_directions = [direction for direction in directions if direction != "in"]
    if other_directions:
        full_batch = {family.name: family.full_batch for family in catalogue.families()}
        systems_by_family: dict[str, str] = {}  # a system of each family that has one
        for entry in catalogue.SYSTEMS:
            if entry.parts["parallel"] in full_batch[entry.family]:
                systems_by_family.setdefault(entry.family, entry.name)
        raise UnsupportedError(
            f"system={system!r} draws in-neighbours of nodes, and the model pulls along "
            f"{', '.join(other_directions)}-edges too. Choose a model that pulls along in-edges alone, or a system "
            f"that has all edges, such as {', '.join(map(repr, systems_by_family.values()))}."
        )


class DglSampler:
    """Draws as :func:`sampled_edges` does, weights included, by DGL's kernel.

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
        sampled_graph = dgl.sampling.sample_neighbors(graph, torch.tensor(rows, dtype=torch.int64), fanout)
        row_of = np.empty(snapshot.num_nodes, np.int64)
        row_of[rows] = np.arange(len(rows))
        row_index, places = row_of[sampled_graph.edges()[1].numpy()], sampled_graph.edata[dgl.EID].numpy()
        places = places[np.lexsort((places, row_index))]
        counts = np.bincount(row_index, minlength=len(rows))
        weights = None if snapshot.weights is None else snapshot.weights[places]
        degrees = snapshot.indptr[rows.astype(np.int64) + 1] - snapshot.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return SampledEdges(indptr, snapshot.indices[places], scaled_weights(weights, degrees, counts))


def joined_weights(samples: list[SampledEdges]) -> NDArray[np.float32] | None:
    """Weights of all edges, 1 where those of a draw have none; None where no draw has any."""
    if all(edges.weights is None for edges in samples):
        return None
    weights = (np.ones(len(edges.indices), np.float32) if edges.weights is None else edges.weights for edges in samples)
    return np.concatenate([*weights])


class NeighbourSampler(Protocol):
    """Draws in-neighbours of nodes."""

    def __call__(self, snapshot: Snapshot, rows: NDArray[np.integer], *, fanout: int, key: int) -> SampledEdges:
        """At most ``fanout`` of each of k nodes; see :func:`sampled_edges`."""


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
        """Return the layer that makes a hop; hops are counted from the own nodes, from 1, layers from the features."""
        return self.layers - 1 - (hop - 1) // self.layer_hops

    def edges(self, graph: DynamicGraph, t: int, rows: NDArray[np.integer], layer: int) -> SampledEdges:
        """Draw the neighbours of some nodes in snapshot t, for a layer."""
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
        """Return the number of nodes, the first ones, that a layer sees."""
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

    def __init__(self, graph: DynamicGraph, vertices: NDArray[np.integer], drawing: Drawing) -> None:
        self.vertices, self.drawing = np.asarray(vertices, np.int64), drawing
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
        """Return the part's nodes and edges of snapshot t.

        Raises:
            PlanError: it is not among the trained ones.
        """
        drawing = self.drawing
        if t not in drawing.snapshots:
            raise PlanError(f"snapshot {t} is not among the trained ones, {drawing.snapshots}.")
        levels = [*self._levels]
        is_known = np.zeros(self._graph.num_nodes, bool)
        is_known[self._lasting] = True
        samples: list[list[SampledEdges]] = [[] for _ in range(drawing.layers)]
        for hop in range(1, drawing.layers * drawing.layer_hops + 1):
            of_layer = samples[drawing.layer_of(hop)]
            # the pulls of a layer share what is drawn: only nodes that the hop before has added are missing
            rows = levels[hop - 1] if of_layer else np.concatenate(levels[:hop])
            of_layer.append(drawing.edges(self._graph, t, rows, drawing.layer_of(hop)))
            if hop == len(levels):
                met = of_layer[-1].indices
                levels.append(_distinct(met[~is_known[met]]))
                is_known[levels[-1]] = True
        vertices = np.concatenate(levels)
        self._place[vertices] = np.arange(len(vertices), dtype=np.int32)
        edges = tuple(_joined(of_layer, self._place) for of_layer in samples)
        return SampledSnapshot(vertices, np.cumsum([len(level) for level in levels]), edges)


def _distinct(vertices: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return each value once, ascending."""
    vertices.sort()
    first = np.ones(len(vertices), bool)
    np.not_equal(vertices[1:], vertices[:-1], out=first[1:])
    return vertices[first].astype(np.int64)


def _joined(samples: list[SampledEdges], row_of: NDArray[np.int32]) -> LocalEdges:
    """Rows one below the other, with the places of the nodes they pull from."""
    lengths = np.concatenate([np.diff(edges.indptr) for edges in samples])
    indices = row_of[np.concatenate([edges.indices for edges in samples])]
    return LocalEdges(np.concatenate([[0], np.cumsum(lengths)]), indices, joined_weights(samples))
