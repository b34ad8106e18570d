"""Parallel map over independent work items, on as many threads as torch may use, with results in order.

One thread runs each item, instead of all threads running each operation. So each core reuses its own cache, and
threads need not synchronise after every operation. Results are bit-equal for any number of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

T = TypeVar("T")
R = TypeVar("R")

# Numbers in one snapshot's rows of a piece: few enough for a step's dozen arrays to fit a core's cache, enough for
# calls not to matter; a GPU should be filled. Constants, because results depend on them bit for bit.
STEP_NUMBERS = {"cpu": 128_000, "cuda": 8_388_608}


def parallel_map(work: Callable[[T], R], items: Sequence[T], *, device: str, alone: bool = False) -> list[R]:
    """Return the results of ``work`` for all items, in order (see :func:`parallel_imap`)."""
    return list(parallel_imap(work, items, device=device, alone=alone))


def parallel_imap(work: Callable[[T], R], items: Sequence[T], *, device: str, alone: bool = False) -> Generator[R]:
    """Yield the results of ``work`` for each item, in order, as soon as each is ready.

    On the CPU, ``torch.get_num_threads()`` items run at once, each with one torch thread. Under a torch dispatch mode,
    such as the probe of peak memory, they run one after another with one thread: many would wait for each other at
    every small operation. With ``alone`` (required if ranks
    exchange rows) and on other devices, they run one after another with all threads. ``work`` must set its own gradient
    mode, which threads do not share. It must not accumulate gradients, whose order would be a race.
    """
    threads = torch.get_num_threads()
    if alone or device != "cpu" or min(threads, len(items)) < 2:
        yield from map(work, items)
        return
    torch.set_num_threads(1)  # inherited by new threads
    try:
        if _get_current_dispatch_mode() is not None:
            yield from map(work, items)
            return
        with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="snapshots") as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)


class MemoryLedger(TorchDispatchMode):
    """A dispatch mode that counts memory; work that would run at once runs one after another under it."""

    def run_beside(self, works: Sequence[Callable[[], R]]) -> list[R]:
        """Run works one after another, and count the peak of each beside those of the others."""
        raise NotImplementedError


def concurrent_map(work: Callable[[T], R], items: Sequence[T], *, device: str) -> list[R]:
    """Return the results of ``work`` for all items, in order; all items are computed, and in memory, at once.

    Each item has a thread of its own, however many threads torch may use; these are divided among the items. On a GPU
    each item also has a stream of its own, which begins after all queued work and which the current stream waits for.
    ``work`` must set its own gradient mode and must not accumulate gradients, as in :func:`parallel_imap`.
    """
    mode = _get_current_dispatch_mode()
    if isinstance(mode, MemoryLedger):
        return mode.run_beside([partial(work, item) for item in items])
    if len(items) < 2:
        return list(map(work, items))
    if device != "cpu":
        return _map_on_streams(work, items, device)
    threads = torch.get_num_threads()
    share = max(1, threads // len(items))
    try:
        with ThreadPoolExecutor(len(items), "concurrent", torch.set_num_threads, (share,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(threads)


def _map_on_streams(work: Callable[[T], R], items: Sequence[T], device: str) -> list[R]:
    main, streams = torch.cuda.current_stream(device), [_stream(device, number) for number in range(len(items))]

    def compute(stream: torch.cuda.Stream, item: T) -> R:
        with torch.cuda.stream(stream):
            return work(item)

    for stream in streams:
        stream.wait_stream(main)
    try:
        with ThreadPoolExecutor(len(items), "concurrent") as pool:
            return list(pool.map(compute, streams, items))
    finally:
        for stream in streams:
            main.wait_stream(stream)


@functools.cache
def _stream(device: str, number: int) -> torch.cuda.Stream:
    """Return the same stream in every step, since the allocator keeps freed memory by stream."""
    return torch.cuda.Stream(device)
