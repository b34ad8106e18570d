"""Which settings may change in a running job, and what a control request does to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError
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


@dataclass(slots=True)
class Knobs:
    """The control word as this rank has applied it: step changes made, epoch changes waiting, paused or stopping."""

    config: RunConfig
    version: int = 0
    paused: bool = False
    stopping: bool = False
    waiting: dict[str, Any] = field(default_factory=dict)

    def apply(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Take one request; returns the step-live changes made now (epoch changes wait in ``waiting``)."""
        self.paused = bool(payload.get("pause", self.paused))
        self.stopping = self.stopping or bool(payload.get("stop", False))
        changes: dict[str, Any] = payload.get("set", {})
        when = {name: "epoch" if name == "system" else OPTIONS[name].live for name in changes}
        now = {name: value for name, value in changes.items() if when[name] == "step"}
        self.waiting |= {name: value for name, value in changes.items() if when[name] == "epoch"}
        if now:
            self.config = self.config.replace(**now)
        return now
