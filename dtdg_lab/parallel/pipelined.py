"""Two snapshot groups of a rank side by side: both are forward before either is backward, so both are in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dtdg_lab.parallel.learned import Gradients, Learned
from dtdg_lab.parallel.plain import plain_loss
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.threads import in_order


def add_gradients(runs: Sequence[Run]) -> Tensor:
    """Add the gradients of several runs' losses to the parameters', and return the sum of the losses.

    Forward of all of them, on as many threads as there are, then backward of all of them. Each run is differentiated
    as it is written down, with all its activations kept, as each of BLAD's processes does.

    Args:
        runs: of one model and sequence.
    """
    if not runs:
        return torch.zeros((), dtype=torch.float64)
    device, learned = runs[0].sequence.device, Learned(runs[0].model)

    def forward(run: Run) -> Tensor:
        with torch.enable_grad():  # threads begin with the default of their own
            return plain_loss(run)

    def backward(loss: Tensor) -> Gradients:
        return learned.gradients([loss], [None], [])[0]

    losses = in_order(forward, runs, device=device)
    for gradients in in_order(backward, losses, device=device):
        learned.add(gradients)
    return torch.stack([loss.detach() for loss in losses]).sum()
