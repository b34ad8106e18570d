"""Boxes for the delay and the rate of every link, from owner to requester."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import panel as pn

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.network.patterns import BITS, LinkState, format_links, parse_links
from dtdg_lab.visualization.style import coloured
from dtdg_lab.widgets.controls import PATIENCE_S
from dtdg_lab.widgets.live import labelled
from dtdg_lab.widgets.worker import ACTIVE

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


MOST_PARTS = 6  # up to which every link has boxes; of more parts, every owner has some for all its links
_KINDS = ("delay", "rate")
_TITLES = {"delay": "Delay added (ms)", "rate": "Mbit/s (0: any)"}
_BOUNDS = {"delay": (10_000.0, 5.0), "rate": (1e7, 25.0)}  # most, and what an arrow adds
_HEAD = {"font-size": "11.5px", "color": coloured("soft")}
_WIDTH = 84

Cell = tuple[str, int, int]  # kind, owner, requester; -1 for all of an owner's links


class LinkEditor:
    """Boxes for the setting ``links`` of the run that is shown. A value that is entered is requested at once.

    Args:
        defer: has a call made by the event loop.
        apply: requests changes of the run.
    """

    def __init__(self, defer: Callable[[Callable[[], None]], None], apply: Callable[[dict[str, Any]], None]) -> None:
        self._defer, self._apply = defer, apply
        self._parts = 0
        self._asked: tuple[str, float] = ("", 0.0)  # text, until when it is waited for
        self._shown = ""
        self.boxes: dict[Cell, Any] = {}
        self.words = pn.widgets.StaticText(value="", margin=(2, 10), styles=_HEAD, sizing_mode="stretch_width")
        self.free = pn.widgets.Button(label="Reset all", width=80, margin=(3, 8))
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
        """Show the run's values, but not over what was just entered here."""
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
        """Make the boxes for this number of parts."""
        self._parts, self.boxes = parts, {}
        askers = list(range(parts)) if parts <= MOST_PARTS else [-1]
        self._tables.clear()
        for kind in _KINDS:
            heads = [_label(_TITLES[kind]), *(_label("to all" if asker < 0 else f"to {asker}") for asker in askers)]
            cells: list[Any] = list(heads)
            for owner in range(parts):
                cells.append(_label(f"part {owner}"))
                cells += [self._box((kind, owner, asker)) if owner != asker else _label("") for asker in askers]
            self._tables.append(pn.GridBox(*cells, ncols=1 + len(askers), margin=(0, 10)))

    def _box(self, cell: Cell) -> Any:
        most, step = _BOUNDS[cell[0]]
        kind, owner, asker = cell
        named = labelled(f"{_TITLES[kind]} from part {owner} to {'all' if asker < 0 else f'part {asker}'}")
        box = pn.widgets.FloatInput(
            value=0.0, start=0.0, end=most, step=step, width=_WIDTH, margin=(1, 2), stylesheets=[named]
        )
        # showing a value sets `value` alone; entering one sets both
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
        self.words.value = html.escape(text or "No link is slowed down.", quote=False)
        for (kind, owner, asker), box in self.boxes.items():
            value = _value(links, kind, owner, asker)
            if box.value != value:
                box.value = value

    def _entered(self, cell: Cell, value: float | None) -> None:
        if value is not None:
            self._defer(lambda: self._ask(format_links(self._links({cell: float(value)}))))

    def _links(self, changed: dict[Cell, float]) -> LinkState:
        """The links that are shown, with the changes: a box for several links does not have each one's value."""
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
    """The value of a box; of all an owner's links, the longest delay or the lowest rate."""
    others = [other for other in range(links.parts) if other != owner] if asker < 0 else [asker]
    if kind == "delay":
        return round(1e3 * float(links.delay_s[owner, others].max()), 6)
    rate = float(links.bytes_per_s[owner, others].min()) * BITS
    return round(rate, 6) if np.isfinite(rate) else 0.0


def _label(text: str) -> Any:
    """A label of a table. Its title stands above the first column, whose other labels are short."""
    width = _WIDTH + 26 if text in _TITLES.values() else _WIDTH - 14
    return pn.widgets.StaticText(value=text, styles=_HEAD, width=width, margin=(6, 2))
