"""Pages of one run: time blocks, remote features, hybrid batches, and the editor of links."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.feature_store import BITS, LinkState
from dtdg_lab.dashboard.actions import ACTIVE
from dtdg_lab.dashboard.live import OpenedPage, WholeCharts, labelled
from dtdg_lab.dashboard.settings import PATIENCE_S, LiveWidgets
from dtdg_lab.network.patterns import format_links, parse_links
from dtdg_lab.systems.hybrid_batches.policy_charts import adjuster_verdict
from dtdg_lab.systems.hybrid_batches.view import Panel
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.style import coloured

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


# Hybrid batches of a run: the batch in training beside those it replaces, reservoir, adjuster, and averaging.


KNOBS = ("batch_snapshots", "batch_vertices", "adjuster", "reservoir", "average_every_s")
JUDGED = 40  # newest runs of the session among which adjusters and fixed sizes are compared
_WORDS = {"font-size": "13px", "color": coloured("text")}


class BatchPage:
    """The map of nodes and snapshots that a step takes, live, and the charts of what makes and chooses batches.

    ``defer(call)`` has a call made by the event loop, ``apply(changes)`` asks the run for live changes.
    """

    def __init__(self, defer: Callable[[Callable[[], None]], None], apply: Callable[[dict[str, Any]], None]) -> None:
        self._run: Run | None = None
        self._version = self._mapped = -1
        self._map: Panel | None = None
        self._panels: dict[str, Panel] = {}
        self._judged: tuple[Any, ...] = ()
        stretch = {"sizing_mode": "stretch_width", "margin": 0}
        self.map = WholeCharts(self.map_figures, self.map_captions, defer=defer, chart_height=380, **stretch)
        self.charts = WholeCharts(self.figures, self.captions, defer=defer, chart_height=330, **stretch)
        self._opened = [OpenedPage(self.map), OpenedPage(self.charts)]
        # StaticText and not panes: see dash.app
        self.words = pn.widgets.StaticText(value="", margin=(4, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.verdict = pn.widgets.StaticText(
            value="",
            visible=False,
            margin=(2, 10),
            styles={**_WORDS, "font-weight": "bold"},
            sizing_mode="stretch_width",
        )
        self.live_settings = LiveWidgets(KNOBS, apply)
        self.panel = pn.Column(
            self.words, self.verdict, self.live_settings.panel, *(page.panel for page in self._opened), **stretch
        )
        self.follow(None)

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._version, self._mapped = run, -1, -1
        self._map, self._panels = None, {}
        self.live_settings.follow(run)
        self._say("")
        self.map.redraw()
        self.charts.redraw()

    def open(self) -> None:
        """Put the charts on the page; called again and again while its tab is open."""
        for page in self._opened:
            page.open()

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw the batch now in training; once a second, where ``slow``, all that changed.

        Args:
            runs: of the session, oldest first: adjusters are compared with fixed sizes among the newest of them.
            slow: whether a second has passed.
        """
        run = self._run
        if run is not None and run.version != self._mapped:
            with run.lock:
                self._mapped = run.version
                self._map = run.window.view("hybrid").map()
            self.map.redraw()
        if run is not None and slow and run.version != self._version:
            with run.lock:
                self._version = run.version
                view = run.window.view("hybrid")
                self._panels, words = view.named_panels(), view.caption()
            self._panels.pop("map", None)
            self._say(words)
            self.charts.redraw()
        if slow:
            self.live_settings.update(run)
            self._judge(list(runs)[-JUDGED:])

    def _judge(self, runs: list[Run]) -> None:
        """Say how adjusters stand against the best fixed size among the session's runs, where both are there."""
        judged = tuple((run.id, len(run.window.loss.splits["validation"])) for run in runs)
        if judged == self._judged:
            return
        self._judged = judged
        with ExitStack() as locks:
            for lock in dict.fromkeys(run.lock for run in runs):
                locks.enter_context(lock)
            verdict = adjuster_verdict([(run.id, run.window) for run in runs])
        self.verdict.param.update(value=html.escape(verdict, quote=False), visible=bool(verdict))

    def _say(self, words: str) -> None:
        self.words.value = html.escape(words or _nothing(self._run), quote=False)

    def map_figures(self) -> dict[str, Figure]:
        """The batch now in training; nothing where the run has none."""
        return {} if self._map is None else {"batches-map": self._map[0]}

    def map_captions(self) -> dict[str, str]:
        """How many targets it has."""
        return {} if self._map is None else {"batches-map": self._map[1]}

    def figures(self) -> dict[str, Figure]:
        """The other charts by name: one that becomes another kind of picture would be drawn wrongly."""
        return {f"batches-{name}": figure for name, (figure, _) in self._panels.items()}

    def captions(self) -> dict[str, str]:
        """What to look for in each."""
        return {f"batches-{name}": words for name, (_, words) in self._panels.items()}


