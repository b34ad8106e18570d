"""The facts that the head of the page shows, which a thread reads from a run, its files and the session."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.actions import Actions
from dtdg_lab.dashboard.engine_list import summarize_devices
from dtdg_lab.dashboard.run_list import started_text
from dtdg_lab.dashboard.states import PageFacts
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.checkpoints import read_checkpoint
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.stored_run import newest_interrupted
from dtdg_lab.visualization.run_names import run_title
from dtdg_lab.widgets.run_page import BackgroundWorker, describe

if TYPE_CHECKING:
    from dtdg_lab.cluster.engines import EngineState
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Facts from a run's folder.

    Attributes:
        name: the name that a person gave the run; empty without one.
        ended: time of day of its last status.
        checkpoint_step: step of its last checkpoint; None without one.
    """

    name: str = ""
    ended: str = ""
    checkpoint_step: int | None = None


def read_run_files(path: Path) -> RunFiles:
    """Return the facts from a run's folder; what is not there is left out."""
    directory = RunDirectory(path)
    if not directory.status_file.is_file():
        return RunFiles()
    time_ns = directory.recorded_status().get("time_ns")
    ended = "" if time_ns is None else f"{datetime.fromtimestamp(time_ns / 1e9):%H:%M}"
    try:
        step = read_checkpoint(directory.checkpoint_file).step if directory.checkpoint_file.is_file() else None
    except LabError:  # it is being replaced; a Resume button without a step works as well
        step = None
    return RunFiles(directory.name(), ended, step)


class RunFilesReader:
    """Reads the files of the run on display when it is requested."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._worker: BackgroundWorker[Path] = BackgroundWorker(self._read, "dashboard-run-files")
        self.facts = RunFiles()

    def follow(self, path: Path | None) -> None:
        """Forget the previous run, and read this one."""
        self.facts = RunFiles()
        self._path = path
        self.read()

    def read(self) -> None:
        """Read soon, in the thread."""
        if self._path is not None:
            self._worker.ask(self._path)

    def _read(self, path: Path) -> None:
        try:
            facts = read_run_files(path)
        except (LabError, OSError):  # the run itself reports problems with its files
            return
        self._actions.later(lambda: self._take(path, facts))

    def _take(self, path: Path, facts: RunFiles) -> None:
        if path == self._path:
            self.facts = facts

    def close(self) -> None:
        """End the thread."""
        self._worker.close()


@dataclass(frozen=True, slots=True)
class SessionState:
    """The session at one time: its newest run, which engines are alive, and whether runs can be started.

    ``interrupted`` is the newest run in the session's folder of runs, if it was interrupted and the session has no run.
    """

    run: Run | None = None
    engines: dict[int, EngineState] = field(default_factory=dict)
    ready: bool = False
    runs: tuple[Run, ...] = ()
    problem: str = ""
    interrupted: Path | None = None


class SessionWatch:
    """Keeps ``state`` up to date; ``runs`` only while ``with_runs`` is set, since old runs are read from disk."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.with_runs = False
        self.state = SessionState()
        self._looking = threading.Lock()  # keeps a slow poll from overwriting a later one
        self._worker: BackgroundWorker[bool] = BackgroundWorker(lambda _: self.look(), "dashboard-watch")

    def look(self) -> None:
        """Poll once now; an error is kept in ``state.problem``."""
        session = self._session
        with self._looking:
            try:
                engines = dict(session.engines())
                runs = tuple(session.runs) if self.with_runs else self.state.runs
                run = session.current
                interrupted = newest_interrupted(session.runs_dir) if run is None else None
                self.state = SessionState(run, engines, session.ready, runs, session.problem, interrupted)
            except Exception as error:  # there is no caller, so the page shows the error
                problem = describe(error, "" if self.state.problem else "the session does not answer")
                self.state = SessionState(self.state.run, self.state.engines, False, self.state.runs, problem)

    def wake(self) -> None:
        """Poll soon, in the thread."""
        self._worker.ask(True)

    def close(self) -> None:
        """End the thread."""
        self._worker.close()


ABOUT = ", about "  # what comes before the remaining seconds in the text of a preparation


class PauseClock:
    """Measures for how long a run has been paused since this page saw it."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def look(self, status: str) -> float:
        """Return the seconds since the run was paused; 0 if it is not paused."""
        if status != "paused":
            self._since_s = None
            return 0.0
        if self._since_s is None:
            self._since_s = time.monotonic()
        return time.monotonic() - self._since_s


def session_facts(session_state: SessionState) -> PageFacts:
    """Return what is known without a run."""
    return PageFacts(
        engines=len(session_state.engines),
        engines_ready=sum(engine.is_alive for engine in session_state.engines.values()),
        devices=summarize_devices(session_state.engines),
        ready=session_state.ready,
        left_behind=session_state.interrupted is not None,
        newcomer=session_state.run is None and session_state.interrupted is None,
    )


def run_facts(facts: PageFacts, run: Run, files: RunFiles, paused_s: float) -> PageFacts:
    """Return the facts together with those of a run, whose lock the caller holds."""
    tables, config = run.live, run.config
    progress = tables.progress
    preparing, about, time_left = tables.preparing.partition(ABOUT)
    started = started_text(run.id)
    ranks = f"{config.ranks} rank" if config.ranks == 1 else f"{config.ranks} ranks"
    parts = f", {config.parts} parts" if config.parts != config.ranks else ""
    test_loss, below = test_result(tables)
    sub = [config.model, ranks + parts, *([f"started {started}"] if started else [])]
    return replace(
        facts,
        status=run.status,
        name=files.name or run_title(config),
        sub=" · ".join(sub),
        preparing=preparing,
        between_steps=tables.between_steps,
        left_words=f"about {time_left}" if about else "",
        step=progress.step,
        epoch=progress.epoch,
        epochs=progress.epochs,
        seconds=progress.seconds,
        seconds_left=progress.seconds_left,
        paused_s=paused_s,
        ended=files.ended,
        test_loss=test_loss,
        below=below,
        damaged=tables.damaged[-1] if tables.damaged else "",
        silent=dict(run.silent),
        reason=run.reason,
        checkpoint_step=files.checkpoint_step,
    )


def test_result(tables: RunTables) -> tuple[float | None, float | None]:
    """Return the test loss of a finished run, and the share by which it is below persistence."""
    rows = tables.rows("evaluations")
    rows = rows.where(rows["split"] == "test") if len(rows) else rows
    if not len(rows):
        return None, None
    loss, persistence = (float(rows[name][-1]) for name in ("loss", "persistence_loss"))
    return loss, 1 - loss / persistence if persistence > 0 else None
