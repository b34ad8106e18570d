"""A sequence whose loss is that of the targets, and how its gradients are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dtdg_lab.engine.backprop.reference import HOW
from dtdg_lab.engine.backprop.time_blocks import PIECE_NUMBERS, STEP_NUMBERS
from dtdg_lab.engine.minibatch.state_cache import Places, StateCache
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import check_per_vertex
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.models.base import State
from dtdg_lab.tasks.base import Rows


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
        """Return the state before the segment, for every row of its views."""
        initial = super().initial_state()
        if self.states is None:
            return initial
        rows = self._placed(slice(0, self.sequence.view(self.snapshots[0]).num_rows))
        layer_states = (self.states.before(self.snapshots[0], layer, rows) for layer in range(self.model.layers))
        return State(tuple(layer_states))

    def layer_state(self, layer: int, rows: int) -> State:
        """Return the state before the segment of the rows that a layer runs through time; other layers are not read."""
        if self.states is None:
            return super().layer_state(layer, rows)
        states_before = self.states.before(self.snapshots[0], layer, self._placed(slice(0, rows)))
        return self.model.initial_state(1).with_layer(layer, states_before)

    def through_time(self, layer: int, x: Tensor, state: State, rows: slice) -> tuple[Tensor, State]:
        """Run a layer's temporal part, and keep the states after each snapshot."""
        h, after = super().through_time(layer, x, state, rows)
        if self.states is not None:
            states_after = self.model.states_after(layer, x, h, state)
            self.states.write(self.snapshots[0], layer, self._placed(rows), states_after)
        return h, after

    def snapshot(self, t: int, state: State) -> tuple[Tensor, State]:
        """Run a snapshot through all layers, and keep the state after it."""
        h, after = super().snapshot(t, state)
        if self.states is not None:
            for layer, tensors in enumerate(after.layers):
                rows = self._placed(slice(0, len(tensors[0])))
                self.states.write(t, layer, rows, [tensor.detach().unsqueeze(0) for tensor in tensors])
        return h, after

    def _placed(self, rows: slice) -> Places:
        return rows if self.places is None else self.places[rows]

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """Return what some targets at some snapshots add to the loss of the segment, a scalar.

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
    device_type, hidden = run.sequence.device.partition(":")[0], run.model.hidden
    if (rows := max(heights) * hidden) > STEP_NUMBERS[device_type] or rows * len(run.snapshots) > PIECE_NUMBERS[
        device_type
    ]:
        return HOW[run.model.memory](run)  # a run of several pieces, which fit the cache
    loss = _straight(run, stacks, heights)
    loss.backward()
    return loss.detach()


def _straight(run: SequenceSegment, stacks: Sequence[Sequence[SnapshotView]], heights: Sequence[int]) -> Tensor:
    """Return the loss, with its history; a layer's output has the rows that the next one reads."""
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
