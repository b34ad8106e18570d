"""A thread that works on what was asked for last; earlier requests that have not begun are passed over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class NewestFirst(Generic[T]):
    """Calls ``work(wanted)`` in a thread of its own, which begins with the first request.

    Args:
        work: must raise nothing: there is no caller to raise to.
        name: of the thread.
    """

    def __init__(self, work: Callable[[T], None], name: str) -> None:
        self._work, self._name = work, name
        self._wanted: T | None = None
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def overtaken(self) -> bool:
        """Whether what is in work is wanted no more: something else was asked for since, or the end."""
        return self._closed or self._wanted is not None

    def ask(self, wanted: T) -> None:
        """Work on this next."""
        with self._wake:
            self._wanted = wanted
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._wake.notify()

    def close(self) -> None:
        """End the thread once it has finished what it does."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _run(self) -> None:
        while (wanted := self._next()) is not None:
            self._work(wanted)

    def _next(self) -> T | None:
        with self._wake:
            self._wake.wait_for(lambda: self._closed or self._wanted is not None)
            wanted, self._wanted = self._wanted, None
            return None if self._closed else wanted
