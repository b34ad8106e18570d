"""One evaluator for all systems: the whole sequence, sharded by vertices, under a named protocol."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from dtdg_lab.comm.group import Group
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.protocols import Protocol
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.models.base import DynamicModel, run_straight
from dtdg_lab.parallel.device_sequence import DeviceSequence


@dataclass(frozen=True, slots=True)
class SplitLoss:
    """Mean squared error of the model on a split, beside two predictors that learn nothing."""

    split: str
    loss: float
    persistence_loss: float
    mean_loss: float
    snapshots: int


class Evaluator:
    """Runs the sequence forward from its start and averages the squared error over each split's snapshots.

    The test part is computed only by ``evaluate(..., final=True)``, once a run is over: nothing that steers or tunes
    can read it.

    Args:
        graph: T labelled snapshots.
        split: which of them are training, validation, test.
        protocol: warm or cold state.
        group: ranks share the vertices.
        sequence: the snapshots for this rank's vertices; its gather joins rows for deeper layers.
    """

    def __init__(
        self, graph: DynamicGraph, split: Split, protocol: Protocol, group: Group, sequence: DeviceSequence
    ) -> None:
        self._graph, self._protocol, self._group, self._sequence = graph, protocol, group, sequence
        self._ranges = {"train": split.train, "validation": split.validation, "test": split.test}
        self._baselines = {name: self._baseline(part, split.train) for name, part in self._ranges.items()}

    def _baseline(self, part: range, train: range) -> tuple[float, float]:
        targets = np.asarray(self._graph.targets[part.start : part.stop], dtype=np.float64)
        persistence = np.asarray(self._graph.persistence[part.start : part.stop], dtype=np.float64)
        mean = float(np.mean(self._graph.targets[train.start : train.stop], dtype=np.float64))
        return float(np.mean((persistence - targets) ** 2)), float(np.mean((mean - targets) ** 2))

    def evaluate(self, model: DynamicModel, splits: tuple[str, ...], *, final: bool = False) -> list[SplitLoss]:
        """Losses of some splits; collective: every rank calls it with the same splits.

        Raises:
            ConfigError: the test part is asked for while the run goes on.
        """
        if "test" in splits and not final:
            raise ConfigError("the test part is evaluated once, when the run is over (final=True).")
        errors = self._squared_errors(model, splits)
        return [
            SplitLoss(name, float(errors[part.start : part.stop].mean()), *self._baselines[name], len(part))
            for name, part in ((name, self._ranges[name]) for name in splits)
        ]

    @torch.no_grad()
    def _squared_errors(self, model: DynamicModel, splits: tuple[str, ...]) -> torch.Tensor:
        """Mean squared error of each snapshot up to the last one asked for, (T,); the same on every rank."""
        sequence = self._sequence
        last = max(self._ranges[name].stop for name in splits)
        starts = {part.start for part in self._ranges.values()} if self._protocol.state == "cold" else set()
        sums = torch.zeros(self._graph.num_snapshots, dtype=torch.float64, device=sequence.device)
        state = model.initial_state(len(sequence.rows))
        for t in range(last):
            if t in starts:
                state = model.initial_state(len(sequence.rows))
            space = sequence.space(t)
            h, state = run_straight(model.snapshot(space, space.inputs, state))
            sums[t] = (model.readout(h) - space.targets).double().square().sum()
        self._group.all_reduce(sums)
        return sums / self._graph.num_nodes
