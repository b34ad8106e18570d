"""The own nodes of a rank on its device, in the order in which they survive in decayed snapshots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.plans import SurvivalOrder


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalRows:
    """An order of survival as rows of tensors; n own nodes, of which full snapshots have the rows by number.

    Attributes:
        order: on the host.
        vertices: (n,) int64, the nodes' numbers in the graph.
        own: (n,) int64: of each node in this order, its row in a full snapshot.
        place: (n,) int64: of each row of a full snapshot, its place in this order.
    """

    order: SurvivalOrder
    vertices: Tensor
    own: Tensor
    place: Tensor

    @classmethod
    def of(cls, order: SurvivalOrder, device: str) -> SurvivalRows:
        """The order, as tensors on ``device``."""
        place = np.argsort(order.vertices)
        own = np.empty_like(place)
        own[place] = np.arange(len(place))

        def moved(numbers: NDArray[np.int64]) -> Tensor:
            return torch.tensor(numbers, device=device)

        return cls(order, moved(order.vertices), moved(own), moved(place))

    def kept(self, chunks: int) -> int:
        """Rows of a snapshot that has the first ``chunks`` chunks of every part."""
        return int(self.order.rows[chunks])
