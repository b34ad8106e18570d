"""Cards of figures that a page has made; a change replaces all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from dtdg_lab.visualization.chart import title_of
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.widgets.chart_cards import CardActions, CardSpec, ChartCards, encoded
from dtdg_lab.widgets.drawing import DrawingOrder

Panel = tuple[Figure, str]  # a chart with its caption


class PanelCharts(ChartCards):
    """Charts with captions, two in a row, which ``draw`` replaces and ``tick`` sends one by one.

    They show and steer nothing: what could be dragged in a run's own picture stays as it is.

    Args:
        prefix: of the charts' names on the page; none where it is empty.
        chart_height: of those that have no height of their own, pixels.
        params: ``defer`` and those of the component.
    """

    def __init__(self, prefix: str, *, chart_height: int, **params: Any) -> None:
        self._panels: dict[str, Panel] = {}
        self._sent: dict[str, tuple[str, str]] = {}
        self._prefix, self._height = prefix, chart_height
        self._clicked: Callable[[str, Any, Any, Any], None] | None = None
        super().__init__(DrawingOrder(), CardActions(click=self._click), **params)

    def draw(self, panels: Mapping[str, Panel], wide: Collection[str] = ()) -> None:
        """Draw these charts instead; each is sent when it is in view and has changed.

        Args:
            panels: charts and captions by name.
            wide: names of those that are as wide as the page; they stand above the others.
        """
        self._panels = {self._full(name): (_still(figure), caption) for name, (figure, caption) in panels.items()}
        places = {self._full(name): "whole" for name in wide}
        self.lay_out(
            [self._spec(name, figure, places.get(name, "supporting")) for name, (figure, _) in self._panels.items()]
        )
        self._order.place(list(self._panels))
        self._sent = {name: sent for name, sent in self._sent.items() if name in self._panels}

    def _full(self, name: str) -> str:
        return f"{self._prefix}-{name}" if self._prefix else name

    def _spec(self, name: str, figure: Figure, section: str) -> CardSpec:
        return CardSpec(name=name, run="", title=title_of(figure), place=section, height=self._height)

    def tick(self) -> None:
        """Send the chart whose turn it is, where it has changed; called while the page is open."""
        now_s = time.monotonic()
        if not self._order.is_free(now_s):
            return
        for name, is_forced in self._order.due(now_s):
            figure, caption = self._panels[name]
            drawing = encoded(figure), caption
            self._order.looked(name, now_s)
            if is_forced or self._sent.get(name) != drawing:
                self._sent[name] = drawing
                self.send(name, *drawing, self._order.sent(name, now_s))
                return

    def _click(self, chart: str, x: Any, y: Any, customdata: Any) -> None:
        if self._clicked is not None:
            self._clicked(chart, x, y, customdata)

    def on_click(self, listener: Callable[[str, Any, Any, Any], None]) -> None:
        """Call ``listener(chart, x, y, customdata)`` when a person clicks on a point of a clickable figure."""
        self._clicked = listener

    def figures(self) -> dict[str, Figure]:
        """Return the figures by their names on the page."""
        return {name: figure for name, (figure, _) in self._panels.items()}

    def captions(self) -> dict[str, str]:
        """Return the captions by the same names."""
        return {name: caption for name, (_, caption) in self._panels.items()}


def _still(figure: Figure) -> Figure:
    """Return a figure without handles."""
    meta = figure["layout"].get("meta", {})
    if "handles" not in meta:
        return figure
    static_meta = {name: value for name, value in meta.items() if name != "handles"}
    return {**figure, "layout": {**figure["layout"], "meta": static_meta}}
