"""Overlap of communication and computation: a snapshot's spatial part computes while another's rows are in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.distributed.all_to_all import ReadTimes
from dtdg_lab.distributed.group import Group, gather_texts
from dtdg_lab.engine.backprop.gradients import Gradients
from dtdg_lab.engine.exchange.exchanger import PendingExchange
from dtdg_lab.engine.exchange.pausable import PausableFunction, Worker
from dtdg_lab.engine.exchange.task_order import TaskTimePredictor, TaskTimes, early_ready, in_turn, task_features
from dtdg_lab.kernels.device_clock import DeviceClock, Stamp
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.records.events import OverlapChosen


@dataclass(slots=True)
class SpatialTask:
    """The spatial part of one snapshot, in progress.

    Attributes:
        function: the pausable spatial part.
        parameters: its own leaf tensors of the parameters, by name.
        stretches: start and end of each stretch between pulls; a stretch first waits for the pull before it.
        flights: exchanges of its pulls.
    """

    function: PausableFunction
    parameters: dict[str, Tensor]
    stretches: list[tuple[Stamp, Stamp]] = field(default_factory=list)
    flights: list[PendingExchange] = field(default_factory=list)

    @property
    def result(self) -> Tensor | None:
        """Output rows, (n, C); None until the task is done."""
        return self.function.result

    def stamps(self) -> TaskStamps:
        """Return the stamps of a finished task, which hold none of its rows."""
        return TaskStamps(tuple(self.stretches), tuple(flight.times for flight in self.flights if flight.times))


@dataclass(frozen=True, slots=True)
class TaskStamps:
    """When a task computed and exchanged.

    Attributes:
        stretches: start and end of each stretch between pulls; a stretch first waits for the pull before it.
        pulls: times of its pulls.
    """

    stretches: tuple[tuple[Stamp, Stamp], ...]
    pulls: tuple[ReadTimes, ...]

    def seconds(self, clock: DeviceClock) -> tuple[list[float], list[float]]:
        """Return the seconds of each computing stretch, and the seconds in flight of each pull."""
        pulls = [read_times() for read_times in self.pulls]
        waited_s = [0.0, *(pull.exposed_s for pull in pulls)]
        # an artificially slow network may have stalled slightly longer than the stamps measured
        compute_s = [
            max(0.0, (clock.ns(end) - clock.ns(start)) * 1e-9 - exposed_s)
            for (start, end), exposed_s in zip(self.stretches, waited_s, strict=True)
        ]
        return compute_s, [pull.in_flight_s for pull in pulls]


class SpatialTasks:
    """Runs the spatial parts of a model in an order that all ranks share.

    Args:
        model: the model.
        clock: clock of the rank's device.
    """

    def __init__(self, model: DynamicModel, clock: DeviceClock) -> None:
        self._clock = clock
        self._parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        names = {id(parameter): name for name, parameter in self._parameters.items()}
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
        """Run every snapshot's task to its end, and return the tasks.

        Args:
            functions: the spatial parts of S snapshots.
            order: number of the task for each turn, the same on every rank. Superfluous turns of a task are skipped;
                tasks that need more turns continue afterwards, by number.
            learning: whether a backward follows.
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
                task.function.abandon()
            raise
        finally:
            for parameters, key, name in self._slots:
                parameters[key] = self._parameters[name]
        return tasks

    def gradients(
        self, tasks: Sequence[SpatialTask], seeds: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> tuple[list[Gradients], list[Tensor | None]]:
        """Run one backward through all tasks; return each task's parameter gradients, and the input gradients.

        Args:
            tasks: S finished tasks.
            seeds: gradient of each task's result.
            inputs: input of each task; one that needs no gradient gets None.
        """
        learning = [
            (task.result, seed)
            for task, seed in zip(tasks, seeds, strict=True)
            if task.result is not None and task.result.requires_grad
        ]
        parameters = [leaf for task in tasks for leaf in task.parameters.values()]
        targets = [*parameters, *(x for x in inputs if x.requires_grad)]
        if not learning:
            return [(None,) * len(self._parameters) for _ in tasks], [None] * len(inputs)
        outputs, grad_outputs = [output for output, _ in learning], [seed for _, seed in learning]
        gradients = iter(torch.autograd.grad(outputs, targets, grad_outputs, allow_unused=True))
        task_gradients: list[Gradients] = [tuple(next(gradients) for _ in self._parameters) for _ in tasks]
        return task_gradients, [next(gradients) if x.requires_grad else None for x in inputs]

    def _lend(self, *, learning: bool) -> dict[str, Tensor]:
        return {name: parameter.detach().requires_grad_(learning) for name, parameter in self._parameters.items()}

    def _turn(self, task: SpatialTask) -> None:
        """Run one stretch: wait for the previous pull if it is in flight, compute, and start the next pull."""
        if task.result is not None:
            return
        start = self._clock.stamp()
        for parameters, key, name in self._slots:
            parameters[key] = task.parameters[name]  # type: ignore[assignment]  # a leaf, but no nn.Parameter
        flight: PendingExchange | None = task.function.resume()
        task.stretches.append((start, self._clock.stamp()))
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
    """Amount of work of one snapshot on this rank.

    Attributes:
        snapshot: its number.
        rows: own nodes in the snapshot.
        edges: edges along which they pull.
        halo: halo rows of a pull; None if it exchanges nothing, as for a decayed snapshot.
    """

    snapshot: int
    rows: int
    edges: int
    halo: int | None


@dataclass(frozen=True, slots=True)
class FinishedTasks:
    """Finished tasks of a layer, by snapshot, with the features and predicted seconds that they were ordered by."""

    layer: int
    sizes: Sequence[TaskSize]
    stamps: Sequence[TaskStamps]
    features: Sequence[NDArray[np.float64]]
    predicted: Sequence[NDArray[np.float64]]


class Pace:
    """Orders the spatial parts of a step, the same on every rank, by predicted times.

    Each rank predicts its own times, and all use the mean over ranks, gathered in one exchange a step. So ranks on
    unequal machines start their exchanges in the same order.

    Args:
        model: the model.
        group: the ranks.
        overlap: whether snapshots compute while exchanges are in flight; else each runs to its end, in time order.
        itemsize: bytes of a number.

    Attributes:
        predictor: predicts the seconds of stretches and exchanges.
        tasks: runs spatial parts in these orders.

    References: FlareDTDG section 3.4.
    Differs from the paper: it orders streams of one GPU and does not say how ranks agree.
    """

    def __init__(self, model: DynamicModel, group: Group, *, overlap: bool, itemsize: int) -> None:
        self._model, self._group, self._overlap, self._itemsize = model, group, overlap, itemsize
        self.predictor = TaskTimePredictor()
        self.tasks = SpatialTasks(model, group.device_clock)
        pulls = [pull.layer for pull in model.facts.along_edges]
        self._pulls = [pulls.count(layer) for layer in range(model.layers)]  # pulls of a full snapshot in the last step
        self._sizes: list[TaskSize] = []
        self._features: list[list[NDArray[np.float64]]] = []
        self._predicted: list[list[NDArray[np.float64]]] = []
        self._orders: list[tuple[int, ...]] = []
        self._finished: list[FinishedTasks] = []

    def begin(self, sizes: Sequence[TaskSize]) -> None:
        """Choose the orders of a step, given its snapshots from the oldest; collective if exchanges overlap."""
        self._sizes = list(sizes)
        self._features = [[self._task(layer, size) for size in sizes] for layer in range(self._model.layers)]
        flat = self.predictor.predict(np.concatenate([task for layer_tasks in self._features for task in layer_tasks]))
        self._predicted = self._by_task(flat)
        agreed = self._by_task(self._mean(flat)) if self._overlap else self._predicted
        rule = early_ready if self._overlap else in_turn
        self._orders = [rule([_times(task) for task in layer_tasks]) for layer_tasks in agreed]

    def order(self, layer: int) -> tuple[int, ...]:
        """Return the task of each turn in a layer."""
        return self._orders[layer]

    def note(self, layer: int, tasks: Sequence[SpatialTask]) -> None:
        """Remember a layer's finished tasks, whose times are read later."""
        for size, task in zip(self._sizes, tasks, strict=True):
            if size.halo is not None:
                self._pulls[layer] = len(task.flights)
        stamps = [task.stamps() for task in tasks]
        self._finished.append(FinishedTasks(layer, self._sizes, stamps, self._features[layer], self._predicted[layer]))

    def forget(self) -> None:
        """Reset the predictor and the records, after steps of a memory probe."""
        self.predictor = TaskTimePredictor()
        self._finished = []

    def drain(self) -> Callable[[], list[TaskRow]]:
        """Forget finished tasks; return a function that reads their times and fits the predictor to them."""
        finished, self._finished = self._finished, []
        return lambda: [row for tasks in finished for row in self._read(tasks)]

    def _read(self, finished: FinishedTasks) -> list[TaskRow]:
        rows, task_features_list, task_seconds = [], [], []
        columns = (finished.sizes, finished.stamps, finished.features, finished.predicted)
        for size, stamps, features, predicted in zip(*columns, strict=True):
            compute_s, communicate_s = stamps.seconds(self._group.device_clock)
            measured = np.array([*compute_s, *communicate_s])
            if len(measured) != len(features):  # the number of pulls has changed since the last step
                continue
            kinds = ["compute"] * len(compute_s) + ["communicate"] * len(communicate_s)
            rows += [
                TaskRow(finished.layer, size.snapshot, kind, float(predicted_s), float(measured_s))
                for kind, predicted_s, measured_s in zip(kinds, predicted, measured, strict=True)
            ]
            task_features_list.append(features)
            task_seconds.append(measured)
        if task_features_list:
            self.predictor.observe(np.concatenate(task_features_list), np.concatenate(task_seconds))
        return rows

    def _task(self, layer: int, size: TaskSize) -> NDArray[np.float64]:
        """Return the features of a task's k + 1 stretches, then of its k exchanges, (2k + 1, 6)."""
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
        """Average all ranks' predictions, summed in rank order, so that the result is bit-equal on every rank."""
        mean: NDArray[np.float64] = self._group.gather_on_host(torch.from_numpy(predictions)).numpy().mean(axis=0)
        return mean


def _times(task: NDArray[np.float64]) -> TaskTimes:
    pulls = len(task) // 2
    return TaskTimes(tuple(task[: pulls + 1].tolist()), tuple(task[pulls + 1 :].tolist()))


_PAIRS = 3
TRIED = (False, *(False, True) * _PAIRS)  # whether exchanges overlap in the first epochs; the first warms up
_LEAST_GAIN = 0.97  # highest ratio of median times that counts as a gain: three epochs each are noisy


class OverlapTrial:
    """Times the first epochs alternately without and with overlap. Losses are bit-equal either way.

    The slowest rank sets the time of an epoch. Exchanges overlap if the median epoch with overlap took less than
    97 % of the median epoch without, so one disturbed epoch of each kind does not matter. All ranks choose the same.

    Args:
        group: the ranks.
        device: device of tensors that are sent.

    Attributes:
        on: whether exchanges overlap in the next epoch.
        chosen: the choice and both medians; None during the trial.
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
        """Start the next epoch of the trial, or choose after the last one, which is collective."""
        if len(self._epochs_s) < len(TRIED):
            self.on = TRIED[len(self._epochs_s)]
            self._epochs_s.append(0.0)
            return
        texts = gather_texts(self._group, " ".join(map(repr, self._epochs_s)), device=self._device)
        slowest = np.array([text.split() for text in texts], dtype=np.float64).max(axis=0)
        off_s, on_s = float(np.median(slowest[1::2])), float(np.median(slowest[2::2]))
        self.choose(OverlapChosen(on_s < _LEAST_GAIN * off_s, off_s, on_s))

    def choose(self, choice: OverlapChosen) -> None:
        """End the trial with the measured choice, or with the choice of a replayed run."""
        self.chosen, self.on = choice, choice.on
