"""A hybrid batch's blocks as spaces on the device that computes: what trains them cannot tell them from a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import torch
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.kernels.heap import keep_freed_memory
from dtdg_lab.kernels.operator_settings import OperatorSettings
from dtdg_lab.kernels.operators import Operators
from dtdg_lab.parallel.apart import Apart
from dtdg_lab.parallel.cached_sequence import OwnBest
from dtdg_lab.parallel.part_edges import LocalSource, PartEdges
from dtdg_lab.parallel.space import SnapshotSpace
from dtdg_lab.parallel.space_store import stack_ranges
from dtdg_lab.parallel.target_blocks import TargetBlocks
from dtdg_lab.parallel.target_edges import target_edges


class TargetSequence(Apart):
    """The snapshots of a batch as spaces (see :class:`dtdg_lab.parallel.sequence.Sequence`).

    The targets are the first rows of every space. Snapshots are stacked. Pulls of features, which no parameter changes,
    are computed once and kept with the sequence, so that a batch that is trained again is cheap.

    Args:
        blocks: of the batch.
        settings: of the operators; they say where tensors live, and their type.
    """

    where = "hybrid batches, which have some of them"
    instead = "system='adgnn-t' (halo_vertex)"

    def __init__(self, blocks: TargetBlocks, settings: OperatorSettings) -> None:
        keep_freed_memory()
        self.blocks, self.settings = blocks, settings
        self.own = len(blocks.batch.targets)
        self.device, self.dtype = settings.device, settings.dtype
        self.vertices: Tensor | None = torch.tensor(blocks.arrays["vertices"], device=self.device)
        self._spaces: dict[tuple[range, int], SnapshotSpace] = {}
        self._one_by_one: dict[int, _LayerByLayer] = {}

    @cached_property
    def _stacks(self) -> list[range]:
        whole, blocks = self.blocks.batch.snapshots, self.blocks
        features = blocks.arrays["features"].shape[1]
        return stack_ranges(whole, rows=blocks.heights[0], features=features, device=self.device)

    def space(self, t: int) -> SnapshotSpace:
        """Snapshot t for all layers of the model."""
        once, shape = range(t, t + 1), self.blocks.shape
        if shape.layers == 1 or shape.truncated:
            return self._space(once, 0)
        if t not in self._one_by_one:
            self._one_by_one[t] = _LayerByLayer(self._space(once, 0), partial(self._narrowing, once))
        return self._one_by_one[t]

    def stacks(self, snapshots: range, layer: int) -> list[SnapshotSpace]:
        """Consecutive snapshots for one layer, several as one space.

        Raises:
            PlanError: the blocks have no such layer or snapshots, or serve all layers as one.
        """
        if not 0 <= layer < self.blocks.shape.layers or (self.blocks.shape.truncated and layer):
            raise PlanError(f"layer {layer} of {self.blocks.shape}.")
        if snapshots == self.blocks.batch.snapshots:
            return [self._space(some, layer) for some in self._stacks]
        return [self._space(range(t, t + 1), layer) for t in snapshots]

    def _space(self, snapshots: range, layer: int) -> SnapshotSpace:
        key = snapshots, layer
        if key not in self._spaces:
            self._spaces[key] = self._first(snapshots) if layer == 0 else self._later(snapshots, layer)
        return self._spaces[key]

    def _first(self, snapshots: range) -> SnapshotSpace:
        features, of = self.blocks.features_of(snapshots)
        moved = torch.tensor(features, device=self.device).to(self.dtype)
        if of is not None:
            moved = moved.index_select(0, torch.tensor(of, device=self.device))
        rows = len(snapshots) * self.blocks.heights[0]
        return SnapshotSpace(
            self._operators(partial(target_edges, self.blocks, snapshots, 0)), snapshots,
            moved if len(moved) == rows else moved[:rows], OwnBest(self.own), num_nodes=self.own,
            all_inputs=moved, pulled={}, may_keep=_always,
        )  # fmt: skip

    def _later(self, snapshots: range, layer: int) -> SnapshotSpace:
        unfed = torch.empty(
            len(snapshots) * self.blocks.heights[layer], 0, dtype=self.dtype, device=self.device
        )  # only the first layer is fed features
        operators = self._operators(partial(target_edges, self.blocks, snapshots, layer))
        return SnapshotSpace(operators, snapshots, unfed, OwnBest(self.own), num_nodes=self.own)

    def _narrowing(self, snapshots: range, layer: int) -> SnapshotSpace:
        """A later layer of one snapshot whose pulls give the rows that the layer after it reads."""
        heights = (*self.blocks.heights, self.own)

        def edges(way: str) -> PartEdges:
            whole = target_edges(self.blocks, snapshots, layer, way)
            return whole.first(heights[layer + 1])

        unfed = torch.empty(heights[layer], 0, dtype=self.dtype, device=self.device)
        return SnapshotSpace(self._operators(edges), snapshots, unfed, OwnBest(self.own), num_nodes=self.own)

    def _operators(self, edges: Callable[[str], PartEdges]) -> Operators:
        return Operators(LocalSource(edges, self.settings), self.settings)


class _LayerByLayer(SnapshotSpace):
    """One snapshot whose layers see ever fewer rows, for models that go through all layers before the next snapshot.

    Args:
        first: what the first layer sees.
        later: makes what another one sees.
    """

    def __init__(self, first: SnapshotSpace, later: Callable[[int], SnapshotSpace]) -> None:
        self.__dict__.update(first.__dict__)
        self._first, self._later, self._layers = first, later, {0: first}

    def layer(self, number: int) -> SnapshotSpace:
        """What a layer sees."""
        if number not in self._layers:
            self._layers[number] = self._later(number)
        return self._layers[number]


def _always(size: int) -> bool:
    return True
