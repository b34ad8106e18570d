"""Page Data: choose, load and describe a dynamic graph."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import panel as pn

from dtdg_lab.config.catalogue import ABSENT
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.choices import is_generated, is_stored
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.datasets.names import DatasetInfo, list_datasets, load_for
from dtdg_lab.graphs.statistics import GraphStatistics, statistics_of
from dtdg_lab.visualization.chart import Figure, card
from dtdg_lab.visualization.graphs.statistics import (
    GRAPH_CHARTS,
    GraphCharts,
    mean_of,
    message_html,
    thumbnail_caption,
    thumbnail_html,
    thumbnail_svg,
)
from dtdg_lab.widgets.chart_cards import PanelCharts
from dtdg_lab.widgets.run_page import STRETCH, BackgroundWorker, Page, describe

# Statistics of the chosen graph, which a thread computes, since the page must not wait for a file or a generator.


NARROW = 210  # pixels: a text among controls
MOST_ROWS = 3_000_000  # largest number of edges, in a file or in all snapshots of a generator, loaded only for charts
MOST_ALIVE = 10 * MOST_ROWS  # the same if an edge counts once for every interval of its life
KEPT = 12  # number of descriptions that are kept


@dataclass(frozen=True, slots=True)
class Description:
    """The result for a choice: statistics, or in ``why_not`` the reason why there are none."""

    config: RunConfig
    statistics: GraphStatistics | None = None
    why_not: str = ""


def data_key(config: RunConfig) -> tuple[Any, ...]:
    """Return the settings on which the graph and its split depend; equal keys have equal charts."""
    options = tuple(sorted(config.options.get("datasets", {}).items()))
    return (config.dataset, config.protocol, config.seed if is_generated(config.dataset) else 0, options)


def why_not(config: RunConfig) -> str:
    """Return why a graph is not loaded only for charts; empty if it is."""
    if is_stored(config.dataset):
        return ""
    if ("datasets", config.dataset) in ABSENT:
        return "not registered here"
    if is_generated(config.dataset):
        rows = config["generated_edges"] * config["generated_snapshots"]
    else:
        if not is_here(config):
            return "not on this machine yet; the first run will download it"
        rows = _info(config).rows or 0
    if rows <= MOST_ROWS and rows * config["edge_life"] <= MOST_ALIVE:
        return ""
    return f"{rows:,} edges that live {config['edge_life']} intervals are too many to load only for charts"


def is_here(config: RunConfig) -> bool:
    """Return whether a config's graph is available without the internet."""
    if ("datasets", config.dataset) in ABSENT:
        return False
    return is_stored(config.dataset) or is_generated(config.dataset) or _info(config).on_this_machine


def _info(config: RunConfig) -> DatasetInfo:
    return next(info for info in list_datasets() if info.name == config.dataset)


def describe_data(config: RunConfig) -> Description:
    """Load the graph of a config and describe it; errors become text."""
    try:
        refused = why_not(config)
        return Description(config, why_not=refused) if refused else Description(config, statistics_of(load_for(config)))
    except Exception as error:  # there is no caller, so the page shows the error
        return Description(config, why_not=describe(error, f"{config.dataset} could not be described"))


class GraphLoader(BackgroundWorker[RunConfig]):
    """Describes the graph that was requested last; earlier requests that have not started are dropped.

    The thread calls ``on_done(described)``.
    """

    def __init__(self, on_done: Callable[[Description], None]) -> None:
        super().__init__(self._describe, "dashboard-graph")
        self._on_done = on_done
        self._known: dict[tuple[Any, ...], Description] = {}

    def _describe(self, config: RunConfig) -> None:
        key = data_key(config)
        description = self._known.get(key) or describe_data(config)
        if description.statistics is not None:  # others are tried again, since a run may download the graph
            self._known[key] = description
        while len(self._known) > KEPT:
            self._known.pop(next(iter(self._known)))
        self._on_done(description)


# The chosen graph: a small picture next to the controls, and a page of charts.


READING = "reading the graph …"


class GraphPage(Page):
    """Changes of the chosen data set over time; ``defer(call)`` lets the event loop make a call.

    A thread reads and describes the graph.
    """

    title = "Data"

    def __init__(self, settings: Settings, defer: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self._settings = settings
        self._key: tuple[Any, ...] | None = None
        self._view: GraphCharts | None = None
        self._note = READING
        self._loader = GraphLoader(lambda description: defer(lambda: self._show(description)))
        self._workers.append(self._loader)
        self.picture = pn.widgets.StaticText(value=message_html(READING), margin=(0, 8, 4, 9), width=NARROW)
        self.charts = PanelCharts("", defer=defer, chart_height=330, **STRETCH)
        self.panel = self.place(self.charts)
        self._draw()
        settings.layout.put_under_dataset(self.picture)
        settings.watch(self._follow_settings)
        self._follow_settings()

    def figures(self) -> dict[str, Figure]:
        """Return the charts of the page; without a graph they are empty and show the reason."""
        if self._view is not None:
            return self._view.figures()
        note = "<br>".join(textwrap.wrap(self._note, 44))
        empty = card([], "", empty=note)
        return dict.fromkeys(GRAPH_CHARTS, empty)

    def captions(self) -> dict[str, str]:
        """Return the captions of the charts."""
        return dict.fromkeys(GRAPH_CHARTS, "") if self._view is None else self._view.captions()

    def _draw(self) -> None:
        captions = self.captions()
        self.charts.draw({name: (figure, captions[name]) for name, figure in self.figures().items()})

    def _follow_settings(self) -> None:
        """Request the graph of the current settings if it is another one than before."""
        try:
            config = self._settings.config()
        except LabError:  # incompatible settings, which the page Code reports
            return
        if data_key(config) != self._key:
            self._key = data_key(config)
            self._loader.ask(config)

    def again(self) -> None:
        """Try again to draw a graph that could not be drawn, since a run may have downloaded it."""
        if self._view is None and self._note != READING:
            self._key = None
            self._follow_settings()

    def _show(self, description: Description) -> None:
        config, statistics = description.config, description.statistics
        if data_key(config) != self._key:
            return  # another graph was chosen since
        if statistics is None:
            self._view, self._note = None, description.why_not
            self.picture.value = message_html(f"No chart: {description.why_not}.")
        else:
            self._view = GraphCharts(statistics, config.protocol)
            caption = thumbnail_caption(
                len(statistics.edges), statistics.V, int(statistics.edges.max()), mean_of(statistics.kept)
            )
            drawing = thumbnail_svg(statistics.edges, statistics.kept, self._view.spans)
            self.picture.value = thumbnail_html(drawing, caption)
        self._draw()
