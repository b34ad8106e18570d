"""Changes of settings that this page requests of the run under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.units import join_words
from dtdg_lab.dashboard.actions import Actions, unless_over
from dtdg_lab.records.events import PAGE

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


class Steering:
    """Requests changes, those of one call together, and knows which versions are this page's own.

    Args:
        actions: executes requests.
        refused: called with the run and the names of settings that were refused at once.
    """

    def __init__(self, actions: Actions, refused: Callable[[Run, list[str]], None]) -> None:
        self._actions, self._refused = actions, refused
        self._unsent: dict[tuple[str, ...], dict[str, Any]] = {}  # by run and names; newest values of waiting requests
        self._lock = threading.Lock()
        self.own: set[int] = set()

    def follow(self) -> None:
        """Forget the changes of the run before."""
        self.own = set()

    def request(self, run: Run, changes: Mapping[str, Any]) -> None:
        """Request changes of a run.

        While an earlier request for the same settings waits to be sent, it gets the new values: a held arrow key makes
        many.
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
