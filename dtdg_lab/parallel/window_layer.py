"""One layer of a model over a window: vertices that enter late run through the snapshots that have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dtdg_lab.kernels.recurrence import at_rest
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.models.state import State
from dtdg_lab.parallel.layer import Crossing, Layer


@dataclass(slots=True)
class Entering(Crossing):
    """A layer's state where a window begins: carried for the oldest snapshot's vertices, zero for all that enter later.

    ``begin`` holds the rows of the oldest snapshot alone.
    """

    model: DynamicModel | None = None

    def slice(self, rows: slice) -> State:
        """The state of a piece, all of whose vertices enter together."""
        if rows.stop <= self.begin.layers[0][0].shape[0]:
            return self.begin.slice(rows)
        assert self.model is not None
        one, height = self.model.initial_state(1), rows.stop - rows.start
        return State(tuple(tuple(at_rest(x, height) for x in layer) for layer in one.layers))


class WindowLayer(Layer):
    """As :class:`dtdg_lab.parallel.layer.Layer`, where older snapshots have the first rows of newer ones.

    The vertices of a piece enter together, and run through the snapshots that have them, which are the last ones.
    """

    def _stacked(self, parts: Sequence[Tensor], rows: slice) -> Tensor:
        """A piece's rows in the snapshots that have it, (S', piece, C)."""
        return torch.stack([part[rows] for part in parts if len(part) >= rows.stop])
