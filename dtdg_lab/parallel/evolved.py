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
from dtdg_lab.parallel.here import block_here
from dtdg_lab.parallel.learned import Gradients, Learned
from dtdg_lab.parallel.one_vertex import OneVertex
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.sequence import StackedSpace
from dtdg_lab.parallel.threads import in_order
from dtdg_lab.parallel.time_block import TimeBlock, Timeline


def add_gradients(run: Run, timeline: Timeline | None = None) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    For memories ``weights`` (``evolve`` looks at nothing but the state) and ``none``.

    Args:
        run: what is differentiated.
        timeline: own snapshots in blocks, each here once; where None, all of those where loss is taken.
    """
    timeline = _WithLoss(run) if timeline is None else timeline
    states: dict[int, State] = {}
    pieces = _Pieces(run, Learned(run.model), states)
    total = torch.zeros((), dtype=torch.float64, device=run.sequence.device)
    for number in range(len(timeline)):
        block = timeline.open(number, "forward")
        if not states:
            states.update(_evolved(run))
        total += pieces.add(block)
        del block  # before the next is brought: there may be no room for both
    if pieces.ends:
        torch.autograd.backward(pieces.ends, pieces.seeds)
    return total


class _WithLoss:
    """The snapshots where loss is taken, as one block of time."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __len__(self) -> int:
        return 1

    def open(self, number: int, way: str) -> TimeBlock:
        return block_here(self._run, self._run.at)

    def turn(self, number: int) -> None:
        """Each snapshot is forward and backward by itself."""


class _Pieces:
    """Own snapshots of blocks, forward and backward, and the gradients of the states that they used."""

    def __init__(self, run: Run, learned: Learned, states: dict[int, State]) -> None:
        self._run, self._learned, self._states = run, learned, states
        self.ends: list[Tensor] = []
        self.seeds: list[Tensor] = []

    def add(self, block: TimeBlock) -> Tensor:
        """Add the gradients of a block's own snapshots; returns their loss."""
        run, states, learned = self._run, self._states, self._learned

        def piece(seen: tuple[StackedSpace, ...]) -> tuple[Tensor, Gradients, Gradients]:
            space = seen[0]
            given = _leaves([states[t] for t in space.snapshots])
            loss = run.loss(_readout(run, seen, given), space.snapshots, slice(0, run.own))
            return loss.detach(), *learned.gradients([loss], [None], _tensors(given))

        total = torch.zeros((), dtype=torch.float64, device=run.sequence.device)
        spaces = list(zip(*block.stacks, strict=True))
        found = in_order(piece, spaces, device=run.sequence.device, alone=run.sequence.collective)
        for seen, (loss, gradients, of_state) in zip(spaces, found, strict=True):
            total += loss
            learned.add(gradients)
            of = [_tensors(states[t]) for t in seen[0].snapshots]
            for place, gradient in enumerate(of_state):
                if gradient is not None:
                    self.ends += [tensors[place] for tensors in of]
                    self.seeds += gradient.unbind() if len(of) > 1 else [gradient]
        return total


def _tensors(state: State) -> list[Tensor]:
    return [tensor for layer in state.layers for tensor in layer]


def _evolved(run: Run) -> dict[int, State]:
    """The state that each snapshot uses, with its history; such a memory looks at no space, so any stands for all."""
    model = run.model
    state = model.initial_state(run.own)
    anywhere = OneVertex()
    states = {}
    for t in run.snapshots:
        for layer in range(model.layers):
            x = model.zeros(1, model.width(layer))
            state = run_straight(model.evolve(layer, anywhere, x, state))
        states[t] = state
    return states


def _leaves(states: list[State]) -> State:
    """The states of stacked snapshots as one, each tensor (S, ...), or of one as it is, cut from their history."""
    layers = []
    for tensors in zip(*(state.layers for state in states), strict=True):
        joined = [torch.stack(each) if len(states) > 1 else each[0] for each in zip(*tensors, strict=True)]
        layers.append(tuple(tensor.detach().requires_grad_() for tensor in joined))
    return State(tuple(layers), states[0].per_vertex)


def _readout(run: Run, seen: tuple[StackedSpace, ...], state: State) -> Tensor:
    """Readout of S snapshots, (S, n, outputs); each layer has its space, which may have fewer rows than the one before.

    Rows that the next layer does not need are left out as soon as they are known.
    """
    x, stacked = seen[0].inputs, len(seen[0].snapshots)
    needed = [*(space.num_rows // stacked for space in seen[1:]), run.own]
    for layer, (space, rows) in enumerate(zip(seen, needed, strict=True)):
        mixed = run_straight(run.model.spatial(layer, space, x, state)).unflatten(0, (stacked, -1))
        h, _ = run.model.temporal_sequence(layer, mixed[:, :rows], state)
        x = h.flatten(0, 1)
    return run.model.readout(h)
