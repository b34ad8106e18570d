"""Live settings, which may change during training, and their changes by control requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtdg_lab.config.catalogue import check_loss, option_owners
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, UnknownNameError


def live_names(config: RunConfig) -> dict[str, str]:
    """Return name -> ``step`` or ``epoch`` for every setting that can change during the run."""
    live = {name: OPTIONS[name].live for name in config.flat if name in OPTIONS and OPTIONS[name].live != "no"}
    return {**live, "system": "epoch"}


def check_changes(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    """Return the config after changes of live settings.

    Raises:
        ConfigError: a value is not allowed, or the setting cannot change during the run.
        UnsupportedError: the changed system cannot compute the loss of the task.
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
                f"{name!r} cannot change during a run (now {config[name]!r}). Live settings: "
                f"{', '.join(sorted(live))}. For another {name}, start a new run with config.replace({name}=...)."
            )
        raise UnknownNameError("live setting", name, live)
    changed = config.replace(**changes)
    check_loss(changed["task"], changed.system)
    return changed


def old_values(config: RunConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the current values of changed settings, without settings that the current system ignores."""
    values = config.flat
    return {name: values[name] for name in changes if name in values}


def readable(system: str, config: RunConfig) -> set[str]:
    """Return the settings that a run of this model and data set reads under a system."""
    owners = option_owners(system, config.dataset, config.model, config.flat)
    return {"system", *RunConfig.model_fields, *(name for names in owners.values() for name in names)}


def merged(config: RunConfig, requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the changes of requests, oldest first: the newest value of each setting applies.

    A change of the system drops earlier changes of settings that the new system ignores.
    """
    settings: dict[str, Any] = {}
    for changes in requests:
        if "system" in changes:
            read = readable(changes["system"], config)
            settings = {name: value for name, value in settings.items() if name in read}
        settings |= changes
    return settings


@dataclass(slots=True)
class LiveSettings:
    """The settings of a running job on this rank.

    Attributes:
        config: the current settings.
        version: version of the newest applied request.
        paused: whether the run is paused.
        stopping: whether the run stops after the current step.
        requests: changes that wait for the end of the epoch, oldest first; each is applied or refused separately.
    """

    config: RunConfig
    version: int = 0
    paused: bool = False
    stopping: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def waiting(self) -> dict[str, Any]:
        """Merged changes of the waiting requests."""
        return merged(self.config, self.requests)

    def expected(self, unapplied: Sequence[Mapping[str, Any]] = ()) -> RunConfig:
        """Return the settings after the waiting requests, without requests that will be refused.

        Args:
            unapplied: further requests that no rank has applied yet, oldest first.
        """
        config = self.config
        for changes in [*self.requests, *unapplied]:
            try:
                config = config.replace(**changes)
            except LabError:
                continue  # will be refused
        return config

    def apply(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a request; return the changes that took effect. Changes of epoch settings wait in ``requests``.

        Raises:
            ConfigError: the changes fit neither the current settings nor the waiting ones; none is applied.
        """
        self.paused = bool(payload.get("pause", self.paused))
        self.stopping = self.stopping or bool(payload.get("stop", False))
        changes: dict[str, Any] = payload.get("set", {})
        when = {name: "epoch" if name == "system" else OPTIONS[name].live for name in changes}
        at_step = {name: value for name, value in changes.items() if when[name] == "step"}
        at_epoch = {name: value for name, value in changes.items() if when[name] == "epoch"}
        if at_step:
            try:
                self.config = self.config.replace(**at_step)
            except ConfigError:
                self.config.replace(**merged(self.config, [*self.requests, changes]))
                at_step, at_epoch = {}, changes  # valid with the waiting requests: all wait
        if at_epoch:
            self.requests = [*self.requests, at_epoch]
        return at_step
