"""A run with one snapshot's activations alive at a time: states are kept, snapshots computed again on the way back.

Serves every model, for a third more time than :mod:`dtdg_lab.parallel.plain`; the states of all snapshots stay.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.models.base import run_straight
from dtdg_lab.models.state import State
from dtdg_lab.parallel.run import Run


def add_gradients(run: Run) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss."""
    begin = run.initial_state()
    states = [begin.detach()]
    with torch.no_grad():
        for t in run.snapshots[:-1]:
            space = run.sequence.space(t)
            states.append(run_straight(run.model.snapshot(space, space.inputs, states[-1]))[1])
    total = torch.zeros((), dtype=torch.float64, device=run.sequence.device)
    gradients: list[Tensor | None] = []  # of the state after the snapshot
    for t in reversed(run.snapshots):
        loss, gradients = _back(run, t, states.pop(), gradients)
        total += loss
    _backward(_tensors(begin), gradients)
    return total


def _back(run: Run, t: int, state: State, after: list[Tensor | None]) -> tuple[Tensor, list[Tensor | None]]:
    """One snapshot forward and backward: its loss, and the gradient of the state before it."""
    leaves = State(tuple(tuple(x.requires_grad_() for x in layer) for layer in state.layers), state.per_vertex)
    space = run.sequence.space(t)
    h, end = run_straight(run.model.snapshot(space, space.inputs, leaves))
    ends, seeds = _tensors(end), after
    loss = torch.zeros((), device=run.sequence.device)
    if t in run.at:
        loss = run.loss(run.model.readout(h[: run.own]).unsqueeze(0), range(t, t + 1), slice(0, run.own))
        ends, seeds = [*ends, loss], [*(seeds or [None] * len(ends)), torch.ones_like(loss)]
    _backward(ends, seeds)
    return loss.detach(), [x.grad for x in _tensors(leaves)]


def _backward(ends: list[Tensor], seeds: list[Tensor | None]) -> None:
    """Backward from those ends that have a gradient and a history."""
    found = [(end, seed) for end, seed in zip(ends, seeds, strict=False) if seed is not None and end.requires_grad]
    if found:
        torch.autograd.backward([end for end, _ in found], [seed for _, seed in found])


def _tensors(state: State) -> list[Tensor]:
    return [tensor for layer in state.layers for tensor in layer]
