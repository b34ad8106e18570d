"""Sources of control requests, and of choices that neither settings nor seed determine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from dtdg_lab.core.errors import ControlError
from dtdg_lab.distributed.averager import Round
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.capabilities import DecisionRow, Replannable
from dtdg_lab.records.requests import Stop
from dtdg_lab.training.position import Position


class ControlSource(Protocol):
    """Source of versioned requests. Rank 0 receives them first; ranks agree in an exchange on the applied version."""

    def latest(self) -> int:
        """Return the newest requested version; only rank 0's counts."""

    def payload(self, version: int) -> dict[str, Any]:
        """Return the request of a version on which the ranks have agreed."""

    def stops(self) -> bool:
        """Return whether a request to stop is known; called in every step by ranks above 0."""

    def stop_version(self) -> int:
        """Return the version of the first request to stop, the same on all ranks; 0 without one."""

    def refuse(self, reason: str) -> None:
        """Refuse requests from now on, for a reason; accept them again if it is empty."""

    def wait(self, version: int, timeout_s: float) -> None:
        """Wait until a newer version exists, or for the time-out; on other ranks than 0 return at once."""


def first_stop(requests: Iterable[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """Return version and payload of the first request to stop; 0 and empty without one.

    A stop by a signal has the signal's name and the rank that received it.
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
        """Queue a request, and return its version.

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
        """Wait until a newer version exists, or for the time-out."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._payloads) > version, timeout_s)


STEP, PAUSE, GATHER, END = RECEIVED_AT = ("step", "pause", "gather", "end")  # occasions to receive a request, in order


class Control:
    """Requests and choices of a run.

    Here requests come from a source, and choices are made during training.
    :class:`dtdg_lab.training.replay.ReplayedControl` repeats those of an earlier run.

    Args:
        source: source of requests; only rank 0's ``latest`` counts.
        group: the ranks.

    Attributes:
        batches: recorded batches to repeat, by step of this rank and part; None to draw new ones.
        repeats_decisions: whether a batch-size controller repeats recorded decisions.
    """

    batches: Mapping[tuple[int, int], Any] | None = None
    repeats_decisions = False

    def __init__(self, source: ControlSource, group: Group) -> None:
        self._source, self._group = source, group

    # requests

    def newest(self, step: int, received_at: str) -> int:
        """Return the newest version; only rank 0's counts.

        Args:
            step: the next step.
            received_at: one of ``RECEIVED_AT``.
        """
        return self._source.latest()

    def payload(self, version: int, step: int, received_at: str, *, synchronous: bool) -> dict[str, Any]:
        """Return the request of a version on which the ranks have agreed.

        Args:
            version: the version, from 1.
            step: the next step.
            received_at: one of ``RECEIVED_AT``.
            synchronous: whether all ranks are at this step.
        """
        return dict(self._source.payload(version))

    def knows_stop(self) -> bool:
        """Return True if this rank knows of a request to stop that rank 0 may not have reported yet."""
        return self._group.rank != 0 and self._source.stops()

    def stop_version(self) -> int:
        """Return the version of the first request to stop; 0 without one."""
        return self._source.stop_version()

    def refuse_requests(self, reason: str) -> None:
        """Refuse requests from now on; accept them again if the reason is empty."""
        self._source.refuse(reason)

    def wait(self, version: int, seconds: float) -> None:
        """Wait on rank 0 until a version above ``version`` exists, or for the time-out; elsewhere return at once."""
        if self._group.rank == 0:
            self._source.wait(version, seconds)

    # choices

    def refusal(self, step: int, changes: Mapping[str, Any], *, synchronous: bool) -> str:
        """Return the reason for which the replayed run refused changes here; empty if it did not."""
        return ""

    def refusals(self, step: int, requests: Sequence[Mapping[str, Any]], *, synchronous: bool) -> list[str]:
        """Return the :meth:`refusal` of each request, as recorded on rank 0; collective."""
        return [""] * len(requests)

    def recorded_plan(self, position: Position, *, synchronous: bool = True) -> dict[str, Any]:
        """Return the plan that the replayed run built here, as a strategy's state; collective."""
        return {}

    def end_epoch(self, strategy: Replannable, step: int) -> tuple[str, ...]:
        """Let a strategy adopt another plan; return the kinds of plan events that changed. Collective.

        Raises:
            PlanError: a new plan was due but could not be built; the old one stays.
        """
        return strategy.on_epoch_end()

    def decision(self, step: int) -> DecisionRow | None:
        """Return the decision of a batch-size controller that was recorded at a step."""
        return None

    def rounds(self) -> Sequence[Round] | None:
        """Return the recorded rounds of the averaging interval that begins; None without a replay."""
        return None

    def next_step(self, step: int, epoch: int, take: Callable[[], int | None]) -> int | None:
        """Return the number of this rank's next step of a shared epoch; None if no step is left."""
        return take()
