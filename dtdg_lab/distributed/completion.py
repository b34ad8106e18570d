"""Time at which a collective ended, which may be long before anyone waits for it."""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

import torch
import torch.distributed as dist

STAMP_S = 1.0  # maximum delay of a completion callback


class Completion(Protocol):
    """Measurement of one collective from its start."""

    def wait(self) -> tuple[float, float]:
        """Block until the collective has ended.

        Returns:
            Seconds in flight, from start to end; seconds of these that this call blocked.

        Raises:
            RuntimeError: the network failed.
        """


def watch(work: dist.Work, started_s: float, device: torch.device) -> Completion:
    """Measure a collective that was started on a device at ``started_s`` of ``time.perf_counter``."""
    return _DeviceCompletion(work, device) if device.type == "cuda" else _HostCompletion(work, started_s)


class _HostCompletion:
    """Completion on gloo: a background thread records the end time, delayed at most by the GIL."""

    def __init__(self, work: dist.Work, started_s: float) -> None:
        self._work, self._started_s = work, started_s
        self._ended_s: list[float] = []
        self._stamped = threading.Event()
        stamps, stamped = self._ended_s, self._stamped  # the callback must keep only these alive

        def stamp(_: Any) -> None:
            stamps.append(time.perf_counter())
            stamped.set()

        work.get_future().add_done_callback(stamp)

    def wait(self) -> tuple[float, float]:
        entered_s = time.perf_counter()
        self._work.wait()
        self._stamped.wait(STAMP_S)  # a callback during interpreter shutdown would abort the process
        ended_s = self._ended_s[0] if self._ended_s else time.perf_counter()
        return ended_s - self._started_s, max(0.0, ended_s - entered_s)


class _DeviceCompletion:
    """Completion on NCCL: futures are done at launch, so CUDA events record start and end."""

    def __init__(self, work: dist.Work, device: torch.device) -> None:
        self._work = work  # keeps buffers alive that the device still uses
        self._began, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # the caller has synchronised this stream, so the event is recorded at once
        self._began.record(torch.cuda.current_stream(device))
        side = torch.cuda.Stream(device)
        with torch.cuda.stream(side):
            work.wait()  # blocks this stream instead of the compute stream
            self._ended.record(side)

    def wait(self) -> tuple[float, float]:
        entered_s = time.perf_counter()
        self._ended.synchronize()
        exposed_s = time.perf_counter() - entered_s
        in_flight_s = self._began.elapsed_time(self._ended) * 1e-3
        return in_flight_s, min(exposed_s, in_flight_s)
