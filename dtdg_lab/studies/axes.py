"""What a grid goes over: names of settings with their values, or named cases that are several settings each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.core.options import OPTIONS

SEED = "seed"
FIELDS = frozenset(RunConfig.model_fields) - {"options"}
DATA_OWNERS = ("datasets", "tasks")  # whose options say what is learned: losses of other data have no order


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that a grid goes over.

    Attributes:
        name: of a setting, or of what the cases differ in.
        values: what a cell is called along this axis.
        settings: of each value, by flat names.
    """

    name: str
    values: tuple[Any, ...]
    settings: tuple[Mapping[str, Any], ...]

    @property
    def is_cases(self) -> bool:
        """Whether its values are names of several settings each."""
        return any(tuple(each) != (self.name,) or each[self.name] != value for value, each in self.pairs())

    def pairs(self) -> list[tuple[Any, Mapping[str, Any]]]:
        """Each value with its settings."""
        return list(zip(self.values, self.settings, strict=True))

    def told(self) -> Any:
        """As JSON has it: a list of values, or an object of cases."""
        return {value: dict(each) for value, each in self.pairs()} if self.is_cases else list(self.values)


def axes_of(over: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The axes of a grid, checked one by one.

    Raises:
        ConfigError: one is empty, has a value twice, or names what cannot be studied.
        UnknownNameError: there is no such setting.
    """
    found = tuple(_axis(name, given) for name, given in over.items())
    owners: dict[str, str] = {}
    for axis in found:
        for name in dict.fromkeys(name for each in axis.settings for name in each):
            if name in owners:
                raise ConfigError(f"over: {axis.name!r} and {owners[name]!r} both set {name}. Keep one of them.")
            owners[name] = axis.name
    return found


def check_name(name: str, where: str) -> None:
    """Whether a name is that of a setting that may be studied.

    Raises:
        ConfigError: it is the seed.
        UnknownNameError: there is no such setting.
    """
    if name == SEED:
        raise ConfigError(f"{where} names 'seed', which is no setting to be studied: give seeds=(0, 1, 2).")
    if name not in OPTIONS and name not in FIELDS:
        facts = ("options", "schema", "data", "data_hash", "run", "status")
        advice = "It says what a run was, and no config can set it." if name in facts else ""
        raise UnknownNameError(f"setting in {where}", name, {*OPTIONS, *FIELDS} - {SEED}, advice)


def decides_the_loss(name: str) -> bool:
    """Whether losses under other values of a setting mean something else: data, protocol, task."""
    return name in ("dataset", "protocol") or (name in OPTIONS and OPTIONS[name].owner in DATA_OWNERS)


def _axis(name: str, given: Any) -> Axis:
    if isinstance(given, Mapping):
        return _cases(name, given)
    check_name(name, "over")
    if isinstance(given, str) or not (isinstance(given, Sequence) or hasattr(given, "tolist")):
        raise ConfigError(f"over[{name!r}]={shortened(given)}: a sequence of values is needed, such as ({given!r},).")
    values = tuple(_checked(name, value) for value in given)
    if not values:
        raise ConfigError(f"over[{name!r}] is empty: give it at least one value, or leave {name} out.")
    _refuse_twice(name, values)
    return Axis(name, values, tuple({name: value} for value in values))


def _cases(name: str, given: Mapping[str, Any]) -> Axis:
    if not given:
        raise ConfigError(f"over[{name!r}] is empty: give it at least one case, or leave {name} out.")
    settings = []
    for label, each in given.items():
        if not isinstance(label, str) or not isinstance(each, Mapping):
            raise ConfigError(
                f"over[{name!r}][{shortened(label)}]={shortened(each)}: a case is a name and its settings, such as "
                "{'slow': {'congestion': 'one_slow', 'congestion_ms': 20.0}}."
            )
        for setting in each:
            check_name(setting, f"over[{name!r}][{label!r}]")
        settings.append({setting: _checked(setting, value) for setting, value in each.items()})
    return Axis(name, tuple(given), tuple(settings))


def _checked(name: str, value: Any) -> Any:
    """The value as a config keeps it, so that 1 and 1.0 of a number are one."""
    if name == "dataset" and hasattr(value, "store"):
        return value.store()
    if name == "parts" and value == 0:
        return 0
    return OPTIONS[name].check(value) if name in OPTIONS else value


def _refuse_twice(name: str, values: Sequence[Any]) -> None:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ConfigError(f"over[{name!r}] has {value!r} twice: each value makes cells of its own. Give it once.")
