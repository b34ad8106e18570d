"""A pretend device on the CPU whose copies stay queued until somebody waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.kernels import uploads
from dtdg_lab.kernels.uploads import Uploader


class QueuedCopies:
    """Runs queued copies, in order, when an event is waited for; refuses those whose source changed in the meantime.

    Attributes:
        copied: bytes of each queued copy.
        unpinned: number of copies from memory that is not pinned.
        host_waits: number of events that a thread waited for while copies before them were queued.
        received: number of tensors that a stream waited for.
    """

    def __init__(self) -> None:
        self.copied: list[int] = []
        self.unpinned = self.host_waits = self.received = 0
        self._pinned: list[Tensor] = []
        self._queue: list[tuple[Tensor, Tensor, Tensor]] = []
        self._done = 0

    def pinned(self, size: int) -> Tensor:
        self._pinned.append(torch.zeros(size, dtype=torch.uint8))
        return self._pinned[-1]

    def is_pinned(self, values: Tensor) -> bool:
        storage = values.untyped_storage().data_ptr()
        return any(buffer.untyped_storage().data_ptr() == storage for buffer in self._pinned)

    def empty(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        return torch.ones(shape, dtype=dtype)

    def copy(self, target: Tensor, source: Tensor) -> None:
        self.copied.append(source.nbytes)
        self.unpinned += not self.is_pinned(source)
        self._queue.append((target, source, source.clone()))

    def record(self) -> Any:
        return self._done + len(self._queue)

    def wait_here(self, event: Any) -> None:
        self.host_waits += event > self._done
        self._run_until(event)

    def wait_there(self, event: Any, tensor: Tensor) -> None:
        self.received += 1
        self._run_until(event)

    @property
    def in_flight(self) -> int:
        """Number of queued copies."""
        return len(self._queue)

    def _run_until(self, event: int) -> None:
        while self._done < event:
            target, source, as_queued = self._queue.pop(0)
            assert np.array_equal(source.numpy(), as_queued.numpy()), (
                "a buffer was written to while its copy was queued"
            )
            target.copy_(source)
            self._done += 1


@contextmanager
def pretend_copies(**options: Any) -> Iterator[QueuedCopies]:
    """Copy everything that goes to the CPU as if it were a device, while the block runs."""
    copies, real = QueuedCopies(), uploads.uploader
    pretend = Uploader(copies, **options)
    uploads.uploader = lambda device: pretend  # type: ignore[assignment]
    try:
        yield copies
    finally:
        uploads.uploader = real
