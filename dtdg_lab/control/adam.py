"""Adam on a few small arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEAN, SQUARE, LEAST = 0.9, 0.999, 1e-8  # decay of the means of gradients and of their squares; added to the root


class Adam:
    """Steps that change arrays in place.

    Args:
        parameters: the arrays.
        rate: learning rate.

    References: Kingma, Ba 2015, algorithm 1.
    """

    def __init__(self, parameters: Sequence[NDArray[np.float64]], rate: float) -> None:
        self._parameters, self._rate = list(parameters), rate
        self._clear()

    def _clear(self) -> None:
        self._step = 0
        self._means = [np.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [np.zeros_like(parameter) for parameter in self._parameters]
        self._work = [np.empty_like(parameter) for parameter in self._parameters]

    def step(self, gradients: Sequence[NDArray[np.float64]], rate: float | None = None) -> None:
        """Go one step against gradients, one of each array, at another rate than the usual one where it is given."""
        self._step += 1
        rate, scale = (self._rate if rate is None else rate) / (1 - MEAN**self._step), np.sqrt(1 - SQUARE**self._step)
        for parameter, mean, square, work, gradient in zip(
            self._parameters, self._means, self._squares, self._work, gradients, strict=True
        ):
            np.subtract(gradient, mean, out=work)
            mean[...] += np.multiply(work, 1 - MEAN, out=work)
            np.subtract(np.multiply(gradient, gradient, out=work), square, out=work)
            square[...] += np.multiply(work, 1 - SQUARE, out=work)
            np.divide(np.sqrt(square, out=work), scale, out=work)
            np.add(work, LEAST, out=work)
            parameter[...] -= np.divide(rate * mean, work, out=work)

    def state_dict(self) -> list[dict[str, Any]]:
        """Of each array its means and the steps made, as plain lists and numbers; nothing before the first step."""
        if not self._step:
            return []
        return [
            {"step": self._step, "exp_avg": mean.tolist(), "exp_avg_sq": square.tolist()}
            for mean, square in zip(self._means, self._squares, strict=True)
        ]

    def load_state_dict(self, data: Sequence[Mapping[str, Any]]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._clear()
        for mean, square, held in zip(self._means, self._squares, data, strict=False):  # none before the first step
            self._step = int(held["step"])
            mean[...], square[...] = held["exp_avg"], held["exp_avg_sq"]
