"""Replay of what a rank did in an earlier run where clocks, races and people decided it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.distributed.averager import Round
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.capabilities import RECORDED_PLAN, DecisionRow, Replannable
from dtdg_lab.training.collective import position_of_rank_0
from dtdg_lab.training.control import RECEIVED_AT, Control, ControlSource
from dtdg_lab.training.position import Position

At = tuple[int, str]  # a step and what is done there


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A control request, and where all ranks received it.

    Attributes:
        step: the step that comes next.
        received_at: with the exchange of the step before, in a pause, while ranks gathered, or after the last epoch.
        payload: the request.
    """

    step: int
    received_at: str
    payload: Mapping[str, Any]

    def is_due(self, step: int, received_at: str) -> bool:
        """Return True if it has been received by then."""
        return (self.step, RECEIVED_AT.index(self.received_at)) <= (step, RECEIVED_AT.index(received_at))


@dataclass(frozen=True, slots=True)
class RunReplay:
    """Records of a rank that neither settings nor seed decide.

    Attributes:
        rounds: of averaging, in order; the one numbered 0 ends an interval, at which all ranks gathered.
        drawn: batches by step of this rank and part.
        places: epoch and iteration by step of this rank, where ranks shared the steps of an epoch.
        requests: control requests, the first one with version 1; None where the trainer receives them.
        plans: schedules and choices of overlap that were made from measured times, in order, by step and occasion:
            ``build`` or ``epoch``.
        refused: reasons by step and changes (see :func:`changes_key`).
        decisions: rows of the table ``decisions`` without step and epoch, by step, of batch-size controllers; None
            where they are decided again.
    """

    rounds: tuple[Round, ...]
    drawn: Mapping[tuple[int, int], tuple[str, int, int]]
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    requests: tuple[RecordedRequest, ...] | None = None
    plans: Mapping[At, list[dict[str, Any]]] = field(default_factory=dict)
    refused: Mapping[At, list[str]] = field(default_factory=dict)
    decisions: Mapping[int, list[tuple[Any, ...]]] | None = None

    @classmethod
    def of(
        cls,
        rounds: Iterable[Mapping[str, Any]],
        targets: Iterable[Mapping[str, Any]],
        steps: Iterable[Mapping[str, Any]],
        **others: Any,
    ) -> RunReplay:
        """Read rows of the tables ``rounds``, ``targets`` and ``steps`` of one rank, in order.

        Records of older versions do not say which rounds came while a rank waited: it had weight 0 then.
        """
        names = ("number", "joined_step", "applied_step", "weight", "version", "choice")
        recorded = tuple(
            Round(**{name: row[name] for name in names}, gathered=bool(row.get("gathered", row["weight"] == 0)))
            for row in rounds
        )
        others["places"] = {row["step"]: (row["epoch"], row["iteration"]) for row in steps}
        batches = {(row["step"], row["part"]): (row["source"], row["action"], row["index"]) for row in targets}
        return cls(recorded, batches, **others)


