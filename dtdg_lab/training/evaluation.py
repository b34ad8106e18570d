"""Evaluation of the whole sequence under a named protocol."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dtdg_lab.config.catalogue import Protocol
from dtdg_lab.core.errors import TestPartError
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.forward import forward
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.graphs.sealed import seal_of
from dtdg_lab.graphs.split import Split
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.tasks.base import PARTS, Scores, Task


class Evaluator:
    """Runs the sequence forward from its start, and scores the snapshots of each split by the task.

    Only ``evaluate(..., final=True)``, after a run, computes the test split, so nothing can steer or tune by it. That
    call alone opens the seal of the sequence's graph (:mod:`dtdg_lab.graphs.sealed`). If training continues after it,
    the model is not evaluated again.

    Args:
        task: the task.
        split: training, validation and test snapshots.
        protocol: warm or cold state.
        group: ranks that share the nodes; they take turns by snapshot if the task needs all nodes at once.
        sequence: the snapshots for this rank's nodes; its gather joins rows for deeper layers.
        gather: gathers the rows of all nodes from all ranks, without gradient; None if this rank has them all.
    """

    def __init__(
        self,
        task: Task,
        split: Split,
        protocol: Protocol,
        group: Group,
        *,
        sequence: DeviceSequence,
        gather: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._task, self._protocol, self._group, self._sequence = task, protocol, group, sequence
        self._gather = gather
        self._ranges: dict[str, range] = {part: getattr(split, part) for part in PARTS}
        self._tested: tuple[int, ...] | None = None

    def evaluate(
        self,
        model: DynamicModel,
        splits: tuple[str, ...],
        *,
        final: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Scores]:
        """Return the scores of some splits, without empty ones; every rank passes the same splits.

        ``progress`` is called with the number of snapshots that are done, and of all.

        Raises:
            TestPartError: the test split is requested during the run, or training continued after its evaluation.
        """
        if "test" in splits and not final:
            raise TestPartError(
                "the test split is evaluated once, when the run is over (final=True). Use the validation split to "
                "steer or to tune."
            )
        self._check_over(model)
        if not final:
            return self._scores(model, splits, progress)
        if "test" in splits:
            self._tested = _versions(model)
        with seal_of(self._sequence.graph).opened():
            return self._scores(model, splits, progress)

    def _check_over(self, model: DynamicModel) -> None:
        """Raise if training continued after an evaluation of the test split."""
        if self._tested is not None and self._tested != _versions(model):
            raise TestPartError(
                "training continued after the test split was evaluated (final=True), so this evaluation could depend "
                "on the test split. Evaluate the validation split during training, and the test split once, after the "
                "last step."
            )

    def _scores(
        self, model: DynamicModel, splits: tuple[str, ...], progress: Callable[[int, int], None] | None
    ) -> list[Scores]:
        ranges = {part: self._ranges[part] for part in splits if len(self._ranges[part])}
        if not ranges:
            return []
        sums, resamples = (tensor.cpu().numpy() for tensor in self._sums(model, ranges, progress))
        return [
            self._task.scores(
                part, sums[snapshots.start : snapshots.stop], resamples if part == "test" and len(resamples) else None
            )
            for part, snapshots in ranges.items()
        ]

    @torch.no_grad()
    def _sums(
        self, model: DynamicModel, ranges: dict[str, range], progress: Callable[[int, int], None] | None
    ) -> tuple[Tensor, Tensor]:
        """Return the task's measures of all snapshots up to the last of ``ranges``, and of the test split on resamples.

        Returns:
            (T', K), and (S, resampled) for the S test snapshots; the latter has no rows without the test split or a
            bootstrap. Both are the same on every rank.
        """
        sequence, rows = self._sequence, len(self._sequence.rows)
        last = max(snapshots.stop for snapshots in ranges.values())
        part_of = {t: part for part, snapshots in ranges.items() for t in snapshots}
        sums = torch.zeros(last, self._task.columns, dtype=torch.float64, device=sequence.device)
        tested = ranges.get("test", range(0)) if self._task.resampled else range(0)
        resamples = torch.zeros(len(tested), self._task.resampled, dtype=torch.float64, device=sequence.device)
        runs = list(ranges.values()) if self._protocol.state == "cold" else [range(last)]
        done, total = 0, sum(map(len, runs))
        for snapshots in runs:
            state = model.initial_state(rows)
            for t, h in forward(model, sequence.view, snapshots, state, num_nodes=sequence.graph.num_nodes):
                if t in part_of:
                    resample = resamples[t - tested.start] if t in tested else None
                    self._measure(sums[t], resample, model.readout(h), t, part_of[t])
                done += 1
                if progress is not None:
                    progress(done, total)
        self._group.all_reduce(sums)
        if len(resamples):
            self._group.all_reduce(resamples)
        return sums, resamples

    def _measure(self, sums: Tensor, resample: Tensor | None, z: Tensor, t: int, part: str) -> None:
        """Add this rank's share: its nodes, or the whole snapshot if it is this rank's turn."""
        rows = self._sequence.rows
        if self._task.per_vertex:
            sums += self._task.measure(z, t, slice(rows.start, rows.stop), part)
            return
        if self._gather is not None:
            z = self._gather(z)
        if t % self._group.size == self._group.rank:
            sums += self._task.measure(z, t, slice(0, len(z)), part)
            if resample is not None:
                resample += self._task.resample(z, t)


def _versions(model: DynamicModel) -> tuple[int, ...]:
    """Return the version counter of each parameter, which counts writes."""
    return tuple(parameter._version for parameter in model.parameters())
