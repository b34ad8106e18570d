"""A batch's computation blocks as graph views that train like a whole graph, with the loss of its targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.engine.backprop.reference import HOW
from dtdg_lab.engine.backprop.time_blocks import PIECE_NUMBERS
from dtdg_lab.engine.minibatch.blocks import TargetBlocks
from dtdg_lab.engine.minibatch.state_cache import Places, StateCache
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import check_per_vertex
from dtdg_lab.engine.views.device_sequence import stack_ranges
from dtdg_lab.engine.views.part_edges import LocalSource, PartEdges
from dtdg_lab.engine.views.replicated_sequence import OwnBest
from dtdg_lab.engine.views.sequence import SnapshotSequence
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.kernels.operators import Operators, OperatorSettings, keep_freed_memory
from dtdg_lab.kernels.parallel_map import STEP_NUMBERS
from dtdg_lab.kernels.uploads import as_tensor, upload
from dtdg_lab.models.base import State
from dtdg_lab.tasks.base import Rows


class TargetSequence(SnapshotSequence):
    """The snapshots of a batch as views (see :class:`SnapshotSequence`).

    The targets are the first rows of every view. Snapshots are stacked. Pulls of features do not depend on parameters
    and are computed once, so that training a batch again is cheap.

    Args:
        blocks: blocks of the batch.
        settings: settings of the operators, with device and type of tensors.
    """

    where = "batches of target nodes, which have some of them"

    def __init__(self, blocks: TargetBlocks, settings: OperatorSettings) -> None:
        keep_freed_memory()
        self.blocks, self.settings = blocks, settings
        self.own = len(blocks.batch.targets)
        self.device, self.dtype = settings.device, settings.dtype
        self.host_vertices = as_tensor(blocks.arrays["vertices"])
        self.vertices: Tensor | None = upload(self.host_vertices, self.device)
        self._views: dict[tuple[range, int], SnapshotView] = {}
        self._one_by_one: dict[int, _LayerByLayer] = {}

    @cached_property
    def _stacks(self) -> list[range]:
        batch_snapshots, blocks = self.blocks.batch.snapshots, self.blocks
        features = blocks.arrays["features"].shape[1]
        return stack_ranges(batch_snapshots, rows=blocks.heights[0], features=features, device=self.device)

    def view(self, t: int) -> SnapshotView:
        """Return snapshot t for all layers of the model."""
        snapshots, shape = range(t, t + 1), self.blocks.shape
        if shape.layers == 1 or shape.truncated:
            return self._view(snapshots, 0)
        if t not in self._one_by_one:
            self._one_by_one[t] = _LayerByLayer(self._view(snapshots, 0), partial(self._narrowing, snapshots))
        return self._one_by_one[t]

    def stacks(self, snapshots: range, layer: int) -> list[SnapshotView]:
        """Return stacked views of consecutive snapshots for one layer.

        Raises:
            PlanError: the blocks have no such layer or snapshots.
        """
        if not 0 <= layer < self.blocks.shape.layers or (self.blocks.shape.truncated and layer):
            raise PlanError(f"layer {layer} is not in blocks of {self.blocks.shape}.")
        if snapshots == self.blocks.batch.snapshots:
            return [self._view(stack, layer) for stack in self._stacks]
        return [self._view(range(t, t + 1), layer) for t in snapshots]

    def _view(self, snapshots: range, layer: int) -> SnapshotView:
        key = snapshots, layer
        if key not in self._views:
            self._views[key] = self._first(snapshots) if layer == 0 else self._later(snapshots, layer)
        return self._views[key]

    def _first(self, snapshots: range) -> SnapshotView:
        features, feature_of = self.blocks.features_of(snapshots)
        inputs = upload(features, self.device).to(self.dtype)
        if feature_of is not None:
            inputs = inputs.index_select(0, upload(feature_of, self.device))
        rows = len(snapshots) * self.blocks.heights[0]
        return SnapshotView(
            self._operators(partial(target_edges, self.blocks, snapshots, 0)),
            snapshots,
            inputs if len(inputs) == rows else inputs[:rows],
            OwnBest(self.own),
            num_nodes=self.own,
            all_inputs=inputs,
            pulled={},
            may_keep=_always,
        )

    def _later(self, snapshots: range, layer: int) -> SnapshotView:
        no_features = torch.empty(
            len(snapshots) * self.blocks.heights[layer], 0, dtype=self.dtype, device=self.device
        )  # only the first layer reads features
        operators = self._operators(partial(target_edges, self.blocks, snapshots, layer))
        return SnapshotView(operators, snapshots, no_features, OwnBest(self.own), num_nodes=self.own)

    def _narrowing(self, snapshots: range, layer: int) -> SnapshotView:
        """Return the view of a later layer, whose pulls return only the rows that the next layer reads."""
        heights = (*self.blocks.heights, self.own)

        def edges(direction: str) -> PartEdges:
            edges = target_edges(self.blocks, snapshots, layer, direction)
            return edges.first(heights[layer + 1])

        no_features = torch.empty(heights[layer], 0, dtype=self.dtype, device=self.device)
        return SnapshotView(self._operators(edges), snapshots, no_features, OwnBest(self.own), num_nodes=self.own)

    def _operators(self, edges: Callable[[str], PartEdges]) -> Operators:
        return Operators(LocalSource(edges, self.settings), self.settings)


def _always(size: int) -> bool:
    return True


class _LayerByLayer(SnapshotView):
    """One snapshot whose layers see fewer and fewer rows, for models that run all layers snapshot by snapshot.

    Args:
        first: view of the first layer.
        later: makes the view of a later layer.
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
        snapshots: consecutive snapshots of the batch.
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
        further_shift = count * height + int(further_at[first]) - (last - first) * height
        indices = indices - np.where(indices >= count * height, further_shift, first * height).astype(np.int32)
    columns = (last - first) * height + int(further_at[last] - further_at[first])
    missing_degrees = np.broadcast_to(np.float64(np.nan), columns)
    degrees, other_degrees = (
        missing_degrees if values is None else blocks.columns_of(values, first, last, layer).astype(np.float64)
        for values in (
            arrays.get(f"degrees_{towards}_{layer}") for towards in (direction, "out" if direction == "in" else "in")
        )
    )
    return PartEdges(indptr, indices, weights, columns, degrees, other_degrees, neighbours, blocks.shape.weighted)


