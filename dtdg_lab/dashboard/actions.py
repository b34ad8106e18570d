"""Requests to the session, executed one after the other off the event loop, so that the page never blocks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.html import render
from dtdg_lab.runs.run import newest_interrupted
from dtdg_lab.visualization.run_window import RunWindow
from dtdg_lab.visualization.style import Mark, coloured, short
from dtdg_lab.widgets.run_page import ACTIVE, BackgroundWorker, describe

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


Request = tuple[str, Callable[[], Any], Callable[[Any], None], Callable[[], None]]


class Actions:
    """A queue of requests and the thread that executes them; ``poll`` delivers their outcomes."""

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._requests: queue.Queue[Request | None] = queue.Queue()
        self._outcomes: queue.Queue[Callable[[], None]] = queue.Queue()
        self._open = 0  # requests whose outcome was not delivered; changed on the event loop only
        self._thread = threading.Thread(target=self._work, name="dashboard-actions", daemon=True)
        self._thread.start()

    def do(
        self,
        words: str,
        request: Callable[[], Any],
        then: Callable[[Any], None] = lambda result: None,
        otherwise: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue a request; ``then`` or ``otherwise`` is called by the first ``poll`` after its end."""
        self._open += 1
        self._requests.put((words, request, then, otherwise))

    def later(self, call: Callable[[], None]) -> None:
        """Let the next ``poll`` call it.

        A notebook user acts on another thread than the event loop's (a kernel's subshell). Widgets changed on
        two threads at once lose updates on their way to the page, so only the event loop makes changes.
        """
        self._outcomes.put(call)

    @property
    def busy(self) -> bool:
        """Whether a request is queued, running, or finished but not polled yet."""
        return self._open > 0

    def poll(self) -> bool:
        """Deliver what has ended since, and return whether there was any; called where widgets may be changed."""
        any_ended = False
        while not self._outcomes.empty():
            self._outcomes.get()()
            any_ended = True
        return any_ended

    def close(self) -> None:
        """End the thread after the requests queued so far."""
        self._requests.put(None)

    def _work(self) -> None:
        while (item := self._requests.get()) is not None:
            words, request, then, otherwise = item
            self._outcomes.put(partial(self._deliver, self._outcome(words, request, then, otherwise)))

    def _deliver(self, outcome: Callable[[], None]) -> None:
        self._open -= 1
        outcome()

    def _outcome(
        self, words: str, request: Callable[[], Any], then: Callable[[Any], None], otherwise: Callable[[], None]
    ) -> Callable[[], None]:
        try:
            result = request()
        except Exception as error:  # shown to the person who asked, whatever it is; there is no caller to raise to
            text = describe(error, f"{words} failed")

            def report() -> None:
                self._on_error(f"{words}: {text}")
                otherwise()

            return report
        return lambda: then(result)


# What was requested of a run here: which change waits, which was applied at which step, which was refused and why.


@dataclass(slots=True)
class Change:
    """One requested setting; ``version`` is that under which the ranks apply it.

    The state of the run at the request is kept: its epoch and its last refusal.
    """

    name: str
    value: Any
    version: int
    at_epoch_end: bool
    epoch: int
    reason: str
    state: str = "waits"  # applied, refused, over

    @property
    def words(self) -> str:
        """Name and value."""
        return f"{self.name} {self.value}"


MOST_ENDED = 2  # epoch changes whose outcome stays in the status line


class Changes:
    """The changes requested here, of one run; ``on_end(change)`` is called for each that is no longer pending."""

    def __init__(self, on_end: Callable[[Change], None]) -> None:
        self._on_end = on_end
        self._now: list[Change] = []  # the last changes that take effect at the next step, from one request
        self._waiting: dict[str, Change] = {}
        self._ended: list[Change] = []

    def forget(self) -> None:
        """Follow another run."""
        self._now, self._waiting, self._ended = [], {}, []

    def add(self, name: str, value: Any, version: int, run: Run, *, at_epoch_end: bool) -> None:
        """Record what the run has accepted; an earlier request for the same setting is no longer pending."""
        change = Change(name, value, version, at_epoch_end, run.live.progress.epoch, run.reason)
        if at_epoch_end:
            self._waiting[name] = change
        else:
            self._now = [*(each for each in self._now if each.version == version), change]

    def look(self, run: Run, status: str) -> None:
        """Find the pending end-of-epoch changes that were applied since, or will not be.

        Args:
            run: the run that they were requested of.
            status: its status as read for the rest of this update: the run may end in between.
        """
        for name, change in list(self._waiting.items()):
            change.state = _state(change, run, status)
            if change.state != "waits":
                del self._waiting[name]
                self._ended = [*self._ended, change][-MOST_ENDED:]
                self._on_end(change)

    def lines(self, window: RunWindow) -> list[str]:
        """The outcome of the changes as text, without refusals before the newest one that was applied.

        The caller holds the run's lock.
        """
        made = [change.version for change in self._ended if change.state == "applied"]
        made += [change.version for change in self._now if window.marks.applied(change.version) is not None]
        newest = max(made, default=0)
        ended = [change for change in self._ended if change.state != "refused" or change.version >= newest]
        shown = [*ended, *self._waiting.values()]
        lines = [_epoch_words(change, window) for change in shown]
        return [*lines, *(_step_words(change, window) for change in self._now)]


