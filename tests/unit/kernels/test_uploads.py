"""Copies to a device: what arrives, which buffers are used again when, and runs with copies in flight."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.kernels.uploads import CudaCopies, Uploader, as_tensor, upload, uploader
from tests.backends import needs_gpu
from tests.pretend_copies import QueuedCopies, pretend_copies
from tests.small_training import config_of, train

ARRAYS = [
    np.arange(7, dtype=np.int32),
    np.linspace(0, 1, 30, dtype=np.float32).reshape(5, 6),
    np.zeros((0, 4), np.float32),
    np.float64(2.5) * np.ones(()),
    np.array([True, False, True]),
    np.arange(24.0).reshape(4, 6)[:, ::2],
    np.broadcast_to(np.int64(3), 9),
    np.broadcast_to(np.int32(3), 1),
]


class DeferredCopies(QueuedCopies):
    """Copies that run when their buffer is needed again, or at the end: later work waits for them, not the host."""

    def wait_there(self, event: Any, tensor: Tensor) -> None:
        self.received += 1

    def finish(self) -> None:
        """Run all queued copies."""
        self._run_until(self.record())


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype} {array.shape}")
@pytest.mark.parametrize("buffer_bytes", [16, 64, 1 << 20])
def test_arrays_arrive_whole_in_pieces_of_any_size(array: np.ndarray, buffer_bytes: int) -> None:
    copies = QueuedCopies()
    arrived = Uploader(copies, buffer_bytes=buffer_bytes).upload(array)
    assert torch.equal(arrived, torch.tensor(np.array(array)))
    assert arrived.shape == array.shape
    assert sum(copies.copied) == array.nbytes
    assert copies.unpinned == 0


def test_on_the_cpu_arrays_are_used_in_place_without_a_warning() -> None:
    array = np.arange(6, dtype=np.float32)
    array.setflags(write=False)
    assert upload(array, "cpu").data_ptr() == array.ctypes.data
    tensor = torch.arange(3)
    assert upload(tensor, "cpu") is tensor
    assert uploader("cpu") is uploader("cpu")


def test_memory_of_a_read_only_array_lives_as_long_as_its_tensor() -> None:
    array = np.arange(100_000)
    array.setflags(write=False)
    tensor = as_tensor(array)
    del array
    np.zeros(100_000, np.int64)
    assert tensor[[0, -1]].tolist() == [0, 99_999]


def test_small_arrays_share_a_buffer_and_none_is_overwritten_in_flight() -> None:
    copies = DeferredCopies()
    pair, numbers = Uploader(copies, buffer_bytes=256), range(40)
    arrays = [pair.upload(np.full(8, number)) for number in numbers]  # 64 bytes: four fill a buffer
    assert copies.host_waits == 8, "ten buffers were filled, and the first two were empty"
    assert copies.received == 40, "later work waits for every array"
    assert copies.in_flight, "the last copies are still queued"
    copies.finish()
    assert [array.tolist() for array in arrays] == [[number] * 8 for number in numbers]


def test_the_pretend_device_refuses_buffers_that_are_overwritten_in_flight() -> None:
    copies = DeferredCopies()
    one_buffer = Uploader(copies, buffer_bytes=256)
    one_buffer.upload(np.arange(8))
    one_buffer._used = 0
    one_buffer.upload(np.arange(8, 16))
    with pytest.raises(AssertionError, match="written to while its copy was queued"):
        copies.finish()


def test_pinned_arrays_are_copied_without_a_buffer() -> None:
    copies = QueuedCopies()
    page = copies.pinned(32).fill_(5)
    assert Uploader(copies, buffer_bytes=16).upload(page).tolist() == [5] * 32
    assert copies.copied == [32]


def test_an_array_may_be_changed_before_its_copy_has_run() -> None:
    copies, array = DeferredCopies(), np.arange(4)
    arrived = Uploader(copies).upload(array)
    array[:] = 9
    copies.finish()
    assert arrived.tolist() == [0, 1, 2, 3]


def test_arrays_of_several_threads_arrive_whole() -> None:
    copies, numbers = DeferredCopies(), range(50)
    pair, arrays = Uploader(copies, buffer_bytes=128), dict[int, list[Tensor]]()

    def upload_all(thread: int) -> None:
        arrays[thread] = [pair.upload(np.full(10, 100 * thread + number)) for number in numbers]

    threads = [threading.Thread(target=upload_all, args=(thread,)) for thread in range(4)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    copies.finish()
    assert {thread: [array.tolist() for array in arrays[thread]] for thread in range(4)} == {
        thread: [[100 * thread + number] * 10 for number in numbers] for thread in range(4)
    }


SYSTEMS: dict[str, dict[str, Any]] = {
    "dynahb": {"reservoir": False},
    "flaredtdg": {"window": 3, "full_snapshots": 1, "alpha": 0.5},
    "greendygnn": {},
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_copies_pinned_memory_alone_and_its_losses_stay(system: str, tmp_path: Path) -> None:
    config = config_of(**{"system": system, "epochs": 1, **SYSTEMS[system]})
    plain = train(tmp_path, config).losses
    with pretend_copies(buffer_bytes=1 << 12) as copies:
        assert train(tmp_path, config).losses == plain
    assert copies.unpinned == 0
    assert copies.received > 10


class RecordedStream:
    """A stream that notes what is asked of it."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device, self.waits = device, list[Any]()

    def record_event(self) -> str:
        return "an event"

    def wait_event(self, event: Any) -> None:
        self.waits.append(event)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The stream that is current, last; the processor plays the device."""
    current: list[Any] = [RecordedStream()]

    @contextmanager
    def make_current(stream: RecordedStream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "Stream", RecordedStream)
    monkeypatch.setattr(torch.cuda, "stream", make_current)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[-1])
    return current


def test_cuda_copies_are_queued_on_a_stream_that_the_current_one_waits_for(
    streams: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, used = list[tuple[Any, bool]](), list[Any]()
    copy = torch.Tensor.copy_

    def noted(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        copied.append((streams[-1], non_blocking))
        return copy(target, source)

    monkeypatch.setattr(torch.Tensor, "copy_", noted)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: used.append(stream))
    copies, (compute,) = CudaCopies("cpu"), streams
    target = copies.empty(torch.Size([3]), torch.int64)
    copies.copy(target, torch.arange(3))
    ((stream, non_blocking),) = copied
    assert stream is not compute
    assert non_blocking
    copies.wait_there(copies.record(), target)
    assert compute.waits == ["an event"]
    assert used == [compute], "its memory is free again only after the computations that use it"
    assert target.tolist() == [0, 1, 2]


@pytest.mark.gpu
@needs_gpu
def test_arrays_arrive_whole_on_a_gpu_while_it_computes() -> None:
    pair, busy = Uploader(CudaCopies("cuda:0"), buffer_bytes=1 << 16), torch.rand(4000, 4000, device="cuda:0")
    arrays = [np.full(size, number, np.int32) for number, size in enumerate([10, 5000, 40_000, 1] * 50)]
    arrived = []
    for array in arrays:
        busy = busy @ busy / 4000
        arrived.append(pair.upload(array) + 1)
    assert all(torch.equal(x.cpu(), torch.tensor(array) + 1) for x, array in zip(arrived, arrays, strict=True))
    for array in ARRAYS:
        assert torch.equal(pair.upload(array).cpu(), torch.tensor(np.array(array)))