@dataclass(frozen=True)
class TargetRun(SequenceSegment):
    """Snapshots of a batch, with the loss of its targets.

    Training starts from the initial state, or from the cached ``states``, which it updates; gradients stop there.
    The loss is the mean over labelled targets, averaged over the snapshots that have any; 0 if none has.

    Attributes:
        states: cache of the part's states; None to start from the initial state.
        places: (K,) index of each row of the views among the part's nodes; None if they are the first nodes.

    Raises:
        UnsupportedError: the task needs all nodes at once.

    References: DynaHB section 5.1, Algorithm 2 (the loss of a batch is the mean over its snapshots).
    """

    states: StateCache | None = None
    places: Tensor | None = None

    def __post_init__(self) -> None:
        check_per_vertex(self.task, "on batches of target nodes", ", and a batch has some of them")

    @cached_property
    def _over_share(self) -> Tensor:
        """Inverse of each loss snapshot's share of labelled items that are targets, on the CPU; 0 if the share is 0."""
        vertices = self.sequence.host_vertices
        share = self.task.share(self.at, slice(0, self.own) if vertices is None else vertices)
        return torch.where(share > 0, 1 / share, 0.0)

    @cached_property
    def _over_share_there(self) -> Tensor:
        """The same on the device, in the type of the losses."""
        return upload(self._over_share.to(self.sequence.dtype), self.sequence.device)

    @cached_property
    def num_labelled(self) -> int:
        """Number of loss snapshots with a labelled target."""
        return int((self._over_share > 0).sum())

    def initial_state(self) -> State:
        """Return the state before the segment, for every row of its views."""
        initial = super().initial_state()
        if self.states is None:
            return initial
        rows = self._part_rows(slice(0, self.sequence.view(self.snapshots[0]).num_rows))
        layer_states = (self.states.before(self.snapshots[0], layer, rows) for layer in range(self.model.layers))
        return State(tuple(layer_states))

    def layer_state(self, layer: int, rows: int) -> State:
        """Return the state before the segment for the rows that a layer runs through time; only this layer counts."""
        if self.states is None:
            return super().layer_state(layer, rows)
        states_before = self.states.before(self.snapshots[0], layer, self._part_rows(slice(0, rows)))
        return self.model.initial_state(1).with_layer(layer, states_before)

    def through_time(self, layer: int, x: Tensor, state: State, rows: slice) -> tuple[Tensor, State]:
        """Run a layer's temporal part, and cache the states after each snapshot."""
        h, after = super().through_time(layer, x, state, rows)
        if self.states is not None:
            states_after = self.model.states_after(layer, x, h, state)
            self.states.write(self.snapshots[0], layer, self._part_rows(rows), states_after)
        return h, after

    def snapshot(self, t: int, state: State) -> tuple[Tensor, State]:
        """Run a snapshot through all layers, and cache the state after it."""
        h, after = super().snapshot(t, state)
        if self.states is not None:
            for layer, tensors in enumerate(after.layers):
                rows = self._part_rows(slice(0, len(tensors[0])))
                self.states.write(t, layer, rows, [tensor.detach().unsqueeze(0) for tensor in tensors])
        return h, after

    def _part_rows(self, rows: slice) -> Places:
        return rows if self.places is None else self.places[rows]

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """Return the contribution of some targets and snapshots to the loss, a scalar.

        Args:
            z: readout of the targets, (S', n, outputs).
            snapshots: S' loss snapshots.
            rows: indices of the targets.
        """
        vertices, start = self.sequence.vertices, snapshots.start - self.at.start
        over_share = self._over_share_there[start : start + len(snapshots)]
        losses = self.task.loss(z, snapshots, rows if vertices is None else vertices[rows])
        return (losses * over_share).sum() / max(self.num_labelled, 1)


