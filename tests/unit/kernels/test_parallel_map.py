"""Work of several threads at once: results in order, threads of torch given back, memory of all together."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from dtdg_lab.engine.backprop.gradients import LearnedParameters, defer_gradients
from dtdg_lab.kernels.parallel_map import MemoryLedger, _stream, concurrent_map, parallel_map
from dtdg_lab.training.memory import peak_bytes


@pytest.fixture(params=[1, 3, 6])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Threads of torch, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    assert torch.get_num_threads() == request.param
    torch.set_num_threads(before)


def test_items_run_at_once_with_their_share_of_the_threads(threads: int) -> None:
    meeting = threading.Barrier(3, timeout=20)

    def work(item: int) -> tuple[int, int]:
        meeting.wait()
        return item, torch.get_num_threads()

    share = max(1, threads // 3)
    assert concurrent_map(work, [5, 3, 4], device="cpu") == [(5, share), (3, share), (4, share)]


def test_an_error_is_raised_and_threads_are_given_back(threads: int) -> None:
    def work(item: int) -> int:
        if item == 1:
            raise ValueError("no")
        return item

    with pytest.raises(ValueError, match="no"):
        concurrent_map(work, range(3), device="cpu")


def test_a_single_item_runs_in_the_calling_thread() -> None:
    assert concurrent_map(lambda _: threading.current_thread(), [0], device="cpu") == [threading.current_thread()]


def test_the_probe_of_memory_adds_the_peaks_of_all_items() -> None:
    def work(numbers: int) -> torch.Tensor:
        scratch = torch.ones(numbers, dtype=torch.float64)
        return scratch.sum()

    def step() -> None:
        concurrent_map(work, [1000, 3000], device="cpu")

    assert peak_bytes(step) == pytest.approx(8 * 4000, abs=100)


def test_an_earlier_peak_outlasts_that_of_the_items() -> None:
    def step() -> None:
        torch.ones(9000, dtype=torch.float64).sum()
        concurrent_map(lambda numbers: torch.ones(numbers).sum(), [10, 30], device="cpu")

    assert peak_bytes(step) == pytest.approx(8 * 9000, abs=100)


class _Stream:
    """A stream that notes what it waits for."""

    def __init__(self, name: str, waits: list[tuple[str, str]]) -> None:
        self.name, self.waits = name, waits

    def wait_stream(self, other: _Stream) -> None:
        self.waits.append((self.name, other.name))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """A pretend GPU: which stream waited for which, in order."""
    waits: list[tuple[str, str]] = []
    numbers, current = itertools.count(1), threading.local()
    main = _Stream("main", waits)

    @contextmanager
    def stream(chosen: _Stream) -> Iterator[None]:
        current.stream = chosen
        yield
        del current.stream

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: getattr(current, "stream", main))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: _Stream(f"side {next(numbers)}", waits))
    monkeypatch.setattr(torch.cuda, "stream", stream)
    _stream.cache_clear()
    yield waits
    _stream.cache_clear()


def test_items_of_a_gpu_have_streams_between_earlier_and_later_work(waits: list[tuple[str, str]]) -> None:
    meeting = threading.Barrier(2, timeout=20)

    def work(item: int) -> tuple[int, str]:
        meeting.wait()
        return item, torch.cuda.current_stream("cuda:0").name  # type: ignore[attr-defined]

    for _ in range(2):  # the second time on the same streams
        assert concurrent_map(work, [7, 8], device="cuda:0") == [(7, "side 1"), (8, "side 2")]
        assert waits == [("side 1", "main"), ("side 2", "main"), ("main", "side 1"), ("main", "side 2")]
        waits.clear()


def test_deferred_gradients_are_added_in_order_once() -> None:
    parameter = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    learned = LearnedParameters(torch.nn.ParameterList([parameter]))
    with defer_gradients() as deferred:
        learned.add((torch.full((2,), 1e16, dtype=torch.float64),))
        learned.add((torch.ones(2, dtype=torch.float64),))
        learned.add((torch.full((2,), -1e16, dtype=torch.float64),))
        assert parameter.grad is None
    deferred.add()
    deferred.add()
    assert parameter.grad.tolist() == [0, 0]  # the order of sums shows
    learned.add((torch.ones(2, dtype=torch.float64),))
    assert parameter.grad.tolist() == [1, 1]


def test_items_under_a_dispatch_mode_run_in_order_with_one_thread():
    threads, ran = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        with MemoryLedger():
            parallel_map(lambda item: ran.append((item, torch.get_num_threads())), [3, 1, 2], device="cpu")
        assert ran == [(3, 1), (1, 1), (2, 1)]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
