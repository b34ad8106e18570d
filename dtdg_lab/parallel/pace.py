"""In which order a step's snapshots go on, on all ranks: by what stretches and exchanges are predicted to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.comm.group import Group
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.spatial_tasks import SpatialTask
from dtdg_lab.scheduling.early_ready import TaskTimes, early_ready, in_turn
from dtdg_lab.scheduling.task_times import TaskTimePredictor, task_features

TaskRow = tuple[int, int, str, float, float]


@dataclass(frozen=True, slots=True)
class TaskSize:
    """How much work one snapshot is on this rank.

    Attributes:
        snapshot: its number.
        rows: own vertices that it has.
        edges: along which they pull here.
        halo: rows that a pull brings; None where it brings none, as of a decayed snapshot.
    """

    snapshot: int
    rows: int
    edges: int
    halo: int | None


class Pace:
    """Orders of a step's spatial parts, the same on every rank, and the predictor they come from.

    Each rank predicts its own times; all take the mean of what the ranks predict, gathered in one exchange a step. So
    ranks that predict differently, as they do on unlike machines, still start their exchanges in one order.

    Args:
        model: whose layers they are.
        group: the ranks.
        overlap: whether snapshots go on while exchanges are on their way; else each runs to its end, in time order.
        seed: of the predictor.
        itemsize: bytes of a number.

    References: FlareDTDG section 3.4.
    Differs from the paper: it orders streams of one GPU and does not say how ranks agree. On a GPU a stretch is timed
        until it is launched, since waiting for it would undo the overlap.
    """

    def __init__(self, model: DynamicModel, group: Group, *, overlap: bool, seed: int, itemsize: int) -> None:
        self._model, self._group, self._overlap, self._itemsize = model, group, overlap, itemsize
        self._seed = seed
        self.predictor = TaskTimePredictor(seed)
        self._pulls = [model.hops_per_layer] * model.layers  # of a full snapshot, as the last step had them
        self._sizes: list[TaskSize] = []
        self._features: list[list[NDArray[np.float64]]] = []
        self._predicted: list[list[NDArray[np.float64]]] = []
        self._orders: list[tuple[int, ...]] = []
        self._rows: list[TaskRow] = []

    def begin(self, sizes: Sequence[TaskSize]) -> None:
        """Decide a step's orders, of its snapshots from the oldest; collective where exchanges overlap."""
        self._sizes = list(sizes)
        self._features = [[self._task(layer, size) for size in sizes] for layer in range(self._model.layers)]
        flat = self.predictor.predict(np.concatenate([task for of in self._features for task in of]))
        self._predicted = self._by_task(flat)
        agreed = self._by_task(self._mean(flat)) if self._overlap else self._predicted
        rule = early_ready if self._overlap else in_turn
        self._orders = [rule([_times(task) for task in of]) for of in agreed]

    def order(self, layer: int) -> tuple[int, ...]:
        """Whose turn it is in a layer."""
        return self._orders[layer]

    def note(self, layer: int, tasks: Sequence[SpatialTask]) -> None:
        """Learn what a layer's tasks took."""
        seen, took = [], []
        for number, (size, task) in enumerate(zip(self._sizes, tasks, strict=True)):
            spent = np.array([*task.compute_s, *task.communicate_s])
            if size.halo is not None:
                self._pulls[layer] = len(task.flights)
            features, predicted = self._features[layer][number], self._predicted[layer][number]
            if len(spent) != len(features):  # it had more pulls, or fewer, than the step before: known from now on
                continue
            kinds = ["compute"] * len(task.compute_s) + ["communicate"] * len(task.communicate_s)
            self._rows += [
                (layer, size.snapshot, kind, float(thought), float(was))
                for kind, thought, was in zip(kinds, predicted, spent, strict=True)
            ]
            seen.append(features)
            took.append(spent)
        if seen:
            self.predictor.observe(np.concatenate(seen), np.concatenate(took))

    def forget(self) -> None:
        """Know nothing of what steps took, as before the first one: those of a probe are none."""
        self.predictor = TaskTimePredictor(self._seed)
        self._rows = []

    def drain(self) -> list[TaskRow]:
        """(layer, snapshot, kind, predicted_s, took_s) since this was last asked."""
        rows, self._rows = self._rows, []
        return rows

    def _task(self, layer: int, size: TaskSize) -> NDArray[np.float64]:
        """Features of a task's k + 1 stretches, then of its k exchanges, (2k + 1, 6)."""
        pulls = 0 if size.halo is None else self._pulls[layer]
        widths = [self._model.width(layer), *[self._model.hidden] * pulls]
        stretches = [
            task_features("compute", rows=size.rows, edges=size.edges * bool(stretch or not pulls), width=width)
            for stretch, width in enumerate(widths)
        ]
        exchanges = [
            task_features("communicate", rows=size.halo or 0, width=width,
                          sent_bytes=(size.halo or 0) * width * self._itemsize)
            for width in widths[:pulls]
        ]  # fmt: skip
        return np.array([*stretches, *exchanges])

    def _by_task(self, flat: NDArray[np.float64]) -> list[list[NDArray[np.float64]]]:
        found: list[list[NDArray[np.float64]]] = []
        start = 0
        for of in self._features:
            found.append([])
            for task in of:
                found[-1].append(flat[start : start + len(task)])
                start += len(task)
        return found

    def _mean(self, own: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of all ranks' predictions; summed in rank order, so that every rank has the same bits."""
        ranks = self._group.size
        device = self._model.readout_layer.weight.device
        sent = torch.from_numpy(own).to(device).unsqueeze(0)
        return self._group.gather_rows(sent, [1] * ranks).cpu().numpy().sum(axis=0) / ranks


def _times(task: NDArray[np.float64]) -> TaskTimes:
    pulls = len(task) // 2
    return TaskTimes(tuple(task[: pulls + 1].tolist()), tuple(task[pulls + 1 :].tolist()))
