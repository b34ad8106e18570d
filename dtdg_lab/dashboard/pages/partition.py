"""Page Partition: measure and compare partitions of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import format_bytes, format_percent, format_seconds
from dtdg_lab.dashboard.choices import dataset_choices, dataset_tasks
from dtdg_lab.dashboard.pages.data import is_here
from dtdg_lab.dashboard.settings import PARTS, Settings
from dtdg_lab.datasets.names import load_for
from dtdg_lab.partition.base import partition_settings, reads_file
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.partition.measured_partition import partition_graph
from dtdg_lab.runs.html import render
from dtdg_lab.visualization.graphs.partition import partition_cards, partition_tiles, run_partitions
from dtdg_lab.visualization.palette import coloured
from dtdg_lab.visualization.run_names import dataset_title
from dtdg_lab.visualization.runs.transfers import measured_traffic
from dtdg_lab.widgets.chart_cards import PanelCharts
from dtdg_lab.widgets.controls import labelled, tipped
from dtdg_lab.widgets.run_page import STRETCH, Page, describe, show_text, text_line
from dtdg_lab.widgets.tiles import Tiles

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph


# Partitions of the chosen graph.


NOT_HERE = "The graph is not on this machine yet. A run, or lab.datasets.load({name!r}), downloads it."


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """A request to partition a config's graph into ``parts`` by each of some partitioners, and to measure this."""

    config: RunConfig
    parts: int
    partitioners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The result of one partitioner: the cost of its partition, or in ``why_not`` the reason why there is none."""

    partitioner: str
    facts: PartitionFacts | None = None
    why_not: str = ""


def _measure_partition(graph: DynamicGraph, name: str, request: PartitionRequest) -> PartitionAnswer:
    try:
        measured = partition_graph(graph, name, request.parts, **_settings(request.config))
        return PartitionAnswer(name, PartitionFacts.read(measured.to_dict()))
    except Exception as error:  # there is no caller, and other partitioners must still be measured
        return PartitionAnswer(name, why_not=describe(error, f"partitioner {name} failed"))


def _settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings on which partitions and the rows sent between parts depend."""
    read = ("seed", "model", "layers", "hidden", "protocol")
    options = {**config.options.get("models", {}), **{name: config[name] for name in partition_settings()}}
    return {**{name: config[name] for name in read}, **options}


# Partitions side by side in a table: one row per partitioner, with the best value of each column in bold.


READING = (
    "Smaller is better everywhere; the best value of a column is bold. Cut edges cause halo rows, which are exchanged "
    "(adgnn-t) or copied (pygt-dist). Imbalance is the largest partition over the mean; 1 is balanced. Memory is "
    "that of the largest partition, with rows exchanged or copied. Rows and edges are summed over the snapshots that "
    "are trained."
)


def table_html(measured: Mapping[str, PartitionFacts], refused: Mapping[str, str], waiting: Sequence[str] = ()) -> str:
    """Return the table of partitions as HTML.

    Args:
        measured: partitioner -> its partition.
        refused: partitioner -> why it has no partition.
        waiting: partitioners that are not measured yet.
    """
    rows = {name: _cells(facts) for name, facts in measured.items()}
    return render(
        "dashboard/templates/partitions.html",
        rows=rows,
        least=[min(value for _, value, _ in column) for column in zip(*rows.values(), strict=True)],
        refused=refused,
        waiting=waiting,
        **{name.replace("-", "_"): coloured(name) for name in ("text", "line", "field-line", "problem", "soft")},
    )


def _cells(facts: PartitionFacts) -> list[tuple[str, float, str]]:
    """Return the text of each cell, its value for comparisons, and its tooltip."""
    totals, shares = facts.totals, {name: format_percent(value) for name, value in facts.shares.items()}
    halo, replicated = (f"{totals[name]:,.0f}" for name in ("halo", "replicated"))
    edges = f"{totals['cut_edges']:,.0f} of {totals['all_edges']:,.0f} edges"
    counted = [
        (shares["cut"], totals["cut_edges"], edges),
        (f"{halo} ({shares['halo']})", totals["halo"], f"{shares['halo']} of the rows that partitions read"),
        (replicated, totals["replicated"], f"{shares['replicated']} of the rows that partitions hold"),
    ]
    ratios = [facts.imbalance[quantity] for quantity in ("vertices", "edges", "load")]
    memory_bytes = [float(facts.memory[layout].max()) for layout in ("halo_vertex", "cached_vertex")]
    return [
        *counted,
        *((f"{ratio:.2f}", round(ratio, 2), "") for ratio in ratios),
        *((format_bytes(count), count, "") for count in memory_bytes),
        (format_seconds(facts.seconds), facts.seconds, ""),
    ]


