"""The base class of the dashboard's pages, and work that they do in threads."""

from __future__ import annotations

import html
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import panel as pn

from dtdg_lab.core.errors import LabError
from dtdg_lab.visualization.palette import coloured
from dtdg_lab.widgets.chart_cards import PanelCharts

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

T = TypeVar("T")
ACTIVE = ("starting", "running", "paused", "stopping")  # states of a run that has not ended
STRETCH: Mapping[str, Any] = {"sizing_mode": "stretch_width", "margin": 0}
TEXT = {"font-size": "13px", "color": coloured("text")}
PROBLEM = {"font-size": "13px", "color": coloured("problem")}
ALERT = {
    **TEXT,
    "color": coloured("alert"),
    "background": coloured("alert-back"),
    "padding": "8px",
    "border": f"1px solid {coloured('alert-line')}",
    "border-radius": "6px",
    "overflow-wrap": "anywhere",
}


def text_line(value: str = "", **extra: Any) -> pn.widgets.StaticText:
    """Return a line of text.

    It is a widget, since a pane that changes in a notebook would request its style sheets from the internet.
    """
    return pn.widgets.StaticText(
        **{"value": value, "margin": (4, 10), "styles": TEXT, "sizing_mode": "stretch_width", **extra}
    )


def show_text(line: pn.widgets.StaticText, text: str, *, problem: bool = False) -> None:
    """Show another text in a line, in the colour for problems if it is one."""
    line.param.update(value=html.escape(text, quote=False), styles=PROBLEM if problem else TEXT)


def alert_html(text: str) -> str:
    """Return a text as HTML that screen readers read out at once."""
    return f'<div role="alert">{html.escape(text, quote=False)}</div>'


class Page:
    """A page of the dashboard. The base class draws its charts while the page is open, and does nothing else.

    Attributes:
        title: title of its tab.
        compares_runs: whether ``update`` needs the session's runs.
        needs_settings: whether the settings are shown next to it; otherwise it has the whole width.
        panel: content of its tab. A style sheet of its own that sets ``display`` would show it even while it is hidden.
    """

    title = ""
    compares_runs = False
    needs_settings = True
    panel: Any = None

    def __init__(self) -> None:
        self._placed: list[PanelCharts] = []
        self._workers: list[BackgroundWorker[Any]] = []

    def place(self, charts: PanelCharts) -> PanelCharts:
        """Draw charts while the page is open; return them for the page's layout."""
        self._placed.append(charts)
        return charts

    def in_background(self, work: Callable[[T], None], name: str) -> BackgroundWorker[T]:
        """Return a worker for the page, which ends when the page is closed."""
        worker = BackgroundWorker(work, name)
        self._workers.append(worker)
        return worker

    def open(self) -> None:
        """Draw the charts; called at every update while the page is open."""
        for charts in self._placed:
            charts.tick()

    def follow(self, run: Run | None) -> None:
        """Show another run."""

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Show what has changed; called eight times per second while the page is open.

        Args:
            runs: the session's runs, oldest first, if ``compares_runs``.
            slow: whether a second has passed since the last call with ``slow``.
        """

    def close(self) -> None:
        """End its threads after their current work."""
        for worker in self._workers:
            worker.close()


# Work in a thread, since a page must not wait for a file, a partitioner or a solver.


_LOG = logging.getLogger(__name__)


def describe(error: Exception, what: str) -> str:
    """Return an error as text for a person; log errors that are not our own, with the traceback.

    Args:
        error: the error whose message is shown.
        what: what failed, for the log; nothing is logged if it is empty.
    """
    if isinstance(error, LabError):
        return str(error)
    if what:
        _LOG.error("%s", what, exc_info=error)
    return f"{type(error).__name__}: {error} (details are in the log)"


class BackgroundWorker(Generic[T]):
    """Calls ``work(request)`` in its own thread for the newest request; older ones that have not started are dropped.

    The thread starts with the first request.

    Args:
        work: a function that must not raise, since there is no caller who could handle the error.
        name: name of the thread.
    """

    def __init__(self, work: Callable[[T], None], name: str) -> None:
        self._work, self._name = work, name
        self._request: T | None = None
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def overtaken(self) -> bool:
        """Whether the current result is no longer needed, since there is a newer request or the worker was closed."""
        return self._closed or self._request is not None

    def ask(self, request: T) -> None:
        """Work on a request next."""
        with self._wake:
            self._request = request
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._wake.notify()

    def close(self) -> None:
        """End the thread after its current work."""
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
