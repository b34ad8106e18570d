"""A small network that tells what each action is worth in a state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.exact_product import FixedPoint
from dtdg_lab.core import streams
from dtdg_lab.core.errors import PlanError

Array = NDArray[np.float64]


class QNetwork:
    """Layers of ReLU between a state and the values of all actions; the last layer has none.

    Args:
        sizes: widths (S, H, .., A): numbers of a state, hidden units, actions.
        parameters: all weights in one line, as :attr:`parameters`; zeros where None.

    Attributes:
        sizes: the widths.
        parameters: (n,) float64: of each layer a matrix (inputs + 1, outputs) whose last row is the bias.

    Raises:
        PlanError: parameters of another length than the widths need.
    """

    def __init__(self, sizes: Sequence[int], parameters: NDArray[np.floating] | None = None) -> None:
        self.sizes = tuple(sizes)
        needed = sum((into + 1) * out for into, out in zip(self.sizes, self.sizes[1:], strict=False))
        if parameters is not None and parameters.shape != (needed,):
            raise PlanError(
                f"parameters of shape {parameters.shape} for layers of {' x '.join(map(str, self.sizes))}: ({needed},) "
                "are needed."
            )
        self.parameters = np.zeros(needed) if parameters is None else parameters.astype(np.float64)
        self._layers = self.layers_of(self.parameters)
        self._rounded: list[FixedPoint] | None = None

    @staticmethod
    def drawn(sizes: Sequence[int], seed: int) -> QNetwork:
        """One with weights and biases uniform within one over the root of a layer's inputs."""
        network = QNetwork(sizes)
        draw = streams.generator(seed, "control/q_network")
        for layer in network._layers:
            layer[...] = draw.uniform(-1, 1, layer.shape) / np.sqrt(len(layer) - 1)
        return network

    def layers_of(self, line: Array) -> list[Array]:
        """(n,) -> views of each layer's matrix in it."""
        found, start = [], 0
        for into, out in zip(self.sizes, self.sizes[1:], strict=False):
            found.append(line[start : start + (into + 1) * out].reshape(into + 1, out))
            start += (into + 1) * out
        return found

    def changed(self) -> None:
        """To be called after :attr:`parameters` were written to."""
        self._rounded = None

    def copy_of(self, other: QNetwork) -> None:
        """Take over another's parameters."""
        self.parameters[...] = other.parameters
        self.changed()

    def values(self, states: NDArray[np.floating]) -> Array:
        """States (B, S) -> values (B, A)."""
        return self.traced(states)[0]

    def gradient(self, inputs: Sequence[FixedPoint], of_values: Array) -> Array:
        """Gradient (n,) by the parameters, given that by values (B, A) and the inputs of :meth:`traced` with them."""
        line = np.empty_like(self.parameters)
        later = of_values
        for layer, given, weights in zip(
            reversed(self.layers_of(line)), reversed(inputs), reversed(self._rounded or []), strict=True
        ):
            rounded = FixedPoint(later)
            layer[...] = given.turned @ rounded
            if given is not inputs[0]:
                later = (rounded @ weights.turned)[:, :-1] * (given.whole[:, :-1] > 0)
        return line

    def traced(self, states: NDArray[np.floating]) -> tuple[Array, list[FixedPoint]]:
        """States (B, S) -> values (B, A), and what each layer was given, (B, inputs + 1) with ones for the bias."""
        if self._rounded is None:
            self._rounded = [FixedPoint(layer) for layer in self._layers]
        found, inputs = np.asarray(states, dtype=np.float64), []
        for place, weights in enumerate(self._rounded):
            given = np.ones((len(found), found.shape[1] + 1))
            given[:, :-1] = np.maximum(found, 0.0) if place else found
            inputs.append(FixedPoint(given))
            found = inputs[-1] @ weights
        return found, inputs
