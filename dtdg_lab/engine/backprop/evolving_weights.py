"""Gradients of models whose weights evolve over time, over all snapshots or from their summaries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.engine.backprop import time_blocks
from dtdg_lab.engine.backprop.gradients import Gradients, LearnedParameters
from dtdg_lab.engine.backprop.timeline import TimeBlock, Timeline
from dtdg_lab.engine.exchange.exchanger import Exchanger
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.views.snapshot_view import OneVertex, SnapshotView
from dtdg_lab.kernels.parallel_map import parallel_map
from dtdg_lab.models.base import State, Summarising

# Runs of models that remember weights, or nothing: the weights first, then each snapshot forward and backward.
#
# Given the weights W_t of every snapshot, snapshots know nothing of each other. So all W_t are evolved first; each
# snapshot then goes forward and backward by itself and leaves a gradient of its W_t, and one backward through the
# evolution ends the run. One snapshot's activations are alive at a time, on each thread. Snapshots without a loss need
# no convolution.


def add_gradients_evolved(run: SequenceSegment, timeline: Timeline | None = None) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    For memories ``weights`` (``evolve`` looks at nothing but the state) and ``none``.

    Args:
        run: what is differentiated.
        timeline: own snapshots in blocks, each here once; where None, all of those where loss is taken.
    """
    timeline = Timeline(run, run.at) if timeline is None else timeline
    states: dict[int, State] = {}
    learned = LearnedParameters(run.model)
    pieces = _Pieces(run, learned, states)
    total = torch.zeros((), dtype=torch.float64, device=run.sequence.device)
    for number in range(len(timeline)):
        block = timeline.open(number, "forward")
        if not states:
            states.update(_evolved(run))
        total += pieces.add(block)
        del block  # before the next is loaded: both may not fit in memory
    learned.add(learned.gradients(pieces.ends, pieces.seeds, [])[0])
    return total


class _Pieces:
    """Own snapshots of blocks, forward and backward, and the gradients of the states that they used."""

    def __init__(self, run: SequenceSegment, learned: LearnedParameters, states: dict[int, State]) -> None:
        self._run, self._learned, self._states = run, learned, states
        self.ends: list[Tensor] = []
        self.seeds: list[Tensor] = []

    def add(self, block: TimeBlock) -> Tensor:
        """Add the gradients of a block's own snapshots; returns their loss."""
        run, states, learned = self._run, self._states, self._learned

        def piece(views: tuple[SnapshotView, ...]) -> tuple[Tensor, Gradients, Gradients]:
            first_view = views[0]
            initial_states = _leaves([states[t] for t in first_view.snapshots])
            loss = run.loss(_readout(run, views, initial_states), first_view.snapshots, slice(0, run.own))
            return loss.detach(), *learned.gradients([loss], [None], initial_states.tensors)

        total = torch.zeros((), dtype=torch.float64, device=run.sequence.device)
        stacks_of_layers = list(zip(*block.stacks, strict=True))
        results = parallel_map(piece, stacks_of_layers, device=run.sequence.device, alone=run.sequence.collective)
        for views, (loss, gradients, state_gradients) in zip(stacks_of_layers, results, strict=True):
            total += loss
            learned.add(gradients)
            used = [states[t].tensors for t in views[0].snapshots]
            for index, gradient in enumerate(state_gradients):
                if gradient is not None:
                    self.ends += [tensors[index] for tensors in used]
                    self.seeds += gradient.unbind() if len(used) > 1 else [gradient]
        return total


def _evolved(run: SequenceSegment) -> dict[int, State]:
    """Return the state that each snapshot uses, with its history; such a memory reads no view, so any view serves."""
    model = run.model
    state = model.initial_state(run.own)
    anywhere = OneVertex()
    states = {}
    for t in run.snapshots:
        for layer in range(model.layers):
            x = model.zeros(1, model.width(layer))
            state = model.evolve(layer, anywhere, x, state)
        states[t] = state
    return states


def _leaves(states: list[State]) -> State:
    """Stack the states of snapshots, each tensor (S, ...), without history; one state stays as it is."""
    layers = []
    for tensors in zip(*(state.layers for state in states), strict=True):
        joined = [
            torch.stack(stacked_tensors) if len(states) > 1 else stacked_tensors[0]
            for stacked_tensors in zip(*tensors, strict=True)
        ]
        layers.append(tuple(tensor.detach().requires_grad_() for tensor in joined))
    return State(tuple(layers), states[0].per_vertex)


