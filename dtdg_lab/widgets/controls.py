"""Controls of settings: a widget for each option of the glossary, and rows of live settings next to charts."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import panel as pn
from bokeh.models import CustomJSTickFormatter

from dtdg_lab.config.options import Option
from dtdg_lab.visualization.palette import coloured


def labelled(label: str) -> str:
    """Return a style sheet that gives a widget without label a name for screen readers."""
    return f":host {{ --dl-label: {json.dumps(label, ensure_ascii=False)}; }}"


def tipped(tooltip: str) -> str:
    """Return a style sheet with the tooltip of a widget, which also describes it for screen readers."""
    return f":host {{ --dl-tip: {json.dumps(tooltip, ensure_ascii=False)}; }}"


_STYLE = (
    f"input:disabled, select:disabled {{ background: {coloured('off')}; color: {coloured('off-text')}; opacity: 1; }} "
    "select.bk-input { padding-left: 8px; padding-right: 20px; } "  # so that the longest names fit into half a row
    "label { display: block; max-width: 100%; white-space: normal; overflow-wrap: anywhere; }"
)
ECHO_S = 5.0  # time in which a busy page of a notebook may still send back a value that it shows
PATIENCE_S = 3.0  # time allowed for a change before a control shows the run's value again
_POWER = "return String(Number((10 ** tick).toPrecision(3)))"  # as LogControl formats it, while the slider moves

_SLIDERS = (pn.widgets.FloatSlider, pn.widgets.IntSlider)

Choices = Sequence[Any] | Mapping[str, Any]  # values; label -> value; group -> label -> value


class SettingControl:
    """A widget for one option. ``on_change`` reports what a person does, but not what ``show`` does.

    Attributes:
        is_stale: whether a page has sent back an earlier value of the run, which the widget now shows.
    """

    def __init__(self, option: Option, choices: Choices | None = None) -> None:
        self.option = option
        self._preview: Callable[[str, Any], None] | None = None
        self._quiet: int | None = (
            None  # the thread that is showing a value, since a person's change may come on another
        )
        self._listener: Callable[[str, Any], None] | None = None
        self.is_stale = False
        self._of_run: Any = None  # the run's last value, unless a person has chosen another one since
        self._echoes: dict[Any, float] = {}  # earlier values of the run -> until when pages may send them back
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
            if option.kind is int:
                return pn.widgets.IntSlider(start=int(low), end=int(high), value=option.default, **common)
            step = 10.0 ** math.floor(math.log10((high - low) / 100))
            return pn.widgets.FloatSlider(start=low, end=high, step=step, value=option.default, **common)
        number = pn.widgets.IntInput if option.kind is int else pn.widgets.FloatInput
        step = 1 if option.kind is int else 0.1
        end = None if option.high is None or option.high > 2**31 else option.high  # larger numbers lose precision
        return number(value=option.default, start=option.low, end=end, step=step, **common)

    def _common(self) -> dict[str, Any]:
        """Return the parameters that all widgets have."""
        styles = [_STYLE, tipped(self.option.tip), *([labelled(self.option.spoken)] if self.option.spoken else [])]
        return {"label": self.label, "sizing_mode": "stretch_width", "margin": (3, 8), "stylesheets": styles}

    @property
    def name(self) -> str:
        """The option's name."""
        return self.option.name

    @property
    def label(self) -> str:
        """The widget's label."""
        unit = self.option.unit
        bare = self.name.removesuffix(f"_{unit.lower()}") if len(unit) <= 2 else self.name
        title = self.option.label or bare.replace("_", " ").capitalize()
        return f"{title} ({unit})" if unit and "(" not in title and unit not in title.lower().split() else title

    @property
    def value(self) -> Any:
        """The widget's current value."""
        return self._typed(self.widget.value)

    def _typed(self, value: Any) -> Any:
        return float(value) if self.option.kind is float and value is not None else value

    def show(self, value: Any, label: str = "", group: str = "Others") -> None:
        """Show a value without a call to the listener; a choice that is not offered yet is added as ``label``."""
        if value == self.value:
            return
        self._quiet = threading.get_ident()
        try:
            if isinstance(self.widget, pn.widgets.Select):
                self.widget.disabled_options = [option for option in self.widget.disabled_options if option != value]
                if value not in self.widget.values:
                    self._add_choice(value, label or str(value), group)
            self._put(value)
        finally:
            self._quiet = None

    def follow(self, value: Any) -> None:
        """Show a value that was changed elsewhere while the run trains."""
        if self._of_run is not None and self._of_run != value:
            self._echoes[self._of_run] = time.monotonic() + ECHO_S
        self._of_run, self.is_stale = value, False
        self.show(value)

    def _add_choice(self, value: Any, label: str, group: str) -> None:
        options, groups = self.widget.options, self.widget.groups
        if groups:
            self.widget.groups = {**groups, group: {**groups.get(group, {}), label: value}}
        else:
            self.widget.options = {**options, label: value} if isinstance(options, dict) else [*options, value]

    def _put(self, value: Any) -> None:
        if isinstance(self.widget, _SLIDERS):
            self.widget.end = max(self.widget.end, value)
        self.widget.value = value

    def end_at(self, high: float) -> None:
        """Let a slider end at a value, or at its current value if that is larger."""
        end = max(high, self.widget.value)
        if self.widget.end != end:
            self.widget.end = end

    def waits(self, text: str = "") -> None:
        """Add to the label what will be applied later, such as ``8 → 6``; an empty text adds nothing."""
        self.widget.label = f"{self.label} · {text}" if text else self.label

    def offer(self, choices: Choices) -> None:
        """Change what a choice offers; the widget keeps its value if that is still offered, else it takes the last."""
        options, values = dict(choices) if isinstance(choices, Mapping) else list(choices), _values(choices)
        if options == self.widget.options:
            return
        self._quiet = threading.get_ident()
        try:
            selected = self.widget.value if self.widget.value in values else values[-1]
            self.widget.param.update(options=options, disabled_options=[], value=selected)
        finally:
            self._quiet = None

    def refuse(self, values: Collection[Any]) -> None:
        """Show some choices as not available, except the one that is chosen."""
        refused = [value for value in self.widget.values if value in values and value != self.widget.value]
        if refused != self.widget.disabled_options:
            self.widget.disabled_options = refused

    def on_change(self, listener: Callable[[str, Any], None]) -> None:
        """Call ``listener(name, value)`` when a person has chosen a value; for a slider, when it is released."""
        self._listener = listener

    def on_preview(self, listener: Callable[[str, Any], None]) -> None:
        """Call ``listener(name, value)`` while a person drags a slider."""
        self._preview = listener
        if "value_throttled" in self.widget.param:
            self.widget.param.watch(self._tell, "value")

    def _meant(self, position: Any) -> Any:
        """Return the value of a position; near the run's value, a slider that moves in steps stands for that value."""
        at_run = None if self._of_run is None or not isinstance(self.widget, _SLIDERS) else self._position(self._of_run)
        is_at_run = at_run is not None and abs(position - at_run) < 0.5 * self.widget.step
        return self._of_run if is_at_run else self._typed(position)

    def _position(self, value: Any) -> Any:
        return value

    def _changed(self, event: Any) -> None:
        if self._quiet == threading.get_ident() or event.new is None:
            return
        value = self._meant(event.new)
        if value == self._of_run or time.monotonic() < self._echoes.pop(value, 0.0):
            self.is_stale = self._typed(event.new) != self._of_run
            return
        self._of_run = None
        if self._listener is not None:
            self._listener(self.name, value)

    def _tell(self, event: Any) -> None:
        if self._quiet != threading.get_ident() and event.new is not None and self._preview is not None:
            self._preview(self.name, self._meant(event.new))


