"""Node regression: the next snapshot's target of every node, by mean squared error."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.uploads import upload
from dtdg_lab.tasks.base import Rows, Scores, Task, mean_or_none


class Regression(Task):
    """Squared error against ``graph.targets``, one number a node and snapshot; also scored by mean absolute error.

    Persistence predicts ``graph.persistence``; the constant baseline predicts the mean target of the training split. A
    subclass may override :meth:`penalty`, for training and scores.

    Args:
        graph: T labelled snapshots of N nodes.
        split: the splits of the sequence.
        device: device of the labels.
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
        """Return True: every node has a target."""
        return True

    def _target(self, t: int) -> Tensor:
        if t not in self._targets:
            self._targets[t] = upload(np.asarray(self._graph.targets[t]), self._device).to(self._dtype)
        return self._targets[t]

    def penalty(self, errors: Tensor) -> Tensor:
        """Return the loss of each error, in the same shape."""
        return errors.square()

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """Return penalties of these nodes over N: (S, n, 1) -> (S,)."""
        targets = torch.stack([self._target(t)[rows] for t in snapshots])
        return self.penalty(z.squeeze(-1) - targets).sum(dim=1) / self._graph.num_nodes

    def share(self, snapshots: range, rows: Rows) -> Tensor:
        """Return the share of targets: all N nodes have one."""
        nodes = self._graph.num_nodes
        count = len(range(*rows.indices(nodes))) if isinstance(rows, slice) else len(rows)
        return torch.full((len(snapshots),), count / nodes, dtype=self._dtype)

    def trains(self) -> NDArray[np.bool_]:
        """Return True for all nodes."""
        return np.ones(self._graph.num_nodes, bool)

    def measure(self, z: Tensor, t: int, rows: slice, part: str) -> Tensor:
        """Return sums of penalties and of absolute errors: (n, 1) -> (2,)."""
        errors = (z.squeeze(-1) - self._target(t)[rows]).double()
        return torch.stack([self.penalty(errors).sum(), errors.abs().sum()])

    def scores(self, part: str, sums: NDArray[np.float64], resamples: NDArray[np.float64] | None = None) -> Scores:
        """Return the mean penalty and ``mae`` over all nodes and the split's snapshots."""
        penalties, absolute = sums.T / self._graph.num_nodes
        persistence, persistence_absolute, constant = self._baseline(part).T
        metrics = {"mae": mean_or_none(absolute), "persistence_mae": mean_or_none(persistence_absolute)}
        loss, today, mean = (mean_or_none(errors) for errors in (penalties, persistence, constant))
        return Scores(part, loss, today, mean, len(sums), metrics)

    @cached_property
    def _mean(self) -> float:
        train = self._split.train
        return float(np.mean(self._graph.targets[train.start : train.stop], dtype=np.float64))

    def _baseline(self, part: str) -> NDArray[np.float64]:
        """Return mean penalty and absolute error of persistence, and penalty of the constant, by snapshot: (S, 3)."""
        if part not in self._baselines:
            rows = []
            for t in getattr(self._split, part):
                target = np.asarray(self._graph.targets[t], dtype=np.float64)
                error = np.asarray(self._graph.persistence[t], dtype=np.float64) - target
                constant = self._mean_penalty(self._mean - target)
                rows.append([self._mean_penalty(error), np.mean(np.abs(error)), constant])
            self._baselines[part] = np.array(rows).reshape(-1, 3)
        return self._baselines[part]

    def _mean_penalty(self, errors: NDArray[np.float64]) -> float:
        return float(self.penalty(torch.from_numpy(errors)).numpy().mean())
