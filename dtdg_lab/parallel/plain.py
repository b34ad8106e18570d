"""A run as it is written down: snapshot after snapshot, then one backward through all of them. The reference."""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.models.base import run_straight
from dtdg_lab.parallel.run import Run


def plain_loss(run: Run) -> Tensor:
    """The loss of a run, a scalar with its history; for every model and task."""
    state = run.model.initial_state(run.num_rows)
    losses = []
    for t in run.snapshots:
        space = run.sequence.space(t)
        h, state = run_straight(run.model.snapshot(space, space.inputs, state))
        if t in run.at:
            z = run.model.readout(h).unsqueeze(0)
            losses.append(run.loss(z, range(t, t + 1), slice(0, run.num_rows)))
    return torch.stack(losses).sum()


def add_gradients(run: Run) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss."""
    loss = plain_loss(run)
    loss.backward()
    return loss.detach()
