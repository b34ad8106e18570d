"""Cards with charts in the browser: the text around each plot, and the order in which plots are drawn."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import orjson
import param
from panel.custom import JSComponent

from dtdg_lab.core.errors import LabError
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, title_of
from dtdg_lab.widgets.component import Defer, component_script

PICTURE_S, OTHERS_S = 0.25, 1.0  # shortest time between two drawings of a main picture, and of another chart
CALM_PICTURE_S = 1.0  # the same for main pictures if a viewer prefers reduced motion
PATIENCE_S = 5.0  # if a display does not answer for this long, it counts as closed until it reports again
SMOOTHING = 0.2  # weight of the newest time in the mean drawing time, so that one slow drawing makes no page busy
BUSY_S = 1.0  # a page is busy if drawings take longer than this on average


@dataclass(slots=True)
class _Display:
    """A place where charts are shown: which charts are in view, and the message that it has not acknowledged yet."""

    visible: frozenset[str] = frozenset()
    is_calm: bool = False  # whether its viewer prefers reduced motion
    owes: int | None = None
    sent_s: float = -math.inf
    took_s: float = 0.0


@dataclass(slots=True)
class _Turn:
    """When a chart was last checked for changes, and whether it must be sent even without a change."""

    looked_s: float = -math.inf
    forced: bool = True


@dataclass(slots=True)
class DrawingOrder:
    """Decides which chart is drawn next. Displays report what is in view, and acknowledge what they have drawn."""

    _displays: dict[str, _Display] = field(default_factory=dict)
    _turns: dict[str, _Turn] = field(default_factory=dict)
    _pictures: frozenset[str] = frozenset()
    _number: int = 0
    _last: str = ""  # the chart that was sent last

    def place(self, names: Sequence[str], pictures: Collection[str] = ()) -> None:
        """Set the charts that exist now; those that existed before keep their turn."""
        self._turns = {name: self._turns.get(name, _Turn()) for name in names}
        self._pictures = frozenset(pictures)

    def hear(self, display: str, visible: Collection[str]) -> None:
        """Note which charts are in view on a display; those that have just come into view are due at once."""
        state = self._displays.setdefault(display, _Display())
        for name in set(visible) - state.visible:
            self.force(name)
        state.visible = frozenset(visible)

    def calm(self, display: str, is_calm: bool) -> None:
        """Note whether the viewer of a display prefers reduced motion."""
        self._displays.setdefault(display, _Display()).is_calm = is_calm

    def acknowledge(self, display: str, number: int, took_ms: float | None, chart: str = "") -> None:
        """Note that a display has handled a message; without a time, it has not drawn the chart."""
        state = self._displays.setdefault(display, _Display())
        if state.owes == number:
            state.owes = None
        if took_ms is None:
            self.force(chart)
        else:
            state.took_s += SMOOTHING * (took_ms / 1e3 - state.took_s)

    def forget(self, display: str) -> None:
        """Forget a display that was closed."""
        self._displays.pop(display, None)

    def force(self, name: str) -> None:
        """Send a chart as soon as possible, even if it has not changed."""
        if name in self._turns:
            self._turns[name].forced = True

    def hurry(self) -> None:
        """Make all charts due now."""
        for turn in self._turns.values():
            turn.looked_s = -math.inf

    @property
    def is_busy(self) -> bool:
        """Whether drawing takes a page so long that charts come late."""
        return any(display.took_s > BUSY_S for display in self._displays.values())

    def in_view(self) -> frozenset[str]:
        """Return the charts that are in view on some display."""
        return frozenset().union(*(display.visible for display in self._displays.values()))

    def is_free(self, now_s: float) -> bool:
        """Return whether all displays have acknowledged what they were sent; displays that stay silent are given up."""
        for display in self._displays.values():
            if display.owes is not None and now_s - display.sent_s > PATIENCE_S:
                display.owes, display.visible = None, frozenset()
        return all(display.owes is None for display in self._displays.values())

    def due(self, now_s: float) -> Iterator[tuple[str, bool]]:
        """Yield the charts that are due, most urgent first, each with whether it is sent even without a change.

        Every second turn goes to the main picture; among the others, the one that has waited longest comes first.
        """
        in_view = self.in_view()
        names = [name for name in self._turns if name in in_view]
        yield from ((name, True) for name in names if self._turns[name].forced)
        waiting = {name: self._wait_s(name, now_s) for name in names if not self._turns[name].forced}
        due = sorted((name for name, wait_s in waiting.items() if wait_s <= 0), key=waiting.__getitem__)
        is_pictures_turn = self._last not in self._pictures
        due.sort(key=lambda name: (name in self._pictures) != is_pictures_turn)
        yield from ((name, False) for name in due)

    def _wait_s(self, name: str, now_s: float) -> float:
        """Return for how long a chart is not due yet; below 0 if it is overdue."""
        is_calm = any(display.is_calm for display in self._displays.values())
        least_s = (CALM_PICTURE_S if is_calm else PICTURE_S) if name in self._pictures else OTHERS_S
        return self._turns[name].looked_s + least_s - now_s

    def looked(self, name: str, now_s: float) -> None:
        """Note that a chart was checked for changes now."""
        self._turns[name].looked_s = now_s

    def sent(self, name: str, now_s: float) -> int:
        """Note that a chart is sent now, and return the number of the message."""
        self._number += 1
        self._last = name
        self._turns[name] = _Turn(now_s, forced=False)
        for display in self._displays.values():
            if name in display.visible:
                display.owes, display.sent_s = self._number, now_s
        return self._number


LOADING_S = 20.0  # time after which a second display that does not load no longer holds up the first


def encoded(figure: Mapping[str, Any]) -> str:
    """Return a figure as JSON, in which unknown numbers are null."""
    return orjson.dumps(figure, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()


@dataclass(frozen=True, slots=True)
class Toggle:
    """An entry of a card's menu that changes how its chart is drawn."""

    label: str
    option: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSpec:
    """A card before it has a figure.

    Attributes:
        name: name of its chart.
        run: the run to which the chart belongs; a card of another run is emptied.
        title: title until the figure has one.
        section: ``picture``, ``whole`` (as wide as the page), ``common``, ``supporting`` or ``folded``.
        help: tooltip of the title.
        height: height of the plot in pixels if its figure has none; 0 for the usual height of the section.
        idea: a sentence below the title.
        ago: how old a frozen picture is.
        ask, ask_help: label and tooltip of a button that requests what the chart draws; empty for no button.
        asking: whether such a request is being answered.
        toggles: further entries of its menu.
    """

    name: str
    run: str
    title: str
    section: str
    help: str = ""
    height: int = 0
    idea: str = ""
    ago: str = ""
    ask: str = ""
    ask_help: str = ""
    asking: bool = False
    toggles: tuple[Toggle, ...] = ()


