"""Cards with charts in the browser: titles, keys and captions as text, plots drawn one at a time."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import orjson
import param
from panel.custom import JSComponent

from dtdg_lab.core.errors import LabError
from dtdg_lab.widgets.component import Defer
from dtdg_lab.widgets.drawing import DrawingOrder
from dtdg_lab.widgets.scripts import component_script

LOADING_S = 20.0  # a second display that never loads must not hold up the first


def encoded(figure: Mapping[str, Any]) -> str:
    """Return a figure as JSON; numbers that are unknown become null."""
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
        name: of its chart.
        run: whose chart it is; the card of another run is emptied.
        title: until the figure has one.
        place: ``picture``, ``whole`` (as wide as the page), ``common``, ``supporting`` or ``folded``.
        help: tooltip of the title.
        height: of the plot, pixels, where its figure has none; the place's usual one where it is 0.
        idea: a sentence under the title.
        ago: how old a frozen picture is.
        ask, ask_help: label and tooltip of a button that asks for what the chart draws; none where empty.
        asking: whether the answer is on its way.
        toggles: further entries of its menu.
    """

    name: str
    run: str
    title: str
    place: str
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
    """Callbacks for a person's actions on cards; the event loop makes the calls.

    Attributes:
        grip: chart, number of the message that it shows: a person takes one of its handles.
        drag: chart, handle, value: a proposal, while a handle is dragged.
        release: chart, handle, value: the proposal is requested.
        cancel: chart: the proposal is taken back.
        click: chart, x, y, customdata of a point in a figure whose ``layout.meta`` has ``clickable``.
        freeze: chart, and whether it stands still.
        option: chart, name and value of one of its toggles.
        ask: chart, whose question is asked.
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
    """Cards of charts. It keeps no figures: what comes into view of a display is sent when its turn comes.

    A figure whose ``layout.meta`` has ``handles`` gets points that can be dragged along an axis: each has a name,
    the axis ``along``, a position ``x``, ``y``, bounds ``low`` and ``high``, a ``title``, a ``label`` in it, and means
    ``scale * (position - origin)``.

    Args:
        order: which chart is drawn next; shared by all components of a page.
        actions: what is called for what a person does.
        defer: has a call made by the event loop: in a notebook messages come on another thread.
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
        """Show these cards; those that stay keep what they have drawn."""
        self._specs = {spec.name: spec for spec in specs}
        text = json.dumps([asdict(spec) for spec in specs], ensure_ascii=False)
        if text != self.cards:
            self.cards = text

    @property
    def specs(self) -> Mapping[str, CardSpec]:
        """The cards by the names of their charts."""
        return self._specs

    def send(self, chart: str, figure: str, caption: str, number: int, *, urgent: bool = False) -> None:
        """Draw a figure, given as JSON text, under a number that displays acknowledge."""
        message = json.dumps({"kind": "draw", "number": number, "chart": chart, "caption": caption, "urgent": urgent})
        self._send_msg(f'{message[:-1]},"figure":{figure}}}')

    def expect(self) -> None:
        """Expect a display that a page is about to load: messages before it reports are lost."""
        self._is_expected, self._expected_s = True, time.monotonic()

    @property
    def awaited(self) -> bool:
        """Whether a display is loading: the first one without limit, a further one for a while."""
        return self._is_expected and (not self._heard or time.monotonic() - self._expected_s < LOADING_S)

    @property
    def loaded(self) -> bool:
        """Whether every display that was begun has reported."""
        return self._heard and not self._is_expected

    def _handle_msg(self, data: Any) -> None:
        message = json.loads(data)
        if message["kind"] not in _CALLS:
            raise LabError(f"the page sent {message['kind']!r}, which no card understands. Reload the page.")
        is_first, self._heard = not self._heard, True
        self._is_expected = False  # now: the event loop waits for it
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
