"""Controls of settings: one widget for each option of the glossary, and rows of live settings beside charts."""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import panel as pn
from bokeh.models import CustomJSTickFormatter

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.options import Option
from dtdg_lab.network.patterns import BITS, LinkState, format_links, parse_links
from dtdg_lab.visualization.style import coloured
from dtdg_lab.widgets.live import Defer, labelled, tipped
from dtdg_lab.widgets.run_page import ACTIVE

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


_STYLE = (
    f"input:disabled, select:disabled {{ background: {coloured('off')}; color: {coloured('off-text')}; opacity: 1; }} "
    "select.bk-input { padding-left: 8px; padding-right: 20px; } "  # half a row holds the longest names
    "label { display: block; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }"
)
_POWER = "return String(Number((10 ** tick).toPrecision(3)))"  # as LogControl reads it, while the slider moves

Choices = Sequence[Any] | Mapping[str, Any]  # values; label -> value; group -> label -> value


class SettingControl:
    """A widget for one option. ``on_change`` calls back for what a person does, never for what ``show`` does."""

    def __init__(self, option: Option, choices: Choices | None = None) -> None:
        self.option = option
        self._quiet: int | None = None  # the thread that shows a value now; a person's may come on another
        self._listener: Callable[[str, Any], None] | None = None
        self.widget: Any = self._make(choices if choices is not None else option.choices)
        throttled = "value_throttled" in self.widget.param
        self.widget.param.watch(self._changed, "value_throttled" if throttled else "value")

    def _make(self, choices: Choices) -> pn.widgets.Widget:
        option = self.option
        common = self._common()
        if choices:
            return pn.widgets.Select(**_offered(choices), value=_values(choices)[0], **common)
        if option.kind is bool:
            return pn.widgets.Checkbox(value=option.default, **common)
        if option.kind is str:
            return pn.widgets.TextInput(value=option.default, **common)
        if option.slider:
            low, high = option.slider
            step = 10.0 ** math.floor(math.log10((high - low) / 100))
            return pn.widgets.FloatSlider(start=low, end=high, step=step, value=option.default, **common)
        number = pn.widgets.IntInput if option.kind is int else pn.widgets.FloatInput
        step = 1 if option.kind is int else 0.1
        end = None if option.high is None or option.high > 2**31 else option.high  # larger ones lose precision
        return number(value=option.default, start=option.low, end=end, step=step, **common)

    def _common(self) -> dict[str, Any]:
        """Parameters of every kind of widget."""
        styles = [_STYLE, tipped(self.option.tip), *([labelled(self.option.spoken)] if self.option.spoken else [])]
        return {"label": self.label, "sizing_mode": "stretch_width", "margin": (3, 8), "stylesheets": styles}

    @property
    def name(self) -> str:
        """The option's flat name."""
        return self.option.name

    @property
    def label(self) -> str:
        """What the widget is called."""
        unit = self.option.unit
        bare = self.name.removesuffix(f"_{unit.lower()}") if len(unit) <= 2 else self.name
        words = self.option.label or bare.replace("_", " ").capitalize()
        return f"{words} ({unit})" if unit and "(" not in words and unit not in words.lower().split() else words

    @property
    def value(self) -> Any:
        """What the widget stands at."""
        return self._typed(self.widget.value)

    def _typed(self, value: Any) -> Any:
        return float(value) if self.option.kind is float and value is not None else value

    def show(self, value: Any, label: str = "", group: str = "Others") -> None:
        """Put the widget at a value, without a call back; a choice it does not offer yet is added as ``label``."""
        if value == self.value:
            return
        self._quiet = threading.get_ident()
        try:
            if isinstance(self.widget, pn.widgets.Select):
                self.widget.disabled_options = [each for each in self.widget.disabled_options if each != value]
                if value not in self.widget.values:
                    self._add_choice(value, label or str(value), group)
            self._put(value)
        finally:
            self._quiet = None

    def _add_choice(self, value: Any, label: str, group: str) -> None:
        options, groups = self.widget.options, self.widget.groups
        if groups:
            self.widget.groups = {**groups, group: {**groups.get(group, {}), label: value}}
        else:
            self.widget.options = {**options, label: value} if isinstance(options, dict) else [*options, value]

    def _put(self, value: Any) -> None:
        if isinstance(self.widget, pn.widgets.FloatSlider):
            self.widget.end = max(self.widget.end, value)
        self.widget.value = value

    def waits(self, words: str = "") -> None:
        """Say beside the label what waits to be applied, such as ``8 → 6``; nothing where the text is empty."""
        self.widget.label = f"{self.label} · {words}" if words else self.label

    def offer(self, choices: Choices) -> None:
        """Change what a choice offers; the value goes to the nearest one left: itself, or the last."""
        options, values = dict(choices) if isinstance(choices, Mapping) else list(choices), _values(choices)
        if options == self.widget.options:
            return
        self._quiet = threading.get_ident()
        try:
            kept = self.widget.value if self.widget.value in values else values[-1]
            self.widget.param.update(options=options, disabled_options=[], value=kept)
        finally:
            self._quiet = None

    def refuse(self, values: Collection[Any]) -> None:
        """Show these choices as not available, except the one that it stands at."""
        refused = [value for value in self.widget.values if value in values and value != self.widget.value]
        if refused != self.widget.disabled_options:
            self.widget.disabled_options = refused

    def on_change(self, listener: Callable[[str, Any], None]) -> None:
        """Call ``listener(name, value)`` when a person has chosen a value: on release, for a slider."""
        self._listener = listener

    def on_preview(self, listener: Callable[[str, Any], None]) -> None:
        """Call ``listener(name, value)`` while a person drags a slider."""
        if "value_throttled" in self.widget.param:
            self.widget.param.watch(lambda event: self._tell(listener, event.new), "value")

    def _changed(self, event: Any) -> None:
        if self._listener is not None:
            self._tell(self._listener, event.new)

    def _tell(self, listener: Callable[[str, Any], None], value: Any) -> None:
        if self._quiet != threading.get_ident() and value is not None:
            listener(self.name, self._typed(value))


