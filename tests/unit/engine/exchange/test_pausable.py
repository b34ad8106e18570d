"""Functions that are left where an exchange begins, and taken up again in the same thread."""

from __future__ import annotations

import threading

import pytest
import torch

from dtdg_lab.engine.exchange.pausable import PausableFunction, Worker, pause


class Flight:
    """Stands for an exchange: only its identity counts."""


def adds(steps: list[str], name: str, flights: list[Flight]):
    """Return a function that notes its steps and pauses at each flight."""

    def run() -> torch.Tensor:
        for flight in flights:
            steps.append(f"{name}{threading.get_ident()}")
            pause(flight)
        return torch.ones(1)

    return run


def test_functions_go_on_in_the_order_they_are_resumed_in_one_thread():
    steps, flights, workers = [], [Flight() for _ in range(4)], []
    first = PausableFunction(adds(steps, "a", flights[:2]), workers)
    second = PausableFunction(adds(steps, "b", flights[2:]), workers)
    assert first.resume() is flights[0]
    assert second.resume() is flights[2]
    assert second.resume() is flights[3]
    assert second.resume() is None
    assert first.resume() is flights[1]
    assert first.result is None
    assert first.resume() is None
    assert [step[0] for step in steps] == ["a", "b", "b", "a"]
    assert {step[1:] for step in steps} == {str(threading.get_ident())}
    assert first.result is not None and second.result is not None


def test_a_worker_is_used_again():
    workers: list[Worker] = []
    for _ in range(3):
        assert PausableFunction(adds([], "a", []), workers).resume() is None
        assert len(workers) == 1


def test_an_error_is_raised_where_the_function_is_resumed():
    def fails() -> torch.Tensor:
        pause(Flight())
        raise ValueError("no rows")

    workers: list[Worker] = []
    turns = PausableFunction(fails, workers)
    turns.resume()
    with pytest.raises(ValueError, match="no rows"):
        turns.resume()
    assert len(workers) == 1


def test_a_function_that_is_abandoned_ends_and_frees_its_worker():
    left = []

    def cleans_up() -> torch.Tensor:
        try:
            pause(Flight())
        finally:
            left.append(True)
        return torch.ones(1)

    workers: list[Worker] = []
    turns = PausableFunction(cleans_up, workers)
    turns.resume()
    turns.abandon()
    assert left == [True]
    assert PausableFunction(adds([], "a", []), workers).resume() is None  # the worker still works
    assert len(workers) == 1


def test_a_pause_does_nothing_alone_or_under_another_mode():
    pause(Flight())  # no function runs in turns

    def under_no_grad() -> torch.Tensor:
        with torch.no_grad():
            pause(Flight())
        return torch.ones(1)

    turns = PausableFunction(under_no_grad, [])
    assert turns.resume() is None  # to its end: others would have computed without gradients
    assert torch.is_grad_enabled()


def test_backward_runs_in_the_reverse_of_the_order_of_forward():
    order = []

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, name):
            ctx.name = name
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            order.append(ctx.name)
            return gradient, None

    x = torch.ones(1, requires_grad=True)

    def made(name: str):
        def run() -> torch.Tensor:
            y = Noted.apply(x, f"{name}0")
            pause(Flight())
            return Noted.apply(y, f"{name}1")

        return PausableFunction(run, [])

    tasks = [made("a"), made("b")]
    for number in (0, 1, 1, 0):
        tasks[number].resume()
    (tasks[0].result + tasks[1].result).backward()
    assert order == ["a1", "b1", "b0", "a0"]
