"""Batches of target nodes as views of their computation blocks, and the gradients of their loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.backprop.reference import HOW
from dtdg_lab.engine.backprop.time_blocks import PIECE_NUMBERS, STEP_NUMBERS
from dtdg_lab.engine.graph_view import SnapshotSequence, SnapshotView, stack_ranges
from dtdg_lab.engine.halo_exchange import LocalSource, PartEdges
from dtdg_lab.engine.minibatch_blocks import TargetBlocks
from dtdg_lab.engine.replicated import OwnBest
from dtdg_lab.engine.replicated_part import STATIC_MEMORIES, CachedPart
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import check_per_vertex
from dtdg_lab.kernels.operators import Operators, OperatorSettings, keep_freed_memory
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.tasks.base import Rows

Places = slice | Tensor  # of nodes among those of a part: a run of them, or their numbers

# A batch's computation blocks as graph views on the device: they are trained like a whole graph.


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
        whole, blocks = self.blocks.batch.snapshots, self.blocks
        features = blocks.arrays["features"].shape[1]
        return stack_ranges(whole, rows=blocks.heights[0], features=features, device=self.device)

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
        features, of = self.blocks.features_of(snapshots)
        moved = torch.tensor(features, device=self.device).to(self.dtype)
        if of is not None:
            moved = moved.index_select(0, torch.tensor(of, device=self.device))
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
        """A later layer of one snapshot whose pulls give the rows that the layer after it reads."""
        heights = (*self.blocks.heights, self.own)

        def edges(direction: str) -> PartEdges:
            whole = target_edges(self.blocks, snapshots, layer, direction)
            return whole.first(heights[layer + 1])

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
        """What a layer sees."""
        if number not in self._layers:
            self._layers[number] = self._later(number)
        return self._layers[number]


# Hidden states of a part's nodes that earlier batches have computed.


class StateCache:
    """The hidden states of a part's nodes before each snapshot, as they were last computed: what batches start from.

    There is a row for each node and snapshot, zero until it is computed. A batch may begin at any snapshot, and a
    single state per node would nearly always be that of another one. Rows are kept only of nodes whose state a layer
    reads: per_vertex memory needs no state of the nodes that only the first pull reaches.

    Args:
        model: whose states they are.
        part: the nodes, the same in all T snapshots.
        limit_bytes: most that the states may take.

    Attributes:
        vertices: (M,) the nodes' numbers in the graph.
        layers: for each layer and tensor of its state, (T, M', ...); the state before the first snapshot stays zero.

    Raises:
        UnsupportedError: the model has no state for each node, or the states would take more.

    References: FlareDTDG section 3.2 (historical hidden states of an RNN are inherited); truncated BPTT.
    Differs from the paper: DynaHB starts every batch from a zero state.
    """

    def __init__(self, model: DynamicModel, part: CachedPart, limit_bytes: int) -> None:
        if model.memory not in STATIC_MEMORIES:
            raise UnsupportedError(
                f"batch_state='cached' keeps one state per node, and the memory of {type(model).__name__} is "
                f"{model.memory!r}. Set batch_state='zero', or choose a model with a state per node, such as tgcn."
            )
        snapshots, hops = part.reach.snapshots, part.reach.hops
        self._first = snapshots.start
        reads = [hops * left // model.layers for left in reversed(range(model.layers))]
        if model.memory == "neighbourhood":
            reads = [hops] * model.layers
        heights = [part.prefix(snapshots.start, of_layer) for of_layer in reads]
        rows = zip(model.initial_state(1).layers, heights, strict=True)
        asked = len(snapshots) * sum(sum(row.nbytes for row in of_layer) * height for of_layer, height in rows)
        if asked > limit_bytes:
            raise UnsupportedError(
                f"batch_state='cached' would keep states of {max(heights):,} nodes before {len(snapshots)} "
                f"snapshots in {format_bytes(asked)}, where batch_state_gib allows {format_bytes(limit_bytes)} for a "
                "part. Set batch_state_gib higher, a smaller hidden, more ranks, or batch_state='zero'."
            )
        self.vertices = torch.tensor(part.vertices(snapshots.start)[: max(heights)].astype(np.int64))
        self.layers = tuple(
            tuple(row.new_zeros(len(snapshots), height, *row.shape[1:]) for row in of_layer)
            for of_layer, height in zip(model.initial_state(1).layers, heights, strict=True)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all states."""
        return sum(tensor.nbytes for of_layer in self.layers for tensor in of_layer)

    def before(self, t: int, layer: int, rows: Places) -> tuple[Tensor, ...]:
        """A layer's state of some nodes before snapshot t.

        Args:
            t: of the part's snapshots.
            layer: of the model.
            rows: (n,) places among the part's nodes, or a run of them.
        """
        found = (held[t - self._first, rows] for held in self.layers[layer])
        # a run of rows is a view, and what backward needs must not change when the states after it are written
        return tuple(held.clone() if isinstance(rows, slice) else held for held in found)

    def write(self, t: int, layer: int, rows: Places, states: Sequence[Tensor]) -> None:
        """Replace the states of some nodes after S snapshots from t on.

        Args:
            t: the first.
            layer: of the model.
            rows: (n,) places among the part's nodes, or a run of them.
            states: for each tensor of the state (S, n, ...).
        """
        first = t - self._first + 1
        for held, found in zip(self.layers[layer], states, strict=True):
            into = held[first : first + len(found)]
            into[:, rows] = found[: len(into)]  # nothing starts after the last snapshot

    def gathered(self, group: Group) -> list[dict[str, Any]]:
        """What :meth:`state_dict` gives of every rank's cache, by rank; collective."""

        def joined(rows: Tensor) -> list[Tensor]:
            own = torch.tensor([[len(rows)]], device=self.layers[0][0].device)
            counts = [int(count) for count in group.gather_rows(own, [1] * group.size)[:, 0]]
            return [of_rank.cpu() for of_rank in group.gather_rows(rows, counts).split(counts)]

        vertices = joined(self.vertices.to(self.layers[0][0].device).unsqueeze(1))
        layers: list[list[list[Tensor]]] = [[[] for _ in self.layers] for _ in vertices]
        for number, of_layer in enumerate(self.layers):
            for held in of_layer:
                shape = (len(held), *held.shape[2:])
                for rank, rows in enumerate(joined(held.transpose(0, 1).flatten(1))):
                    layers[rank][number].append(rows.unflatten(1, shape).transpose(0, 1))
        return [{"vertices": of[:, 0], "layers": found} for of, found in zip(vertices, layers, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Nodes and states, by reference."""
        return {"vertices": self.vertices, "layers": self.layers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the states of :meth:`state_dict`; those of other nodes, snapshots or shapes are left out."""
        held = [tensor for of_layer in state["layers"] for tensor in of_layer]
        own = [tensor for of_layer in self.layers for tensor in of_layer]
        if torch.equal(state["vertices"].cpu(), self.vertices) and [x.shape for x in held] == [x.shape for x in own]:
            for into, tensor in zip(own, held, strict=True):
                into.copy_(tensor)


# A sequence whose loss is that of the targets, and how its gradients are computed.


@dataclass(frozen=True)
class TargetRun(SequenceSegment):
    """Snapshots trained from a state without history, with the loss of some nodes, those of the sequence.

    The state is the initial one; with ``states`` that which earlier batches left, and this one leaves its own.
    The loss is the mean over the snapshots where loss is taken and some target is labelled, of the mean over the
    labelled targets; 0 where none is in any.

    Attributes:
        states: of the part's nodes; None where every run starts from the initial state.
        places: (K,) the places among the part's nodes of the rows that spaces hold; None where they are the first.

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
        """Of each snapshot where loss is taken, 1 / the share of its labelled items that are targets; 0 for none."""
        vertices = self.sequence.vertices
        share = self.task.share(self.at, slice(0, self.own) if vertices is None else vertices)
        return torch.where(share > 0, 1 / share, 0.0)

    @cached_property
    def num_labelled(self) -> int:
        """How many of the snapshots where loss is taken have a labelled target."""
        return int((self._over_share > 0).sum())

    def initial_state(self) -> State:
        """The state before the run, for every row that its spaces hold."""
        initial = super().initial_state()
        if self.states is None:
            return initial
        rows = self._placed(slice(0, self.sequence.view(self.snapshots[0]).num_rows))
        found = (self.states.before(self.snapshots[0], layer, rows) for layer in range(self.model.layers))
        return State(tuple(found))

    def layer_state(self, layer: int, rows: int) -> State:
        """The state before the run of the rows that a layer runs through time; other layers' tensors are not read."""
        if self.states is None:
            return super().layer_state(layer, rows)
        before = self.states.before(self.snapshots[0], layer, self._placed(slice(0, rows)))
        return self.model.initial_state(1).with_layer(layer, before)

    def through_time(self, layer: int, x: Tensor, state: State, rows: slice) -> tuple[Tensor, State]:
        """A layer's temporal part; the states after each snapshot are kept."""
        h, after = super().through_time(layer, x, state, rows)
        if self.states is not None:
            found = self.model.states_after(layer, x, h, state)
            self.states.write(self.snapshots[0], layer, self._placed(rows), found)
        return h, after

    def snapshot(self, t: int, state: State) -> tuple[Tensor, State]:
        """A snapshot through all layers; the state after it is kept."""
        h, after = super().snapshot(t, state)
        if self.states is not None:
            for layer, tensors in enumerate(after.layers):
                rows = self._placed(slice(0, len(tensors[0])))
                self.states.write(t, layer, rows, [tensor.detach().unsqueeze(0) for tensor in tensors])
        return h, after

    def _placed(self, rows: slice) -> Places:
        return rows if self.places is None else self.places[rows]

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """What some targets at some snapshots add to the loss of the run, a scalar.

        Args:
            z: their readout, (S', n, outputs).
            snapshots: S' of those where loss is taken.
            rows: which of the targets they are.
        """
        vertices, start = self.sequence.vertices, snapshots.start - self.at.start
        losses = self.task.loss(z, snapshots, rows if vertices is None else vertices[rows])
        scaled = losses * self._over_share[start : start + len(snapshots)].to(losses.dtype)
        return scaled.sum() / max(self.num_labelled, 1)


def add_gradients(run: SequenceSegment) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss; what it needs is here already.

    A small run of a model that remembers nodes goes layer by layer over all snapshots at once, with one backward:
    that is done before :mod:`dtdg_lab.engine.backprop.time_blocks` has cut it, which computes all layers but the
    last twice. Others
    are differentiated as :data:`dtdg_lab.engine.backprop.reference.HOW` has it.

    Args:
        run: what is differentiated.
    """
    if run.model.memory != "per_vertex":
        return HOW[run.model.memory](run)
    stacks = [run.sequence.stacks(run.snapshots, layer) for layer in range(run.model.layers)]
    heights = [*(spaces[0].num_rows // len(spaces[0].snapshots) for spaces in stacks[1:]), run.own]
    place, hidden = run.sequence.device.partition(":")[0], run.model.hidden
    if (rows := max(heights) * hidden) > STEP_NUMBERS[place] or rows * len(run.snapshots) > PIECE_NUMBERS[place]:
        return HOW[run.model.memory](run)  # a run of several pieces, which fit the cache
    loss = _straight(run, stacks, heights)
    loss.backward()
    return loss.detach()


def _straight(run: SequenceSegment, stacks: Sequence[Sequence[SnapshotView]], heights: Sequence[int]) -> Tensor:
    """The loss, with its history; a layer's output has the rows that the next one reads."""
    model, counts = run.model, [len(space.snapshots) for space in stacks[0]]
    inputs = [space.inputs for space in stacks[0]]
    for layer, (spaces, height) in enumerate(zip(stacks, heights, strict=True)):
        state = run.layer_state(layer, height)
        mixed = [
            model.spatial(layer, space, x, state).unflatten(0, (count, -1))[:, :height]
            for space, x, count in zip(spaces, inputs, counts, strict=True)
        ]
        h, _ = run.through_time(layer, mixed[0] if len(mixed) == 1 else torch.cat(mixed), state, slice(0, height))
        inputs = [part.flatten(0, 1) for part in h.split(counts)]
    return run.loss(model.readout(h[len(h) - len(run.at) :]), run.at, slice(0, run.own))


# The edges of a batch's blocks in the form that operators need.


def target_edges(blocks: TargetBlocks, snapshots: range, layer: int, direction: str) -> PartEdges:
    """The edges along which a layer aggregates in some consecutive snapshots of a batch, stacked.

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
    height, count, at = blocks.heights[layer], len(blocks.batch.snapshots), blocks.further_at
    if layer:
        at = np.zeros_like(at)
    indptr, indices = arrays[f"indptr_{direction}_{layer}"], arrays[f"indices_{direction}_{layer}"]
    weights = arrays.get(f"weights_{direction}_{layer}")
    neighbours = arrays.get(f"neighbours_{direction}_{layer}")
    if neighbours is not None:
        neighbours = neighbours[first * height : last * height]
    if last - first < count:
        begin, end = int(indptr[first * height]), int(indptr[last * height])
        indptr = indptr[first * height : last * height + 1] - begin
        indices, weights = indices[begin:end], None if weights is None else weights[begin:end]
        of_far = count * height + int(at[first]) - (last - first) * height
        indices = indices - np.where(indices >= count * height, of_far, first * height).astype(np.int32)
    columns = (last - first) * height + int(at[last] - at[first])
    unasked = np.broadcast_to(np.float64(np.nan), columns)
    here, other = (
        unasked if of is None else blocks.columns_of(of, first, last, layer).astype(np.float64)
        for of in (
            arrays.get(f"degrees_{towards}_{layer}") for towards in (direction, "out" if direction == "in" else "in")
        )
    )
    return PartEdges(indptr, indices, weights, columns, here, other, neighbours, blocks.shape.weighted)
