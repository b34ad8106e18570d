"""One setting of a run: what it is called, what it may be, and when it can change."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened

Live = Literal["step", "epoch", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting of a run: what it is called, what it may be, and when it can change."""

    name: str
    owner: str
    kind: type
    default: Any
    meaning: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    live: Live = "no"

    def check(self, value: Any) -> Any:
        """The value in this option's type.

        Raises:
            ConfigError: the type is wrong, or the value is outside the bounds or choices.
        """
        value = self._typed(value)
        if self.choices and value not in self.choices:
            raise UnknownNameError(f"value of {self.name}", str(value), self.choices)
        too_low = self.low is not None and value < self.low
        too_high = self.high is not None and value > self.high
        if too_low or too_high:
            raise ConfigError(f"{self.name}={shortened(value)} is out of range: allowed {self.allowed}. {self.meaning}")
        return value

    def _typed(self, value: Any) -> Any:
        if isinstance(value, np.bool_):
            value = bool(value)
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)  # numpy's too, which sweeps give
        if number and (self.kind is float or (self.kind is int and value % 1 == 0)):
            try:
                value = self.kind(value)
            except OverflowError:
                value = math.inf if value > 0 else -math.inf  # refused below
        if not isinstance(value, self.kind) or (self.kind is not bool and isinstance(value, bool)):
            kind = type(value).__name__
            raise ConfigError(f"{self.name}={shortened(value)} has type {kind}: allowed {self.allowed}.")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{self.name}={value!r} is not a finite number: allowed {self.allowed}.")
        return value

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = {int: "a whole number", float: "a number", str: "text", bool: "True or False"}[self.kind]
        if self.low is not None and self.high is not None:
            words += f" from {_plain(self.low)} to {_plain(self.high)}"
        elif self.low is not None:
            words += f" of at least {_plain(self.low)}"
        return words + (f" ({self.unit})" if self.unit else "")


def _plain(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else f"{bound:g}"
