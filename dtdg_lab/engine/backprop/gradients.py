"""Gradients of a model's parameters from pieces of work, added up in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

Gradients = tuple[Tensor | None, ...]


class DeferredGradients:
    """Gradients of pieces of work, in the order in which they are to be added to the parameters'."""

    def __init__(self) -> None:
        self._pieces: list[tuple[LearnedParameters, Gradients]] = []

    def append(self, learned: LearnedParameters, gradients: Gradients) -> None:
        """Append the gradients of a piece."""
        self._pieces.append((learned, gradients))

    def add(self) -> None:
        """Add all gradients, and forget them."""
        pieces, self._pieces = self._pieces, []
        for learned, gradients in pieces:
            learned.add(gradients)


_DEFERRED: ContextVar[DeferredGradients | None] = ContextVar("deferred gradients", default=None)


@contextmanager
def defer_gradients() -> Iterator[DeferredGradients]:
    """Collect the gradients that this thread would add to the parameters'.

    Threads that compute at once would add in an order that differs from run to run. Added afterwards in one order, the
    sums are bit-equal to those of the same work done in this order by one thread.
    """
    deferred = DeferredGradients()
    token = _DEFERRED.set(deferred)
    try:
        yield deferred
    finally:
        _DEFERRED.reset(token)


class LearnedParameters:
    """The parameters of a model that learn.

    Args:
        model: whose parameters they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)

    def gradients(
        self, ends: Sequence[Tensor], seeds: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Gradients, Gradients]:
        """Gradients of the parameters and of some inputs, from a piece's ends and their gradients.

        Args:
            ends: those without a history count for nothing.
            seeds: the gradient of each; None is 1 for a scalar.
            inputs: those that need no gradient get None.
        """
        learning = [(end, seed) for end, seed in zip(ends, seeds, strict=True) if end.requires_grad]
        differentiable = [x for x in inputs if x.requires_grad]
        if not learning:
            return (None,) * len(self._parameters), (None,) * len(inputs)
        targets = [*self._parameters, *differentiable]
        seeded = [seed for _, seed in learning]
        gradients = iter(torch.autograd.grad([end for end, _ in learning], targets, seeded, allow_unused=True))
        of_parameters = tuple(next(gradients) for _ in self._parameters)
        return of_parameters, tuple(next(gradients) if x.requires_grad else None for x in inputs)

    def add(self, gradients: Gradients) -> None:
        """Add a piece's gradients to the parameters', which stay where they are; see :func:`defer_gradients`."""
        deferred = _DEFERRED.get()
        if deferred is not None:
            deferred.append(self, gradients)
            return
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if gradient is None:
                continue
            if parameter.grad is None:
                parameter.grad = gradient.detach().clone()
            else:
                parameter.grad.add_(gradient)
