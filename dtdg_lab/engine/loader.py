"""A thread that prepares the data of the next step while this one computes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Loader:
    """Prepares values ahead of time in one thread; requests that are not made in time are computed when asked for.

    Values are pure functions of their keys, so results do not depend on time.

    Args:
        ahead: False to start no thread and compute every value when it is asked for.
    """

    def __init__(self, *, ahead: bool) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader") if ahead else None
        self._requested: dict[Hashable, Future[Any]] = {}

    def request(self, key: Hashable, prepare: Callable[[], Any]) -> None:
        """Have a value prepared; requests are served in their order."""
        if self._thread is not None and key not in self._requested:
            self._requested[key] = self._thread.submit(prepare)

    def take(self, key: Hashable, prepare: Callable[[], T]) -> T:
        """Return the value of a key, requested earlier or computed now; raise what ``prepare`` raised."""
        future = self._requested.pop(key, None)
        return prepare() if future is None else future.result()

    def forget(self) -> None:
        """Withdraw all requests."""
        for future in self._requested.values():
            future.cancel()
        self._requested.clear()

    def close(self) -> None:
        """Stop the thread after the value in progress; later values are computed when asked for. Idempotent."""
        self.forget()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
