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

    def step(self, gradients: Sequence[NDArray[np.float64]]) -> None:
        """Go one step against gradients, one of each array."""
        self._step += 1
        rate, scale = self._rate / (1 - MEAN**self._step), np.sqrt(1 - SQUARE**self._step)
        for parameter, mean, square, gradient in zip(
            self._parameters, self._means, self._squares, gradients, strict=True
        ):
            mean[...] = mean + (1 - MEAN) * (gradient - mean)
            square[...] = square + (1 - SQUARE) * (gradient**2 - square)
            parameter[...] = parameter - rate * mean / (np.sqrt(square) / scale + LEAST)

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
