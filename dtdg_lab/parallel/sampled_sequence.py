"""A sampled part's snapshots as spaces, kept while windows slide over them: what two windows share is made once."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.heap import keep_freed_memory
from dtdg_lab.kernels.operator_settings import OperatorSettings
from dtdg_lab.kernels.operators import Operators
from dtdg_lab.parallel.apart import Apart
from dtdg_lab.parallel.neighbours import AllHere
from dtdg_lab.parallel.part_edges import LocalSource, PartEdges
from dtdg_lab.parallel.sampled_part import SampledPart, SampledSnapshot
from dtdg_lab.parallel.space import SnapshotSpace


class SampledSequence(Apart):
    """Snapshots of a sampled part as spaces (see :class:`dtdg_lab.parallel.sequence.Sequence`).

    A snapshot's edges are drawn when a window first has it, and let go when no later window has it. So are pulls of
    its features, which no parameter changes: windows that overlap aggregate them once. Layer l of L, of h hops each,
    sees the vertices within (L - l) h hops, the first rows of its input. Nothing is exchanged. Where vertices are
    run through time, the first layer's spaces have as many rows as each snapshot needs, the others' equally many.

    Args:
        graph: N vertices.
        part: which of them are computed, and what is drawn for them.
        settings: of the operators; they say where tensors live, and their type.
    """

    where = "layout sampled_window, where each part computes its own rows"
    instead = "system='full-history' (halo_window)"

    def __init__(self, graph: DynamicGraph, part: SampledPart, settings: OperatorSettings) -> None:
        keep_freed_memory()
        self.part, self.settings, self.own = part, settings, part.own
        self.device, self.dtype = settings.device, settings.dtype
        self.vertices: Tensor | None = torch.tensor(part.vertices, device=self.device)
        self._graph = graph
        self._sampled: dict[int, SampledSnapshot] = {}
        self._spaces: dict[int, list[SnapshotSpace]] = {}

    def sample(self, needed: range) -> tuple[int, int]:
        """Draw what is missing of some snapshots, and let go of all others.

        Returns:
            rows and edges of the snapshots, those of all layers, copies of neighbours among them.
        """
        for t in [t for t in self._sampled if t not in needed]:
            del self._sampled[t]
            self._spaces.pop(t, None)
        for t in needed:
            if t not in self._sampled:
                self._sampled[t] = self.part.snapshot(t)
        held = [self._sampled[t] for t in needed]
        return sum(len(of.vertices) for of in held), sum(of.num_edges for of in held)

    def bring(self, needed: range) -> None:
        """Move what these snapshots need onto the device."""
        for t in needed:
            self._of(t)

    def space(self, t: int) -> SnapshotSpace:
        """Snapshot t as the first layer sees it."""
        return self._of(t)[0]

    def stacks(self, snapshots: range, layer: int) -> list[SnapshotSpace]:
        """Consecutive snapshots for one layer, each by itself: another window begins elsewhere."""
        return [self._of(t)[layer] for t in snapshots]

    def _of(self, t: int) -> list[SnapshotSpace]:
        if t not in self._spaces:
            if t not in self._sampled:
                self._sampled[t] = self.part.snapshot(t)
            held = self._sampled[t]
            self._spaces[t] = [self._space(t, held, layer) for layer in range(self.part.drawing.layers)]
        return self._spaces[t]

    def _space(self, t: int, held: SampledSnapshot, layer: int) -> SnapshotSpace:
        source = LocalSource(lambda way: self._edges(t, held, layer), self.settings)
        operators, once = Operators(source, self.settings), range(t, t + 1)
        if layer:  # only the first layer is fed features
            unfed = torch.empty(held.rows(layer), 0, dtype=self.dtype, device=self.device)
            return SnapshotSpace(operators, once, unfed, AllHere(), num_nodes=self.own)
        features = torch.tensor(self._graph.features[t][held.vertices], device=self.device).to(self.dtype)
        return SnapshotSpace(operators, once, features, AllHere(), num_nodes=self.own, may_keep=lambda size: True)

    def _edges(self, t: int, held: SampledSnapshot, layer: int) -> PartEdges:
        """Edges of the vertices that a layer sees; rows of those that need not be right after it are empty."""
        edges, rows = held.edges[layer], held.rows(layer)
        indptr = np.pad(edges.indptr, (0, rows + 1 - len(edges.indptr)), mode="edge")
        return PartEdges(indptr, edges.indices, edges.weights, rows, *self._degrees(t, held.vertices[:rows]))

    def _degrees(self, t: int, vertices: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """In-degrees and out-degrees of some vertices in the whole snapshot; not numbers where nobody asks for them."""
        snapshot = self._graph.snapshots[t]
        if snapshot.weights is None:
            into = (snapshot.indptr[vertices + 1] - snapshot.indptr[vertices]).astype(np.float64)
        else:
            into = snapshot.in_degrees()[vertices]
        if self.settings.norm == "in_out":
            return into, snapshot.out_degrees()[vertices]
        return into, np.broadcast_to(np.float64(np.nan), into.shape)
