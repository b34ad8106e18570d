"""The state of the session, read by a thread, because its answers may wait for a lock or a disk."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dtdg_lab.runs.stored_run import newest_interrupted
from dtdg_lab.widgets.run_page import BackgroundWorker, describe

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


@dataclass(frozen=True, slots=True)
class SessionState:
    """A snapshot of the session: its newest run, which engines are alive, whether runs can be started.

    ``interrupted`` is the newest run in its folder of runs, if the session has none and that one was interrupted.
    """

    run: Run | None = None
    engines: dict[int, bool] = field(default_factory=dict)
    ready: bool = False
    runs: tuple[Run, ...] = ()
    problem: str = ""
    interrupted: Path | None = None


class SessionWatch:
    """Keeps ``state`` up to date; ``runs`` only while ``with_runs`` is set, because old ones are read from disk."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.with_runs = False
        self.state = SessionState()
        self._looking = threading.Lock()  # a slow poll must not overwrite a later one
        self._worker: BackgroundWorker[bool] = BackgroundWorker(lambda _: self.look(), "dashboard-watch")

    def look(self) -> None:
        """Poll once, now; an error is kept in ``state.problem``."""
        session = self._session
        with self._looking:
            try:
                engines = dict(session.engines())
                runs = tuple(session.runs) if self.with_runs else self.state.runs
                run = session.current
                interrupted = newest_interrupted(session.runs_dir) if run is None else None
                self.state = SessionState(run, engines, session.ready, runs, session.problem, interrupted)
            except Exception as error:  # there is no caller to raise to: the page shows it
                problem = describe(error, "" if self.state.problem else "the session does not answer")
                self.state = SessionState(self.state.run, self.state.engines, False, self.state.runs, problem)

    def wake(self) -> None:
        """Poll soon, in the thread."""
        self._worker.ask(True)

    def close(self) -> None:
        """End the thread."""
        self._worker.close()