def _state(change: Change, run: Run, status: str) -> str:
    """``waits``, ``applied``, ``refused``, or ``over`` where the run ended first."""
    config = run.config
    if _holds(config, change.name, change.value):
        return "applied"
    if f"{change.name}={change.value!r}" in run.reason and (
        run.reason != change.reason or run.live.progress.epoch > change.epoch
    ):
        return "refused"
    return "waits" if status in ACTIVE else "over"


def _holds(config: RunConfig, name: str, value: Any) -> bool:
    """Whether a config has a value, or its meaning: 0 partitions means as many as ranks."""
    if name not in config.flat:
        return False
    try:
        return bool(config.replace(**{name: value})[name] == config[name])
    except LabError:  # it does not fit the run's present settings
        return False


_OUTCOMES = {
    "waits": "requested, waits for the end of the epoch",
    "refused": "refused, the run continues unchanged",
    "over": "not applied because the run ended first",
}


def _epoch_words(change: Change, window: RunWindow) -> str:
    if change.state in _OUTCOMES:
        return f"{change.words}: {_OUTCOMES[change.state]}"
    words = f"{change.name} {short(change.value)}"
    made = [mark for mark in window.marks if words in mark.label.split(", ")]
    if not made:
        return f"{change.words}: unchanged, the run has this value already"
    mark = made[-1]  # of several changes in one epoch, under the newest version by then
    took = f", the change took {format_seconds(mark.duration_s)}" if mark.duration_s else ""
    return f"{change.words}: {_where(mark)}{took}"


def _step_words(change: Change, window: RunWindow) -> str:
    mark = window.marks.applied(change.version)
    return f"{change.words}: {'requested, waits for its control point' if mark is None else _where(mark)}"


def _where(mark: Mark) -> str:
    if not mark.together:
        return f"NOT applied at one step ({mark.text})"
    ranks = "1 rank" if len(mark.steps) == 1 else f"{len(mark.steps)} ranks"
    return f"applied at step {mark.step} on {ranks}"


# The status line: what the run is doing, how far it is, and how the cluster is.


_STATES = {"running": "good", "finished": "info", "failed": "bad", "interrupted": "bad", "paused": "care"}
COLOURS = {state: coloured(name) for state, name in _STATES.items()}


def status_html(
    run: Any, engines: Mapping[int, bool], changes: Changes, *, ready: bool, left: Path | None = None
) -> str:
    """The status line as HTML; the caller holds the run's lock.

    Args:
        run: None before the first one.
        engines: which are alive.
        changes: requested of the run.
        ready: whether runs can be started.
        left: a run that another session left interrupted.
    """
    state = "idle" if run is None else run.status
    if run is None and not ready:
        state = "the cluster is starting"
    return render(
        "dashboard/templates/status.html",
        run=run,
        engines=engines,
        state=state,
        left=left,
        progress=None if run is None else run.live.progress,
        lines=[] if run is None else changes.lines(run.live),
        colour=COLOURS.get(state, coloured("text")),
        failed=COLOURS["failed"],
        grey=coloured("soft"),
    ).strip()


# What the session is: read by a thread, because its answers may wait for a lock or a disk, and the page must not.


@dataclass(frozen=True, slots=True)
class Seen:
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
    """Keeps ``seen`` up to date; ``runs`` only while ``with_runs`` is set, because old ones are read from disk."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.with_runs = False
        self.seen = Seen()
        self._looking = threading.Lock()  # a slow poll must not overwrite a later one
        self._worker: BackgroundWorker[bool] = BackgroundWorker(lambda _: self.look(), "dashboard-watch")

    def look(self) -> None:
        """Poll once, now; an error is kept in ``seen.problem``."""
        session = self._session
        with self._looking:
            try:
                engines = dict(session.engines())
                runs = tuple(session.runs) if self.with_runs else self.seen.runs
                run = session.current
                left = newest_interrupted(session.runs_dir) if run is None else None
                self.seen = Seen(run, engines, session.ready, runs, session.problem, left)
            except Exception as error:  # there is no caller to raise to: the page shows it
                problem = describe(error, "" if self.seen.problem else "the session does not answer")
                self.seen = Seen(self.seen.run, self.seen.engines, False, self.seen.runs, problem)

    def wake(self) -> None:
        """Poll soon, in the thread."""
        self._worker.ask(True)

    def close(self) -> None:
        """End the thread."""
        self._worker.close()
