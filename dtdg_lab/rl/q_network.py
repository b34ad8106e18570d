"""A small Q-network: the value of each action in a state."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator

Array = NDArray[np.float64]


class _Linear(torch.nn.Linear):
    """Torch's layer, without draws from the global stream; torch's skip_init imports sympy for half a second."""

    def reset_parameters(self) -> None:
        """Leave the parameters to the caller."""


class QNetwork:
    """A torch module in float64: linear layers with ReLU between a state and the values of all actions.

    Args:
        sizes: widths (S, H, .., A): numbers of a state, hidden units, actions.
        parameters: all weights in one line, as :attr:`parameters`; zeros where None.

    Attributes:
        sizes: the widths.
        module: the layers.

    Raises:
        PlanError: parameters of another length than the widths need.
    """

    def __init__(self, sizes: Sequence[int], parameters: NDArray[np.floating] | None = None) -> None:
        self.sizes = tuple(sizes)
        count = sum((into + 1) * out for into, out in pairwise(self.sizes))
        if parameters is not None and parameters.shape != (count,):
            raise PlanError(
                f"parameters of shape {parameters.shape} for layers of {' x '.join(map(str, self.sizes))}: ({count},) "
                "are needed."
            )
        self._layers = [_Linear(into, out, dtype=torch.float64, device="cpu") for into, out in pairwise(self.sizes)]
        stacked = [module for layer in self._layers for module in (layer, torch.nn.ReLU())]
        self.module = torch.nn.Sequential(*stacked[:-1])
        rest = np.zeros(count) if parameters is None else parameters.astype(np.float64)
        with torch.no_grad():
            for layer, (into, out) in zip(self._layers, pairwise(self.sizes), strict=True):
                matrix, rest = rest[: (into + 1) * out].reshape(into + 1, out), rest[(into + 1) * out :]
                layer.weight.copy_(torch.from_numpy(matrix[:-1].T))
                layer.bias.copy_(torch.from_numpy(matrix[-1]))

    @staticmethod
    def drawn(sizes: Sequence[int], seed: int) -> QNetwork:
        """Return a network with weights and biases uniform within one over the root of a layer's inputs."""
        rng = generator(seed, "control/q_network")
        layers = [rng.uniform(-1, 1, (into + 1) * out) / np.sqrt(into) for into, out in pairwise(sizes)]
        return QNetwork(sizes, np.concatenate(layers))

    @property
    def parameters(self) -> Array:
        """A copy (n,): of each layer a matrix (inputs + 1, outputs) whose last row is the bias."""
        rows = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in self._layers]
        return np.concatenate([np.vstack(pair).ravel() for pair in rows])

    def values(self, states: NDArray[np.floating]) -> Array:
        """Return the values (B, A) of all actions in states (B, S)."""
        with torch.no_grad():
            values: Array = self.module(as_tensor(states)).numpy()
        return values

    def of_actions(self, states: NDArray[np.floating], actions: NDArray[np.int64]) -> torch.Tensor:
        """Return the values (B,) of actions (B,) in states (B, S), with gradients."""
        values: torch.Tensor = self.module(as_tensor(states)).gather(1, as_tensor(actions, np.int64)[:, None])[:, 0]
        return values


def as_tensor(values: Any, dtype: type = np.float64) -> torch.Tensor:
    """Return a copy of values as a tensor."""
    return torch.from_numpy(np.array(values, dtype=dtype))
