"""Parallel map over independent work items, on as many threads as torch may use, with results in order.

One thread runs each item, instead of all threads running each operation. So each core reuses its own cache, and
threads need not synchronise after every operation. Results are bit-equal for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

T = TypeVar("T")
R = TypeVar("R")


def parallel_map(work: Callable[[T], R], items: Sequence[T], *, device: str, alone: bool = False) -> list[R]:
    """Return the results of ``work`` for all items, in order (see :func:`parallel_imap`)."""
    return list(parallel_imap(work, items, device=device, alone=alone))


def parallel_imap(work: Callable[[T], R], items: Sequence[T], *, device: str, alone: bool = False) -> Generator[R]:
    """Yield the results of ``work`` for each item, in order, as soon as each is ready.

    On the CPU, ``torch.get_num_threads()`` items run at once, each with one torch thread. Items run one after another
    with ``alone`` (required if ranks exchange rows), on other devices, and under a torch dispatch mode such as the
    probe of peak memory. ``work`` must set its own gradient mode, which threads do not share. It must not accumulate
    gradients, whose order would be a race.
    """
    threads = torch.get_num_threads()
    if alone or device != "cpu" or min(threads, len(items)) < 2 or _get_current_dispatch_mode() is not None:
        yield from map(work, items)
        return
    torch.set_num_threads(1)  # inherited by new threads
    try:
        with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="snapshots") as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)
