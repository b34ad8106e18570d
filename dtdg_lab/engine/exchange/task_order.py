"""Order of tasks that compute and exchange in turns, and the clock that orders are judged by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dtdg_lab.core.errors import PlanError


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


def _seconds(times: Iterable[float]) -> tuple[float, ...]:
    seconds = tuple(float(time) for time in times)
    if not all(0 <= time < math.inf for time in seconds):  # NaN is in no range
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
        """Return when the task's next turn can go without waiting: 0 at first, then the arrival of its pull."""
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


def early_ready(tasks: Sequence[TaskTimes], *, one_link: bool = False) -> tuple[int, ...]:
    """Choose the task that runs next, by the rule Early-Ready & Short-Comm.

    The times are played through. Of the tasks that are ready and have pulls left, the one that was ready first runs;
    ties go to the shorter next exchange. Where none is, a task that only computes runs, which hides the exchanges in
    flight; where nothing is ready, the rank waits for what arrives next. Equal tasks go by number. The same times give
    the same order on every rank, whatever really takes how long: an order can be slow, and cannot lock, since each rank
    starts the same exchanges one after another.

    Args:
        tasks: seconds of each, as predicted.
        one_link: how exchanges are taken to share the wire, as :class:`~dtdg_lab.engine.exchange.task_order.TaskClock`.

    Returns:
        A task's number for each turn; a task of k pulls is there k + 1 times, in the order of its stretches.

    References: FlareDTDG section 3.4, priority (t_ready, t_comm).
    Differs from the paper: it orders sets of an exchange and what depends on it, and does not say where work without
    exchanges stands; here it comes when no exchange can be started.
    """
    clock, order = TaskClock(tasks, one_link=one_link), []
    while remaining := clock.left():
        ready = [number for number in remaining if clock.ready_s(number) <= clock.now_s]
        if not ready:
            clock.wait_until(min(clock.ready_s(number) for number in remaining))
            continue
        number = min(ready, key=lambda task: _place(clock, task))
        clock.turn(number)
        order.append(number)
    return tuple(order)


def _place(clock: TaskClock, number: int) -> tuple[bool, float, float, int]:
    pull_s = clock.next_pull_s(number)
    return pull_s is None, clock.ready_s(number), pull_s or 0.0, number


def in_turn(tasks: Sequence[TaskTimes]) -> tuple[int, ...]:
    """Return the blocking order: one task after another, each to its end."""
    return tuple(number for number, task in enumerate(tasks) for _ in task.compute_s)