@dataclass(frozen=True, slots=True)
class CardActions:
    """Functions that the event loop calls for a person's actions on cards.

    Attributes:
        grip: with the chart and the number of the message that it shows, when a person takes one of its handles.
        drag: with chart, handle and the proposed value, while a handle is dragged.
        release: with chart, handle and value, when the value is requested.
        cancel: with the chart, when the proposal is withdrawn.
        click: with chart, x, y and customdata of a point, if the figure's ``layout.meta`` has ``clickable``.
        freeze: with the chart, and whether it is frozen.
        option: with chart, name and value of one of its toggles.
        ask: with the chart for which something is requested.
    """

    grip: Callable[[str, int], None] = lambda chart, number: None
    drag: Callable[[str, str, float], None] = lambda chart, handle, value: None
    release: Callable[[str, str, float], None] = lambda chart, handle, value: None
    cancel: Callable[[str], None] = lambda chart: None
    click: Callable[[str, Any, Any, Any], None] = lambda chart, x, y, customdata: None
    freeze: Callable[[str, bool], None] = lambda chart, on: None
    option: Callable[[str, str, Any], None] = lambda chart, name, value: None
    ask: Callable[[str], None] = lambda chart: None


class ChartCards(JSComponent):
    """Cards of charts. They keep no figures; a chart that comes into view on a display is sent when its turn comes.

    A figure whose ``layout.meta`` has ``handles`` gets points that can be dragged along an axis. Each has a name, the
    axis ``along``, a position ``x``, ``y``, bounds ``low`` and ``high``, a ``title``, a ``label``, and stands for the
    value ``scale * (position - origin)``.

    Args:
        order: decides which chart is drawn next; shared by all components of a page.
        actions: functions that are called for a person's actions.
        defer: lets the event loop make a call, since in a notebook messages come on another thread.
    """

    cards = param.String(default="[]", doc="The cards as JSON, in order.")

    _esm: ClassVar[str] = component_script("chart_cards")

    def __init__(
        self, order: DrawingOrder, actions: CardActions, *, defer: Defer = lambda call: call(), **params: Any
    ) -> None:
        super().__init__(**params)
        self._order, self._actions, self._defer = order, actions, defer
        self._specs: dict[str, CardSpec] = {}
        self._heard = False
        self._expected_s = -math.inf
        self._is_expected = False

    def lay_out(self, specs: Sequence[CardSpec]) -> None:
        """Show these cards; those that were shown before keep what they have drawn."""
        self._specs = {spec.name: spec for spec in specs}
        text = json.dumps([asdict(spec) for spec in specs], ensure_ascii=False)
        if text != self.cards:
            self.cards = text

    @property
    def specs(self) -> Mapping[str, CardSpec]:
        """The cards by the names of their charts."""
        return self._specs

    def send(self, chart: str, figure: str, caption: str, number: int, *, urgent: bool = False) -> None:
        """Draw a figure, given as JSON text, with a number that displays acknowledge."""
        message = json.dumps({"kind": "draw", "number": number, "chart": chart, "caption": caption, "urgent": urgent})
        self._send_msg(f'{message[:-1]},"figure":{figure}}}')

    def expect(self) -> None:
        """Expect a display that a page is about to load; messages sent before it reports are lost."""
        self._is_expected, self._expected_s = True, time.monotonic()

    @property
    def awaited(self) -> bool:
        """Whether a display is loading; the first one is awaited without limit, others only for a while."""
        return self._is_expected and (not self._heard or time.monotonic() - self._expected_s < LOADING_S)

    @property
    def loaded(self) -> bool:
        """Whether every display that started to load has reported."""
        return self._heard and not self._is_expected

    def _handle_msg(self, data: Any) -> None:
        message = json.loads(data)
        if message["kind"] not in _CALLS:
            raise LabError(f"the page sent {message['kind']!r}, which cards do not know. Reload the page.")
        is_first, self._heard = not self._heard, True
        self._is_expected = False  # set here, since the event loop waits for it
        self._defer(lambda: self._take(message, is_first=is_first))

    def _take(self, message: Mapping[str, Any], *, is_first: bool) -> None:
        display, kind, order, actions = message["display"], message["kind"], self._order, self._actions
        if kind == "gone":
            order.forget(display)
            return
        order.hear(display, message["visible"])
        if is_first or kind == "visible":
            self._send_msg(json.dumps({"kind": "hello"}))
        _CALLS[kind](order, actions, message)


