"""Orders of turns on any times: every task keeps its sequence, and all ranks start the same exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.engine.exchange.task_order import TaskTimes, early_ready, in_turn
from tests.task_orders import best_order, bound_s, play

seconds = st.floats(0.0, 1e3, allow_subnormal=False) | st.integers(0, 3).map(float)  # many ties


def shapes(most: int, pulls: int) -> Any:
    return st.lists(st.integers(0, pulls), min_size=0, max_size=most)


@st.composite
def times(draw: Any, pulls: list[int]) -> list[TaskTimes]:
    return [
        TaskTimes(
            draw(st.lists(seconds, min_size=count + 1, max_size=count + 1)),
            draw(st.lists(seconds, min_size=count, max_size=count)),
        )
        for count in pulls
    ]


@st.composite
def told_and_true(draw: Any) -> tuple[list[TaskTimes], list[TaskTimes]]:
    """Times of the same tasks as predicted and as they are, which need not agree in anything."""
    pulls = draw(shapes(8, 3))
    return draw(times(pulls)), draw(times(pulls))


def coroutine(number: int, pulls: int, did: list[tuple[str, int, int]]) -> Iterator[None]:
    """A task as a layout runs it: it computes, starts an exchange, gives way, and ends the exchange when it goes on."""
    for turn in range(pulls + 1):
        if turn:
            did.append(("end", number, turn - 1))
        did.append(("compute", number, turn))
        if turn < pulls:
            did.append(("start", number, turn))
        yield


def run(tasks: list[TaskTimes], order: tuple[int, ...]) -> list[tuple[str, int, int]]:
    did: list[tuple[str, int, int]] = []
    running = [coroutine(number, task.pulls, did) for number, task in enumerate(tasks)]
    for number in order:
        next(running[number])
    return did


@given(told_and_true(), st.booleans())
def test_every_task_keeps_its_sequence_and_does_all_of_it(
    both: tuple[list[TaskTimes], list[TaskTimes]], one_link: bool
) -> None:
    described, _ = both
    did, one_by_one = run(described, early_ready(described, one_link=one_link)), run(described, in_turn(described))
    assert sorted(did, key=lambda each: each[1]) == one_by_one  # a stable sort: what each task did, in its sequence
    assert len(one_by_one) == sum(3 * task.pulls + 1 for task in described)


@given(told_and_true(), st.booleans())
def test_an_order_of_wrong_predictions_still_ends(
    both: tuple[list[TaskTimes], list[TaskTimes]], one_link: bool
) -> None:
    """All ranks start the same exchanges in one sequence, and no exchange waits for a later one: nothing can lock."""
    described, true = both
    order = early_ready(described, one_link=one_link)
    found = play(true, order, one_link=one_link)
    assert found.total_s == pytest.approx(found.computed_s + found.exposed_s)
    assert found.total_s >= bound_s(true) * (1 - 1e-9)
    started = set()
    for what, number, turn in run(described, order):
        if what == "start":
            started.add((number, turn))
        assert what != "end" or (number, turn) in started


@given(st.data(), st.booleans())
def test_it_never_ends_later_than_the_blocking_order(data: Any, one_link: bool) -> None:
    """A rank waits only while an exchange is in flight, so no longer than all of them take; the blocking order does."""
    tasks = data.draw(times(data.draw(shapes(8, 3))))
    early, blocking = (
        play(tasks, order, one_link=one_link) for order in (early_ready(tasks, one_link=one_link), in_turn(tasks))
    )
    assert early.total_s <= blocking.total_s * (1 + 1e-9)
    assert blocking.exposed_s == pytest.approx(blocking.in_flight_s)


@given(st.data(), st.booleans())
def test_it_is_never_better_than_the_best_of_all_orders(data: Any, one_link: bool) -> None:
    tasks = data.draw(times(data.draw(shapes(3, 2))))
    order, best = best_order(tasks, one_link=one_link)
    assert sorted(order) == sorted(in_turn(tasks))
    early = play(tasks, early_ready(tasks, one_link=one_link), one_link=one_link)
    assert bound_s(tasks) * (1 - 1e-9) <= best.total_s <= early.total_s * (1 + 1e-9)
