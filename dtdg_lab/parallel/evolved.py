"""Runs of models that remember weights, or nothing: the weights first, then each snapshot forward and backward.

Given the weights W_t of every snapshot, snapshots know nothing of each other. So all W_t are evolved first; each
snapshot then goes forward and backward by itself and leaves a gradient of its W_t, and one backward through the
evolution ends the run. One snapshot's activations are alive at a time, on each thread. Snapshots without a loss need
no convolution.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.models.base import run_straight
from dtdg_lab.models.state import State
from dtdg_lab.parallel.learned import Gradients, Learned
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.space import SnapshotSpace
from dtdg_lab.parallel.threads import in_order


def add_gradients(run: Run) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    For memories ``weights`` (``evolve`` looks at nothing but the state) and ``none``.
    """
    states, learned = _evolved(run), Learned(run.model)

    def piece(space: SnapshotSpace) -> tuple[Tensor, Gradients, Gradients]:
        given = _leaves([states[t] for t in space.snapshots])
        loss = run.loss(_readout(run, space, given), space.snapshots, slice(0, run.num_rows))
        return loss.detach(), *learned.gradients(loss, None, _tensors(given))

    total = torch.zeros((), dtype=torch.float64, device=run.sequence.device)
    ends: list[Tensor] = []
    seeds: list[Tensor] = []
    spaces = run.sequence.stacks(run.at)
    for space, (loss, gradients, of_state) in zip(
        spaces, in_order(piece, spaces, device=run.sequence.device), strict=True
    ):
        total += loss
        learned.add(gradients)
        of = [_tensors(states[t]) for t in space.snapshots]
        for place, gradient in enumerate(of_state):
            if gradient is not None:
                ends += [tensors[place] for tensors in of]
                seeds += gradient.unbind() if len(of) > 1 else [gradient]
    if ends:
        torch.autograd.backward(ends, seeds)
    return total


def _tensors(state: State) -> list[Tensor]:
    return [tensor for layer in state.layers for tensor in layer]


def _evolved(run: Run) -> dict[int, State]:
    """The state that each snapshot uses, with its history."""
    model = run.model
    state = model.initial_state(run.num_rows)
    states = {}
    for t in run.snapshots:
        space = run.sequence.space(t)
        for layer in range(model.layers):
            state = run_straight(model.evolve(layer, space, space.inputs, state))
        states[t] = state
    return states


def _leaves(states: list[State]) -> State:
    """The states of stacked snapshots as one, each tensor (S, ...), or of one as it is, cut from their history."""
    layers = []
    for tensors in zip(*(state.layers for state in states), strict=True):
        joined = [torch.stack(each) if len(states) > 1 else each[0] for each in zip(*tensors, strict=True)]
        layers.append(tuple(tensor.detach().requires_grad_() for tensor in joined))
    return State(tuple(layers), states[0].per_vertex)


def _readout(run: Run, space: SnapshotSpace, state: State) -> Tensor:
    """Readout of the space's S snapshots, (S, N, outputs)."""
    x = space.inputs
    for layer in range(run.model.layers):
        mixed = run_straight(run.model.spatial(layer, space, x, state))
        h, _ = run.model.temporal_sequence(layer, mixed.unflatten(0, (len(space.snapshots), -1)), state)
        x = h.flatten(0, 1)
    return run.model.readout(h)
