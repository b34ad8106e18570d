"""Spatial and temporal tasks of a step, with exchanges overlapped by computation."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.distributed.group import Group, gather_texts
from dtdg_lab.engine.backprop.gradients import Gradients
from dtdg_lab.engine.halo_exchange import PendingExchange
from dtdg_lab.engine.turns import PausableFunction, Worker
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.records.events import OverlapChosen

# When the stretches and exchanges of interleaved tasks begin and end: the clock that orders of turns are judged by.


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """Seconds of one task, such as a snapshot's forward: stretches of computing with an exchange between each two.

    Attributes:
        compute_s: (k+1,) of each stretch, before, between and after the pulls.
        communicate_s: (k,) of each pull's exchange, from its start to its arrival.

    Raises:
        PlanError: there is not one stretch more than pulls, or a time is negative or not finite.
    """

    compute_s: tuple[float, ...]
    communicate_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "compute_s", _seconds(self.compute_s))
        object.__setattr__(self, "communicate_s", _seconds(self.communicate_s))
        if len(self.compute_s) != len(self.communicate_s) + 1:
            raise PlanError(
                f"a task of {len(self.compute_s)} stretches and {len(self.communicate_s)} pulls: give one stretch more "
                "than pulls, of 0 s where nothing is computed."
            )

    @property
    def pulls(self) -> int:
        """Exchanges of the task, k; it takes k + 1 turns."""
        return len(self.communicate_s)


def _seconds(given: Iterable[float]) -> tuple[float, ...]:
    seconds = tuple(float(each) for each in given)
    if not all(0 <= each < math.inf for each in seconds):  # NaN is in no range
        raise PlanError(f"times of a task are {seconds}: they must be finite and at least 0 s.")
    return seconds


class TaskClock:
    """One rank that computes turns of tasks one after another, while exchanges that it started go on by themselves.

    A task's turn waits for the pull before it if that has not arrived, computes a stretch and starts the next pull.

    Args:
        tasks: their times.
        one_link: exchanges go one after another in the order they are started, as where bandwidth is what is short;
            otherwise side by side, as where each waits for answers.
    """

    def __init__(self, tasks: Sequence[TaskTimes], *, one_link: bool = False) -> None:
        self.now_s = 0.0
        self.computed_s = 0.0
        self.waited_s = 0.0
        self._tasks = tasks
        self._one_link = one_link
        self._link_free_s = 0.0
        self._turns = [0] * len(tasks)
        self._ready_s = [0.0] * len(tasks)

    def left(self) -> list[int]:
        """Numbers of the tasks that have turns left."""
        return [number for number, task in enumerate(self._tasks) if self._turns[number] <= task.pulls]

    def ready_s(self, number: int) -> float:
        """When the task's next turn can go without waiting: 0 at first, then the arrival of its pull."""
        return self._ready_s[number]

    def next_pull_s(self, number: int) -> float | None:
        """Seconds of the exchange that the task's next turn starts; None where it starts none."""
        task, turn = self._tasks[number], self._turns[number]
        return task.communicate_s[turn] if turn < task.pulls else None

    def wait_until(self, seconds: float) -> None:
        """Stand still until ``seconds``, unless it is later already."""
        self.waited_s += max(0.0, seconds - self.now_s)
        self.now_s = max(self.now_s, seconds)

    def turn(self, number: int) -> None:
        """Let the task have its next turn.

        Raises:
            PlanError: there is no such task, or it has no turn left.
        """
        if not 0 <= number < len(self._tasks) or self._turns[number] > self._tasks[number].pulls:
            raise PlanError(
                f"task {number} has no turn left, of {len(self._tasks)} tasks from 0 on: an order has each task as "
                "often as it has stretches."
            )
        stretch, pull_s = self._tasks[number].compute_s[self._turns[number]], self.next_pull_s(number)
        self.wait_until(self._ready_s[number])
        self.now_s += stretch
        self.computed_s += stretch
        self._turns[number] += 1
        if pull_s is not None:
            start_s = max(self.now_s, self._link_free_s) if self._one_link else self.now_s
            self._ready_s[number] = self._link_free_s = start_s + pull_s


