"""Looks at the session from a thread: its answers may wait for a lock or a disk, and the page must not."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtdg_lab.dash.actions import describe

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session

PERIOD_S = 0.2
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the session looked like: its newest run, which engines are alive, whether runs can be started."""

    run: Run | None = None
    engines: dict[int, bool] = field(default_factory=dict)
    ready: bool = False
    runs: tuple[Run, ...] = ()
    problem: str = ""


class SessionWatch:
    """Keeps ``seen`` up to date; ``runs`` only while ``with_runs`` is set, since old ones are read from disk."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.with_runs = False
        self.seen = Seen()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Look once, now; what goes wrong is kept in ``seen.problem``."""
        session = self._session
        try:
            engines = dict(session.engines())
            runs = tuple(session.runs) if self.with_runs else self.seen.runs
            self.seen = Seen(session.current, engines, session.ready, runs)
        except Exception as error:  # there is no caller to raise to: the page shows it
            problem = describe(error)
            if problem != self.seen.problem:
                _LOG.exception("the session does not answer")
            self.seen = Seen(self.seen.run, self.seen.engines, False, self.seen.runs, problem)

    def start(self) -> None:
        """Begin to look again and again."""
        if self._thread is None:
            self._stopped = threading.Event()  # the last thread keeps its own, which stays set
            self._thread = threading.Thread(target=self._follow, name="dashboard-watch", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Look soon: something was asked of the session."""
        self._wake.set()

    def stop(self) -> None:
        """End the looking; ``start`` begins it again."""
        self._stopped.set()
        self._wake.set()
        self._thread = None

    def _follow(self) -> None:
        stopped = self._stopped
        while not stopped.is_set():
            self.look()
            self._wake.wait(PERIOD_S)
            self._wake.clear()
