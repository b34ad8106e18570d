"""Runs of models that remember weights, or nothing: the weights first, then each snapshot forward and backward.

Given the weights W_t of every snapshot, snapshots know nothing of each other. So all W_t are evolved first; each
snapshot then goes forward and backward by itself and leaves a gradient of its W_t, and one backward through the
evolution ends the run. One snapshot's activations are alive at a time. Snapshots without a loss need no convolution.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.models.base import run_straight
from dtdg_lab.models.state import State
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.space import SnapshotSpace


def add_gradients(run: Run) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    For memories ``weights`` (``evolve`` looks at nothing but the state) and ``none``.
    """
    states = _evolved(run)
    total = torch.zeros((), dtype=torch.float64, device=run.sequence.device)
    ends: list[Tensor] = []
    seeds: list[Tensor] = []
    for space in run.sequence.stacks(run.at):
        of = [states[t] for t in space.snapshots]
        given = _leaves(of)
        loss = run.loss(_readout(run, space, given), space.snapshots, slice(0, run.num_rows))
        loss.backward()
        total += loss.detach()
        for layer, tensors in enumerate(given.layers):
            for place, leaf in enumerate(tensors):
                if leaf.grad is not None:
                    ends += [state.layers[layer][place] for state in of]
                    seeds += leaf.grad.unbind() if len(of) > 1 else [leaf.grad]
    if ends:
        torch.autograd.backward(ends, seeds)
    return total


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
