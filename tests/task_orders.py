"""What an order of turns comes to by the times of its tasks: the simulation that tests compare orders in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dtdg_lab.core.errors import PlanError
from dtdg_lab.engine.exchange.task_order import TaskClock, TaskTimes

_MOST_ORDERS = 200_000  # that best_order tries, in a few seconds


@dataclass(frozen=True, slots=True)
class OrderTimes:
    """Seconds of one order on one rank.

    Attributes:
        total_s: until the last turn ends.
        computed_s: of it computed.
        exposed_s: of it waited for exchanges; the two sum to the total.
        in_flight_s: sum of all exchanges, which the blocking order waits for in full.
    """

    total_s: float
    computed_s: float
    exposed_s: float
    in_flight_s: float


def play(tasks: Sequence[TaskTimes], order: Sequence[int], *, one_link: bool = False) -> OrderTimes:
    """Let the tasks go on in the given order.

    Args:
        tasks: their times.
        order: a task's number for each turn, as of :func:`~dtdg_lab.engine.exchange.task_order.early_ready`.
        one_link: exchanges go one after another, else side by side.

    Raises:
        PlanError: the order does not have each task as often as it has stretches.
    """
    clock = TaskClock(tasks, one_link=one_link)
    for number in order:
        clock.turn(number)
    if left := clock.unfinished():
        raise PlanError(f"the order ends before tasks {left}: it must have each task as often as it has stretches.")
    in_flight = sum(sum(task.communicate_s) for task in tasks)
    return OrderTimes(clock.now_s, clock.computed_s, clock.waited_s, in_flight)


def bound_s(tasks: Sequence[TaskTimes]) -> float:
    """Seconds below which no order can end: all computing, or the longest task with its exchanges."""
    computing = sum(sum(task.compute_s) for task in tasks)
    return max([computing, *(sum(task.compute_s) + sum(task.communicate_s) for task in tasks)])


def best_order(tasks: Sequence[TaskTimes], *, one_link: bool = False) -> tuple[tuple[int, ...], OrderTimes]:
    """The order that ends first, of all there are, and its times; of equal ones the first by task numbers.

    For small cases, to judge rules by: their number grows with the factorial of the turns.

    Raises:
        PlanError: there are more than 200,000 orders.
    """
    turns = [task.pulls + 1 for task in tasks]
    orders = math.factorial(sum(turns))
    for count in turns:
        orders //= math.factorial(count)
    if orders > _MOST_ORDERS:
        raise PlanError(
            f"{len(turns)} tasks have {orders:,} orders; {_MOST_ORDERS:,} are tried at most. Give fewer tasks or "
            "fewer pulls."
        )
    best: tuple[int, ...] = ()
    least = math.inf
    for order in _orders(turns):
        total = play(tasks, order, one_link=one_link).total_s
        if total < least:
            best, least = order, total
    return best, play(tasks, best, one_link=one_link)


def _orders(turns: list[int]) -> Iterator[tuple[int, ...]]:
    if not any(turns):
        yield ()
    for number, count in enumerate(turns):
        if count:
            rest = [each - (place == number) for place, each in enumerate(turns)]
            for order in _orders(rest):
                yield (number, *order)
