"""Spatial parts of snapshots: while the exchange of one travels, another one computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.distributed.group import Group, gather_texts
from dtdg_lab.engine.backprop.gradients import Gradients
from dtdg_lab.engine.exchange.exchanger import PendingExchange
from dtdg_lab.engine.exchange.pausable import PausableFunction, Worker
from dtdg_lab.engine.exchange.task_order import TaskTimePredictor, TaskTimes, early_ready, in_turn, task_features
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.records.events import OverlapChosen


@dataclass(slots=True)
class SpatialTask:
    """One snapshot's spatial part, as far as it has come.

    Attributes:
        turns: the function.
        lent: the parameters that it uses, by name.
        compute_s: seconds of each stretch between pulls.
        flights: its pulls.
    """

    turns: PausableFunction
    lent: dict[str, Tensor]
    compute_s: list[float] = field(default_factory=list)
    flights: list[PendingExchange] = field(default_factory=list)

    @property
    def result(self) -> Tensor | None:
        """Its rows, (n, C), once it is done."""
        return self.turns.result

    @property
    def communicate_s(self) -> list[float]:
        """Seconds in flight of each pull that has been waited for."""
        return [flight.in_flight_s for flight in self.flights if flight.in_flight_s is not None]


class SpatialTasks:
    """Runs spatial parts in an order that all ranks share.

    Args:
        model: whose spatial parts they are.
    """

    def __init__(self, model: DynamicModel) -> None:
        self._learned = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        names = {id(parameter): name for name, parameter in self._learned.items()}
        self._slots = [  # where modules look their parameters up
            (module._parameters, key, names[id(parameter)])
            for module in model.modules()
            for key, parameter in module._parameters.items()
            if id(parameter) in names
        ]
        self._workers: list[Worker] = []

    def run(
        self, functions: Sequence[Callable[[], Tensor]], order: Sequence[int], *, learning: bool
    ) -> list[SpatialTask]:
        """Return every snapshot's task, done.

        Args:
            functions: the spatial parts of S snapshots.
            order: whose turn it is, again and again; a task with more turns than it needs is passed over, one with
                fewer continues afterwards, by number. Exchanges are started in this order, which must be every rank's.
            learning: whether there will be a backward.
        """
        tasks = [
            SpatialTask(PausableFunction(function, self._workers), self._lend(learning=learning))
            for function in functions
        ]
        try:
            with torch.set_grad_enabled(learning):
                for number in order:
                    self._turn(tasks[number])
                for task in tasks:
                    while task.result is None:
                        self._turn(task)
        except BaseException:
            for task in tasks:
                task.turns.abandon()
            raise
        finally:
            for parameters, key, name in self._slots:
                parameters[key] = self._learned[name]
        return tasks

    def gradients(
        self, tasks: Sequence[SpatialTask], seeds: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> tuple[list[Gradients], list[Tensor | None]]:
        """Backward through all tasks at once: each one's gradients of the parameters, and those of the inputs.

        Args:
            tasks: S of them, done.
            seeds: the gradient of each result.
            inputs: what each was fed; those that need no gradient get None.
        """
        learning = [
            (task.result, seed)
            for task, seed in zip(tasks, seeds, strict=True)
            if task.result is not None and task.result.requires_grad
        ]
        lent = [leaf for task in tasks for leaf in task.lent.values()]
        targets = [*lent, *(x for x in inputs if x.requires_grad)]
        if not learning:
            return [(None,) * len(self._learned) for _ in tasks], [None] * len(inputs)
        ends, of_ends = [end for end, _ in learning], [seed for _, seed in learning]
        gradients = iter(torch.autograd.grad(ends, targets, of_ends, allow_unused=True))
        of_tasks: list[Gradients] = [tuple(next(gradients) for _ in self._learned) for _ in tasks]
        return of_tasks, [next(gradients) if x.requires_grad else None for x in inputs]

    def _lend(self, *, learning: bool) -> dict[str, Tensor]:
        return {name: parameter.detach().requires_grad_(learning) for name, parameter in self._learned.items()}

    def _turn(self, task: SpatialTask) -> None:
        """One stretch: wait for the pull before it where it is still on its way, and start the one after it."""
        if task.result is not None:
            return
        waiting = task.flights[-1] if task.flights else None
        began_s = time.perf_counter()
        for parameters, key, name in self._slots:
            parameters[key] = task.lent[name]  # type: ignore[assignment]  # a leaf, but no nn.Parameter
        flight: PendingExchange | None = task.turns.resume()
        exposed_s = 0.0 if waiting is None else waiting.exposed_s
        # an artificially slow network may have stalled slightly longer than this clock measured
        task.compute_s.append(max(0.0, time.perf_counter() - began_s - exposed_s))
        if flight is not None:
            task.flights.append(flight)


class TaskRow(NamedTuple):
    """Predicted and measured seconds of a task, of the table ``tasks``, without the columns step and epoch."""

    layer: int
    snapshot: int
    kind: str
    predicted_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class TaskSize:
    """How much work one snapshot is on this rank.

    Attributes:
        snapshot: its number.
        rows: own nodes that it has.
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
        itemsize: bytes of a number.

    Attributes:
        predictor: of the seconds of stretches and exchanges.
        tasks: runs spatial parts in these orders.

    References: FlareDTDG section 3.4.
    Differs from the paper: it orders streams of one GPU and does not say how ranks agree. On a GPU a stretch is timed
        until it is launched, since waiting for it would undo the overlap.
    """

    def __init__(self, model: DynamicModel, group: Group, *, overlap: bool, itemsize: int) -> None:
        self._model, self._group, self._overlap, self._itemsize = model, group, overlap, itemsize
        self.predictor = TaskTimePredictor()
        self.tasks = SpatialTasks(model)
        pulls = [pull.layer for pull in model.facts.along_edges]
        self._pulls = [pulls.count(layer) for layer in range(model.layers)]  # of a full snapshot, as the last step had
        self._sizes: list[TaskSize] = []
        self._features: list[list[NDArray[np.float64]]] = []
        self._predicted: list[list[NDArray[np.float64]]] = []
        self._orders: list[tuple[int, ...]] = []
        self._rows: list[TaskRow] = []

    def begin(self, sizes: Sequence[TaskSize]) -> None:
        """Decide a step's orders, of its snapshots from the oldest; collective where exchanges overlap."""
        self._sizes = list(sizes)
        self._features = [[self._task(layer, size) for size in sizes] for layer in range(self._model.layers)]
        flat = self.predictor.predict(np.concatenate([task for layer_tasks in self._features for task in layer_tasks]))
        self._predicted = self._by_task(flat)
        agreed = self._by_task(self._mean(flat)) if self._overlap else self._predicted
        rule = early_ready if self._overlap else in_turn
        self._orders = [rule([_times(task) for task in layer_tasks]) for layer_tasks in agreed]

    def order(self, layer: int) -> tuple[int, ...]:
        """Whose turn it is in a layer."""
        return self._orders[layer]

    def note(self, layer: int, tasks: Sequence[SpatialTask]) -> None:
        """Learn what a layer's tasks took."""
        task_rows, took = [], []
        for number, (size, task) in enumerate(zip(self._sizes, tasks, strict=True)):
            spent = np.array([*task.compute_s, *task.communicate_s])
            if size.halo is not None:
                self._pulls[layer] = len(task.flights)
            features, predicted = self._features[layer][number], self._predicted[layer][number]
            if len(spent) != len(features):  # it had more pulls, or fewer, than the step before: known from now on
                continue
            kinds = ["compute"] * len(task.compute_s) + ["communicate"] * len(task.communicate_s)
            self._rows += [
                TaskRow(layer, size.snapshot, kind, float(thought), float(was))
                for kind, thought, was in zip(kinds, predicted, spent, strict=True)
            ]
            task_rows.append(features)
            took.append(spent)
        if task_rows:
            self.predictor.observe(np.concatenate(task_rows), np.concatenate(took))

    def forget(self) -> None:
        """Know nothing of what steps took, as before the first one: those of a probe are none."""
        self.predictor = TaskTimePredictor()
        self._rows = []

    def drain(self) -> list[TaskRow]:
        """Return and forget the tasks' times."""
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
            task_features(
                "communicate", rows=size.halo or 0, width=width, sent_bytes=(size.halo or 0) * width * self._itemsize
            )
            for width in widths[:pulls]
        ]
        return np.array([*stretches, *exchanges])

    def _by_task(self, flat: NDArray[np.float64]) -> list[list[NDArray[np.float64]]]:
        layers: list[list[NDArray[np.float64]]] = []
        start = 0
        for layer_tasks in self._features:
            layers.append([])
            for task in layer_tasks:
                layers[-1].append(flat[start : start + len(task)])
                start += len(task)
        return layers

    def _mean(self, predictions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Average all ranks' predictions, summed in rank order, so that every rank has the same bits."""
        ranks = self._group.size
        device = self._model.readout_layer.weight.device
        sent = torch.from_numpy(predictions).to(device).unsqueeze(0)
        return self._group.gather_rows(sent, [1] * ranks).cpu().numpy().sum(axis=0) / ranks


def _times(task: NDArray[np.float64]) -> TaskTimes:
    pulls = len(task) // 2
    return TaskTimes(tuple(task[: pulls + 1].tolist()), tuple(task[pulls + 1 :].tolist()))


_PAIRS = 3
TRIED = (False, *(False, True) * _PAIRS)  # whether exchanges overlap in the first epochs; the first warms up
_LEAST_GAIN = 0.97  # of the median time without overlap: differences above are noise of three epochs each


class OverlapTrial:
    """Times the first epochs without and with overlap, in turn. Losses are the same bits either way.

    An epoch takes as long as on its slowest rank. Exchanges overlap if the median epoch with overlap took less than
    97 % of the median epoch without: one disturbed epoch of each kind does not change the choice. All ranks choose the
    same.

    Args:
        group: the ranks.
        device: where tensors that are sent must be.

    Attributes:
        on: whether exchanges overlap in the epoch that comes next.
        chosen: the choice and both medians; None until then.
    """

    def __init__(self, group: Group, device: str) -> None:
        self._group, self._device = group, device
        self._epochs_s = [0.0]
        self.on = TRIED[0]
        self.chosen: OverlapChosen | None = None

    def add(self, seconds: float) -> None:
        """Add the seconds of a step of the current epoch."""
        self._epochs_s[-1] += seconds

    def end_epoch(self) -> None:
        """Go on to the next epoch, or choose; the last is collective."""
        if len(self._epochs_s) < len(TRIED):
            self.on = TRIED[len(self._epochs_s)]
            self._epochs_s.append(0.0)
            return
        texts = gather_texts(self._group, " ".join(map(repr, self._epochs_s)), device=self._device)
        slowest = np.array([text.split() for text in texts], dtype=np.float64).max(axis=0)
        off_s, on_s = float(np.median(slowest[1::2])), float(np.median(slowest[2::2]))
        self.choose(OverlapChosen(on_s < _LEAST_GAIN * off_s, off_s, on_s))

    def choose(self, choice: OverlapChosen) -> None:
        """End the trial with a choice: the measured one, or that of a run which is replayed."""
        self.chosen, self.on = choice, choice.on
