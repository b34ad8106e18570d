"""Requests to the session, made one after the other off the event loop, so that the page never stands still."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from dtdg_lab.core.errors import LabError

_LOG = logging.getLogger(__name__)

Request = tuple[str, Callable[[], Any], Callable[[Any], None], Callable[[], None]]


class Actions:
    """A queue of requests and the thread that makes them; ``poll`` brings back what came of them."""

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._requests: queue.Queue[Request | None] = queue.Queue()
        self._outcomes: queue.Queue[Callable[[], None]] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="dashboard-actions", daemon=True)
        self._thread.start()

    def do(
        self,
        words: str,
        request: Callable[[], Any],
        then: Callable[[Any], None] = lambda result: None,
        otherwise: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a request later; ``then`` or ``otherwise`` is called by the ``poll`` that follows its end."""
        self._requests.put((words, request, then, otherwise))

    def later(self, call: Callable[[], None]) -> None:
        """Have the next ``poll`` call it.

        What a person does in a notebook arrives on another thread than the event loop's (a kernel's subshell). Widgets
        changed on two threads at once lose updates on their way to the page, so all changes are made by the loop.
        """
        self._outcomes.put(call)

    @property
    def busy(self) -> bool:
        """Whether a request has been made, or waits, whose outcome was not polled yet."""
        return self._requests.unfinished_tasks > 0 or not self._outcomes.empty()

    def poll(self) -> bool:
        """Report what has ended since, and whether there was any; called where widgets may be changed."""
        any_ended = False
        while not self._outcomes.empty():
            self._outcomes.get()()
            any_ended = True
        return any_ended

    def close(self) -> None:
        """End the thread after the requests made so far."""
        self._requests.put(None)

    def _work(self) -> None:
        while (item := self._requests.get()) is not None:
            words, request, then, otherwise = item
            self._outcomes.put(self._outcome(words, request, then, otherwise))
            self._requests.task_done()
        self._requests.task_done()

    def _outcome(
        self, words: str, request: Callable[[], Any], then: Callable[[Any], None], otherwise: Callable[[], None]
    ) -> Callable[[], None]:
        try:
            result = request()
        except Exception as error:  # shown to the person who asked, whatever it is; there is no caller to raise to
            text = describe(error)
            if not isinstance(error, LabError):
                _LOG.exception("%s failed", words)

            def report() -> None:
                self._on_error(f"{words}: {text}")
                otherwise()

            return report
        return lambda: then(result)


def describe(error: Exception) -> str:
    """What to tell a person about an error: our own messages as they are, others with their kind."""
    return str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error} (details are in the log)"
