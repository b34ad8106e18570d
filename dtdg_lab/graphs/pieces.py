"""Process a long edge list in slices, in several threads."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 2**22  # edges of a slice; temporary arrays stay this small
_THREADS = 4  # each takes some 100 MB for its piece


def slices(count: int) -> Iterator[slice]:
    """Return the slices that cover ``count`` edges."""
    return (slice(start, min(start + AT_ONCE, count)) for start in range(0, count, AT_ONCE))


def work_on(count: int, work: Callable[[slice], None]) -> None:
    """Call ``work`` for each slice of the edges, in several threads: numpy releases the GIL."""
    if count <= AT_ONCE:
        work(slice(0, count))
        return
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1), thread_name_prefix="edges") as pool:
        collections.deque(pool.map(work, slices(count)), maxlen=0)