class ReplayedControl(Control):
    """Repeats the requests and choices of an earlier run. Each recorded choice is used once.

    Args:
        replay: the records of this rank.
        source: of requests to stop the replay, and of all requests where none are recorded.
        group: the ranks.
        device: where this rank computes.
    """

    def __init__(self, replay: RunReplay, source: ControlSource, group: Group, device: str) -> None:
        super().__init__(source, group)
        self._replay, self._device = replay, device
        self._intervals = 0
        self.drawn, self.repeats_decisions = replay.drawn, replay.decisions is not None

    # requests

    def newest(self, step: int, received_at: str) -> int:
        """Return the newest version that was due here; one above all recorded ones where the replay is to stop."""
        newest, requests = super().newest(step, received_at), self._replay.requests
        if requests is None:
            return newest
        return len(requests) + 1 if newest else sum(request.is_due(step, received_at) for request in requests)

    def payload(self, version: int, step: int, received_at: str, *, synchronous: bool) -> dict[str, Any]:
        """Return the recorded request; a version above all recorded ones is a request to stop the replay.

        A stop carries the versions before it along: those that were not due yet request nothing. Where ranks are at
        steps of their own, a rank hears a version sooner or later than rank 0, as its rounds say.
        """
        requests = self._replay.requests
        if requests is None:
            return super().payload(version, step, received_at, synchronous=synchronous)
        if version > len(requests):
            return {"stop": True}
        request = requests[version - 1]
        return dict(request.payload) if not synchronous or request.is_due(step, received_at) else {}

    def knows_stop(self) -> bool:
        """Return False: rank 0 alone stops a replay."""
        return False

    def wait(self, version: int, seconds: float) -> None:
        """Return at once."""

    # choices

    def refusal(self, step: int, changes: Mapping[str, Any], *, synchronous: bool) -> str:
        """Return why the repeated run refused changes here; empty where it did not.

        Refusals are recorded at rank 0's step: while ranks are at steps of their own, only rank 0 looks them up.
        """
        if self._group.rank != 0 and not synchronous:
            return ""
        reasons = self._replay.refused.get((step, changes_key(changes)))
        return reasons.pop(0) if reasons else ""

    def refusals(self, step: int, requests: Sequence[Mapping[str, Any]], *, synchronous: bool) -> list[str]:
        """Return the same for several requests, as rank 0 knows them; collective."""
        reasons = [self.refusal(step, changes, synchronous=synchronous) for changes in requests]
        agreed: list[str] = json.loads(self._group.broadcast_text(json.dumps(reasons)))
        return agreed

    def recorded_plan(self, position: Position, *, synchronous: bool = True) -> dict[str, Any]:
        """Return the plan that the repeated run built here, as a strategy's state; collective."""
        if not synchronous:  # plans are recorded where all ranks continue
            position = position_of_rank_0(position, self._group, device=self._device)
        plan = self._next_plan(position.step, "build")
        return {} if plan is None else {RECORDED_PLAN: plan}

    def end_epoch(self, strategy: Replannable, step: int) -> tuple[str, ...]:
        """Let a strategy adopt the plan that was recorded here, if any; return the kinds of events that changed."""
        if self._replay.requests is None:
            return super().end_epoch(strategy, step)
        plan = self._next_plan(step, "epoch")
        return () if plan is None else strategy.adopt_plan(plan)

    def decision(self, step: int) -> DecisionRow | None:
        """Return the next decision of a batch-size controller that was recorded at a step."""
        rows = (self._replay.decisions or {}).get(step)
        return DecisionRow(*rows.pop(0)) if rows else None

    def rounds(self) -> Sequence[Round]:
        """Return the recorded rounds of the interval of averaging that begins.

        Raises:
            ConfigError: fewer intervals were recorded.
        """
        self._intervals += 1
        rounds = self._replay.rounds
        ends = [index + 1 for index, recorded in enumerate(rounds) if recorded.is_last]
        bounds = [0, *ends, *([len(rounds)] if rounds and not rounds[-1].is_last else [])]
        if self._intervals >= len(bounds):
            raise ConfigError(
                f"replay: {len(bounds) - 1} intervals of averaging were recorded, and this is number "
                f"{self._intervals}. Replay the records of one rank, with the settings, data, ranks and requests of "
                "their run."
            )
        return rounds[bounds[self._intervals - 1] : bounds[self._intervals]]

    def next_step(self, step: int, epoch: int, take: Callable[[], int | None]) -> int | None:
        """Return the iteration that a step was, of this epoch; None where this rank made no more steps of it."""
        epoch_and_iteration = self._replay.places.get(step)
        return epoch_and_iteration[1] if epoch_and_iteration is not None and epoch_and_iteration[0] == epoch else None

    def _next_plan(self, step: int, occasion: str) -> dict[str, Any] | None:
        plans = self._replay.plans.get((step, occasion))
        return plans.pop(0) if plans else None


def changes_key(changes: Mapping[str, Any]) -> str:
    """Return changes as text, the same before and after they were records."""
    return json.dumps(dict(changes), sort_keys=True)
