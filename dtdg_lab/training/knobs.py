"""Which settings may change in a running job, and what a control request does to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def merged(config: RunConfig, requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings that requests ask for together, oldest first: the newest value of each rules.

    What was asked for before another system, and that system does not read, is asked for no more.
    """
    found: dict[str, Any] = {}
    for changes in requests:
        if "system" in changes:
            read = readable(changes["system"], config)
            found = {name: value for name, value in found.items() if name in read}
        found |= changes
    return found


@dataclass(slots=True)
class Knobs:
    """The control word as this rank has applied it: step changes made, requests waiting, paused or stopping.

    ``requests`` wait for the end of the epoch, oldest first; each is made or refused for itself.
    """

    config: RunConfig
    version: int = 0
    paused: bool = False
    stopping: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def waiting(self) -> dict[str, Any]:
        """All settings that wait."""
        return merged(self.config, self.requests)

    def expected(self, later: Sequence[Mapping[str, Any]] = ()) -> RunConfig:
        """The settings as they will be once what waits has been made, less the requests that will be refused.

        Args:
            later: requests that no rank has applied yet, oldest first.
        """
        config = self.config
        for changes in [*self.requests, *later]:
            try:
                config = config.replace(**changes)
            except LabError:
                continue  # it will be refused, and the others made
        return config

    def apply(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Take one request; returns the step-live changes made now (epoch changes wait in ``requests``).

        Raises:
            ConfigError: the step-live changes fit neither the settings now nor what waits. None of the request is made.
        """
        self.paused = bool(payload.get("pause", self.paused))
        self.stopping = self.stopping or bool(payload.get("stop", False))
        changes: dict[str, Any] = payload.get("set", {})
        when = {name: "epoch" if name == "system" else OPTIONS[name].live for name in changes}
        now = {name: value for name, value in changes.items() if when[name] == "step"}
        later = {name: value for name, value in changes.items() if when[name] == "epoch"}
        if now:
            try:
                self.config = self.config.replace(**now)
            except ConfigError:
                self.config.replace(**merged(self.config, [*self.requests, changes]))
                now, later = {}, changes  # what waits makes room for it: all of it waits
        if later:
            self.requests = [*self.requests, later]
        return now
