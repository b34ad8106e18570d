"""The glossary: every option of a run with its owner, type, unit, bounds, default, meaning and liveness.

``live`` says when a change requested during a run takes effect: ``"step"`` before the next step on all ranks,
``"epoch"`` at the next epoch boundary (in-memory checkpoint, rebuild, restore), ``"no"`` only in a new run.

``config/options.toml`` has the shared options, and ``family.toml`` of a family of systems those that it alone reads. An
option is a table ``options.OWNER.NAME``; its type is that of its default, and ``choices`` may name a kind of entries.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import CHOSEN_BY, PROTOCOLS, names
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.core.time_length import seconds_of

if TYPE_CHECKING:
    import pandas as pd

Live = Literal["step", "epoch", "no"]
WHEN = {"step": "at the next step", "epoch": "at the next epoch", "no": "in a new run"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting of a run: its name, allowed values, when it can change, and how a control shows it.

    Attributes:
        label: of its control; made from the name where empty.
        spoken: its accessible name, where the label only says something beside its neighbour's.
        slider: ends of a slider; a box where empty.
        logarithmic: whether the slider is over powers of ten.
        time_length: whether a length of time, such as ``"1d"``, stands for its seconds.
    """

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
    label: str = ""
    spoken: str = ""
    slider: tuple[float, ...] = ()
    logarithmic: bool = False
    time_length: bool = False

    def __post_init__(self) -> None:
        if not (self.slider or self.logarithmic):
            return
        first, last = self.slider if len(self.slider) == 2 else (math.nan, math.nan)
        low, high = (first if self.low is None else self.low), (last if self.high is None else self.high)
        if self.kind not in (int, float) or not low <= first <= self.default <= last <= high or first == last:
            raise ConfigError(
                f"option {self.name}: slider={self.slider} is not two ends around {self.default!r}, {self.allowed}."
            )
        if self.logarithmic and (first <= 0 or self.kind is int):
            raise ConfigError(
                f"option {self.name}: a logarithmic slider is over real numbers above 0, not from {first}."
            )

    def check(self, value: Any) -> Any:
        """The value in this option's type.

        Raises:
            ConfigError: the type is wrong, or the value is outside the bounds or choices.
        """
        value = self._typed(value)
        if self.choices and value not in self.choices and not self._is_absent(value):
            raise UnknownNameError(f"value of {self.name}", str(value), self.choices)
        too_low = self.low is not None and value < self.low
        too_high = self.high is not None and value > self.high
        if too_low or too_high:
            raise ConfigError(f"{self.name}={shortened(value)} is out of range: allowed {self.allowed}. {self.meaning}")
        return value

    def _is_absent(self, value: Any) -> bool:
        """Return whether the value is an entry that only the folder of a run describes."""
        return any((kind, value) in catalogue.ABSENT for kind, name in CHOSEN_BY.items() if name == self.name)

    def _typed(self, value: Any) -> Any:
        if self.time_length:
            value = seconds_of(value, self.name)
        if isinstance(value, np.bool_):
            value = bool(value)
        if isinstance(value, bool) and {"on", "off"} <= set(self.choices):
            value = "on" if value else "off"
        number = isinstance(value, numbers.Real) and not isinstance(
            value, bool
        )  # including numpy scalars, which sweeps produce
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
    def tip(self) -> str:
        """What it does, and when a change takes effect."""
        return f"{self.meaning} A change takes effect {WHEN[self.live]}."

    @property
    def allowed(self) -> str:
        """The allowed values, as text."""
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


def _declared(owner: str, name: str, about: dict[str, Any]) -> Option:
    choices = about.get("choices", ())
    if isinstance(choices, str):  # a kind, whose entries it chooses from
        choices = names(choices)
    typed = {"kind": type(about["default"]), "choices": tuple(choices), "slider": tuple(about.get("slider", ()))}
    return Option(**{**about, **typed, "name": name, "owner": owner})


OPTIONS: dict[str, Option] = {
    name: _declared(owner, name, about)
    for declared in catalogue.DECLARED.values()
    for owner, options in declared.get("options", {}).items()
    for name, about in options.items()
}


def option(name: str) -> Option:
    """The glossary entry called ``name``.

    Raises:
        UnknownNameError: no option has that name.
    """
    if name not in OPTIONS:
        raise UnknownNameError("option", name, OPTIONS)
    return OPTIONS[name]


def default(name: str, *, system: str, dataset: str, protocol: str) -> Any:
    """The default of an option in a run: the protocol's, else the data set's, the system's, the glossary's.

    A data set with its own features keeps them under every protocol.

    Raises:
        UnknownNameError: one of the names is unknown.
    """
    chosen = catalogue.system(system)
    sources = [PROTOCOLS[protocol].settings]
    if not dataset.startswith(catalogue.STORED):
        own = catalogue.entry("datasets", dataset).defaults
        sources.insert(0 if name == "features" and own.get(name) == "given" else 1, own)
    own_parts = {option: chosen.parts[kind] for kind, option in CHOSEN_BY.items() if kind in chosen.parts}
    sources.append({**chosen.defaults, **own_parts})
    for settings in sources:
        if name in settings:
            return settings[name]
    return option(name).default


# The settings of a system, listed.

TAKES_EFFECT = {"step": "next step", "epoch": "next epoch", "no": "new run"}
_EVERY_RUN = ("epochs", "ranks", "seed", "parts", "hidden", "layers", "learning_rate", "device", "threads")


@dataclass(frozen=True, repr=False)
class OptionList:
    """The settings that apply to a system.

    Attributes:
        system: its name.
        rows: for each setting its name, meaning, unit, allowed values, default, and when a change takes effect.
    """

    system: str
    rows: tuple[dict[str, Any], ...]

    def to_pandas(self) -> pd.DataFrame:
        """One row per setting."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def __str__(self) -> str:
        lines = [f"{len(self.rows)} settings of system {self.system}: default; allowed; when a change takes effect"]
        for row in self.rows:
            unit = f" {row['unit']}" if row["unit"] else ""
            lines.append(f"{row['name']} = {row['default']!r}{unit}; {row['allowed']}; {row['takes_effect']}")
            lines.append(f"    {row['meaning']}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import pandas as pd

        table = self.to_pandas()
        table["default"] = table["default"].map(repr)
        with pd.option_context("display.max_colwidth", None):  # meanings are not cut
            return str(table.to_html(index=False))


def options(system: str, *, dataset: str = "collegemsg", model: str = "tgcn", **chosen: str) -> OptionList:
    """The settings that apply to a system, with their defaults under the protocol ``warm``.

    Args:
        system: its name.
        dataset: whose own settings and defaults are included.
        model: whose own settings are included.
        chosen: options that name an entry, such as ``task="link"`` or ``scheduler="fold"``, whose own settings are
            included.

    Raises:
        UnknownNameError: there is no such system, data set, model or entry.
    """
    for name, value in chosen.items():
        option(name).check(value)
    owners = catalogue.option_owners(system, dataset, model, chosen)
    rows = []
    for name in dict.fromkeys((*_EVERY_RUN, *(name for group in owners.values() for name in group))):
        of = option(name)
        rows.append(
            {
                "name": name,
                "meaning": of.meaning,
                "unit": of.unit,
                "allowed": of.allowed.removesuffix(f" ({of.unit})"),
                "default": default(name, system=system, dataset=dataset, protocol="warm"),
                "takes_effect": TAKES_EFFECT[of.live],
            }
        )
    return OptionList(system, tuple(rows))
