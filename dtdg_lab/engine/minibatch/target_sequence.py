"""A batch's computation blocks as graph views on the device: they are trained like a whole graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.engine.minibatch.blocks import TargetBlocks
from dtdg_lab.engine.views.part_edges import LocalSource, PartEdges
from dtdg_lab.engine.views.replicated_sequence import OwnBest
from dtdg_lab.engine.views.sequence import SnapshotSequence
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.engine.views.view_store import stack_ranges
from dtdg_lab.kernels.operators import Operators, OperatorSettings, keep_freed_memory


class TargetSequence(SnapshotSequence):
    """The snapshots of a batch as spaces (see :class:`SnapshotSequence`).

    The targets are the first rows of every space. Snapshots are stacked. Pulls of features, which no parameter changes,
    are computed once and kept with the sequence, so that a batch that is trained again is cheap.

    Args:
        blocks: of the batch.
        settings: of the operators; they say where tensors live, and their type.
    """

    where = "batches of target nodes, which have some of them"

    def __init__(self, blocks: TargetBlocks, settings: OperatorSettings) -> None:
        keep_freed_memory()
        self.blocks, self.settings = blocks, settings
        self.own = len(blocks.batch.targets)
        self.device, self.dtype = settings.device, settings.dtype
        self.vertices: Tensor | None = torch.tensor(blocks.arrays["vertices"], device=self.device)
        self._spaces: dict[tuple[range, int], SnapshotView] = {}
        self._one_by_one: dict[int, _LayerByLayer] = {}

    @cached_property
    def _stacks(self) -> list[range]:
        batch_snapshots, blocks = self.blocks.batch.snapshots, self.blocks
        features = blocks.arrays["features"].shape[1]
        return stack_ranges(batch_snapshots, rows=blocks.heights[0], features=features, device=self.device)

    def view(self, t: int) -> SnapshotView:
        """Snapshot t for all layers of the model."""
        once, shape = range(t, t + 1), self.blocks.shape
        if shape.layers == 1 or shape.truncated:
            return self._space(once, 0)
        if t not in self._one_by_one:
            self._one_by_one[t] = _LayerByLayer(self._space(once, 0), partial(self._narrowing, once))
        return self._one_by_one[t]

    def stacks(self, snapshots: range, layer: int) -> list[SnapshotView]:
        """Consecutive snapshots for one layer, several as one space.

        Raises:
            PlanError: the blocks have no such layer or snapshots, or serve all layers as one.
        """
        if not 0 <= layer < self.blocks.shape.layers or (self.blocks.shape.truncated and layer):
            raise PlanError(f"layer {layer} of {self.blocks.shape}.")
        if snapshots == self.blocks.batch.snapshots:
            return [self._space(some, layer) for some in self._stacks]
        return [self._space(range(t, t + 1), layer) for t in snapshots]

    def _space(self, snapshots: range, layer: int) -> SnapshotView:
        key = snapshots, layer
        if key not in self._spaces:
            self._spaces[key] = self._first(snapshots) if layer == 0 else self._later(snapshots, layer)
        return self._spaces[key]

    def _first(self, snapshots: range) -> SnapshotView:
        features, feature_of = self.blocks.features_of(snapshots)
        moved = torch.tensor(features, device=self.device).to(self.dtype)
        if feature_of is not None:
            moved = moved.index_select(0, torch.tensor(feature_of, device=self.device))
        rows = len(snapshots) * self.blocks.heights[0]
        return SnapshotView(
            self._operators(partial(target_edges, self.blocks, snapshots, 0)),
            snapshots,
            moved if len(moved) == rows else moved[:rows],
            OwnBest(self.own),
            num_nodes=self.own,
            all_inputs=moved,
            pulled={},
            may_keep=_always,
        )

    def _later(self, snapshots: range, layer: int) -> SnapshotView:
        unfed = torch.empty(
            len(snapshots) * self.blocks.heights[layer], 0, dtype=self.dtype, device=self.device
        )  # only the first layer is fed features
        operators = self._operators(partial(target_edges, self.blocks, snapshots, layer))
        return SnapshotView(operators, snapshots, unfed, OwnBest(self.own), num_nodes=self.own)

    def _narrowing(self, snapshots: range, layer: int) -> SnapshotView:
        """Return the view of a later layer, whose pulls give the rows that the layer after it reads."""
        heights = (*self.blocks.heights, self.own)

        def edges(direction: str) -> PartEdges:
            edges = target_edges(self.blocks, snapshots, layer, direction)
            return edges.first(heights[layer + 1])

        unfed = torch.empty(heights[layer], 0, dtype=self.dtype, device=self.device)
        return SnapshotView(self._operators(edges), snapshots, unfed, OwnBest(self.own), num_nodes=self.own)

    def _operators(self, edges: Callable[[str], PartEdges]) -> Operators:
        return Operators(LocalSource(edges, self.settings), self.settings)


def _always(size: int) -> bool:
    return True


class _LayerByLayer(SnapshotView):
    """One snapshot whose layers see ever fewer rows, for models that go through all layers before the next snapshot.

    Args:
        first: what the first layer sees.
        later: makes what another one sees.
    """

    def __init__(self, first: SnapshotView, later: Callable[[int], SnapshotView]) -> None:
        self.__dict__.update(first.__dict__)
        self._first, self._later, self._layers = first, later, {0: first}

    def layer(self, number: int) -> SnapshotView:
        """Return the view of a layer."""
        if number not in self._layers:
            self._layers[number] = self._later(number)
        return self._layers[number]


def target_edges(blocks: TargetBlocks, snapshots: range, layer: int, direction: str) -> PartEdges:
    """Return the edges along which a layer aggregates in some consecutive snapshots of a batch, stacked.

    Args:
        blocks: of the batch.
        snapshots: consecutive ones of the batch.
        layer: index of the model's layer, from 0.
        direction: edge direction, ``in`` or ``out``.

    Raises:
        PlanError: a snapshot or the layer is not in the batch, or no layer aggregates in this direction.
    """
    arrays = blocks.arrays
    if f"indptr_{direction}_{layer}" not in arrays:
        raise PlanError(f"no edges of layer {layer} in direction {direction!r}: the blocks have shape {blocks.shape}.")
    first, last = blocks.places(snapshots)
    height, count, further_at = blocks.heights[layer], len(blocks.batch.snapshots), blocks.further_at
    if layer:
        further_at = np.zeros_like(further_at)
    indptr, indices = arrays[f"indptr_{direction}_{layer}"], arrays[f"indices_{direction}_{layer}"]
    weights = arrays.get(f"weights_{direction}_{layer}")
    neighbours = arrays.get(f"neighbours_{direction}_{layer}")
    if neighbours is not None:
        neighbours = neighbours[first * height : last * height]
    if last - first < count:
        begin, end = int(indptr[first * height]), int(indptr[last * height])
        indptr = indptr[first * height : last * height + 1] - begin
        indices, weights = indices[begin:end], None if weights is None else weights[begin:end]
        of_far = count * height + int(further_at[first]) - (last - first) * height
        indices = indices - np.where(indices >= count * height, of_far, first * height).astype(np.int32)
    columns = (last - first) * height + int(further_at[last] - further_at[first])
    unasked = np.broadcast_to(np.float64(np.nan), columns)
    degrees, other_degrees = (
        unasked if of is None else blocks.columns_of(of, first, last, layer).astype(np.float64)
        for of in (
            arrays.get(f"degrees_{towards}_{layer}") for towards in (direction, "out" if direction == "in" else "in")
        )
    )
    return PartEdges(indptr, indices, weights, columns, degrees, other_degrees, neighbours, blocks.shape.weighted)