def _values(choices: Choices) -> list[Any]:
    """The values that choices stand for."""
    if not isinstance(choices, Mapping):
        return list(choices)
    return [each for value in choices.values() for each in (value.values() if isinstance(value, Mapping) else [value])]


def _offered(choices: Choices) -> dict[str, Any]:
    """The parameter of a Select that takes these choices."""
    if not isinstance(choices, Mapping):
        return {"options": list(choices)}
    grouped = any(isinstance(value, Mapping) for value in choices.values())
    return {"groups" if grouped else "options": dict(choices)}


class LogControl(SettingControl):
    """A slider over powers of ten, for a positive number."""

    def _make(self, choices: Choices) -> pn.widgets.Widget:
        low, high = self.option.slider
        low, high, usual = (math.log10(value) for value in (low, high, self.option.default))
        written = CustomJSTickFormatter(code=_POWER)
        return pn.widgets.FloatSlider(start=low, end=high, step=0.05, value=usual, format=written, **self._common())

    def _typed(self, value: Any) -> Any:
        return None if value is None else float(f"{10**value:.3g}")

    def _put(self, value: Any) -> None:
        exponent = math.log10(value) if value > 0 else self.widget.start
        self.widget.param.update(
            start=min(self.widget.start, exponent), end=max(self.widget.end, exponent), value=exponent
        )


def make_control(option: Option, choices: Choices | None = None) -> SettingControl:
    """The control that fits an option."""
    return LogControl(option) if option.logarithmic else SettingControl(option, choices)


# A part of the controls that is folded away until it is wanted.


def folded(title: str, *content: Any, most_px: int = 0) -> pn.Card:
    """The content under a title that opens it; what is higher than ``most_px``, where given, scrolls."""
    scrolling = {"max-height": f"{most_px}px", "overflow-y": "auto"} if most_px else {}
    inside = pn.Column(*content, sizing_mode="stretch_width", margin=0, styles=scrolling)
    edge = {"border": f"1px solid {coloured('line')}", "box-shadow": "none"}
    looks: dict[str, Any] = {"styles": edge, "header_background": "#f6f8fa"}
    head = (
        ":host { min-width: 0 !important; border-radius: 8px; } "
        ".card-header { padding: 4px 8px; } .card-header h3, .card-title, .card-header-row "
        "{ font-size: 12.5px; text-align: left; }"
    )
    return pn.Card(
        inside, title=title, collapsed=True, sizing_mode="stretch_width", margin=(4, 8), stylesheets=[head], **looks
    )


# Boxes for the delay and the rate of every link, from owner to requester.


PATIENCE_S = 3.0  # for a change to be made before the control shows what the run has
MOST_PARTS = 6  # up to which every link has boxes; of more parts, every owner has some for all its links
_KINDS = ("delay", "rate")
_TITLES = {"delay": "Delay added (ms)", "rate": "Mbit/s (0: any)"}
_TIPS = {"delay": "Delay added to every reply", "rate": "Bandwidth, 0 for no limit,"}
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

    def __init__(self, defer: Defer, apply: Callable[[dict[str, Any]], None]) -> None:
        self._defer, self._apply = defer, apply
        self._parts = 0
        self._asked: tuple[str, float] = ("", 0.0)  # text, until when it is waited for
        self._shown = ""
        self.boxes: dict[Cell, Any] = {}
        self.words = pn.widgets.StaticText(value="", margin=(2, 10), styles=_HEAD, sizing_mode="stretch_width")
        self.free = pn.widgets.Button(label="Reset all", width=80, margin=(3, 8))
        self.free.stylesheets = [tipped("Remove all delays and limits that were set here, at the next step.")]
        self.free.on_click(lambda event: defer(lambda: self._ask("")))
        self._tables = pn.Row(sizing_mode="stretch_width", margin=0)
        self.panel = folded("Slow links, one by one", self._tables, pn.Row(self.free, self.words, margin=0))
        self.panel.param.update(visible=False, margin=(4, 8))

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
        link = f"from part {owner} to {'all' if asker < 0 else f'part {asker}'}"
        named = labelled(f"{_TITLES[kind]} {link}")
        box = pn.widgets.FloatInput(
            value=0.0,
            start=0.0,
            end=most,
            step=step,
            width=_WIDTH,
            margin=(1, 2),
            stylesheets=[named, tipped(f"{_TIPS[kind]} {link}, at the next step.")],
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
