"""A whole graph as blocks are built from it, with a few neighbours drawn of each vertex, and keys for features."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.batching.sampling import SampledEdges
from dtdg_lab.core.errors import PlanError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.parallel.cached_part import Reach
from dtdg_lab.parallel.target_growth import Gathered, Growth

Draw = Callable[[int, NDArray[np.int64], int], SampledEdges]  # snapshot, vertices, layer


class WholeGraph:
    """All vertices of a graph; where features are asked for, the keys by which they are fetched, plus 1.

    0 stands for rows that only fill up a snapshot. Key of vertex v at snapshot t: ``t N + v``, or ``v`` where features
    never change.

    Args:
        graph: N vertices.
        reach: what layers need.
    """

    def __init__(self, graph: DynamicGraph, reach: Reach) -> None:
        self.graph, self.reach = graph, reach
        self._vertices = np.arange(graph.num_nodes, dtype=np.int32)
        self._degrees: dict[tuple[int, str], NDArray[np.float64]] = {}

    @property
    def own(self) -> int:
        """N: any vertex may be a target."""
        return self.graph.num_nodes

    @property
    def weighted(self) -> bool:
        """Whether edges carry weights."""
        return self.graph.weighted

    @cached_property
    def constant_features(self) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
        """Keys plus 1 of all vertices, (N, 1), where features never change."""
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
        """Keys, degrees or vertices of some snapshots, one after another.

        Raises:
            PlanError: anything else is asked for.
        """
        begins = np.arange(len(snapshots)) * self.graph.num_nodes
        if name == "features":
            return _Keys(snapshots.start * self.graph.num_nodes), begins
        kind, _, way = name.partition("_")
        if kind != "degrees":
            raise PlanError(f"{name} of a whole graph, which gives degrees and keys of features.")
        return _Degrees(self, snapshots, way), begins

    def degrees(self, t: int, way: str) -> NDArray[np.float64]:
        """Of all vertices in a snapshot, (N,); kept, once for snapshots that are one object."""
        snapshot = self.graph.snapshots[t]
        at = id(snapshot), way
        if at not in self._degrees:
            self._degrees[at] = snapshot.in_degrees() if way == "in" else snapshot.out_degrees()
        return self._degrees[at]


class _Keys:
    """Keys plus 1, of places counted through some snapshots."""

    def __init__(self, first: int) -> None:
        self._first = first

    def take(self, places: NDArray[np.int64], axis: int = 0) -> NDArray[np.int64]:
        """(K, 1)."""
        return (places + (self._first + 1))[:, np.newaxis]


class _Degrees:
    """Degrees along a way, of places counted through some snapshots."""

    def __init__(self, whole: WholeGraph, snapshots: range, way: str) -> None:
        self._whole, self._snapshots, self._way = whole, snapshots, way

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


class SampledGrowth(Growth):
    """Vertices within ever more hops of the targets, of whose neighbours a few are drawn.

    What is drawn for a vertex at a layer must not depend on how often it is asked for.

    Args:
        part: the graph.
        snapshots: S consecutive ones.
        targets: (V,) vertices, ascending.
        shared: whether the vertices are the same in all snapshots.
        draw: gives the edges of some vertices.
    """

    def __init__(
        self, part: WholeGraph, snapshots: range, targets: NDArray[np.integer], *, shared: bool, draw: Draw
    ) -> None:
        super().__init__(part, snapshots, targets, shared=shared)
        self._draw, self._has_weights = draw, part.weighted

    def gather(self, way: str, layer: int) -> Gathered:
        """The edges that were drawn for the rows grown so far, along ``in``, the only way there is.

        Raises:
            PlanError: along another way.
        """
        if way != "in":
            raise PlanError(f"neighbours along {way!r}: in-neighbours are drawn, and no others.")
        ends = np.cumsum(self.entries.counts)
        drawn = [
            self._draw(t, self.entries.place[end - count : end], layer)
            for t, end, count in zip(self._snapshots, ends, self.entries.counts, strict=True)
        ]
        weights = None
        if any(of.weights is not None for of in drawn):
            each = (np.ones(len(of.indices), np.float32) if of.weights is None else of.weights for of in drawn)
            weights = np.concatenate([*each])
        return Gathered(
            np.concatenate([np.diff(of.indptr) for of in drawn]), np.concatenate([of.indices for of in drawn]),
            np.array([len(of.indices) for of in drawn]), weights,
        )  # fmt: skip
