"""A task outside the package: regression by Huber's loss, which outliers affect less."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dtdg_lab.config.options import Option
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.tasks.base import Rows
from dtdg_lab.tasks.regression import Regression

DELTA = Option(
    name="huber_delta",
    owner="tasks",
    kind=float,
    default=1.0,
    low=0.001,
    high=1000.0,
    meaning="Error above which Huber's loss is linear.",
)


class Huber(Regression):
    """Huber's loss against ``graph.targets``, in training; evaluated by the squared error."""

    name = "huber"
    loss_name = "Huber loss"

    def __init__(self, graph: DynamicGraph, split: Split, *, huber_delta: float, **where: Any) -> None:
        super().__init__(graph, split, **where)
        self._nodes, self._delta = graph.num_nodes, huber_delta

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """(S, n, 1) -> (S,): losses of these nodes over N."""
        targets = torch.stack([self._target(t)[rows] for t in snapshots])
        losses = functional.huber_loss(z.squeeze(-1), targets, reduction="none", delta=self._delta)
        return losses.sum(dim=1) / self._nodes
