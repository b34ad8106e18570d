"""Peak memory: a two-layer product counted by hand, and storages that die are taken off."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.kernels.device_clock import HostClock
from dtdg_lab.training import memory
from dtdg_lab.training.clock import PhaseClock
from dtdg_lab.training.memory import fits_memory, peak_bytes, trace_memory

FLOAT = 4  # bytes


def test_a_two_layer_product_counted_by_hand() -> None:
    """(x w) v summed, forward and backward, in float32; x has no gradient.

    Forward makes h = x w (100 x 200), y = h v (100 x 10) and their sum s (one number); backward makes the seed gradient
    of s (one number; the gradient of y is an expanded view of it), grad v = h' grad y (200 x 10), grad h = grad y v'
    (100 x 200), and grad w = x' grad h (50 x 200). h and y are kept by autograd and the caller until all of these are
    there, so at the peak all are alive at once:

        h 80,000 + y 4,000 + s 4 + seed 4 + grad v 8,000 + grad h 80,000 + grad w 40,000 = 212,008 bytes.
    """
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(100, 50, generator=draw)
    w = torch.randn(50, 200, generator=draw, requires_grad=True)
    v = torch.randn(200, 10, generator=draw, requires_grad=True)

    def step() -> None:
        h = x @ w
        y = h @ v
        y.sum().backward()

    by_hand = FLOAT * (100 * 200 + 100 * 10 + 1 + 1 + 200 * 10 + 100 * 200 + 50 * 200)
    assert by_hand == 212_008
    assert peak_bytes(step) == by_hand
    w.grad = v.grad = None
    assert peak_bytes(step) == by_hand  # and again, whatever was alive before


def test_what_dies_is_taken_off() -> None:
    def one_after_another() -> None:
        for _ in range(10):
            torch.empty(1000)

    def all_at_once() -> None:
        kept = [torch.empty(1000) for _ in range(10)]
        assert len(kept) == 10

    assert peak_bytes(one_after_another) == 1000 * FLOAT
    assert peak_bytes(all_at_once) == 10 * 1000 * FLOAT


def test_a_step_that_does_not_fit_ends_where_it_exceeds_the_limit() -> None:
    weight = torch.randn(1000, requires_grad=True)
    done: list[str] = []

    def step() -> None:
        first = weight * 2
        done.append("forward")
        second = first * first
        done.append("all of forward")
        second.sum().backward()
        done.append("backward")

    needed = peak_bytes(step)
    for limit, reached in ((needed, 3), (needed - 1, 2), (1500 * FLOAT, 1), (0, 0)):
        done.clear()
        assert fits_memory(step, limit) is (reached == 3) and len(done) == reached


def test_a_step_that_runs_out_of_a_gpu_s_memory_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(step: Callable[[], None], *, device: str) -> int:
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(memory, "peak_bytes", run_out)
    monkeypatch.delattr(torch, "OutOfMemoryError", raising=False)  # torch 2.4 has none
    assert not fits_memory(lambda: None, 1e12, device="cuda:0")


def test_views_and_updates_in_place_cost_nothing() -> None:
    x = torch.zeros(1000)

    def step() -> None:
        x.add_(1.0)
        x.view(10, 100).t()[3:].mul_(2.0)
        x[:500].copy_(x[500:])

    assert peak_bytes(step) == 0


def test_autograd_keeps_what_python_has_let_go() -> None:
    """A loop over time without names for its activations: saved tensors live in autograd alone until backward."""
    w = torch.ones(50, 50, requires_grad=True)

    def grow(steps: int) -> int:
        def step() -> None:
            h = torch.ones(100, 50)
            for _ in range(steps):
                h = torch.tanh(h @ w)
            h.sum().backward()

        w.grad = None
        return peak_bytes(step)

    each = 100 * 50 * FLOAT  # tanh saves its output, which is the next product's saved input
    assert grow(20) - grow(10) == 10 * each


def test_an_error_in_the_step_comes_through() -> None:
    def step() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        peak_bytes(step)


def test_the_course_of_memory_by_hand_with_blocks_where_they_begin() -> None:
    """Two blocks of one and two vectors: each is let go before the next; what is kept between is half a vector."""

    def step(marks: StepMarks) -> None:
        marks.block(0, "forward")
        first = torch.zeros(1000)
        kept = first[:500].clone()
        del first
        marks.block(1, "forward")
        both = [torch.zeros(1000) for _ in range(2)]
        marks.block(1, "backward")
        del both
        assert len(kept) == 500

    found = trace_memory(step)
    assert list(found.bytes) == [FLOAT * count for count in (0, 1000, 1500, 500, 1500, 2500, 1500, 500, 0)]
    assert found.peak_bytes == 2500 * FLOAT
    assert list(found.seconds) == sorted(found.seconds)
    assert [block[1:] for block in found.blocks] == [(0, "forward"), (1, "forward"), (1, "backward")]
    begun = [second for second, _, _ in found.blocks]
    where = [sum(at >= begin for begin in begun) for at in found.seconds]
    assert where == [0, 1, 1, 1, 2, 2, 3, 3, 3], "samples lie in the blocks they were taken in"
    described = found.to_dict()
    assert described["peak_bytes"] == 2500 * FLOAT and described["blocks"][1][1:] == [1, "forward"]


@pytest.mark.parametrize("limit", [2, 7, 100])
def test_of_many_samples_the_largest_are_kept(limit: int) -> None:
    def step(marks: StepMarks) -> None:
        for size in range(1, 400):
            torch.empty(size if size != 123 else 9_999)

    found = trace_memory(step, limit=limit)
    assert len(found.seconds) == len(found.bytes) <= limit
    assert max(found.bytes) == found.peak_bytes == 9_999 * FLOAT
    assert list(found.seconds) == sorted(found.seconds)


def test_the_traced_peak_is_the_probed_one() -> None:
    w = torch.ones(20, 20, requires_grad=True)

    def step(marks: StepMarks) -> None:
        torch.tanh(torch.tanh(w @ w) @ w).sum().backward()

    traced = trace_memory(step).peak_bytes
    w.grad = None
    assert traced == peak_bytes(lambda: step(StepMarks())) > 0


def test_marks_outside_a_probe_take_no_note_of_blocks() -> None:
    clock = PhaseClock(HostClock())
    clock.block(0, "forward")
    StepMarks().block(0, "forward")
    assert clock.intervals() == []
