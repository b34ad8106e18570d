"""The values from which a search may draw; they can be converted to and from JSON."""

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
        kind: ``uniform``, ``log_uniform`` (uniform in the logarithm), or ``integer``.
        low: the minimum.
        high: the maximum.
        step: distance of integers, counted from ``low``.

    Raises:
        ConfigError: the range is empty, or a bound has no logarithm.
    """

    kind: Kind
    low: float
    high: float
    step: int = 1

    def __post_init__(self) -> None:
        call = f"{self.kind}({self.low!r}, {self.high!r})"
        for bound in (self.low, self.high):
            if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
                raise ConfigError(f"{call} is invalid. Give two finite numbers, the lowest and the highest.")
        if self.low >= self.high:
            raise ConfigError(f"{call} is an empty range. The first number must be less than the second.")
        if self.kind == "log_uniform" and self.low <= 0:
            raise ConfigError(f"{call}: only numbers above 0 have a logarithm. Give a larger low, or uniform(...).")
        if self.kind == "integer" and (self.low % 1 or self.high % 1 or self.step < 1 or self.step % 1):
            raise ConfigError(
                f"{call} with step={self.step!r} is invalid. Give whole numbers, and a step of at least 1."
            )

    def bounds(self) -> tuple[float, float]:
        """Return the lowest and the highest value that may be drawn."""
        if self.kind != "integer":
            return float(self.low), float(self.high)
        low, step = int(self.low), int(self.step)
        return low, low + (int(self.high) - low) // step * step

    def to_dict(self) -> dict[str, Any]:
        """Return the range as JSON values."""
        step = {"step": self.step} if self.kind == "integer" else {}
        return {"kind": self.kind, "low": self.low, "high": self.high, **step}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values, which have no order.

    Raises:
        ConfigError: there are fewer than two values, one is repeated, or one is not a plain value.
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ConfigError(f"choice{shortened(self.values)} is invalid. Give at least two values.")
        for value in self.values:
            if not isinstance(value, str | bool | int | float):
                raise ConfigError(
                    f"choice of {shortened(value)} is invalid. Only numbers, strings, True and False are allowed."
                )
        if len({(type(value), value) for value in self.values}) < len(self.values):
            raise ConfigError(f"choice{shortened(self.values)} repeats a value. Give each only once.")

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        return {"kind": "choice", "values": list(self.values)}


SearchSpace = Range | Choice


def uniform(low: float, high: float) -> Range:
    """Search any number from ``low`` to ``high``."""
    return Range("uniform", low, high)


def log_uniform(low: float, high: float) -> Range:
    """Search any number from ``low`` to ``high``, uniform in the logarithm."""
    return Range("log_uniform", low, high)


def integer(low: int, high: int, *, step: int = 1) -> Range:
    """Search a whole number among ``low``, ``low + step``, ... up to ``high``."""
    return Range("integer", low, high, step)


def choice(*values: Any) -> Choice:
    """Search one of the given values."""
    return Choice(values)


def read_space(name: str, space: Any) -> SearchSpace:
    """Read what :meth:`Range.to_dict` or :meth:`Choice.to_dict` returned; ranges and choices are returned unchanged.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(space, Range | Choice):
        return space
    if isinstance(space, Mapping):
        if space.get("kind") == "choice" and isinstance(space.get("values"), list | tuple):
            return Choice(tuple(space["values"]))
        if space.get("kind") in ("uniform", "log_uniform", "integer") and {"low", "high"} <= space.keys():
            return Range(space["kind"], space["low"], space["high"], space.get("step", 1))
    raise ConfigError(
        f"space[{name!r}]={shortened(space)} is not a search space. Give uniform(low, high), log_uniform(low, high), "
        "integer(low, high) or choice(value, value, ...) of lab.studies. A list of values for a grid goes into over=."
    )
