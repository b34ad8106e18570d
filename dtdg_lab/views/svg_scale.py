"""One axis of a picture in SVG: from the values of a plotly figure to pixels, with its ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TICKS = 6  # about as many
_ROOM = 0.04  # of the span, left free at either end where no range is given


@dataclass(frozen=True, slots=True)
class Scale:
    """Where values lie.

    Attributes:
        low: value at ``start``; of its decimal logarithm where the axis is one.
        high: value at ``stop``.
        start: pixels.
        stop: pixels.
        names: of a category axis, in order; their places are 0, 1, ...
        logarithmic: whether low and high are logarithms.
    """

    low: float
    high: float
    start: float
    stop: float
    names: tuple[str, ...] = ()
    logarithmic: bool = False

    def place(self, value: Any) -> float:
        """The value as a number on the axis."""
        if isinstance(value, str):
            return float(self.names.index(value)) if value in self.names else float(value)
        number = float(value)
        return math.log10(max(number, 1e-300)) if self.logarithmic else number

    def at(self, value: Any) -> float:
        """Its pixel."""
        return self.pixel(self.place(value))

    def pixel(self, place: float) -> float:
        """The pixel of a number that :meth:`place` gave."""
        share = (place - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def share(self, share: float) -> float:
        """The pixel of a share of the axis' length, from its ``start``."""
        return self.start + share * (self.stop - self.start)


def scale_of(axis: Mapping[str, Any], values: Iterable[Any], start: float, stop: float) -> Scale:
    """The scale of a plotly axis.

    Args:
        axis: of the layout.
        values: all that is drawn along it; None is passed over.
        start: pixel of its beginning.
        stop: pixel of its end.
    """
    given = [value for value in values if value is not None]
    texts = dict.fromkeys(value for value in given if isinstance(value, str) and not _number(value))
    names = tuple(texts)
    logarithmic = axis.get("type") == "log"
    found = Scale(0.0, 1.0, start, stop, names, logarithmic)
    if "range" in axis:
        low, high = (float(end) for end in axis["range"])
        return Scale(low, high, start, stop, names, logarithmic)
    if names:
        return Scale(-0.6, len(names) - 0.4, start, stop, names)
    places = [found.place(value) for value in given]
    places = [place for place in places if math.isfinite(place)] or [0.0, 1.0]
    low, high = min(places), max(places)
    room = (high - low) * _ROOM or 0.5
    low, high = (low - room if low else low), high + room
    if axis.get("autorange") == "reversed":
        low, high = high, low
    return Scale(low, high, start, stop, names, logarithmic)


def ticks_of(axis: Mapping[str, Any], scale: Scale) -> list[tuple[float, str]]:
    """Pixel and text of each tick that lies on the axis."""
    if axis.get("showticklabels") is False:
        return []
    if "tickvals" in axis:
        told = axis.get("ticktext") or [_written(value) for value in axis["tickvals"]]
        marks = [(scale.place(value), str(text)) for value, text in zip(axis["tickvals"], told, strict=False)]
    elif scale.names:
        marks = [(float(place), name) for place, name in enumerate(scale.names)]
    elif scale.logarithmic:
        marks = [(float(power), _written(10.0**power)) for power in _whole(scale)]
    else:
        marks = [(value, _written(value)) for value in _even(scale, float(axis.get("dtick") or 0.0))]
    low, high = sorted((scale.low, scale.high))
    slack = 1e-9 * (high - low)
    return [(scale.pixel(place), text) for place, text in marks if low - slack <= place <= high + slack]


def _even(scale: Scale, step: float) -> Sequence[float]:
    low, high = sorted((scale.low, scale.high))
    if not step or (high - low) / step > 4 * _TICKS:
        rough = (high - low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _whole(scale: Scale) -> range:
    low, high = sorted((scale.low, scale.high))
    return range(math.ceil(low), math.floor(high) + 1)


def _written(value: Any) -> str:
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def _number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdigit()
