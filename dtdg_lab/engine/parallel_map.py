"""Independent work items on as many threads as torch may use, with results in order.

One thread runs each item, instead of all threads each operation. So a core finds in its cache what it wrote there, and
no thread waits for the others after every operation. Bits do not depend on the number of threads.
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
    """Results of ``work`` for each item, in order, when all are there (see :func:`parallel_imap`)."""
    return list(parallel_imap(work, items, device=device, alone=alone))


def parallel_imap(work: Callable[[T], R], items: Sequence[T], *, device: str, alone: bool = False) -> Generator[R]:
    """Results of ``work`` for each item, in order, each as soon as it is there.

    With ``alone`` they are done one after another, as work in which ranks exchange rows must be. Else on the CPU
    ``torch.get_num_threads()`` items are in work at once, each with one thread of torch; elsewhere, or where
    something watches this thread's operations (as the probe of peak memory does), one after another. ``work`` must set
    its own gradient mode, which threads do not share, and must not add to gradients, whose order would be a race.
    """
    threads = torch.get_num_threads()
    if alone or device != "cpu" or min(threads, len(items)) < 2 or _get_current_dispatch_mode() is not None:
        yield from map(work, items)
        return
    torch.set_num_threads(1)  # new threads start with it
    try:
        with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="snapshots") as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)
