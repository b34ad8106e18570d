"""Host arrays to a device: staged through pinned buffers, copied on a stream of their own while the device computes."""

from __future__ import annotations

import functools
import threading
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BUFFER_BYTES = 16 << 20  # of each of the two pinned buffers; larger arrays are copied piece by piece
_ALIGNMENT = 64


class DeviceCopies(Protocol):
    """Memory, copies and events of one device, on a copy stream that waits for no other stream."""

    def pinned(self, size: int) -> Tensor:
        """Return page-locked host memory, (size,) uint8."""

    def is_pinned(self, values: Tensor) -> bool:
        """Return whether host memory is page-locked."""

    def empty(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Return memory on the device that the copy stream may write to at once."""

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Queue a copy from pinned memory to the device; return before it has run."""

    def record(self) -> Any:
        """Return an event that passes when the copies queued so far have run."""

    def wait_here(self, event: Any) -> None:
        """Block this thread until the event has passed."""

    def wait_there(self, event: Any, tensor: Tensor) -> None:
        """Make the current stream wait for the event, and free the tensor only after that stream's use of it."""


class CudaCopies:
    """Copies to a CUDA device (see :class:`DeviceCopies`).

    Args:
        device: the device.
    """

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device)

    def pinned(self, size: int) -> Tensor:
        """Return page-locked host memory."""
        with torch.cuda.device(self._device):
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def is_pinned(self, values: Tensor) -> bool:
        """Return whether host memory is page-locked."""
        return values.is_pinned()

    def empty(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Return memory from the copy stream's pool."""
        with torch.cuda.stream(self._stream):
            return torch.empty(shape, dtype=dtype, device=self._device)

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Queue a copy on the copy stream."""
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)

    def record(self) -> Any:
        """Return an event of the copy stream."""
        return self._stream.record_event()

    def wait_here(self, event: Any) -> None:
        """Block this thread until the event has passed."""
        event.synchronize()

    def wait_there(self, event: Any, tensor: Tensor) -> None:
        """Make the current stream of the device wait for the event."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(event)
        tensor.record_stream(stream)


class Uploader:
    """Copies host arrays to one device without blocking; may be used by several threads.

    Arrays are packed into one of two pinned buffers. When it is full, the other one takes over, as soon as its own
    copies have run: the only wait of the host, and never one for computations. Memory of the result is new, so arrays
    for a step can arrive while the device still computes the step before; where memory is short, the allocator waits.

    Args:
        copies: operations of the device; None for the CPU, where arrays are used in place.
        buffer_bytes: bytes of a buffer.
    """

    def __init__(self, copies: DeviceCopies | None, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._copies, self._buffer_bytes = copies, buffer_bytes
        self._buffers: list[Tensor] = []
        self._events: list[Any] = [None, None]  # of the last copy from each buffer, once it is full
        self._turn = self._used = 0
        self._lock = threading.Lock()

    def upload(self, values: NDArray[Any] | Tensor) -> Tensor:
        """Queue the copy of an array and return it, for use on the current stream, which waits for the copy.

        This thread does not wait. The array may be changed or freed afterwards, unless it is pinned itself. On the CPU
        the result shares its memory.
        """
        source, copies = as_tensor(values), self._copies
        if copies is None:
            return source
        with self._lock:
            target = copies.empty(source.shape, source.dtype)
            if copies.is_pinned(source):
                copies.copy(target, source)
            else:
                # a single element may have any stride
                to, host = (x.as_strided((x.numel(),), (1,)).view(torch.uint8) for x in (target, source))
                for start in range(0, len(host), self._buffer_bytes):
                    piece = slice(start, start + self._buffer_bytes)
                    copies.copy(to[piece], self._stage(host[piece], copies))
            event = copies.record()
        copies.wait_there(event, target)
        return target

    def _stage(self, piece: Tensor, copies: DeviceCopies) -> Tensor:
        """Copy bytes into pinned memory that no queued copy reads."""
        if not self._buffers:
            self._buffers = [copies.pinned(self._buffer_bytes) for _ in range(2)]
        if self._used + len(piece) > self._buffer_bytes:
            self._events[self._turn] = copies.record()
            self._turn, self._used = 1 - self._turn, 0
            if self._events[self._turn] is not None:
                copies.wait_here(self._events[self._turn])
        staged = self._buffers[self._turn][self._used : self._used + len(piece)]
        staged.copy_(piece)
        self._used += -(-len(piece) // _ALIGNMENT) * _ALIGNMENT
        return staged


@functools.cache
def uploader(device: str) -> Uploader:
    """Return the uploader of a device, made on first use: streams and pinned memory belong to the process."""
    return Uploader(None if torch.device(device).type == "cpu" else CudaCopies(device))


def upload(values: NDArray[Any] | Tensor, device: str) -> Tensor:
    """Return an array on a device (see :meth:`Uploader.upload`); it must not be written to."""
    return uploader(device).upload(values)


class _Writable:
    """The memory of an array, without its protection against writes: torch would warn of it."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.__array_interface__ = interface = array.__array_interface__
        interface["data"] = (interface["data"][0], False)


def as_tensor(values: NDArray[Any] | Tensor) -> Tensor:
    """Return a contiguous array as a tensor that shares its memory; it must not be written to."""
    if isinstance(values, Tensor):
        return values.contiguous()
    array = values if values.flags.c_contiguous else np.ascontiguousarray(values)
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Writable(array)))
