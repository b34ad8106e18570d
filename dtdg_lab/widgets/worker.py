"""Work in a thread: a page must not wait for a file, a partitioner or a solver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from dtdg_lab.core.errors import LabError

ACTIVE = ("starting", "running", "paused", "stopping")  # states of a run that has not ended
_LOG = logging.getLogger(__name__)

T = TypeVar("T")


def describe(error: Exception, what: str) -> str:
    """An error as text for a person. One that is not our own is also logged, with the traceback.

    Args:
        error: whose message is shown.
        what: failed, for the log; nothing is logged where it is empty.
    """
    if isinstance(error, LabError):
        return str(error)
    if what:
        _LOG.error("%s", what, exc_info=error)
    return f"{type(error).__name__}: {error} (details are in the log)"


class BackgroundWorker(Generic[T]):
    """Calls ``work(request)`` in its own thread, for the newest request; older ones that have not begun are dropped.

    The thread starts with the first request.

    Args:
        work: must not raise: it has no caller that could handle the error.
        name: of the thread.
    """

    def __init__(self, work: Callable[[T], None], name: str) -> None:
        self._work, self._name = work, name
        self._request: T | None = None
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def overtaken(self) -> bool:
        """Whether the result of the present work is no longer needed: there is a newer request, or the end."""
        return self._closed or self._request is not None

    def ask(self, request: T) -> None:
        """Work on this next."""
        with self._wake:
            self._request = request
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._wake.notify()

    def close(self) -> None:
        """End the thread after its present work."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _run(self) -> None:
        while (request := self._next()) is not None:
            self._work(request)

    def _next(self) -> T | None:
        with self._wake:
            self._wake.wait_for(lambda: self._closed or self._request is not None)
            request, self._request = self._request, None
            return None if self._closed else request
