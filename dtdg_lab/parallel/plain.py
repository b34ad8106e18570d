"""A run as it is written down: snapshot after snapshot, then one backward through all of them. The reference."""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.models.base import run_straight
from dtdg_lab.models.state import State
from dtdg_lab.parallel import stepwise
from dtdg_lab.parallel.run import Run

# What forward may keep for backward over a whole run. Above, snapshots are computed again instead.
KEPT_BYTES = 2 << 30


def plain_loss(run: Run) -> Tensor:
    """The loss of a run, a scalar with its history; for every model and task."""
    loss, state = _snapshot(run, run.snapshots[0], run.initial_state())
    return _rest(run, loss, state)


def add_gradients(run: Run) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    Where the first snapshot keeps so much for backward that all would keep more than ``KEPT_BYTES``, the run is taken
    step by step (:mod:`dtdg_lab.parallel.stepwise`).
    """
    loss = _loss_if_it_fits(run)
    if loss is None:
        return stepwise.add_gradients(run)
    loss.backward()
    return loss.detach()


def _loss_if_it_fits(run: Run) -> Tensor | None:
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        first, state = _snapshot(run, run.snapshots[0], run.initial_state())
    for known in (run.sequence.space(run.snapshots[0]).inputs, *run.model.parameters()):
        sizes.pop(known.untyped_storage().data_ptr(), None)
    if run.sequence.any_rank(sum(sizes.values()) * len(run.snapshots) > KEPT_BYTES):
        return None
    return _rest(run, first, state)


def _rest(run: Run, first: Tensor | None, state: State) -> Tensor:
    """The run's loss, from the first snapshot's and the state after it."""
    losses = [] if first is None else [first]
    for t in run.snapshots[1:]:
        loss, state = _snapshot(run, t, state)
        losses += [] if loss is None else [loss]
    return torch.stack(losses).sum()


def _snapshot(run: Run, t: int, state: State) -> tuple[Tensor | None, State]:
    """The snapshot's share of the loss, where there is one, and the state after it."""
    space = run.sequence.space(t)
    h, state = run_straight(run.model.snapshot(space, space.inputs, state))
    if t not in run.at:
        return None, state
    z = run.model.readout(h[: run.own]).unsqueeze(0)
    return run.loss(z, range(t, t + 1), slice(0, run.own)), state
