"""Axes of a grid: settings with their values, or named cases of several settings each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened

SEED = "seed"
FIELDS = frozenset(RunConfig.model_fields) - {"options"}
DATA_OWNERS = ("datasets", "tasks")  # their options define the problem: losses of other data are not comparable


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a grid.

    Attributes:
        name: of a setting, or of the property in which the cases differ.
        values: labels of the cells along this axis.
        settings: of each value, by flat names.
    """

    name: str
    values: tuple[Any, ...]
    settings: tuple[Mapping[str, Any], ...]

    @property
    def is_cases(self) -> bool:
        """True if its values are names of several settings each."""
        return any(tuple(settings) != (self.name,) or settings[self.name] != value for value, settings in self.pairs())

    def pairs(self) -> list[tuple[Any, Mapping[str, Any]]]:
        """Return each value with its settings."""
        return list(zip(self.values, self.settings, strict=True))

    def to_dict(self) -> Any:
        """Return the JSON form: a list of values, or an object of cases."""
        return {value: dict(settings) for value, settings in self.pairs()} if self.is_cases else list(self.values)


def axes_of(over: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Return the axes of a grid, each checked.

    Raises:
        ConfigError: one is empty, repeats a value, or names a setting that cannot be studied.
        UnknownNameError: there is no such setting.
    """
    axes = tuple(_axis(name, values) for name, values in over.items())
    owners: dict[str, str] = {}
    for axis in axes:
        for name in {name for settings in axis.settings for name in settings}:
            if name in owners:
                raise ConfigError(f"over: {axis.name!r} and {owners[name]!r} both set {name}. Keep one of them.")
            owners[name] = axis.name
    return axes


def check_name(name: str, argument: str) -> None:
    """Raise unless a name is a setting that may be studied.

    Raises:
        ConfigError: it is the seed.
        UnknownNameError: there is no such setting.
    """
    if name == SEED:
        raise ConfigError(f"{argument} names 'seed', which cannot be studied: give seeds=(0, 1, 2).")
    if name not in OPTIONS and name not in FIELDS:
        results = ("options", "schema", "data", "data_hash", "run", "status")
        advice = "It is a result of a run, and no config can set it." if name in results else ""
        raise UnknownNameError(f"setting in {argument}", name, {*OPTIONS, *FIELDS} - {SEED}, advice)


def decides_the_loss(name: str) -> bool:
    """Return True if losses under other values of a setting are not comparable: data, protocol, task."""
    return name in ("dataset", "protocol") or (name in OPTIONS and OPTIONS[name].owner in DATA_OWNERS)


def _axis(name: str, values: Any) -> Axis:
    if isinstance(values, Mapping):
        return _cases(name, values)
    check_name(name, "over")
    if isinstance(values, str) or not (isinstance(values, Sequence) or hasattr(values, "tolist")):
        raise ConfigError(f"over[{name!r}]={shortened(values)}: give a sequence of values, such as ({values!r},).")
    checked = tuple(_checked(name, value) for value in values)
    if not checked:
        raise ConfigError(f"over[{name!r}] is empty: give it at least one value, or leave {name} out.")
    for index, value in enumerate(checked):
        if value in checked[:index]:
            raise ConfigError(f"over[{name!r}] has {value!r} twice: give each value only once.")
    return Axis(name, checked, tuple({name: value} for value in checked))


def _cases(name: str, cases: Mapping[str, Any]) -> Axis:
    if not cases:
        raise ConfigError(f"over[{name!r}] is empty: give it at least one case, or leave {name} out.")
    checked = []
    for label, settings in cases.items():
        if not isinstance(label, str) or not isinstance(settings, Mapping):
            raise ConfigError(
                f"over[{name!r}][{shortened(label)}]={shortened(settings)}: a case is a name and its settings, such as "
                "{'slow': {'congestion': 'one_slow', 'congestion_ms': 20.0}}."
            )
        for setting in settings:
            check_name(setting, f"over[{name!r}][{label!r}]")
        checked.append({setting: _checked(setting, value) for setting, value in settings.items()})
    return Axis(name, tuple(cases), tuple(checked))


def _checked(name: str, value: Any) -> Any:
    """Return the value as a config stores it, so that 1 and 1.0 are the same number."""
    if name == "dataset" and hasattr(value, "store"):
        return value.store()
    if name == "parts" and value == 0:
        return 0
    return OPTIONS[name].check(value) if name in OPTIONS else value
