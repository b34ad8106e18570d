"""In which order tasks that compute and exchange in turns go on: what is ready early and exchanges shortly, first."""

from __future__ import annotations

from collections.abc import Sequence

from dtdg_lab.scheduling.task_clock import TaskClock, TaskTimes

__all__ = ["TaskTimes", "early_ready", "in_turn"]


def early_ready(tasks: Sequence[TaskTimes], *, one_link: bool = False) -> tuple[int, ...]:
    """Which task goes on next, by the rule Early-Ready & Short-Comm.

    The times are played through. Of the tasks that are ready and have pulls left, the one that was ready first goes
    on, of equal ones that with the shorter next exchange; where none is, one that only computes, so that what is in
    flight has something to hide behind; where nothing is ready, the rank waits for what arrives next. Equal tasks go
    by number. The same times give the same order on every rank, whatever really takes how long: an order can be slow,
    and cannot lock, since each rank starts the same exchanges one after another.

    Args:
        tasks: seconds of each, as predicted.
        one_link: how exchanges are taken to share the wire, as :class:`~dtdg_lab.scheduling.task_clock.TaskClock`.

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
