"""Sources of control requests: their interface, and the one of a run in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Protocol

from dtdg_lab.core.errors import ControlError
from dtdg_lab.records.requests import Stop


class ControlSource(Protocol):
    """Versioned requests. Rank 0 receives them first; ranks agree in an exchange which version is applied."""

    def latest(self) -> int:
        """Return the newest requested version; only rank 0's counts."""

    def payload(self, version: int) -> dict[str, Any]:
        """Return the request of a version on which the ranks have agreed."""

    def stops(self) -> bool:
        """Return whether a request to stop is known; asked in every step by ranks above 0."""

    def stop_version(self) -> int:
        """Return the version of the first request to stop, the same on all ranks once one knows it; 0 without one."""

    def refuse(self, reason: str) -> None:
        """Refuse requests from now on, for a reason; accept them again where it is empty."""

    def wait(self, version: int, timeout_s: float) -> None:
        """Return when a newer version exists on rank 0, or after the time-out; elsewhere at once."""


def first_stop(requests: Iterable[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """Return version and payload of the first request to stop; 0 and empty without one.

    That of a signal has the signal's name and the rank that got it.
    """
    return next(((version, request) for version, request in enumerate(requests, 1) if request.get("stop")), (0, {}))


class LocalControl:
    """Requests made in the same process; thread-safe."""

    def __init__(self) -> None:
        self._payloads: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._closed_for = ""

    def refuse(self, reason: str) -> None:
        """Refuse requests from now on."""
        self._closed_for = reason

    def request(self, payload: dict[str, Any]) -> int:
        """Queue a request; returns its version.

        Raises:
            ControlError: the run is ending.
        """
        with self._changed:
            if self._closed_for:
                raise ControlError(self._closed_for)
            self._payloads.append(payload)
            self._changed.notify_all()
            return len(self._payloads)

    def latest(self) -> int:
        """Return the newest requested version."""
        return len(self._payloads)

    def stop_by(self, name: str) -> None:
        """Stop the run because of a signal.

        Raises:
            ControlError: the run is ending.
        """
        self.request({"stop": True, "signal": name, "rank": 0})

    def stop_request(self) -> Stop | None:
        """Return the first request to stop; None without one."""
        version, payload = first_stop(self._payloads)
        return Stop(payload.get("signal"), payload.get("rank", 0)) if version else None

    def stops(self) -> bool:
        """Return whether there is a request to stop."""
        return bool(self.stop_request())

    def stop_version(self) -> int:
        """Return the version of the first request to stop; 0 without one."""
        return first_stop(self._payloads)[0]

    def payload(self, version: int) -> dict[str, Any]:
        """Return the request of a version.

        Raises:
            ControlError: there is no such version.
        """
        if not 1 <= version <= len(self._payloads):
            raise ControlError(f"no control request has version {version}; versions are 1 to {len(self._payloads)}.")
        return self._payloads[version - 1]

    def wait(self, version: int, timeout_s: float) -> None:
        """Return when a newer version exists, or after the time-out."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._payloads) > version, timeout_s)
