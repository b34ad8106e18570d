"""Replay of a rank's choices in an earlier run that depended on clocks, races and people."""

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
from dtdg_lab.training.compute_choice import COMPUTE
from dtdg_lab.training.control import RECEIVED_AT, Control, ControlSource
from dtdg_lab.training.position import Position

Occasion = tuple[int, str]  # a step, and its occasion or changes


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A control request, and the occasion on which all ranks received it.

    Attributes:
        step: the next step at that time.
        received_at: one of ``RECEIVED_AT``: in the exchange of the previous step, in a pause, while ranks gathered, or
            after the last epoch.
        payload: the request.
    """

    step: int
    received_at: str
    payload: Mapping[str, Any]

    def is_due(self, step: int, received_at: str) -> bool:
        """Return True if the request was received at this occasion or before."""
        return (self.step, RECEIVED_AT.index(self.received_at)) <= (step, RECEIVED_AT.index(received_at))


@dataclass(frozen=True, slots=True)
class RunReplay:
    """Records of a rank that neither settings nor seed determine.

    Attributes:
        rounds: averaging rounds, in order; number 0 ends an interval, at which all ranks gathered.
        batches: by step of this rank and part.
        places: epoch and iteration by step of this rank, if ranks shared the steps of an epoch.
        requests: control requests, from version 1; None if the trainer receives new ones.
        plans: schedules and overlap choices that came from measured times, in order, by step and occasion (``build``
            or ``epoch``).
        compute: choices of backend and memory limits, with the step from which each holds, in order.
        refused: reasons of refusals, by step and changes (see :func:`changes_key`).
        decisions: decisions of batch-size controllers by step, as rows of the table ``decisions`` without step and
            epoch; None to decide again.
    """

    rounds: tuple[Round, ...]
    batches: Mapping[tuple[int, int], tuple[str, int, int]]
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    requests: tuple[RecordedRequest, ...] | None = None
    plans: Mapping[Occasion, list[dict[str, Any]]] = field(default_factory=dict)
    compute: Sequence[tuple[int, Mapping[str, Any]]] = ()
    refused: Mapping[Occasion, list[str]] = field(default_factory=dict)
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

        Records of older versions lack ``gathered``; these rounds had weight 0.
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
        source: source of requests to stop the replay, and of all requests if none are recorded.
        group: the ranks.
        device: device of this rank.
    """

    def __init__(self, replay: RunReplay, source: ControlSource, group: Group, device: str) -> None:
        super().__init__(source, group)
        self._replay, self._device = replay, device
        self._intervals = 0
        self.batches, self.repeats_decisions = replay.batches, replay.decisions is not None

    # requests

    def newest(self, step: int, received_at: str) -> int:
        """Return the newest version that is due; one above all recorded versions to stop the replay."""
        newest, requests = super().newest(step, received_at), self._replay.requests
        if requests is None:
            return newest
        return len(requests) + 1 if newest else sum(request.is_due(step, received_at) for request in requests)

    def payload(self, version: int, step: int, received_at: str, *, synchronous: bool) -> dict[str, Any]:
        """Return the recorded request; a version above all recorded versions requests a stop.

        Before a stop, recorded requests that are not due yet are skipped: their payload is empty. If ranks are at
        different steps, a rank receives a version earlier or later than rank 0, as recorded in its rounds.
        """
        requests = self._replay.requests
        if requests is None:
            return super().payload(version, step, received_at, synchronous=synchronous)
        if version > len(requests):
            return {"stop": True}
        request = requests[version - 1]
        return dict(request.payload) if not synchronous or request.is_due(step, received_at) else {}

    def knows_stop(self) -> bool:
        """Return False: only rank 0 stops a replay."""
        return False

    def wait(self, version: int, seconds: float) -> None:
        """Return at once."""

    # choices

    def refusal(self, step: int, changes: Mapping[str, Any], *, synchronous: bool) -> str:
        """Return the reason for which the replayed run refused changes here; empty if it did not.

        Refusals are recorded at rank 0's step. So only rank 0 looks them up if ranks are at different steps.
        """
        if self._group.rank != 0 and not synchronous:
            return ""
        reasons = self._replay.refused.get((step, changes_key(changes)))
        return reasons.pop(0) if reasons else ""

    def refusals(self, step: int, requests: Sequence[Mapping[str, Any]], *, synchronous: bool) -> list[str]:
        """Return the :meth:`refusal` of each request, as recorded on rank 0; collective."""
        reasons = [self.refusal(step, changes, synchronous=synchronous) for changes in requests]
        agreed: list[str] = json.loads(self._group.broadcast_text(json.dumps(reasons)))
        return agreed

    def recorded_plan(self, position: Position, *, synchronous: bool = True) -> dict[str, Any]:
        """Return the plan that the replayed run built here, as a strategy's state, and its choices; collective."""
        if not synchronous:  # plans are recorded at the joint step of all ranks
            position = position_of_rank_0(position, self._group, device=self._device)
        plan = self._next_plan(position.step, "build")
        choices = [{COMPUTE: choice} for step, choice in self._replay.compute if step <= position.step]
        return {**(choices[-1] if choices else {}), **({} if plan is None else {RECORDED_PLAN: plan})}

    def end_epoch(self, strategy: Replannable, step: int) -> tuple[str, ...]:
        """Let a strategy adopt the recorded plan, if any; return the kinds of plan events that changed."""
        if self._replay.requests is None:
            return super().end_epoch(strategy, step)
        plan = self._next_plan(step, "epoch")
        return () if plan is None else strategy.adopt_plan(plan)

    def decision(self, step: int) -> DecisionRow | None:
        """Return the next decision of a batch-size controller that was recorded at a step."""
        rows = (self._replay.decisions or {}).get(step)
        return DecisionRow(*rows.pop(0)) if rows else None

    def rounds(self) -> Sequence[Round]:
        """Return the recorded rounds of the averaging interval that begins.

        Raises:
            ConfigError: the records have fewer intervals.
        """
        self._intervals += 1
        rounds = self._replay.rounds
        ends = [index + 1 for index, recorded in enumerate(rounds) if recorded.is_last]
        bounds = [0, *ends, *([len(rounds)] if rounds and not rounds[-1].is_last else [])]
        if self._intervals >= len(bounds):
            raise ConfigError(
                f"replay: the records have {len(bounds) - 1} averaging intervals, but interval number "
                f"{self._intervals} begins. Replay the records of one rank, with the settings, data, ranks and "
                "requests of their run."
            )
        return rounds[bounds[self._intervals - 1] : bounds[self._intervals]]

    def next_step(self, step: int, epoch: int, take: Callable[[], int | None]) -> int | None:
        """Return the recorded iteration of a step of this epoch; None if this rank made no further step of it."""
        epoch_and_iteration = self._replay.places.get(step)
        return epoch_and_iteration[1] if epoch_and_iteration is not None and epoch_and_iteration[0] == epoch else None

    def _next_plan(self, step: int, occasion: str) -> dict[str, Any] | None:
        plans = self._replay.plans.get((step, occasion))
        return plans.pop(0) if plans else None


def changes_key(changes: Mapping[str, Any]) -> str:
    """Return changes as canonical JSON, the same before and after recording."""
    return json.dumps(dict(changes), sort_keys=True)
