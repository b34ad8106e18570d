"""Requests to the session, made one after another outside the event loop, and changes that the page requests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dtdg_lab.core.errors import ControlError
from dtdg_lab.core.units import join_words
from dtdg_lab.records.events import PAGE
from dtdg_lab.runs.directory import ENDED
from dtdg_lab.widgets.run_page import describe

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


T = TypeVar("T")
ENDING_S = 3.0  # time in which a run ends after its rank 0 has stopped listening
Request = tuple[str, Callable[[], Any], Callable[[Any], None], Callable[[], None]]


class Actions:
    """A queue of requests, and the thread that makes them; ``poll`` delivers their results."""

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._requests: queue.Queue[Request | None] = queue.Queue()
        self._outcomes: queue.Queue[Callable[[], None]] = queue.Queue()
        self._open = 0  # number of requests whose result was not delivered; only the event loop changes it
        self._thread = threading.Thread(target=self._work, name="dashboard-actions", daemon=True)
        self._thread.start()

    def do(
        self,
        name: str,
        request: Callable[[], Any],
        then: Callable[[Any], None] = lambda result: None,
        otherwise: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue a request; the first ``poll`` after it calls ``then`` with the result, or ``otherwise`` on failure."""
        self._open += 1
        self._requests.put((name, request, then, otherwise))

    def later(self, call: Callable[[], None]) -> None:
        """Let the next ``poll`` make a call.

        In a notebook, a person's actions come on another thread than the event loop's (a kernel's subshell). Widgets
        that are changed on two threads at once lose updates on their way to the page, so only the event loop changes
        widgets.
        """
        self._outcomes.put(call)

    @property
    def busy(self) -> bool:
        """Whether a request is queued, being made, or finished but not polled yet."""
        return self._open > 0

    def poll(self) -> bool:
        """Deliver new results, and return whether there were any; called where widgets may be changed."""
        any_ended = False
        while not self._outcomes.empty():
            self._outcomes.get()()
            any_ended = True
        return any_ended

    def close(self) -> None:
        """End the thread after the requests that are queued."""
        self._requests.put(None)

    def _work(self) -> None:
        while (item := self._requests.get()) is not None:
            name, request, then, otherwise = item
            self._outcomes.put(partial(self._deliver, self._outcome(name, request, then, otherwise)))

    def _deliver(self, outcome: Callable[[], None]) -> None:
        self._open -= 1
        outcome()

    def _outcome(
        self, name: str, request: Callable[[], Any], then: Callable[[Any], None], otherwise: Callable[[], None]
    ) -> Callable[[], None]:
        try:
            result = request()
        except Exception as error:  # there is no caller, so any error is shown to the person who made the request
            text = describe(error, f"{name} failed")

            def report() -> None:
                self._on_error(f"{name}: {text}")
                otherwise()

            return report
        return lambda: then(result)


def unless_over(run: Run, request: Callable[[], T]) -> T | None:
    """Make a request to a run; return None if the run has ended, which the page shows."""
    try:
        return request()
    except ControlError:
        until_s = time.monotonic() + ENDING_S
        while run.status not in ENDED:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)
        return None


class Steering:
    """Requests changes, and knows which versions of settings come from this page.

    Args:
        actions: makes the requests.
        refused: function called with the run and the names of settings that were refused at once.
    """

    def __init__(self, actions: Actions, refused: Callable[[Run, list[str]], None]) -> None:
        self._actions, self._refused = actions, refused
        self._unsent: dict[tuple[str, ...], dict[str, Any]] = {}  # run and names -> newest values of waiting requests
        self._lock = threading.Lock()
        self.own: set[int] = set()

    def follow(self) -> None:
        """Forget the changes of the previous run."""
        self.own = set()

    def request(self, run: Run, changes: Mapping[str, Any]) -> None:
        """Request changes of a run.

        An earlier request for the same settings that is still waiting gets the new values, since a held arrow key makes
        many requests.
        """
        names = (run.id, *sorted(changes))
        with self._lock:
            is_waiting = names in self._unsent
            self._unsent[names] = dict(changes)
        if is_waiting:
            return

        def send() -> int | None:
            with self._lock:
                newest = self._unsent.pop(names)
            return unless_over(run, lambda: run.set(**newest, by=PAGE))

        def note(version: int | None) -> None:
            if version is not None:
                self.own.add(version)

        name = f"Set {join_words([*changes])}"
        self._actions.do(name, send, then=note, otherwise=lambda: self._refused(run, [*changes]))
