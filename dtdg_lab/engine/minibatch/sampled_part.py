"""One part's nodes with the neighbours drawn for them in one epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.engine.minibatch.neighbour_sampling import (
    SampledEdges,
    joined_weights,
    sampled_edges,
    sampling_key,
)
from dtdg_lab.engine.views.replicated_part import LocalEdges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph


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
