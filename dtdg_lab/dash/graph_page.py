"""The chosen graph: a small picture beside the controls, and a page of charts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import panel as pn

from dtdg_lab.core.errors import LabError
from dtdg_lab.dash.graph_loader import Described, GraphLoader, data_key
from dtdg_lab.dash.live import WholeCharts
from dtdg_lab.dash.opened import OpenedPage
from dtdg_lab.dash.settings import Settings
from dtdg_lab.views.graph import GRAPH_CHARTS, GraphView
from dtdg_lab.views.graph_words import mean_of
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.thumbnail import message_html, thumbnail_html, thumbnail_svg, thumbnail_words

READING = "reading the graph …"


class GraphPage:
    """What the chosen data set looks like over time; ``defer(call)`` has a call made by the event loop.

    The graph is read and described by a thread. ``follow`` is called by the loop after a setting has changed.
    """

    def __init__(self, settings: Settings, defer: Callable[[Callable[[], None]], None]) -> None:
        self._settings = settings
        self._key: tuple[Any, ...] | None = None
        self._view: GraphView | None = None
        self._note = READING
        self._loader = GraphLoader(lambda described: defer(lambda: self._show(described)))
        self.picture = pn.widgets.StaticText(value=message_html(READING), margin=(0, 8, 4, 9), width=285)
        self.charts = WholeCharts(
            self.figures, self.sentences, defer=defer, chart_height=330,
            sizing_mode="stretch_width", margin=0,
        )  # fmt: skip
        self.page = OpenedPage(self.charts)
        settings.put_under("dataset", self.picture)
        settings.watch(self.follow)
        self.follow()

    def figures(self) -> dict[str, Figure]:
        """The charts of the page; before the graph has been described they say why."""
        if self._view is not None:
            return self._view.figures()
        note = "<br>".join(textwrap.wrap(self._note, 44))
        empty: Figure = {"data": [], "layout": with_note(frame("", "", ""), note)}
        return dict.fromkeys(GRAPH_CHARTS, empty)

    def sentences(self) -> dict[str, str]:
        """What to look for in the charts; nothing where there are none."""
        return dict.fromkeys(GRAPH_CHARTS, "") if self._view is None else self._view.sentences()

    def follow(self) -> None:
        """Ask for the graph of the present settings where it is another than before."""
        try:
            config = self._settings.config()
        except LabError:  # settings that do not go together: the page As code says so
            return
        if data_key(config) != self._key:
            self._key = data_key(config)
            self._loader.ask(config)

    def again(self) -> None:
        """Look again at a graph that could not be drawn: a run may have brought it to this machine."""
        if self._view is None and self._note != READING:
            self._key = None
            self.follow()

    def close(self) -> None:
        """End the thread."""
        self._loader.close()

    def _show(self, described: Described) -> None:
        config, found = described.config, described.statistics
        if data_key(config) != self._key:
            return  # another one has been chosen since
        if found is None:
            self._view, self._note = None, described.why_not
            self.picture.value = message_html(f"No picture: {described.why_not}.")
        else:
            self._view = GraphView(found, config.protocol)
            words = thumbnail_words(len(found.edges), found.V, int(found.edges.max()), mean_of(found.kept))
            self.picture.value = thumbnail_html(thumbnail_svg(found.edges, found.kept, self._view.spans), words)
        self.charts.redraw()