# Node partitions: measured before a run uses them, side by side, and in detail as a run uses them.


AS_SET = "as set on the left"
RUN = "this run"
FEWEST = 2
FIRST = "Choose partitioners and press Measure to compare their partitions before a run uses one."
_SMALL = {"font-size": "11.5px", "color": coloured("soft")}
_SCROLLING = {"overflow-x": "auto", "max-width": "100%"}


class PartitionPage(Page):
    """Choices of data, parts and partitioners; a table of what each would cost; and charts of the selected partition.

    A run's own partition can be selected too. ``defer(call)`` lets the event loop make a call; a thread computes and
    measures partitions.
    """

    title = "Partition"

    def __init__(self, settings: Settings, defer: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self._settings, self._defer = settings, defer
        self._request: PartitionRequest | None = None
        self._measured: dict[str, PartitionFacts] = {}
        self._refused: dict[str, str] = {}
        self._run: Run | None = None
        self._run_partitions: list[PartitionFacts] = []
        self._sent: float | None = None  # bytes that a step of the run sends
        self._version = -1
        self._worker = self.in_background(self._work, "dashboard-partitions")
        self._make_widgets(defer)
        self.charts = PanelCharts("partition", defer=defer, chart_height=330, **STRETCH)
        self.panel = self._lay_out()
        settings.watch(self._follow_settings)
        self._follow_settings()

    def _make_widgets(self, defer: Callable[[Callable[[], None]], None]) -> None:
        every = list(catalogue.names("partition"))
        named = [name for name in every if not reads_file(name)]
        data = {"The settings": {AS_SET: ""}, **dataset_choices()}
        wide = {"sizing_mode": "stretch_width", "min_width": 100, "max_width": 190, "margin": (3, 8)}
        tip = "Graph to partition: that of the settings, or another. The run does not change."
        self.data = pn.widgets.Select(label="Data", groups=data, value="", stylesheets=[tipped(tip)], **wide)
        offered = [parts for parts in PARTS if parts >= FEWEST]
        self.parts = pn.widgets.Select(label="Parts", options=offered, value=FEWEST, width=80, margin=(3, 8))
        self.parts.stylesheets = [tipped("Number of partitions to measure. The run does not change.")]
        sheets = [".bk-input-group.bk-inline { flex-wrap: wrap; }", labelled("Partitioners to measure")]
        sheets.append(tipped("Partitioners to compare; each takes seconds to minutes on a large graph."))
        style = {"inline": True, "margin": (0, 8, 4, 8), "sizing_mode": "stretch_width", "stylesheets": sheets}
        self.partitioners = pn.widgets.CheckBoxGroup(options=every, value=named, **style)
        self.button = pn.widgets.Button(label="Measure", color="primary", width=100, margin=(20, 8, 0, 8))
        self.button.stylesheets = [tipped("Partition the graph now with each of these, and compare the costs.")]
        self.button.on_click(lambda event: defer(self._measure))
        self.status = text_line(FIRST, margin=(2, 10))
        self.table = text_line(visible=False, margin=(2, 8), styles=_SCROLLING)
        self.reading = text_line(READING, visible=False, margin=(2, 10), styles=_SMALL)
        self.looked_at = pn.widgets.RadioButtonGroup(
            options=[RUN], value=RUN, visible=False, margin=(4, 8), stylesheets=[labelled("Selected partition")]
        )
        self.looked_at.stylesheets = [*self.looked_at.stylesheets, tipped("Partition that the charts below show.")]
        self.looked_at.param.watch(lambda event: defer(self._draw), "value")
        self.tiles = Tiles(lambda message: None, defer=defer, sizing_mode="stretch_width", margin=(4, 0, 10, 0))

    def _lay_out(self) -> pn.Column:
        request_row = pn.Row(self.data, self.parts, self.button, margin=0, sizing_mode="stretch_width")
        looked_at = (self.looked_at, self.tiles, self.place(self.charts))
        return pn.Column(request_row, self.partitioners, self.status, self.table, self.reading, *looked_at, **STRETCH)

    # a person's actions

    def _follow_settings(self) -> None:
        """Take the number of parts from the settings, if it can be chosen here."""
        try:
            config = self._settings.config()
        except LabError:  # incompatible settings, which the page Code reports
            return
        if config.parts in self.parts.options and self._request is None:
            self.parts.value = config.parts

    def _measure(self) -> None:
        """Send the request to the thread; earlier measurements are dropped."""
        names = tuple(name for name in catalogue.names("partition") if name in self.partitioners.value)
        try:
            config = self._settings.config()
            if self.data.value:
                task = dataset_tasks(self.data.value)[0]  # any task, since partitions do not depend on it
                config = config.replace(dataset=self.data.value, task=task)
        except LabError as error:
            show_text(self.status, str(error), problem=True)
            return
        if not names:
            show_text(self.status, "No partitioner is selected. Tick at least one.", problem=True)
            return
        self._request = PartitionRequest(config, self.parts.value, names)
        self._measured, self._refused = {}, {}
        show_text(self.status, f"{_request_text(self._request)}: measuring …")
        self._report()
        self._worker.ask(self._request)

    # what the thread measures

    def _work(self, request: PartitionRequest) -> None:
        """Measure in the thread, until there is a newer request."""
        why_not = ""
        try:
            if is_here(request.config):
                graph = load_for(request.config)
                for name in request.partitioners:
                    if self._worker.overtaken:
                        break
                    self._defer(partial(self._take_answer, request, _measure_partition(graph, name, request)))
            else:
                why_not = NOT_HERE.format(name=request.config.dataset)
        except Exception as error:  # there is no caller, so the page shows the error
            why_not = describe(error, f"{request.config.dataset} could not be read")
        self._defer(lambda: self._end_request(request, why_not))

    def _take_answer(self, request: PartitionRequest, outcome: PartitionAnswer) -> None:
        if request is not self._request:
            return  # another measurement was requested since
        if outcome.facts is None:
            self._refused[outcome.partitioner] = outcome.why_not
        else:
            self._measured[outcome.partitioner] = outcome.facts
        self._report()

    def _end_request(self, request: PartitionRequest, why_not: str) -> None:
        if request is not self._request:
            return
        if why_not:
            show_text(self.status, f"{_request_text(request)}: {why_not}", problem=True)
            self._request = None
        else:
            show_text(self.status, f"{_request_text(request)}:")
        self._report()

    def _report(self) -> None:
        """Update table and menu with the partitions that are measured so far."""
        request, finished = self._request, {*self._measured, *self._refused}
        waiting = [name for name in (request.partitioners if request else ()) if name not in finished]
        self.table.param.update(value=table_html(self._measured, self._refused, waiting), visible=request is not None)
        self.reading.visible = request is not None
        self._offer()

    def _offer(self) -> None:
        """Offer the partitions that can be selected: the run's own and the measured ones."""
        offered = [*([RUN] if self._run_partitions else []), *self._measured]
        if offered != self.looked_at.options or not self.looked_at.visible:
            selected = self.looked_at.value if self.looked_at.value in offered else (offered or [RUN])[0]
            self.looked_at.param.update(options=offered or [RUN], value=selected, visible=bool(offered))
        self._draw()

    # the run's partition

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._run_partitions, self._sent, self._version = run, [], None, -1
        self._offer()

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw the run's partition again if it has changed, at most once per second since whole figures are sent."""
        run = self._run
        if not slow or run is None or run.version == self._version:
            return
        with run.lock:
            self._version = run.version
            partitions, traffic = run_partitions(run.live), measured_traffic(run.live)
        is_new = bool(partitions) != bool(self._run_partitions)
        self._run_partitions, self._sent = partitions, None if traffic is None else traffic.total
        if is_new:
            self._offer()
        elif self.looked_at.value == RUN:
            self._draw()

    # display

    @property
    def shown(self) -> list[PartitionFacts]:
        """The selected partition, and before it the one that it replaced, if any."""
        name = self.looked_at.value
        if name == RUN:
            return self._run_partitions[-2:]
        return [self._measured[name]] if name in self._measured else []

    def _draw(self) -> None:
        if not self.shown:
            self.tiles.draw(())
            self.charts.draw({})
            return
        *previous, facts = self.shown
        self.tiles.draw(partition_tiles(facts, self._sent if self.looked_at.value == RUN else None))
        cards = partition_cards(facts, previous[0] if previous else None)
        self.charts.draw({str(index): (figure, caption) for index, (figure, caption) in enumerate(cards)})


def _request_text(request: PartitionRequest) -> str:
    """Return data, number of partitions and model of a request as text."""
    config = request.config
    data = dataset_title(config.dataset)
    layers = f"{config.layers} layer{'s' if config.layers > 1 else ''}"
    return f"{data} in {request.parts} partitions, for {config.model} with {layers}"
