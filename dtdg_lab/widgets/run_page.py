"""The base classes of the dashboard's pages, and of those that show what is special about one run; work in threads."""

from __future__ import annotations

import html
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import LabError
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.style import coloured
from dtdg_lab.widgets.live import Charts, Defer, OpenedPage, WholeCharts

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.visualization.run_view import RunView

T = TypeVar("T")
Panel = tuple[Figure, str]  # a chart with its caption
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


def text_line(value: str = "", **more: Any) -> pn.widgets.StaticText:
    """A line of text. Not a pane: a pane that changes in a notebook requests its style sheets from the internet."""
    return pn.widgets.StaticText(
        **{"value": value, "margin": (4, 10), "styles": TEXT, "sizing_mode": "stretch_width", **more}
    )


def show_text(line: pn.widgets.StaticText, text: str, *, problem: bool = False) -> None:
    """Show another text in a line, in the colour of problems where it is one."""
    line.param.update(value=html.escape(text, quote=False), styles=PROBLEM if problem else TEXT)


def alert_html(text: str) -> str:
    """A text that screen readers read out at once."""
    return f'<div role="alert">{html.escape(text, quote=False)}</div>'


@dataclass(frozen=True, slots=True)
class PageContext:
    """What the dashboard offers the pages of systems.

    Attributes:
        defer: has a call made by the event loop, which alone may change widgets.
        apply: requests live settings of the run that is shown, all for one step.
        runs: the session's runs, oldest first. It may read from disk: call it in a thread only.
    """

    defer: Defer
    apply: Callable[[dict[str, Any]], None]
    runs: Callable[[], Sequence[Run]]


class Page:
    """A page of the dashboard. The base class shows its charts once the page is open, and reacts to nothing.

    Attributes:
        title: of its tab.
        compares_runs: whether ``update`` needs the session's runs.
        panel: what its tab holds.
    """

    title = ""
    compares_runs = False
    panel: Any = None

    def __init__(self) -> None:
        self._opened: list[OpenedPage] = []
        self._workers: list[BackgroundWorker[Any]] = []

    def place(self, charts: Charts) -> pn.Column:
        """Where these charts appear on the page once it is open."""
        opened = OpenedPage(charts)
        self._opened.append(opened)
        return opened.panel

    def in_background(self, work: Callable[[T], None], name: str) -> BackgroundWorker[T]:
        """A thread for the page's work, which ends when the page is closed; see :class:`BackgroundWorker`."""
        worker = BackgroundWorker(work, name)
        self._workers.append(worker)
        return worker

    def open(self) -> None:
        """Show the charts; called at every update while the page is open."""
        for each in self._opened:
            each.open()

    def follow(self, run: Run | None) -> None:
        """Show another run."""

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Show what has changed; called eight times a second while the page is open.

        Args:
            runs: of the session, oldest first, where ``compares_runs``.
            slow: whether a second has passed since the last such call.
        """

    def close(self) -> None:
        """End its threads after their present work."""
        for worker in self._workers:
            worker.close()


class Pages(Page):
    """A page with parts; those that are shown stand one under the other. Subclasses say which these are.

    Args:
        title: of its tab.
        parts: the pages.
    """

    def __init__(self, title: str, parts: Sequence[Page]) -> None:
        super().__init__()
        self.title, self.parts = title, {part.title: part for part in parts}
        self.panel = pn.Column(*(part.panel for part in parts), **STRETCH)

    def shown(self) -> list[Page]:
        """The parts that are shown."""
        raise NotImplementedError

    def open(self) -> None:
        """Show the parts that are shown now, with their charts."""
        shown = self.shown()
        self.compares_runs = any(part.compares_runs for part in shown)
        for part in self.parts.values():
            if part.panel.visible != (part in shown):
                part.panel.visible = part in shown
        for part in shown:
            part.open()

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        for part in self.parts.values():
            part.follow(run)

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Show what has changed in the parts that are shown."""
        for part in self.shown():
            part.update(runs, slow=slow)

    def close(self) -> None:
        """End the threads of all parts."""
        for part in self.parts.values():
            part.close()


