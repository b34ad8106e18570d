"""What a search may draw a setting from: a range of numbers, or one of several values. Data, and JSON both ways."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dtdg_lab.core.errors import ConfigError, shortened

Kind = Literal["uniform", "log_uniform", "integer"]


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, both included.

    Attributes:
        kind: ``uniform``, ``log_uniform`` (its logarithm is), or ``integer``.
        low: least.
        high: most.
        step: of integers, from ``low`` on.

    Raises:
        ConfigError: nothing lies between, or a logarithm is asked for of what has none.
    """

    kind: Kind
    low: float
    high: float
    step: int = 1

    def __post_init__(self) -> None:
        said = f"{self.kind}({self.low!r}, {self.high!r})"
        for bound in (self.low, self.high):
            if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
                raise ConfigError(f"{said}: two finite numbers are needed, the least and the most.")
        if self.low >= self.high:
            raise ConfigError(f"{said}: there is nothing between. The first number is to be less than the second.")
        if self.kind == "log_uniform" and self.low <= 0:
            raise ConfigError(f"{said}: only numbers above 0 have a logarithm. Take a larger low, or uniform(...).")
        if self.kind == "integer" and (self.low % 1 or self.high % 1 or self.step < 1 or self.step % 1):
            raise ConfigError(f"{said} with step={self.step!r}: whole numbers are needed, and a step of at least 1.")

    def ends(self) -> tuple[float, float]:
        """The least and the most that may be drawn."""
        if self.kind != "integer":
            return float(self.low), float(self.high)
        low, step = int(self.low), int(self.step)
        return low, low + (int(self.high) - low) // step * step

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        step = {"step": self.step} if self.kind == "integer" else {}
        return {"kind": self.kind, "low": self.low, "high": self.high, **step}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values, in no order.

    Raises:
        ConfigError: there are fewer than two, one is there twice, or one is no plain value.
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ConfigError(f"choice{shortened(self.values)}: there is nothing to choose. Give two values or more.")
        for value in self.values:
            if not isinstance(value, str | bool | int | float):
                raise ConfigError(f"choice of {shortened(value)}: numbers, texts, True and False can be drawn.")
        if len({(type(value), value) for value in self.values}) < len(self.values):
            raise ConfigError(f"choice{shortened(self.values)}: a value is there twice. Give each once.")

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"kind": "choice", "values": list(self.values)}


Drawn = Range | Choice


def uniform(low: float, high: float) -> Range:
    """Any number from ``low`` to ``high``."""
    return Range("uniform", low, high)


def log_uniform(low: float, high: float) -> Range:
    """Any number from ``low`` to ``high``, each power of ten as often as the next."""
    return Range("log_uniform", low, high)


def integer(low: int, high: int, *, step: int = 1) -> Range:
    """A whole number: ``low``, ``low + step``, ... up to ``high``."""
    return Range("integer", low, high, step)


def choice(*values: Any) -> Choice:
    """One of the values."""
    return Choice(values)


def drawn_from(name: str, told: Any) -> Drawn:
    """What :meth:`Range.told` or :meth:`Choice.told` wrote, or such an object as it is.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(told, Range | Choice):
        return told
    if isinstance(told, Mapping):
        if told.get("kind") == "choice" and isinstance(told.get("values"), list | tuple):
            return Choice(tuple(told["values"]))
        if told.get("kind") in ("uniform", "log_uniform", "integer") and {"low", "high"} <= told.keys():
            return Range(told["kind"], told["low"], told["high"], told.get("step", 1))
    raise ConfigError(
        f"space[{name!r}]={shortened(told)}: nothing can be drawn from that. Allowed: uniform(low, high), "
        "log_uniform(low, high), integer(low, high) and choice(value, value, ...) of dtdg_lab.studies.space; a list of "
        "values for a grid goes into over=."
    )
