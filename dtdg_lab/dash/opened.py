"""A page behind a tab: it gets its charts when it is opened, so that a page nobody opens draws nothing."""

from __future__ import annotations

import time

import panel as pn

from dtdg_lab.dash.live import Charts

SETTLE_S = 0.2  # what opened the page may still be on its way through another thread
AGAIN_S = 4.0


class OpenedPage:
    """A column that holds charts from when it was opened.

    In a notebook the page's own message that a tab was opened comes on another thread than the event loop's. What the
    loop changes at that very moment may be lost on its way to the page, so it waits a little, and where no display
    reports it puts the charts there again.
    """

    def __init__(self, charts: Charts) -> None:
        self._charts = charts
        self._opened_s: float | None = None
        self._put_s: float | None = None
        self.panel = pn.Column(sizing_mode="stretch_width", margin=0)

    def open(self) -> None:
        """Put the charts on the page where they are not yet; called again and again while it is open."""
        now = time.monotonic()
        if self._opened_s is None:
            self._opened_s = now
        waits = now - self._opened_s < SETTLE_S if self._put_s is None else now - self._put_s < AGAIN_S
        if self._charts.ready or waits:
            return
        self._put_s = now
        self.panel.clear()
        self.panel.append(self._charts)