def _acknowledged(order: DrawingOrder, actions: CardActions, message: Mapping[str, Any]) -> None:
    order.acknowledge(message["display"], message["number"], message["ms"], message["chart"])


def _frozen(order: DrawingOrder, actions: CardActions, message: Mapping[str, Any]) -> None:
    actions.freeze(message["chart"], message["on"])
    if not message["on"]:
        order.force(message["chart"])


_CALLS: Mapping[str, Callable[[DrawingOrder, CardActions, Mapping[str, Any]], None]] = {
    "gone": lambda order, actions, message: None,
    "visible": lambda order, actions, message: order.calm(message["display"], message["calm"]),
    "drawn": _acknowledged,
    "frozen": _frozen,
    "gripped": lambda order, actions, message: actions.grip(message["chart"], message["number"]),
    "dragged": lambda order, actions, message: actions.drag(
        message["chart"], message["handle"], float(message["value"])
    ),
    "released": lambda order, actions, message: actions.release(
        message["chart"], message["handle"], float(message["value"])
    ),
    "cancelled": lambda order, actions, message: actions.cancel(message["chart"]),
    "clicked": lambda order, actions, message: actions.click(
        message["chart"], message["x"], message["y"], message["customdata"]
    ),
    "asked": lambda order, actions, message: actions.ask(message["chart"]),
    "option": lambda order, actions, message: actions.option(message["chart"], message["option"], message["value"]),
}


class PanelCharts(ChartCards):
    """Charts with captions, two in a row, which ``draw`` replaces and ``tick`` sends one by one.

    They belong to no active run, so handles that could be dragged in a run's own picture are left out.

    Args:
        prefix: prefix of the charts' names on the page; empty for none.
        chart_height: height in pixels of charts that have none of their own.
        params: ``defer``, and parameters of the component.
    """

    def __init__(self, prefix: str, *, chart_height: int, **params: Any) -> None:
        self._panels: dict[str, CaptionedFigure] = {}
        self._sent: dict[str, tuple[str, str]] = {}
        self._prefix, self._height = prefix, chart_height
        self._clicked: Callable[[str, Any, Any, Any], None] | None = None
        super().__init__(DrawingOrder(), CardActions(click=self._click), **params)

    def draw(self, panels: Mapping[str, CaptionedFigure], wide: Collection[str] = ()) -> None:
        """Draw these charts instead; each is sent when it is in view and has changed.

        Args:
            panels: name -> chart and caption.
            wide: names of charts that are as wide as the page; they are above the others.
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
        return CardSpec(name=name, run="", title=title_of(figure), section=section, height=self._height)

    def tick(self) -> None:
        """Send the chart whose turn it is, if it has changed; called while the page is open."""
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
        """Call ``listener(chart, x, y, customdata)`` when a person clicks a point of a clickable figure."""
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