def add_gradients(run: SequenceSegment) -> Tensor:
    """Add the gradients of a run's loss to the parameters' gradients, and return the loss.

    A small run with per_vertex memory goes layer by layer over all snapshots, with one backward. This is cheaper than
    :mod:`dtdg_lab.engine.backprop.time_blocks`, which computes all layers but the last twice. Other runs use
    :data:`dtdg_lab.engine.backprop.reference.HOW`.

    Args:
        run: the run.
    """
    if run.model.memory != "per_vertex":
        return HOW[run.model.memory](run)
    stacks = [run.sequence.stacks(run.snapshots, layer) for layer in range(run.model.layers)]
    heights = [*(views[0].num_rows // len(views[0].snapshots) for views in stacks[1:]), run.own]
    device_type, hidden = run.sequence.device.partition(":")[0], run.model.hidden
    if (rows := max(heights) * hidden) > STEP_NUMBERS[device_type] or rows * len(run.snapshots) > PIECE_NUMBERS[
        device_type
    ]:
        return HOW[run.model.memory](run)  # large: pieces that fit the CPU cache are faster
    loss = _straight(run, stacks, heights)
    loss.backward()
    return loss.detach()


def _straight(run: SequenceSegment, stacks: Sequence[Sequence[SnapshotView]], heights: Sequence[int]) -> Tensor:
    """Return the loss, with its autograd graph; each layer outputs only the rows that the next one reads."""
    model, counts = run.model, [len(view.snapshots) for view in stacks[0]]
    inputs = [view.inputs for view in stacks[0]]
    for layer, (views, height) in enumerate(zip(stacks, heights, strict=True)):
        state = run.layer_state(layer, height)
        mixed = [
            model.spatial(layer, view, x, state).unflatten(0, (count, -1))[:, :height]
            for view, x, count in zip(views, inputs, counts, strict=True)
        ]
        h, _ = run.through_time(layer, mixed[0] if len(mixed) == 1 else torch.cat(mixed), state, slice(0, height))
        inputs = [part.flatten(0, 1) for part in h.split(counts)]
    return run.loss(model.readout(h[len(h) - len(run.at) :]), run.at, slice(0, run.own))
