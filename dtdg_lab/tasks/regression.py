"""Node regression: the next snapshot's target of every node, by mean squared error."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.tasks.base import Rows, Scores, Task, mean_or_none


class Regression(Task):
    """Squared error against ``graph.targets``, one number a node and snapshot; mean absolute error beside it.

    Persistence predicts ``graph.persistence``; the mean predictor the mean target of the training split.

    Args:
        graph: T labelled snapshots of N nodes.
        split: the parts of the sequence.
        device: where labels are kept.
        dtype: type of the labels.

    Source: DynaHB and FlareDTDG, released code: mean squared error of log(1 + in-degree of the next snapshot).
    """

    name = "regression"
    loss_name = "mean squared error"
    outputs = 1
    per_vertex = True
    columns = 2

    def __init__(
        self, graph: DynamicGraph, split: Split, *, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        self._graph, self._split, self._device, self._dtype = graph, split, device, dtype
        self._targets: dict[int, Tensor] = {}
        self._baselines: dict[str, NDArray[np.float64]] = {}

    def prepare(self, snapshots: range) -> None:
        """Move the targets of these snapshots to the device."""
        for t in snapshots:
            self._target(t)

    def labelled(self, t: int) -> bool:
        """Always: every node has a target."""
        return True

    def _target(self, t: int) -> Tensor:
        if t not in self._targets:
            self._targets[t] = torch.tensor(np.asarray(self._graph.targets[t]), device=self._device).to(self._dtype)
        return self._targets[t]

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """(S, n, 1) -> (S,): squared errors of these nodes over N."""
        targets = torch.stack([self._target(t)[rows] for t in snapshots])
        return (z.squeeze(-1) - targets).square().sum(dim=1) / self._graph.num_nodes

    def share(self, snapshots: range, rows: Rows) -> Tensor:
        """The number of targets: all N nodes have one."""
        nodes = self._graph.num_nodes
        found = len(range(*rows.indices(nodes))) if isinstance(rows, slice) else len(rows)
        return torch.full((len(snapshots),), found / nodes, dtype=self._dtype, device=self._device)

    def trains(self) -> NDArray[np.bool_]:
        """All of them."""
        return np.ones(self._graph.num_nodes, bool)

    def measure(self, z: Tensor, t: int, rows: slice, part: str) -> Tensor:
        """(n, 1) -> (2,): sums of squared and of absolute errors."""
        errors = (z.squeeze(-1) - self._target(t)[rows]).double()
        return torch.stack([errors.square().sum(), errors.abs().sum()])

    def scores(self, part: str, sums: NDArray[np.float64], again: NDArray[np.float64] | None = None) -> Scores:
        """Mean squared error and ``mae`` over all nodes and the part's snapshots."""
        squared, absolute = sums.T / self._graph.num_nodes
        persistence, persistence_absolute, constant = self._baseline(part).T
        metrics = {"mae": mean_or_none(absolute), "persistence_mae": mean_or_none(persistence_absolute)}
        loss, today, mean = (mean_or_none(errors) for errors in (squared, persistence, constant))
        return Scores(part, loss, today, mean, len(sums), metrics)

    @cached_property
    def _mean(self) -> float:
        train = self._split.train
        return float(np.mean(self._graph.targets[train.start : train.stop], dtype=np.float64))

    def _baseline(self, part: str) -> NDArray[np.float64]:
        """Persistence squared and absolute, constant squared: mean errors of each snapshot of the part, (S, 3)."""
        if part not in self._baselines:
            rows = []
            for t in getattr(self._split, part):
                target = np.asarray(self._graph.targets[t], dtype=np.float64)
                error = np.asarray(self._graph.persistence[t], dtype=np.float64) - target
                rows.append([np.mean(error**2), np.mean(np.abs(error)), np.mean((self._mean - target) ** 2)])
            self._baselines[part] = np.array(rows).reshape(-1, 3)
        return self._baselines[part]
