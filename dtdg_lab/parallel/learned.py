"""Gradients of a model's parameters from pieces of work, added up in order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Gradients = tuple[Tensor | None, ...]


class Learned:
    """The parameters of a model that learn.

    Args:
        model: whose parameters they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)

    def gradients(self, end: Tensor, seed: Tensor | None, inputs: Sequence[Tensor]) -> tuple[Gradients, Gradients]:
        """Gradients of the parameters and of some inputs, from a piece's end and its gradient (1 where None)."""
        given = [x for x in inputs if x.requires_grad]
        found = iter(torch.autograd.grad(end, [*self._parameters, *given], seed, allow_unused=True))
        of_parameters = tuple(next(found) for _ in self._parameters)
        return of_parameters, tuple(next(found) if x.requires_grad else None for x in inputs)

    def add(self, gradients: Gradients) -> None:
        """Add a piece's gradients to the parameters', which stay where they are."""
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if gradient is None:
                continue
            if parameter.grad is None:
                parameter.grad = gradient.detach().clone()
            else:
                parameter.grad.add_(gradient)
