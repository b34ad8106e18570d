"""Charts in the browser by ``live.js``: the four live ones of a run, or any that are drawn as a whole."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import panel as pn
import param
from panel.custom import JSComponent

from dtdg_lab.core.errors import LabError
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.run_window import CHARTS, RunWindow
from dtdg_lab.visualization.series import Line, XAxis
from dtdg_lab.visualization.style import theme_script

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import RunHandle

# What a display needs: first everything, then only what is new since the last message.


Message = dict[str, Any]
Defer = Callable[[Callable[[], None]], None]  # has a call made by the event loop
RELAID = ("title", "shapes", "annotations")  # layout fields that may change without redrawing the lines
REDRAWN = ("phases", "timeline")  # small charts that change as a whole


@dataclass(frozen=True, slots=True)
class _Sent:
    """How much of a line a display has: its stable points, and the last ones, which may still change."""

    key: str
    stable: int
    loose: tuple[list[float], list[float | None]]


class ChartFeed:
    """Messages for ``live.js`` about one run.

    A snapshot holds whole figures. A patch holds ``extend``: ``[chart, trace, xs, ys, drop]``, points to append to a
    trace after removing the last ``drop``; ``react``: figures to redraw; ``relayout``: layouts that changed
    (marks, titles); ``captions``. Messages are numbered: a display that misses one asks for a snapshot.
    """

    def __init__(self) -> None:
        self._number = -1
        self._lines: dict[str, list[_Sent]] = {}
        self._layouts: dict[str, dict[str, Any]] = {}
        self._drawn: dict[str, dict[str, Any]] = {}
        self._captions: dict[str, str] = {}

    def snapshot(self, window: RunWindow, x: XAxis) -> Message:
        """Everything; the patches that follow start from here."""
        figures = {chart: figure for chart, figure in window.figures(x).items() if chart in CHARTS}
        self._number += 1
        self._lines = {chart: [_sent(line) for line in lines] for chart, lines in window.lines(x).items()}
        self._layouts = window.layouts(x)
        self._drawn = {chart: figures[chart] for chart in REDRAWN}
        self._captions = {chart: window.view(chart).caption() for chart in CHARTS}
        return self._numbered(window, {"kind": "snapshot", "react": figures, "captions": dict(self._captions)})

    def patch(self, window: RunWindow, x: XAxis) -> Message | None:
        """What changed since the last message; None where nothing did."""
        message: Message = {"extend": [], "react": {}, "relayout": {}, "captions": {}}
        layouts = window.layouts(x)
        for chart, lines in window.lines(x).items():
            self._patch_lines(chart, lines, layouts[chart], message)
        for chart in REDRAWN:
            figure = window.view(chart).figure()
            if figure != self._drawn[chart]:
                self._drawn[chart] = message["react"][chart] = figure
        for chart in CHARTS:
            if (text := window.view(chart).caption()) != self._captions[chart]:
                self._captions[chart] = message["captions"][chart] = text
        if not any(message.values()):
            return None
        self._number += 1
        return self._numbered(window, {"kind": "patch", **message})

    def _patch_lines(self, chart: str, lines: list[Line], layout: dict[str, Any], message: Message) -> None:
        sent, before = self._lines[chart], self._layouts[chart]
        reframed = {name for name in layout if layout[name] != before.get(name)} - set(RELAID)
        self._layouts[chart] = layout
        self._lines[chart] = [_sent(line) for line in lines]
        # a new trace, one that was thinned or cut, or other axes
        if reframed or [line.key for line in lines] != [known.key for known in sent]:
            message["react"][chart] = {"data": [line.trace() for line in lines], "layout": layout}
            return
        if layout != before:
            message["relayout"][chart] = {name: layout[name] for name in RELAID}
        for index, (line, known) in enumerate(zip(lines, sent, strict=True)):
            xs, ys = line.xs[known.stable :], line.ys[known.stable :]
            if (xs, ys) != known.loose:
                message["extend"].append([chart, index, xs, ys, len(known.loose[0])])

    def _numbered(self, window: RunWindow, message: Message) -> Message:
        # one more than a series holds, for its newest point
        return {**message, "number": self._number, "points": max(4, window.points) + 2}


def _sent(line: Line) -> _Sent:
    return _Sent(line.key, line.stable, (line.xs[line.stable :], line.ys[line.stable :]))


PATIENCE_S = 20.0  # a second display that never loads must not hold up the first


class Charts(JSComponent):
    """Charts by name. It keeps no state: a display that reports ready gets what ``_on_ready`` sends.

    ``defer(call)`` schedules a call in the event loop: in a notebook a display reports on another thread.
    After ``expect()`` a notebook page loads a display: messages sent before it reports are lost.
    """

    charts = param.List(default=[], item_type=str, doc="Names of the charts, in order.")
    chart_height = param.Integer(default=318, doc="Height of one chart, pixels.")

    _esm: ClassVar[str] = theme_script() + (Path(__file__).parent / "live.js").read_text(encoding="utf-8")

    def __init__(self, *, defer: Defer = lambda call: call(), **params: Any) -> None:
        super().__init__(**params)
        self._defer = defer
        self._ready = False
        self._expected_s = -math.inf
        self._awaited = False

    def _on_ready(self) -> None:
        raise NotImplementedError

    def _send(self, message: Message | None) -> None:
        # as text: by bokeh's own encoding dicts may arrive as JavaScript Maps
        self._send_msg(json.dumps(message, allow_nan=False, separators=(",", ":")))

    def _handle_msg(self, data: Any) -> None:
        message = json.loads(data)
        if message.get("kind") == "dragged":
            self._defer(lambda: self._drag(message["handle"], float(message["value"])))
        elif message.get("kind") == "clicked":
            described = [message.get(name) for name in ("chart", "x", "y", "customdata")]
            self._defer(lambda: self._click(*described))
        elif message.get("kind") == "ready":
            self._awaited = False
            self._defer(self._greet)
        else:
            known = "only 'ready', 'dragged' and 'clicked' are understood"
            raise LabError(f"live.js sent {data!r}; {known}. Reload the page.")

    def _drag(self, handle: str, value: float) -> None:
        """A handle of a figure was dragged to a value of its axis."""

    def _click(self, chart: str, x: Any, y: Any, customdata: Any) -> None:
        """A point was clicked in a figure whose ``layout.meta`` has ``clickable``."""

    def expect(self) -> None:
        """A page is about to load a display."""
        self._awaited, self._expected_s = True, time.monotonic()

    @property
    def awaited(self) -> bool:
        """Whether a display is loading: the first one without limit, a further one for ``PATIENCE_S`` seconds."""
        return self._awaited and (not self._ready or time.monotonic() - self._expected_s < PATIENCE_S)

    @property
    def loaded(self) -> bool:
        """Whether every display that was begun has reported."""
        return self._ready and not self._awaited

    @property
    def ready(self) -> bool:
        """Whether a display has reported."""
        return self._ready

    def _greet(self) -> None:
        self._ready = True
        self._on_ready()


class WholeCharts(Charts):
    """Charts that are sent as whole figures, because they change rarely; a change may alter the set of charts.

    A figure whose ``layout.meta`` has ``handles`` gets points that can be dragged along an axis: each has a name, the
    axis ``along``, a position ``x``, ``y``, bounds ``low`` and ``high``, a title, and an ``origin``, relative to which
    its value is passed to the listener of ``on_drag``.
    """

    def __init__(
        self, figures: Callable[[], dict[str, Figure]], captions: Callable[[], dict[str, str]] = dict, **params: Any
    ) -> None:
        super().__init__(charts=list(figures()), **params)
        self._figures, self._captions = figures, captions
        self._dragged: Callable[[str, float], None] | None = None
        self._clicked: Callable[[str, Any, Any, Any], None] | None = None
        self._number = 0
        self._drawn: dict[str, tuple[Figure, str | None]] = {}

    def redraw(self) -> None:
        """Send the changes to every display; if the set of charts changed, send all of them."""
        if not self._ready:
            return
        before, now = self._drawn, self._look()
        if list(before) != list(now):
            self._send_all(now)
            return
        changed = {name: drawn for name, drawn in now.items() if drawn != before[name]}
        if changed:
            self._drawn = now
            self._send_numbered("patch", changed)

    def _look(self) -> dict[str, tuple[Figure, str | None]]:
        captions = self._captions()
        return {name: (figure, captions.get(name)) for name, figure in self._figures().items()}

    def _send_all(self, now: dict[str, tuple[Figure, str | None]]) -> None:
        self._drawn = now
        self._send_numbered("snapshot", now, charts=list(now))

    def _send_numbered(self, kind: str, drawn: dict[str, tuple[Figure, str | None]], **more: Any) -> None:
        self._number += 1
        react = {name: figure for name, (figure, _) in drawn.items()}
        captions = {name: text for name, (_, text) in drawn.items() if text is not None}
        self._send({"kind": kind, "number": self._number, "points": 0, "react": react, "captions": captions, **more})

    def _on_ready(self) -> None:
        self._send_all(self._look())

    def on_drag(self, listener: Callable[[str, float], None]) -> None:
        """Call ``listener(handle, value)`` while the user drags a handle, and on release."""
        self._dragged = listener

    def _drag(self, handle: str, value: float) -> None:
        if self._dragged is not None:
            self._dragged(handle, value)

    def on_click(self, listener: Callable[[str, Any, Any, Any], None]) -> None:
        """Call ``listener(chart, x, y, customdata)`` when the user clicks on a point of a clickable figure."""
        self._clicked = listener

    def _click(self, chart: str, x: Any, y: Any, customdata: Any) -> None:
        if self._clicked is not None:
            self._clicked(chart, x, y, customdata)


class LiveCharts(Charts):
    """Loss, phases, energy and timeline of a run, updated incrementally.

    It keeps no state: any display that reports ready, early or late, gets the whole window.
    """

    def __init__(self, waiting: RunWindow, **params: Any) -> None:
        super().__init__(charts=list(CHARTS), **params)
        self._waiting = waiting
        self._shown: RunHandle | None = None
        self._x: XAxis = "steps"
        self._feed = ChartFeed()
        self._version = -1

    def follow(self, shown: RunHandle | None) -> None:
        """Show another run, or with None empty charts."""
        if shown is not self._shown:
            self._shown = shown
            self.refresh()

    def over(self, x: XAxis) -> None:
        """Draw the loss over ``steps`` or ``seconds``."""
        if x != self._x:
            self._x = x
            self.refresh()

    def refresh(self) -> None:
        """Send everything to every display."""
        if self._ready:
            self._send(self._look(snapshot=True))

    def update(self) -> bool:
        """Send what is new; return whether there was anything."""
        if not self._ready or self._shown is None or self._shown.version == self._version:
            return False
        message = self._look(snapshot=False)
        if message is not None:
            self._send(message)
        return message is not None

    def _look(self, *, snapshot: bool) -> Message | None:
        """Read the window under its lock; encoding and sending are done without it."""
        look = self._feed.snapshot if snapshot else self._feed.patch
        if self._shown is None:
            return look(self._waiting, self._x)
        with self._shown.lock:
            self._version = self._shown.version
            return look(self._shown.live, self._x)

    def _on_ready(self) -> None:
        self.refresh()


# A page behind a tab: it gets its charts when it is opened, so that an unopened page draws nothing.


SETTLE_S = 0.2  # the message that opened the page may still be in another thread
AGAIN_S = 4.0


class OpenedPage:
    """A column that holds charts once it has been opened.

    In a notebook, the message that a tab was opened comes on another thread than the event loop's. Changes made by
    the loop at that moment may get lost, so it waits a little, and inserts the charts again if no display
    reports.
    """

    def __init__(self, charts: Charts) -> None:
        self._charts = charts
        self._opened_s: float | None = None
        self._put_s: float | None = None
        self.panel = pn.Column(sizing_mode="stretch_width", margin=0)

    def open(self) -> None:
        """Insert the charts where they are missing; called repeatedly while the page is open."""
        now = time.monotonic()
        if self._opened_s is None:
            self._opened_s = now
        waits = now - self._opened_s < SETTLE_S if self._put_s is None else now - self._put_s < AGAIN_S
        if self._charts.ready or waits:
            return
        self._put_s = now
        self.panel.clear()
        self.panel.append(self._charts)


# The choice of a light or dark theme, and accessible names for controls that Panel leaves unnamed.


_HERE = Path(__file__).parent


class ThemeSwitch(JSComponent):
    """A menu for the theme: that of the page (JupyterLab, Notebook, VS Code, else the system), light, or dark.

    The outermost layout around it takes the theme. Widgets there without an accessible name or keyboard control
    get one. The browser remembers the choice; the kernel does not know it.
    """

    _esm: ClassVar[str] = theme_script() + "".join(
        (_HERE / name).read_text(encoding="utf-8") for name in ("labels.js", "theme.js")
    )


def labelled(words: str) -> str:
    """A style sheet that names an unlabelled widget, for screen readers."""
    return f":host {{ --dl-label: {json.dumps(words, ensure_ascii=False)}; }}"


def tipped(words: str) -> str:
    """A style sheet with the tooltip of a widget, which is also its description for screen readers."""
    return f":host {{ --dl-tip: {json.dumps(words, ensure_ascii=False)}; }}"