def _readout(run: SequenceSegment, views: tuple[SnapshotView, ...], state: State) -> Tensor:
    """Readout of S snapshots, (S, n, outputs); each layer has its view, which may have fewer rows than the one before.

    Rows that the next layer does not need are left out as soon as they are known.
    """
    x, stacked = views[0].inputs, len(views[0].snapshots)
    needed = [*(view.num_rows // stacked for view in views[1:]), run.own]
    for layer, (view, rows) in enumerate(zip(views, needed, strict=True)):
        mixed = run.model.spatial(layer, view, x, state).unflatten(0, (stacked, -1))
        h, _ = run.model.temporal_sequence(layer, mixed[:, :rows], state)
        x = h.flatten(0, 1)
    return run.model.readout(h)


# Summaries of a block's snapshots, gathered from the ranks that made them.


class SnapshotSummaries:
    """Joins own snapshots' summaries with those of the column.

    Args:
        plan: the snapshots of each rank.
        ranks: of the column, in order: so that their snapshots follow one another.
        exchanger: of the column.
    """

    def __init__(self, plan: SnapshotBlocks, ranks: list[int], exchanger: Exchanger) -> None:
        self._plan, self._ranks, self._exchanger = plan, ranks, exchanger

    def __call__(self, summaries: Tensor, block: int, layer: int, pass_name: str) -> Tensor:
        """Gather all S summaries of the block in order of time, (S, numbers); gradients are summed at their origin."""
        self._exchanger.forward_pass = pass_name
        counts = [len(self._plan.own(block, rank)) for rank in self._ranks]
        return self._exchanger.gather(summaries, counts, layer)


class StateRelay:
    """Passes the state of a layer through the ranks of a column, in order of time.

    Each rank evolves the weights of its own snapshots from what the rank before it sends to all. The gradient of a
    state is summed on the rank that sent it.

    Args:
        plan: the snapshots of each rank.
        ranks: of the column, in order of time.
        rank: this one.
        exchanger: of the column.
    """

    def __init__(self, plan: SnapshotBlocks, ranks: list[int], rank: int, exchanger: Exchanger) -> None:
        self._plan, self._ranks, self._rank, self._exchanger = plan, ranks, rank, exchanger

    def __call__(self, state: State, block: int, layer: int, pass_name: str, evolve: Callable[[State], State]) -> State:
        """Return a layer's state after a block of time; collective.

        Args:
            state: before the block.
            block: number of the block.
            layer: of the model.
            pass_name: ``forward`` or ``rerun``.
            evolve: gives the state after this rank's snapshots, from the state before them; called once at most.
        """
        self._exchanger.forward_pass = pass_name
        shapes = [tensor.shape for tensor in state.layers[layer]]
        for sender in self._ranks:
            if not len(self._plan.own(block, sender)):
                continue
            state = evolve(state) if sender == self._rank else state
            row = torch.cat([tensor.flatten() for tensor in state.layers[layer]]).unsqueeze(0)
            # the others send no row, but must take part in backward
            row = row if sender == self._rank else row[:0]
            row = row if row.requires_grad else row.detach().requires_grad_(torch.is_grad_enabled())
            counts = [int(rank == sender) for rank in self._ranks]
            sent = self._exchanger.gather(row, counts, layer)[0].split([shape.numel() for shape in shapes])
            tensors = tuple(part.view(shape) for part, shape in zip(sent, shapes, strict=True))
            state = state.with_layer(layer, tensors)
        return state


# Runs whose weights evolve from the snapshots, layer by layer, over all ranks.
#
# A model with ``summary`` and ``advance`` (:class:`dtdg_lab.models.base.Summarising`) evolves on all ranks at once: a
# rank summarises its own snapshots of a block, gathers the others' summaries, and evolves the weights of every
# snapshot of the block. All ranks evolve the same weights, each back-propagates what its own snapshots made of them,
# and gradients of summaries are summed where the summary was made. Any other model evolves in order of time: a rank
# evolves the weights of its own snapshots and sends its state, which the next rank starts from. Neighbours are then
# mixed in own snapshots.
#
# References: ESDG section 5.5 (weights are evolved on every rank; there for EvolveGCN-O alone, which needs no
# summary).


def add_gradients_from_data(
    run: SequenceSegment, timeline: Timeline, gather: SnapshotSummaries, relay: StateRelay
) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return this rank's share of the loss.

    Args:
        run: of a model with ``weights_from_data``; its sequence has the own rows of the own snapshots.
        timeline: the run in blocks.
        gather: joins summaries, where the model makes them.
        relay: passes the state from rank to rank, where it makes none.
    """
    return time_blocks.add_gradients_checkpointed(
        _Weights(run, timeline, gather, relay), run.model.initial_state(run.own), device=run.sequence.device
    )


class _Weights:
    """Blocks computed layer by layer (see :class:`dtdg_lab.engine.backprop.time_blocks.Blocks`)."""

    def __init__(self, run: SequenceSegment, timeline: Timeline, gather: SnapshotSummaries, relay: StateRelay) -> None:
        self._run, self._timeline, self._gather, self._relay = run, timeline, gather, relay

    def __len__(self) -> int:
        return len(self._timeline)

    def advance(self, number: int, state: State) -> State:
        return self._through(number, state, "forward")[2]

    def compute(self, number: int, state: State) -> tuple[Tensor | None, State]:
        run, pass_name = self._run, "forward" if number == len(self) - 1 else "rerun"
        views, outputs, end = self._through(number, state, pass_name)
        # every rank must take part in backward, layer by layer, also without own snapshots
        loss = torch.stack([weights.sum() * 0 for weights in end.tensors]).sum()
        for view, h in zip(views, outputs, strict=True):
            snapshots = view.snapshots
            loss = loss + run.loss(run.model.readout(h).unsqueeze(0), snapshots, slice(0, run.own))
        self._timeline.turn(number)
        return loss, end

    def _through(self, number: int, state: State, pass_name: str) -> tuple[list[SnapshotView], list[Tensor], State]:
        """Own views, what comes out of them, (n, H) each, and the state after the block."""
        run = self._run
        block = self._timeline.open(number, pass_name)
        xs = [view.inputs for view in block.stacks[0]]
        ends = []
        for layer, stacks in enumerate(block.stacks):
            views = list(stacks)
            if isinstance(run.model, Summarising):
                summaries = self._gather(self._summaries(run.model, layer, views, xs), number, layer, pass_name)
                states = self._advanced(run.model, layer, summaries, state)
                ends.append(states[-1].layers[layer])
                snapshot_states = [states[view.snapshots[0] - block.snapshots.start] for view in views]
            else:
                snapshot_states = []
                evolve = partial(self._evolved, layer, views, xs, snapshot_states)
                ends.append(self._relay(state, number, layer, pass_name, evolve).layers[layer])
            xs = [
                run.model.spatial(layer, view, x, snapshot_state)
                for view, x, snapshot_state in zip(views, xs, snapshot_states, strict=True)
            ]
        return list(block.stacks[0]), xs, State(tuple(ends), per_vertex=False)

    def _evolved(
        self, layer: int, views: list[SnapshotView], xs: list[Tensor], snapshot_states: list[State], state: State
    ) -> State:
        """Return a layer's state after own snapshots; that at each of them is appended to ``seen``."""
        for view, x in zip(views, xs, strict=True):
            state = self._run.model.evolve(layer, view, x, state)
            snapshot_states.append(state)
        return state

    def _summaries(self, model: Summarising, layer: int, views: list[SnapshotView], xs: list[Tensor]) -> Tensor:
        """Return the summaries of own snapshots, one in each row; without any they still have a history."""
        summaries = [model.summary(layer, view, x).flatten() for view, x in zip(views, xs, strict=True)]
        if summaries:
            return torch.stack(summaries)
        sequence_model = self._run.model
        return sequence_model.zeros(0, sequence_model.width(layer) * sequence_model.hidden).requires_grad_(
            torch.is_grad_enabled()
        )

    def _advanced(self, model: Summarising, layer: int, summaries: Tensor, state: State) -> list[State]:
        """Return the state of a layer at every snapshot of the block."""
        states = []
        for summary in summaries:
            state = model.advance(layer, summary.view(self._run.model.width(layer), -1), state)
            states.append(state)
        return states