class PanelCharts(WholeCharts):
    """Charts with captions, which ``draw`` replaces.

    Args:
        prefix: of the charts' names on the page.
    """

    def __init__(self, prefix: str, **params: Any) -> None:
        panels: dict[str, Panel] = {}
        super().__init__(
            lambda: {f"{prefix}-{name}": figure for name, (figure, _) in panels.items()},
            lambda: {f"{prefix}-{name}": caption for name, (_, caption) in panels.items()},
            **params,
        )
        self._panels = panels

    def draw(self, panels: Mapping[str, Panel]) -> None:
        """Draw these charts instead. Names are kept: a chart that becomes another kind of picture is drawn wrongly."""
        named = dict(panels)
        self._panels.clear()
        self._panels.update(named)
        self.redraw()

    def figures(self) -> dict[str, Figure]:
        """The figures by their names on the page."""
        return self._figures()

    def captions(self) -> dict[str, str]:
        """What to look for in each."""
        return self._captions()


class RunPage(Page):
    """A text, and charts of one run that only systems of one family have; they stand under the charts of every run.

    Subclasses say which, and read them.

    Attributes:
        family: whose systems have such charts.
        data: what the page waits for, as in "No batch data yet."
    """

    family = ""
    data = ""

    def __init__(self, context: PageContext) -> None:
        super().__init__()
        self._context = context
        self._run: Run | None = None
        self._version = -1
        self._all_charts: list[PanelCharts] = []
        self.words = text_line()
        self.charts = self.add_charts()
        self.panel = pn.Column(self.words, **STRETCH)
        self.say("")

    def add_charts(self, height: int = 330) -> PanelCharts:
        """Charts that are empty before a run has data for them."""
        charts = PanelCharts(self.title.lower(), defer=self._context.defer, chart_height=height, **STRETCH)
        self._all_charts.append(charts)
        return charts

    def lay_out(self, *parts: Any) -> None:
        """Put widgets and charts below the text."""
        self.panel.extend([self.place(part) if isinstance(part, Charts) else part for part in parts])

    def follow(self, run: Run | None) -> None:
        """Switch to another run and clear the charts."""
        self._run, self._version = run, -1
        self.say("")
        for charts in self._all_charts:
            charts.draw({})

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw what changed. Figures are sent as a whole, so at most once a second."""
        run = self._run
        if not slow or run is None or run.version == self._version:
            return
        with run.lock:
            self._version = run.version
            panels, words = self.read(run)
        self.say(words)
        self.charts.draw(panels)

    def read(self, run: Run) -> tuple[dict[str, Panel], str]:
        """The run's charts by name and the text above them, both empty without data. The run is locked."""
        raise NotImplementedError

    def say(self, words: str) -> None:
        """Show the text, or why there is none."""
        self.words.value = html.escape(words or self.nothing(), quote=False)

    def systems(self) -> list[str]:
        """Names of the systems that have such charts."""
        return [system.name for system in catalogue.SYSTEMS if system.family == self.family]

    def serves(self, config: RunConfig) -> bool:
        """Whether a run of these settings has anything on the page; else the page is not shown."""
        return config.system in self.systems()

    def nothing(self) -> str:
        """Why there are no charts."""
        run = self._run
        if run is None or run.config.system not in self.systems():
            return ""
        return f"No {self.data} data yet." if run.status in ACTIVE else f"This run has no {self.data} data."


class ViewsPage(RunPage):
    """The charts of a family that has no page of its own: its views, one under the other.

    Those of a family with systems are shown for runs of these; those of a family without systems for every run.

    Args:
        context: what the dashboard offers.
        family: name of the family.
    """

    def __init__(self, context: PageContext, family: str) -> None:
        self.family, self.title = family, f"Charts of {family}"
        super().__init__(context)
        self.lay_out(self.charts)

    def serves(self, config: RunConfig) -> bool:
        """Return whether a view has something to show of the run."""
        systems = self.systems()
        return (not systems or config.system in systems) and self._run is not None and bool(self._views(self._run))

    def read(self, run: Run) -> tuple[dict[str, Panel], str]:
        """Return the panels of its views."""
        named = {}
        for view in self._views(run):
            for number, panel in enumerate(view.panels()):
                named[f"{view.name}-{number}" if number else view.name] = panel
        return named, ""

    def nothing(self) -> str:
        """Return no text: the charts have captions."""
        return ""

    def _views(self, run: Run) -> list[RunView]:
        return [view for view in run.live.of_family.get(self.family, ()) if view.shown]


# Work in a thread: a page must not wait for a file, a partitioner or a solver.


_LOG = logging.getLogger(__name__)


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
