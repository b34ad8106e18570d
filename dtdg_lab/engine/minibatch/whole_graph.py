"""A whole graph from which blocks are built with a few drawn neighbours, and keys for features."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.engine.minibatch.block_growth import GatheredTargets, TargetGrowth
from dtdg_lab.engine.minibatch.neighbour_sampling import (
    SampledEdges,
    joined_weights,
)
from dtdg_lab.engine.views.replicated_part import Reach
from dtdg_lab.graphs.dynamic_graph import DynamicGraph

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
        """Return all nodes, (N,)."""
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
        """Return the degrees of all nodes in a snapshot, (N,); cached once for snapshots that are one object."""
        snapshot = self.graph.snapshots[t]
        cache_key = id(snapshot), direction
        if cache_key not in self._degrees:
            self._degrees[cache_key] = snapshot.in_degrees() if direction == "in" else snapshot.out_degrees()
        return self._degrees[cache_key]


class _Keys:
    """Keys plus 1, of places counted through some snapshots."""

    def __init__(self, first: int) -> None:
        self._first = first

    def take(self, places: NDArray[np.int64], axis: int = 0) -> NDArray[np.int64]:
        """(K, 1)."""
        return (places + (self._first + 1))[:, np.newaxis]


class _Degrees:
    """Degrees along a direction, of places counted through some snapshots."""

    def __init__(self, graph: WholeGraph, snapshots: range, direction: str) -> None:
        self._whole, self._snapshots, self._way = graph, snapshots, direction

    def take(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """(K,)."""
        if len(self._snapshots) == 1:
            return self._whole.degrees(self._snapshots[0], self._way).take(places)
        degrees = np.empty(len(places))
        index, vertex = np.divmod(places, self._whole.own)
        for number, t in enumerate(self._snapshots):
            in_snapshot = index == number
            degrees[in_snapshot] = self._whole.degrees(t, self._way).take(vertex[in_snapshot])
        return degrees


class _Neighbours:
    """Numbers of in-neighbours, of places counted through some snapshots."""

    def __init__(self, graph: WholeGraph, snapshots: range) -> None:
        self._whole, self._snapshots = graph, snapshots

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """(K,)."""
        counts = np.empty(len(places), np.int64)
        index, vertex = np.divmod(places, self._whole.own)
        for number, t in enumerate(self._snapshots):
            in_snapshot, offsets = index == number, self._whole.graph.snapshots[t].indptr
            counts[in_snapshot] = offsets[vertex[in_snapshot] + 1] - offsets[vertex[in_snapshot]]
        return counts


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
        """Draw edges for the rows grown so far, along ``in``, the only direction.

        Raises:
            PlanError: along another way.
        """
        if direction != "in":
            raise PlanError(f"neighbours along {direction!r}: in-neighbours are drawn, and no others.")
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