# In which order tasks that compute and exchange in turns go on: what is ready early and exchanges shortly, first.


def early_ready(tasks: Sequence[TaskTimes], *, one_link: bool = False) -> tuple[int, ...]:
    """Which task runs next, by the rule Early-Ready & Short-Comm.

    The times are played through. Of the tasks that are ready and have pulls left, the one that was ready first runs;
    ties go to the shorter next exchange. Where none is, a task that only computes runs, which hides the exchanges in
    flight; where nothing is ready, the rank waits for what arrives next. Equal tasks go by number. The same times give
    the same order on every rank, whatever really takes how long: an order can be slow, and cannot lock, since each rank
    starts the same exchanges one after another.

    Args:
        tasks: seconds of each, as predicted.
        one_link: how exchanges are taken to share the wire, as :class:`~dtdg_lab.engine.async_overlap.TaskClock`.

    Returns:
        A task's number for each turn; a task of k pulls is there k + 1 times, in the order of its stretches.

    References: FlareDTDG section 3.4, priority (t_ready, t_comm).
    Differs from the paper: it orders sets of an exchange and what depends on it, and does not say where work without
    exchanges stands; here it comes when no exchange can be started.
    """
    clock, order = TaskClock(tasks, one_link=one_link), []
    while left := clock.left():
        ready = [number for number in left if clock.ready_s(number) <= clock.now_s]
        if not ready:
            clock.wait_until(min(clock.ready_s(number) for number in left))
            continue
        number = min(ready, key=lambda each: _place(clock, each))
        clock.turn(number)
        order.append(number)
    return tuple(order)


def _place(clock: TaskClock, number: int) -> tuple[bool, float, float, int]:
    pull_s = clock.next_pull_s(number)
    return pull_s is None, clock.ready_s(number), pull_s or 0.0, number


def in_turn(tasks: Sequence[TaskTimes]) -> tuple[int, ...]:
    """The blocking order: one task after another, each to its end."""
    return tuple(number for number, task in enumerate(tasks) for _ in task.compute_s)


# Seconds of computing stretches and exchanges from their sizes: a small network that learns while training runs.


Vector = NDArray[np.float64]
KINDS = ("compute", "communicate")
FEATURES = ("rows", "edges", "width", "bytes", *KINDS)  # the last two: 1 in that of its kind, 0 in the other

COMPUTE_PRIOR_S = (5e-5, 1e-9)  # of a stretch, and of each number of its rows and edges times its width
COMMUNICATE_PRIOR_S = (2e-4, 1e-9)  # of an exchange, and of each byte: 1 GB/s

_HIDDEN = 16
_KEPT = 512  # observations that are learned from again
_BATCH = 64
_UPDATES = 2  # of the network for each call of observe
_EARLY_UPDATES, _EARLY_CALLS = 8, 64  # more of them in the first calls: the prior is of no machine
_LEARNING_RATE = 0.02
_BETAS, _EPSILON = (0.9, 0.99), 1e-8
_CENTRE = np.array([8.0, 8.0, 4.0, 12.0, 0.0, 0.0])  # about what log(1 + size) is, and its spread
_SPREAD = np.array([4.0, 4.0, 2.0, 4.0, 1.0, 1.0])
_LEAST_S = 1e-7  # clock resolution: shorter times count as this
_FARTHEST = 12.0  # most that the network moves the logarithm of a prior, a factor of 160,000


