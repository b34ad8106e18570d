"""The glossary: every option of a run with its owner, type, unit, bounds, default and meaning.

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
    """One setting of a run: its name, allowed values, when a change takes effect, and its control.

    Attributes:
        label: of its control; derived from the name if empty.
        spoken: its accessible name, if the label alone is not enough.
        slider: ends of a slider; empty for a box.
        logarithmic: whether the slider is over powers of ten.
        time_length: whether a length of time, such as ``"1d"``, may stand for its seconds.
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
        """Return the value in this option's type.

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
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)  # sweeps give numpy scalars
        if is_number and (self.kind is float or (self.kind is int and value % 1 == 0)):
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
        """The meaning, and when a change takes effect."""
        return f"{self.meaning} A change takes effect {WHEN[self.live]}."

    @property
    def allowed(self) -> str:
        """The allowed values, as text."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        text = {int: "a whole number", float: "a number", str: "text", bool: "True or False"}[self.kind]
        if self.low is not None and self.high is not None:
            text += f" from {_plain(self.low)} to {_plain(self.high)}"
        elif self.low is not None:
            text += f" of at least {_plain(self.low)}"
        return text + (f" ({self.unit})" if self.unit else "")


def _plain(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else f"{bound:g}"


def _declared(owner: str, name: str, fields: dict[str, Any]) -> Option:
    choices = fields.get("choices", ())
    if isinstance(choices, str):  # a kind, whose entries it chooses from
        choices = names(choices)
    typed = {"kind": type(fields["default"]), "choices": tuple(choices), "slider": tuple(fields.get("slider", ()))}
    return Option(**{**fields, **typed, "name": name, "owner": owner})


OPTIONS: dict[str, Option] = {
    name: _declared(owner, name, fields)
    for declared in catalogue.DECLARED.values()
    for owner, options in declared.get("options", {}).items()
    for name, fields in options.items()
}


def option(name: str) -> Option:
    """Return the glossary entry called ``name``.

    Raises:
        UnknownNameError: no option has that name.
    """
    if name not in OPTIONS:
        raise UnknownNameError("option", name, OPTIONS)
    return OPTIONS[name]


def default(name: str, *, system: str, dataset: str, protocol: str) -> Any:
    """Return an option's default in a run: the protocol's, else the data set's, the system's, the glossary's.

    A data set with its own features keeps them under every protocol.

    Raises:
        UnknownNameError: one of the names is unknown.
    """
    sources = [PROTOCOLS[protocol].settings]
    if not dataset.startswith(catalogue.STORED):
        dataset_defaults = catalogue.entry("datasets", dataset).defaults
        keeps_features = name == "features" and dataset_defaults.get(name) == "given"
        sources.insert(0 if keeps_features else 1, dataset_defaults)
    entry = catalogue.system(system)
    parts = {option: entry.parts[kind] for kind, option in CHOSEN_BY.items() if kind in entry.parts}
    sources.append({**entry.defaults, **parts})
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
        rows: name, meaning, unit, allowed values, default, and effect of a change, for each setting.
    """

    system: str
    rows: tuple[dict[str, Any], ...]

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per setting."""
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
    """Return the settings that apply to a system, with their defaults under the protocol ``warm``.

    Args:
        system: its name.
        dataset: its settings and defaults are included.
        model: its settings are included.
        chosen: options that name an entry, such as ``task="link"`` or ``scheduler="fold"``, to include the entry's
            settings.

    Raises:
        UnknownNameError: there is no such system, data set, model or entry.
    """
    for name, value in chosen.items():
        option(name).check(value)
    owners = catalogue.option_owners(system, dataset, model, chosen)
    rows = []
    for name in dict.fromkeys((*_EVERY_RUN, *(name for group in owners.values() for name in group))):
        setting = option(name)
        rows.append(
            {
                "name": name,
                "meaning": setting.meaning,
                "unit": setting.unit,
                "allowed": setting.allowed.removesuffix(f" ({setting.unit})"),
                "default": default(name, system=system, dataset=dataset, protocol="warm"),
                "takes_effect": TAKES_EFFECT[setting.live],
            }
        )
    return OptionList(system, tuple(rows))