def _nothing(run: Run | None) -> str:
    """Why there are no hybrid batches, and what to do for some."""
    named = [name for name in catalogue.names("systems") if _has_batches(name)]
    do = f"Systems whose steps take some nodes in some snapshots: {', '.join(named)}."
    if run is None:
        return f"No run yet. {do}"
    if run.status in ACTIVE and run.config.system in named:
        return "The run has not told its batches yet."
    return f"This run has no hybrid batches. {do}"


def _has_batches(system: str) -> bool:
    return catalogue.system(system).parts.get("batching") == "hybrid"


# Blocks of time of a run: who owns what when, what ranks send and hide, what is held, what is brought.


class BlockPage:
    """The panels of a run's blocks, with what they are in words; brought up to date while the page is open.

    ``defer(call)`` has a call made by the event loop.
    """

    def __init__(self, defer: Callable[[Callable[[], None]], None]) -> None:
        self._run: Run | None = None
        self._version = -1
        self._panels: dict[str, Panel] = {}
        stretch = {"sizing_mode": "stretch_width", "margin": 0}
        self.charts = WholeCharts(self.figures, self.captions, defer=defer, chart_height=330, **stretch)
        self._opened = OpenedPage(self.charts)
        # StaticText and not panes: see dash.app
        self.words = pn.widgets.StaticText(value="", margin=(4, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.panel = pn.Column(self.words, self._opened.panel, **stretch)
        self.follow(None)

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._version, self._panels = run, -1, {}
        self._say("")
        self.charts.redraw()

    def open(self) -> None:
        """Put the charts on the page; called again and again while its tab is open."""
        self._opened.open()

    def update(self) -> None:
        """Draw again what changed; whole figures, so at most once a second."""
        run = self._run
        if run is None or run.version == self._version:
            return
        with run.lock:
            self._version = run.version
            view = run.window.view("blocks")
            self._panels, words = view.named_panels(), view.caption()
        self._say(words)
        self.charts.redraw()

    def _say(self, words: str) -> None:
        self.words.value = html.escape(words or _nothing_block_page(self._run), quote=False)

    def figures(self) -> dict[str, Figure]:
        """The panels by name: a chart that becomes another kind of picture would be drawn wrongly."""
        return {f"blocks-{name}": figure for name, (figure, _) in self._panels.items()}

    def captions(self) -> dict[str, str]:
        """What to look for in each panel."""
        return {f"blocks-{name}": words for name, (_, words) in self._panels.items()}


def _nothing_block_page(run: Run | None) -> str:
    """Why there are no blocks, and what to do for some."""
    named = [name for name in catalogue.names("systems") if _has_blocks(name)]
    do = f"Systems that compute a sequence in blocks of time: {', '.join(named)}."
    if run is None:
        return f"No run yet. {do}"
    if run.status in ACTIVE and run.config.system in named:
        return "The run has not told its blocks yet."
    return f"This run has no blocks of time. {do}"


def _has_blocks(system: str) -> bool:
    return "blocks" in catalogue.entry("parallel", catalogue.system(system).parts["parallel"]).options


# Links made slow by hand: a box for the delay and one for the rate of every link, owner by requester.


MOST_PARTS = 6  # up to which every link has boxes; of more parts, every owner has some for all its links
_KINDS = ("delay", "rate")
_TITLES = {"delay": "Delay added (ms)", "rate": "Mbit/s (0: any)"}
_BOUNDS = {"delay": (10_000.0, 5.0), "rate": (1e7, 25.0)}  # most, and what an arrow adds
_HEAD = {"font-size": "11.5px", "color": coloured("soft")}
_WIDTH = 84

Cell = tuple[str, int, int]  # kind, owner, requester; -1 for all of an owner's links


class LinkEditor:
    """Boxes for the setting ``links`` of the run that is shown: what a person enters is asked for at once.

    Args:
        defer: has a call made by the event loop.
        apply: asks the run for changes.
    """

    def __init__(self, defer: Callable[[Callable[[], None]], None], apply: Callable[[dict[str, Any]], None]) -> None:
        self._defer, self._apply = defer, apply
        self._parts = 0
        self._asked: tuple[str, float] = ("", 0.0)  # text, until when it is waited for
        self._shown = ""
        self.boxes: dict[Cell, Any] = {}
        self.words = pn.widgets.StaticText(value="", margin=(2, 10), styles=_HEAD, sizing_mode="stretch_width")
        self.free = pn.widgets.Button(label="Free all", width=80, margin=(3, 8))
        self.free.on_click(lambda event: defer(lambda: self._ask("")))
        self._tables = pn.Row(sizing_mode="stretch_width", margin=0)
        self.panel = pn.Card(
            pn.Column(self._tables, pn.Row(self.free, self.words, margin=0), margin=0, sizing_mode="stretch_width"),
            title="Slow links, one by one",
            collapsed=True,
            visible=False,
            sizing_mode="stretch_width",
            margin=(4, 8),
            styles={"border": f"1px solid {coloured('line')}", "box-shadow": "none"},
            header_background="#f6f8fa",
        )

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._asked = ("", 0.0)
        self.update(run)

    def update(self, run: Run | None) -> None:
        """Put the boxes where the run has them, but not over what was just entered here."""
        read = run is not None and "links" in run.config.flat and run.config.parts > 1
        self.panel.visible = read
        if run is None or not read:
            return
        if run.config.parts != self._parts:
            self._lay_out(run.config.parts)
        active = run.status in ACTIVE
        for box in (*self.boxes.values(), self.free):
            if box.disabled is active:
                box.disabled = not active
        asked, until = self._asked
        text = str(run.config["links"])
        if text == asked or time.monotonic() >= until:
            self._show(text)

    def _lay_out(self, parts: int) -> None:
        """Boxes for so many parts."""
        self._parts, self.boxes = parts, {}
        askers = list(range(parts)) if parts <= MOST_PARTS else [-1]
        self._tables.clear()
        for kind in _KINDS:
            heads = [_said(_TITLES[kind]), *(_said("to all" if asker < 0 else f"to {asker}") for asker in askers)]
            cells: list[Any] = list(heads)
            for owner in range(parts):
                cells.append(_said(f"part {owner}"))
                cells += [self._box((kind, owner, asker)) if owner != asker else _said("") for asker in askers]
            self._tables.append(pn.GridBox(*cells, ncols=1 + len(askers), margin=(0, 10)))

    def _box(self, cell: Cell) -> Any:
        most, step = _BOUNDS[cell[0]]
        kind, owner, asker = cell
        named = labelled(f"{_TITLES[kind]} from part {owner} to {'all' if asker < 0 else f'part {asker}'}")
        box = pn.widgets.FloatInput(
            value=0.0, start=0.0, end=most, step=step, width=_WIDTH, margin=(1, 2), stylesheets=[named]
        )
        # what is shown here sets the value alone; what a person enters sets both
        box.param.watch(lambda event: self._entered(cell, event.new), "value_throttled")
        self.boxes[cell] = box
        return box

    def _show(self, text: str) -> None:
        self._shown = text
        try:
            links = parse_links(text, self._parts)
        except ConfigError as error:  # of a run with other parts, as it was before a change
            self.words.value = html.escape(str(error), quote=False)
            return
        self.words.value = html.escape(text or "No link is slow by hand.", quote=False)
        for (kind, owner, asker), box in self.boxes.items():
            value = _value(links, kind, owner, asker)
            if box.value != value:
                box.value = value

    def _entered(self, cell: Cell, value: float | None) -> None:
        if value is not None:
            self._defer(lambda: self._ask(format_links(self._links({cell: float(value)}))))

    def _links(self, changed: dict[Cell, float]) -> LinkState:
        """The links that are shown, with those that were changed: a box for several tells less than the links do."""
        try:
            links = parse_links(self._shown, self._parts)
        except ConfigError:  # of a run with other parts
            links = LinkState.clean(self._parts)
        delay_s, rate = links.delay_s.copy(), links.bytes_per_s.copy()
        for (kind, owner, asker), value in changed.items():
            to = [other for other in range(self._parts) if other != owner] if asker < 0 else [asker]
            if kind == "delay":
                delay_s[owner, to] = value / 1e3
            else:
                rate[owner, to] = value / BITS if value > 0 else np.inf
        return LinkState(delay_s, rate)

    def _ask(self, text: str) -> None:
        self._asked = (text, time.monotonic() + PATIENCE_S)
        self._show(text)
        self._apply({"links": text})


def _value(links: LinkState, kind: str, owner: int, asker: int) -> float:
    """What a box stands at: of all an owner's links, the latest and the narrowest."""
    others = [other for other in range(links.parts) if other != owner] if asker < 0 else [asker]
    if kind == "delay":
        return round(1e3 * float(links.delay_s[owner, others].max()), 6)
    rate = float(links.bytes_per_s[owner, others].min()) * BITS
    return round(rate, 6) if np.isfinite(rate) else 0.0


def _said(text: str) -> Any:
    """A word of a table: its title above the first column, whose other words are short."""
    width = _WIDTH + 26 if text in _TITLES.values() else _WIDTH - 14
    return pn.widgets.StaticText(value=text, styles=_HEAD, width=width, margin=(6, 2))


# Features that parts ask each other for: knobs of cache, links and power, and what caches and links are now.


CACHE = ("cache_policy", "cache_window", "cache_bias")
LINKS = ("congestion", "congestion_ms", "congestion_mbit")
POWER = ("power_idle_w", "power_max_w", "power_gpu_idle_w", "power_gpu_max_w")


class FeaturePage:
    """The features of a run: what decides when its caches are rebuilt, how slow links are made, and what comes of it.

    Args:
        defer: has a call made by the event loop.
        apply: asks the run for live changes.
    """

    def __init__(self, defer: Callable[[Callable[[], None]], None], apply: Callable[[dict[str, Any]], None]) -> None:
        self._run: Run | None = None
        self._version = -1
        self._panels: dict[str, Panel] = {}
        stretch = {"sizing_mode": "stretch_width", "margin": 0}
        self.charts = WholeCharts(self.figures, self.captions, defer=defer, chart_height=330, **stretch)
        self._opened = OpenedPage(self.charts)
        # StaticText and not panes: see dash.app
        self.words = pn.widgets.StaticText(value="", margin=(4, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.cache, self.links, self.power = (LiveWidgets(names, apply) for names in (CACHE, LINKS, POWER))
        self.editor = LinkEditor(defer, apply)
        self.panel = pn.Column(
            self.words,
            self.cache.panel,
            self.links.panel,
            self.editor.panel,
            self._opened.panel,
            self.power.panel,
            **stretch,
        )
        self.follow(None)

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._version, self._panels = run, -1, {}
        for part in (self.cache, self.links, self.editor):
            part.follow(run)
        self.power.follow(run if _has_knobs(run) else None)
        self._say("")
        self.charts.redraw()

    def open(self) -> None:
        """Put the charts on the page; called again and again while its tab is open."""
        self._opened.open()

    def update(self) -> None:
        """Draw again what changed; whole figures, so at most once a second."""
        run = self._run
        for part in (self.cache, self.links, self.editor):
            part.update(run)
        self.power.update(run if _has_knobs(run) else None)
        if run is None or run.version == self._version:
            return
        with run.lock:
            self._version = run.version
            view, energy = run.window.view("features"), run.window.phase_energy
            self._panels, words = view.named_panels(), view.caption()
            if self._panels and energy.joules():
                self._panels["energy"] = (energy.figure(), energy.caption())
        self._say(words)
        self.charts.redraw()

    def _say(self, words: str) -> None:
        self.words.value = html.escape(words or _nothing_feature_page(self._run), quote=False)

    def figures(self) -> dict[str, Figure]:
        """The panels by name: a chart that becomes another kind of picture would be drawn wrongly."""
        return {f"features-{name}": figure for name, (figure, _) in self._panels.items()}

    def captions(self) -> dict[str, str]:
        """What to look for in each panel."""
        return {f"features-{name}": words for name, (_, words) in self._panels.items()}


def _has_knobs(run: Run | None) -> bool:
    """Whether a run has caches or links that can be changed: else constants of power belong elsewhere."""
    return run is not None and any(name in run.config.flat for name in (*CACHE, *LINKS))


def _nothing_feature_page(run: Run | None) -> str:
    """Why no features are fetched, and what to do for some."""
    named = [name for name in catalogue.names("systems") if _fetches(name)]
    do = f"Systems whose parts ask each other for features: {', '.join(named)}."
    if run is None:
        return f"No run yet. {do}"
    if run.status in ACTIVE and run.config.system in named:
        return "The run has not told its features yet."
    slow = " Its links can be made slow here all the same." if "links" in run.config.flat else ""
    return f"This run fetches no features.{slow} {do}"


def _fetches(system: str) -> bool:
    return catalogue.system(system).parts["parallel"] == "remote_feature"