def task_features(
    kind: str, *, rows: float = 0.0, edges: float = 0.0, width: float = 0.0, sent_bytes: float = 0.0
) -> tuple[float, ...]:
    """One row for :class:`TaskTimePredictor`, (6,).

    Args:
        kind: ``compute`` or ``communicate``.
        rows: of nodes that the stretch computes, or the exchange brings.
        edges: that the stretch aggregates over.
        width: numbers of a row.
        sent_bytes: of the exchange.

    Raises:
        PlanError: there is no such kind.
    """
    if kind not in KINDS:
        raise PlanError(f"a task of kind {kind!r}: the kinds are {', '.join(KINDS)}.")
    return (rows, edges, width, sent_bytes, float(kind == KINDS[0]), float(kind == KINDS[1]))


class TaskTimePredictor:
    """A network of one hidden layer of 16 that corrects a prior, in logarithms; it learns from what tasks took.

    Before any observation a prediction is the prior: 50 µs and 1 ns for each of (rows + edges) times width, or 200 µs
    and 1 ns a byte. It learns by Adam on the newest 512 observations, two updates a call and more in the first calls;
    one that took far longer than predicted pulls no harder than one a factor of e off.

    Args:
        seed: of the first weights and of the observations drawn in each update.

    References: FlareDTDG section 3.4.
    Differs from the paper: the loss is Huber's, of the logarithm of seconds, where the paper has the mean squared
    error of seconds; its sizes, features and prior are not specified; they are ours.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = int(seed)
        self._calls = 0
        self._updates = 0
        first = generator(self._seed, "task_times/weights").normal(size=(len(FEATURES) + 1) * _HIDDEN)
        self._weights = np.zeros(len(first) + _HIDDEN + 1)  # the last layer starts at zero: no correction
        self._weights[: len(first)] = first / np.sqrt(len(FEATURES))
        self._means = np.zeros((2, len(self._weights)))  # of gradients and of their squares
        self._kept = np.zeros((_KEPT, len(FEATURES) + 1))  # a ring: scaled features, logarithm of seconds over prior
        self._seen = 0  # observations so far
        self._errors: deque[tuple[str, float]] = deque(maxlen=_KEPT)  # kind, relative error

    def predict(self, features: ArrayLike) -> Vector:
        """Seconds of each task, (n,).

        Args:
            features: (n, 6), by :data:`FEATURES`; rows of :func:`task_features`.

        Raises:
            PlanError: they have another shape, hold a negative or infinite size, or name no kind.
        """
        rows = _checked(features)
        return self._seconds(_scaled(rows), _log_prior(rows))

    def observe(self, features: ArrayLike, seconds: ArrayLike) -> None:
        """Learn what tasks took.

        Args:
            features: (n, 6), as of :meth:`predict`.
            seconds: (n,); below 0.1 µs they count as this.

        Raises:
            PlanError: the two do not fit, or a time is negative or not finite.
        """
        rows, took = _checked(features), np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        if took.shape != (len(rows),) or not np.isfinite(took).all() or (took < 0).any():
            raise PlanError(
                f"times of shape {took.shape} for {len(rows)} tasks: give each task one time, finite and at least 0 s. "
                "Leave out tasks that were not timed."
            )
        if not len(rows):
            return
        took, scaled, prior = np.maximum(took, _LEAST_S), _scaled(rows), _log_prior(rows)
        errors = np.abs(self._seconds(scaled, prior) - took) / took
        kinds = [KINDS[int(each)] for each in rows[:, 5]]
        self._errors.extend(zip(kinds, errors.tolist(), strict=True))
        newest = np.column_stack([scaled, np.log(took) - prior])[-_KEPT:]
        self._seen += len(rows)
        self._kept[np.arange(self._seen - len(newest), self._seen) % _KEPT] = newest
        self._learn()

    def error(self, kind: str | None = None) -> float | None:
        """Median of |predicted - took| / took over the newest 512 observations; None where there are none.

        Each was predicted before it was learned from. ``kind`` asks for the tasks of one kind alone.
        """
        found = [error for its, error in self._errors if kind in (None, its)]
        return float(np.median(found)) if found else None

    def state_dict(self) -> dict[str, Any]:
        """All that the next predictions and updates follow from, in plain numbers, texts and lists."""
        return {
            "seed": self._seed,
            "calls": self._calls,
            "updates": self._updates,
            "weights": self._weights.tolist(),
            "means": self._means.tolist(),
            "seen": self._seen,
            "kept": self._kept[: self._seen].tolist(),
            "errors": [list(each) for each in self._errors],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of :meth:`state_dict`.

        Raises:
            PlanError: its weights are of a network of another shape.
        """
        weights, means = np.array(state["weights"], dtype=np.float64), np.array(state["means"], dtype=np.float64)
        if weights.shape != self._weights.shape or means.shape != self._means.shape:
            raise PlanError(
                f"a state of {weights.size} weights for a network of {self._weights.size}: it is another version's. "
                "Start a new predictor."
            )
        self._seed, self._calls = int(state["seed"]), int(state["calls"])
        self._updates, self._seen = int(state["updates"]), int(state["seen"])
        self._weights, self._means = weights, means
        kept = np.array(state["kept"], dtype=np.float64).reshape(-1, len(FEATURES) + 1)
        self._kept[: len(kept)] = kept
        self._errors = deque(((str(kind), float(error)) for kind, error in state["errors"]), maxlen=_KEPT)

    def _layers(self, flat: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """Views of one flat vector: (6, 16) and (16,) of the hidden layer, (16,) and (1,) of the last."""
        inner = len(FEATURES) * _HIDDEN
        hidden = flat[:inner].reshape(len(FEATURES), _HIDDEN)
        return hidden, flat[inner : inner + _HIDDEN], flat[inner + _HIDDEN : -1], flat[-1:]

    def _seconds(self, scaled: Vector, prior: Vector) -> Vector:
        return np.exp(prior + np.clip(self._correction(scaled)[1], -_FARTHEST, _FARTHEST))

    def _correction(self, scaled: Vector) -> tuple[Vector, Vector]:
        """Hidden activations (n, 16) and what is added to the logarithm of the prior, (n,)."""
        hidden, hidden_bias, last, last_bias = self._layers(self._weights)
        active = np.tanh(scaled @ hidden + hidden_bias)
        return active, active @ last + last_bias

    def _learn(self) -> None:
        count = _EARLY_UPDATES if self._calls < _EARLY_CALLS else _UPDATES
        draws = generator(self._seed, "task_times/replay", self._calls)
        for batch in draws.integers(min(self._seen, _KEPT), size=(count, _BATCH)):
            drawn = self._kept[batch]
            self._update(drawn[:, :-1], drawn[:, -1])
        self._calls += 1

    def _update(self, scaled: Vector, target: Vector) -> None:
        """One step of Adam on a batch: (n, 6) scaled features, (n,) logarithms of seconds over prior."""
        active, found = self._correction(scaled)
        off = np.clip(found - target, -1.0, 1.0) / len(target)  # gradient of Huber's loss
        gradient = np.empty_like(self._weights)
        hidden, hidden_bias, last, last_bias = self._layers(gradient)
        inner = off[:, None] * self._layers(self._weights)[2] * (1 - active**2)
        hidden[:], hidden_bias[:] = scaled.T @ inner, inner.sum(axis=0)
        last[:], last_bias[:] = off @ active, off.sum()
        self._updates += 1
        mean, square = self._means
        mean += (1 - _BETAS[0]) * (gradient - mean)
        square += (1 - _BETAS[1]) * (gradient**2 - square)
        step = _LEARNING_RATE / (1 - _BETAS[0] ** self._updates)
        scale = np.sqrt(square / (1 - _BETAS[1] ** self._updates)) + _EPSILON
        self._weights -= step * mean / scale


def _checked(features: ArrayLike) -> Vector:
    rows = np.asarray(features, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(FEATURES):
        raise PlanError(f"features of shape {rows.shape}: give (n, {len(FEATURES)}), {', '.join(FEATURES)} a task.")
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise PlanError("sizes of tasks must be finite and at least 0: see task_features.")
    if not ((rows[:, 4] + rows[:, 5] == 1) & (rows[:, 4] * rows[:, 5] == 0)).all():
        raise PlanError(f"each task is of one kind, {' or '.join(KINDS)}: 1 in its column and 0 in the other.")
    return rows


def _scaled(rows: Vector) -> Vector:
    """(n, 6): logarithms of sizes about -2 to 2, and the kinds as they are."""
    return (np.concatenate([np.log1p(rows[:, :4]), rows[:, 4:]], axis=1) - _CENTRE) / _SPREAD


def _log_prior(rows: Vector) -> Vector:
    computing = COMPUTE_PRIOR_S[0] + COMPUTE_PRIOR_S[1] * (rows[:, 0] + rows[:, 1]) * rows[:, 2]
    sending = COMMUNICATE_PRIOR_S[0] + COMMUNICATE_PRIOR_S[1] * rows[:, 3]
    return np.log(np.where(rows[:, 5] == 1, sending, computing))


# Spatial parts of snapshots: while the exchange of one travels, another one computes.
#
# Parameters are lent to each snapshot as leaves of its own, so that gradients are summed in the order of snapshots,
# whatever the order in which they were computed: overlap changes no bit.


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
        wanted = [*lent, *(x for x in inputs if x.requires_grad)]
        if not learning:
            return [(None,) * len(self._learned) for _ in tasks], [None] * len(inputs)
        ends, of_ends = [end for end, _ in learning], [seed for _, seed in learning]
        found = iter(torch.autograd.grad(ends, wanted, of_ends, allow_unused=True))
        of_tasks: list[Gradients] = [tuple(next(found) for _ in self._learned) for _ in tasks]
        return of_tasks, [next(found) if x.requires_grad else None for x in inputs]

    def _lend(self, *, learning: bool) -> dict[str, Tensor]:
        return {name: of.detach().requires_grad_(learning) for name, of in self._learned.items()}

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


# Whether exchanges overlap with computing at all: epochs are timed both ways, in turn.


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
        """A step of the current epoch took so long."""
        self._epochs_s[-1] += seconds

    def end_epoch(self) -> None:
        """Go on to the next epoch, or choose; the last is collective."""
        if len(self._epochs_s) < len(TRIED):
            self.on = TRIED[len(self._epochs_s)]
            self._epochs_s.append(0.0)
            return
        described = gather_texts(self._group, " ".join(map(repr, self._epochs_s)), device=self._device)
        slowest = np.array([text.split() for text in described], dtype=np.float64).max(axis=0)
        off_s, on_s = float(np.median(slowest[1::2])), float(np.median(slowest[2::2]))
        self.choose(OverlapChosen(on_s < _LEAST_GAIN * off_s, off_s, on_s))

    def choose(self, chosen: OverlapChosen) -> None:
        """End the trial with a choice: the measured one, or that of a run which is replayed."""
        self.chosen, self.on = chosen, chosen.on


# In which order a step's snapshots go on, on all ranks: by what stretches and exchanges are predicted to take.


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
        seed: of the predictor.
        itemsize: bytes of a number.

    Attributes:
        predictor: of the seconds of stretches and exchanges.
        tasks: runs spatial parts in these orders.

    References: FlareDTDG section 3.4.
    Differs from the paper: it orders streams of one GPU and does not say how ranks agree. On a GPU a stretch is timed
        until it is launched, since waiting for it would undo the overlap.
    """

    def __init__(self, model: DynamicModel, group: Group, *, overlap: bool, seed: int, itemsize: int) -> None:
        self._model, self._group, self._overlap, self._itemsize = model, group, overlap, itemsize
        self._seed = seed
        self.predictor = TaskTimePredictor(seed)
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
                TaskRow(layer, size.snapshot, kind, float(thought), float(was))
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
