"""Requests of a user to the ranks of a run, one class for each, and their form in messages and stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from dtdg_lab.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SetLive:
    """Change live settings.

    Attributes:
        changes: settings by name.
        by: who asks, for the log of changes.
    """

    changes: Mapping[str, Any]
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause all ranks after the same step."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue a paused run."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run after the same step of all ranks.

    Attributes:
        signal: name of the signal that asked for it; None where a person did.
        rank: the rank that got the signal.
    """

    signal: str | None = None
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """Save a checkpoint at the next common step, to fork the run from later."""


Request = SetLive | Pause | Resume | Stop | Keep


def first_stop(requests: Iterable[Request]) -> tuple[int, Stop | None]:
    """Return version and request of the first request to stop; 0 and None without one."""
    stops = ((version, request) for version, request in enumerate(requests, 1) if isinstance(request, Stop))
    return next(stops, (0, None))


def write_request(request: Request) -> dict[str, Any]:
    """Return a request as a JSON object."""
    match request:
        case SetLive(changes, by):
            return {"set": dict(changes)} | ({} if by is None else {"by": by})
        case Stop(None):
            return {"stop": True}
        case Stop(signal, rank):
            return {"stop": True, "signal": signal, "rank": rank}
        case Keep():
            return {"keep": True}
        case Pause() | Resume():
            return {"pause": isinstance(request, Pause)}
    assert_never(request)


def read_request(message: Mapping[str, Any]) -> Request:
    """Read a request from a JSON object.

    Raises:
        ConfigError: it asks for nothing, or for changes that are no mapping.
    """
    if "set" in message:
        if not isinstance(message["set"], dict):
            raise ConfigError("a control request sets no mapping of settings: give set={name: value}.")
        return SetLive(message["set"], message.get("by"))
    if message.get("stop"):
        return Stop(message.get("signal"), message.get("rank", 0))
    if message.get("keep"):
        return Keep()
    if "pause" in message:
        return Pause() if message["pause"] else Resume()
    raise ConfigError(f"a control request with {sorted(message)} has no action: give set, pause, stop or keep.")
