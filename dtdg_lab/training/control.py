"""Requests and choices that neither settings nor seed decide, as training receives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtdg_lab.distributed.averager import Round
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.capabilities import Decision, Replannable
from dtdg_lab.training.control_source import ControlSource
from dtdg_lab.training.position import Position

STEP, PAUSE, GATHER, END = RECEIVED_AT = ("step", "pause", "gather", "end")  # where a request is received, in order


class Control:
    """Requests come from a source, and choices are made while training.

    :class:`dtdg_lab.training.replay.ReplayedControl` repeats those of an earlier run instead.

    Args:
        source: of requests; only rank 0's ``latest`` counts.
        group: the ranks.

    Attributes:
        drawn: batches to be repeated, by step of this rank and part; None where they are drawn.
        repeats_decisions: whether a batch-size controller repeats recorded decisions.
    """

    drawn: Mapping[tuple[int, int], Any] | None = None
    repeats_decisions = False

    def __init__(self, source: ControlSource, group: Group) -> None:
        self._source, self._group = source, group

    # requests

    def newest(self, step: int, received_at: str) -> int:
        """Return the newest version; only rank 0's counts.

        Args:
            step: the step that comes next.
            received_at: one of ``RECEIVED_AT``.
        """
        return self._source.latest()

    def payload(self, version: int, step: int, received_at: str, *, synchronous: bool) -> dict[str, Any]:
        """Return the request of a version on which the ranks have agreed.

        Args:
            version: from 1.
            step: the step that comes next.
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
        """Refuse requests from now on; accept them again where the reason is empty."""
        self._source.refuse(reason)

    def wait(self, version: int, seconds: float) -> None:
        """Return on rank 0 when a version above ``version`` exists, or after the time-out; elsewhere at once."""
        if self._group.rank == 0:
            self._source.wait(version, seconds)

    # choices

    def refusal(self, step: int, changes: Mapping[str, Any], *, synchronous: bool) -> str:
        """Return why the repeated run refused changes here; empty where it did not."""
        return ""

    def refusals(self, step: int, requests: Sequence[Mapping[str, Any]], *, synchronous: bool) -> list[str]:
        """Return the same for several requests, as rank 0 knows them; collective."""
        return [""] * len(requests)

    def recorded_plan(self, position: Position, *, synchronous: bool = True) -> dict[str, Any]:
        """Return the plan that the repeated run built here, as a strategy's state; collective."""
        return {}

    def end_epoch(self, strategy: Replannable, step: int) -> tuple[str, ...]:
        """Let a strategy adopt another plan; return the kinds of plan events that changed. Collective.

        Raises:
            PlanError: another plan was due and could not be made; the old one stays.
        """
        return strategy.on_epoch_end()

    def decision(self, step: int) -> Decision | None:
        """Return the decision of a batch-size controller that was recorded at a step."""
        return None

    def rounds(self) -> Sequence[Round] | None:
        """Return the recorded rounds of the interval of averaging that begins; None where none are repeated."""
        return None

    def next_step(self, step: int, epoch: int, take: Callable[[], int | None]) -> int | None:
        """Return the number of this rank's next step of an epoch that ranks share; None where no step is left."""
        return take()