def _values(choices: Choices) -> list[Any]:
    """Return the values of choices."""
    if not isinstance(choices, Mapping):
        return list(choices)
    return [
        choice for value in choices.values() for choice in (value.values() if isinstance(value, Mapping) else [value])
    ]


def _offered(choices: Choices) -> dict[str, Any]:
    """Return choices as the parameter that a Select takes."""
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

    def _position(self, value: Any) -> Any:
        return math.log10(value) if value > 0 else self.widget.start

    def _put(self, value: Any) -> None:
        exponent = self._position(value)
        self.widget.param.update(
            start=min(self.widget.start, exponent), end=max(self.widget.end, exponent), value=exponent
        )


def make_control(option: Option, choices: Choices | None = None) -> SettingControl:
    """Return the control that fits an option."""
    return LogControl(option) if option.logarithmic else SettingControl(option, choices)


# A part of the controls that is folded at first.


def folded(title: str, *content: Any, most_px: int = 0) -> pn.Card:
    """Return content below a title that opens it; content that is higher than ``most_px`` scrolls.

    The title is the value of ``header``. Panel's own title is a pane, for which a notebook's page requests files from
    the internet when it changes.
    """
    scrolling = {"max-height": f"{most_px}px", "overflow-y": "auto"} if most_px else {}
    inside = pn.Column(*content, sizing_mode="stretch_width", margin=0, styles=scrolling)
    edge = {"border": f"1px solid {coloured('line')}", "box-shadow": "none"}
    style: dict[str, Any] = {"styles": edge, "header_background": "#f6f8fa"}
    heading = pn.widgets.StaticText(value=title, margin=(0, 4), styles={"font-size": "12.5px", "font-weight": "600"})
    rounded = ":host { min-width: 0 !important; border-radius: 8px; } .card-header { padding: 4px 8px; }"
    return pn.Card(
        inside,
        header=heading,
        collapsed=True,
        sizing_mode="stretch_width",
        margin=(4, 8),
        stylesheets=[rounded],
        **style,
    )
