"""Boxes for slow links: the delay added to each part's replies, and in a fold each link with its rate."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import panel as pn

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.network.links import BITS, LinkState, parse_links, with_link
from dtdg_lab.visualization.palette import coloured
from dtdg_lab.widgets.component import Defer, LateColumn
from dtdg_lab.widgets.controls import PATIENCE_S, folded, labelled, tipped
from dtdg_lab.widgets.run_page import ACTIVE

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

MOST_REPLIES = 8  # largest number of parts with a box for the delay of each part's replies
MOST_LINKS = 6  # largest number of parts with boxes for every link; with more, each owner has boxes for all its links
ALL = -1  # requester that stands for all links of an owner
_KINDS = ("delay", "rate")
_TITLES = {"delay": "Delay added (ms)", "rate": "Mbit/s (0: any)"}
_TIPS = {"delay": "Delay added to every reply", "rate": "Bandwidth, 0 for no limit,"}
_BOUNDS = {"delay": (10_000.0, 5.0), "rate": (1e7, 25.0)}  # maximum, and step of the arrows
_HEAD = {"font-size": "11.5px", "color": coloured("soft")}
_WIDTH, _REPLY_WIDTH, _IN_ROW = 84, 50, 4  # widths of boxes in pixels, and number of boxes for replies in a row

Cell = tuple[str, int, int]  # kind, owner, requester


class LinkEditor:
    """Boxes for the setting ``links`` of the run on display. A value is requested as soon as it is entered.

    Args:
        defer: lets the event loop make a call.
        apply: requests changes of the run.

    Attributes:
        boxes: boxes by kind, owner and requester.
        panel: the boxes for replies, above a fold with all others.
    """

    def __init__(self, defer: Defer, apply: Callable[[dict[str, Any]], None]) -> None:
        self._defer, self._apply = defer, apply
        self._parts = 0
        self._asked: tuple[str, float] = ("", 0.0)  # the requested text, and until when to wait for it
        self._shown = ""
        self.boxes: dict[Cell, Any] = {}
        self.words = pn.widgets.StaticText(value="", margin=(2, 10), styles=_HEAD, sizing_mode="stretch_width")
        self.free = pn.widgets.Button(label="Reset all", width=80, margin=(3, 8))
        self.free.stylesheets = [tipped("Remove all delays and limits that were set here. Applied at the next step.")]
        self.free.on_click(lambda event: defer(lambda: self._ask("")))
        self._replies, self._tables = (LateColumn(sizing_mode="stretch_width", margin=0) for _ in range(2))
        links = folded("Edit links", self._tables, pn.Row(self.free, self.words, margin=0))
        self.panel = pn.Column(self._replies, links, visible=False, margin=(4, 8), sizing_mode="stretch_width")

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._asked = ("", 0.0)
        self.update(run)

    def update(self, run: Run | None) -> None:
        """Show the run's values, except while a value that was just entered is waiting."""
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
        requested, until = self._asked
        text = str(run.config["links"])
        if text == requested or time.monotonic() >= until:
            self._show(text)

    def _lay_out(self, parts: int) -> None:
        """Make the boxes for a number of parts."""
        self._parts, self.boxes = parts, {}
        replies: list[Any] = []
        if parts <= MOST_REPLIES:
            boxes = [self._box(("delay", owner, ALL), label=f"part {owner}") for owner in range(parts)]
            head = pn.widgets.StaticText(value="Delay added to replies (ms)", styles=_HEAD, margin=(4, 2))
            replies = [head, pn.GridBox(*boxes, ncols=_IN_ROW, margin=0)]
        self._replies.objects = replies
        kinds = [kind for kind in _KINDS if parts <= MOST_LINKS or kind == "rate" or not replies]
        tables = (self._table(kind, parts) for kind in kinds)
        self._tables.objects = [pn.Row(*tables, sizing_mode="stretch_width", margin=0)]

    def _table(self, kind: str, parts: int) -> Any:
        """Return the boxes of one kind for each link, or for all links of each owner."""
        askers = list(range(parts)) if parts <= MOST_LINKS else [ALL]
        cells = [_label(_TITLES[kind]), *(_label("to all" if asker == ALL else f"to {asker}") for asker in askers)]
        for owner in range(parts):
            cells.append(_label(f"part {owner}"))
            cells += [self._box((kind, owner, asker)) if owner != asker else _label("") for asker in askers]
        return pn.GridBox(*cells, ncols=1 + len(askers), margin=(0, 10))

    def _box(self, cell: Cell, *, label: str = "") -> Any:
        highest, step = _BOUNDS[cell[0]]
        kind, owner, asker = cell
        tip = f"{_TIPS[kind]} from part {owner} to {'all' if asker == ALL else f'part {asker}'}."
        name = f"{_TITLES[kind]} from part {owner} to {'all' if asker == ALL else f'part {asker}'}"
        if label:
            tip, name = "Extra delay of every reply of this part.", f"Delay added to replies of {label}, ms"
        box = pn.widgets.FloatInput(
            label=label,
            value=0.0,
            start=0.0,
            end=highest,
            step=step,
            width=_REPLY_WIDTH if label else _WIDTH,
            margin=(1, 2),
            stylesheets=[labelled(name), tipped(f"{tip} Applied at the next step.")],
        )
        # showing a value only sets `value`; entering one sets both
        box.param.watch(lambda event: self._entered(cell, event.new), "value_throttled")
        self.boxes[cell] = box
        return box

    def _show(self, text: str) -> None:
        self._shown = text
        try:
            links = parse_links(text, self._parts)
        except ConfigError as error:  # from a run that had other parts before a change
            self.words.value = html.escape(str(error), quote=False)
            return
        self.words.value = html.escape(text or "No link is slowed down.", quote=False)
        for (kind, owner, asker), box in self.boxes.items():
            value = _value(links, kind, owner, asker)
            if box.value != value:
                box.value = value

    def _entered(self, cell: Cell, value: float | None) -> None:
        if value is not None:
            self._defer(lambda: self._ask(self._changed(cell, float(value))))

    def _changed(self, cell: Cell, value: float) -> str:
        """Return the setting with the value that was entered in a box."""
        kind, owner, asker = cell
        change = {"delay_ms": value} if kind == "delay" else {"mbit": value}
        return with_link(self._shown, self._parts, (owner, None if asker == ALL else asker), **change)

    def _ask(self, text: str) -> None:
        self._asked = (text, time.monotonic() + PATIENCE_S)
        self._show(text)
        self._apply({"links": text})


def _value(links: LinkState, kind: str, owner: int, asker: int) -> float:
    """Return the value of a box; for all links of an owner, the longest delay or the lowest rate."""
    requesters = [candidate for candidate in range(links.parts) if candidate != owner] if asker == ALL else [asker]
    if kind == "delay":
        return round(1e3 * float(links.delay_s[owner, requesters].max()), 6)
    rate = float(links.bytes_per_s[owner, requesters].min()) * BITS
    return round(rate, 6) if np.isfinite(rate) else 0.0


def _label(text: str) -> Any:
    """Return a label of a table; a title is above the first column, whose other labels are short."""
    width = _WIDTH + 26 if text in _TITLES.values() else _WIDTH - 14
    return pn.widgets.StaticText(value=text, styles=_HEAD, width=width, margin=(6, 2))
