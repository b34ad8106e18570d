"""Which settings may change in a running job, and what a control request does to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dtdg_lab.core.catalogue import option_owners
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, UnknownNameError
from dtdg_lab.core.options import OPTIONS


def live_names(config: RunConfig) -> dict[str, str]:
    """Name -> ``step`` or ``epoch`` for every setting of this run that can change while it goes on."""
    live = {name: OPTIONS[name].live for name in config.flat if name in OPTIONS and OPTIONS[name].live != "no"}
    return {**live, "system": "epoch"}


def check_changes(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    """The config after the changes, if a running job can make them.

    Raises:
        ConfigError: a value is not allowed, or the setting cannot change while the run goes on.
        UnknownNameError: the run has no such setting.
    """
    live = live_names(config)
    if "system" in changes:  # with what the other system reads
        live = {**live, **live_names(config.replace(**changes))}
    for name in changes:
        if name in live:
            continue
        if name in config.flat:
            raise ConfigError(
                f"{name!r} cannot change while a run goes on (now {config[name]!r}). Live settings: "
                f"{', '.join(sorted(live))}. For another {name}, start a new run with config.replace({name}=...)."
            )
        raise UnknownNameError("live setting", name, live)
    return config.replace(**changes)


def readable(system: str, config: RunConfig) -> set[str]:
    """The settings that a run of this model on this data set reads under a system."""
    owners = option_owners(system, config.dataset, config.model)
    return {"system", *RunConfig.model_fields, *(name for room in owners.values() for name in room)}


@dataclass(slots=True)
class Knobs:
    """The control word as this rank has applied it: step changes made, epoch changes waiting, paused or stopping."""

    config: RunConfig
    version: int = 0
    paused: bool = False
    stopping: bool = False
    waiting: dict[str, Any] = field(default_factory=dict)

    @property
    def expected(self) -> RunConfig:
        """The settings as they will be once what waits has been made; those of now where that will be refused."""
        try:
            return self.config.replace(**self.waiting)
        except LabError:
            return self.config

    def apply(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Take one request; returns the step-live changes made now (epoch changes wait in ``waiting``)."""
        self.paused = bool(payload.get("pause", self.paused))
        self.stopping = self.stopping or bool(payload.get("stop", False))
        changes: dict[str, Any] = payload.get("set", {})
        when = {name: "epoch" if name == "system" else OPTIONS[name].live for name in changes}
        now = {name: value for name, value in changes.items() if when[name] == "step"}
        self.waiting |= {name: value for name, value in changes.items() if when[name] == "epoch"}
        if "system" in changes:  # what was asked for before, and the other system does not read, is asked for no more
            read = readable(changes["system"], self.config)
            self.waiting = {name: value for name, value in self.waiting.items() if name in changes or name in read}
        if now and not self._fits(now):  # a change that waits makes room for it: all of them wait
            self.waiting |= now
            return {}
        if now:
            self.config = self.config.replace(**now)
        return now

    def _fits(self, now: dict[str, Any]) -> bool:
        """Whether changes can be made without those that wait; where they cannot be made with them either, they can."""
        try:
            self.config.replace(**now)
        except LabError:
            try:
                self.config.replace(**{**self.waiting, **now})
            except LabError:
                return True  # refused by whoever makes them
            return False
        return True
