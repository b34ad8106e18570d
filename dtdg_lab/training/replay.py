"""What one rank did in an earlier run where clocks, races and people decided it: to be done again, step by step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.distributed.model_averaging import Round
from dtdg_lab.engine.capabilities import Decision

STEP, PAUSE, GATHER, END = HEARD = ("step", "pause", "gather", "end")  # where a request is received, in this order

At = tuple[int, str]  # a step and what is done there


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A control request, and where all ranks received it.

    Attributes:
        step: that comes next.
        received: with the exchange of the step before, in a pause, while ranks gathered, or after the last epoch.
        payload: what was asked for.
    """

    step: int
    received: str
    payload: Mapping[str, Any]

    def is_due(self, step: int, received: str) -> bool:
        """Whether it has been received by then."""
        return (self.step, HEARD.index(self.received)) <= (step, HEARD.index(received))


@dataclass(frozen=True, slots=True)
class RunReplay:
    """The records of a rank that say what neither settings nor seed decide.

    Attributes:
        rounds: of averaging, in order; the one numbered 0 ends a stretch between two changes that all ranks came
            together for.
        drawn: batches by step of this rank and part.
        places: epoch and iteration by step of this rank, where ranks shared the steps of an epoch.
        requests: to control the run, the first one with version 1; None where the trainer receives them.
        plans: schedules and choices of overlap that were made from measured times, in order, by step and occasion:
            ``build`` or ``epoch``.
        refused: reasons by step and changes (see :func:`changes_key`).
        decisions: rows of the table ``decisions`` after step and epoch, by step, of batch policies; None where
            they are to be decided again.
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
        **more: Any,
    ) -> RunReplay:
        """From rows of the tables ``rounds``, ``targets`` and ``steps`` of one rank, in order, and what else is given.

        Records of older versions do not say which rounds came while a rank waited: it had weight 0 then.
        """
        names = ("number", "joined_step", "applied_step", "weight", "version", "choice")
        made = tuple(
            Round(**{name: row[name] for name in names}, gathered=bool(row.get("gathered", row["weight"] == 0)))
            for row in rounds
        )
        more["places"] = {row["step"]: (row["epoch"], row["iteration"]) for row in steps}
        drawn = {(row["step"], row["part"]): (row["source"], row["action"], row["index"]) for row in targets}
        return cls(made, drawn, **more)

    def stretch(self, number: int) -> Sequence[Round]:
        """The rounds of a stretch in which ranks averaged, from 1.

        Raises:
            ConfigError: there were not as many.
        """
        ends = [place + 1 for place, of in enumerate(self.rounds) if of.is_last]
        bounds = [0, *ends, *([len(self.rounds)] if self.rounds[-1:] and not self.rounds[-1].is_last else [])]
        if number >= len(bounds):
            raise ConfigError(
                f"replay: {len(bounds) - 1} stretches of averaging were recorded, and this is number {number}. Replay "
                "the records of one rank, with the settings, data, ranks and requests of their run."
            )
        return self.rounds[bounds[number - 1] : bounds[number]]

    def next_step(self, step: int, epoch: int) -> int | None:
        """The iteration that a step was, of this epoch; None where this rank made no more steps of it."""
        place = self.places.get(step)
        return place[1] if place is not None and place[0] == epoch else None

    # requests

    def version(self, step: int, received: str) -> int:
        """The newest request received when ``step`` comes next."""
        assert self.requests is not None
        return sum(request.is_due(step, received) for request in self.requests)

    def payload(self, version: int, step: int, received: str, *, together: bool) -> Mapping[str, Any]:
        """What was asked for; a version above all recorded ones is a request to stop the replay.

        A stop carries the versions before it along: those that were not due yet ask for nothing.

        Args:
            version: from 1.
            step: that comes next.
            received: where.
            together: whether all ranks are at this step; else a rank hears a version sooner or later than rank 0, as
                its rounds say.
        """
        assert self.requests is not None
        if version > len(self.requests):
            return {"stop": True}
        request = self.requests[version - 1]
        return request.payload if not together or request.is_due(step, received) else {}

    # what was decided

    def plan(self, step: int, came: str) -> dict[str, Any] | None:
        """The plan that came about there; None where there was none. Each is given once."""
        made = self.plans.get((step, came))
        return made.pop(0) if made else None

    def refusal(self, step: int, changes: Mapping[str, Any]) -> str:
        """Why changes were refused; empty where they were not. Each refusal is given once."""
        reasons = self.refused.get((step, changes_key(changes)))
        return reasons.pop(0) if reasons else ""

    def decided(self, step: int) -> Decision | None:
        """Return the next decision of a batch-size controller after a step; each is returned once."""
        recorded = {} if self.decisions is None else self.decisions
        return Decision(*recorded[step].pop(0)) if recorded.get(step) else None


def changes_key(changes: Mapping[str, Any]) -> str:
    """Changes as text, the same before and after they were records."""
    return json.dumps(dict(changes), sort_keys=True)
