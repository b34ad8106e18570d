"""Charts in the browser by ``live.js``, drawn as a whole, and names for controls that Panel leaves without."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import panel as pn
import param
from panel.custom import JSComponent

from dtdg_lab.core.errors import LabError
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.style import theme_script

Message = dict[str, Any]
Defer = Callable[[Callable[[], None]], None]  # has a call made by the event loop

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


# Accessible names and tooltips for controls that Panel leaves without.


def labelled(words: str) -> str:
    """A style sheet that names an unlabelled widget, for screen readers."""
    return f":host {{ --dl-label: {json.dumps(words, ensure_ascii=False)}; }}"


def tipped(words: str) -> str:
    """A style sheet with the tooltip of a widget, which is also its description for screen readers."""
    return f":host {{ --dl-tip: {json.dumps(words, ensure_ascii=False)}; }}"
