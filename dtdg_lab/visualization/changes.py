"""The log of changes: who asked for which settings, and what became of each request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from dtdg_lab.core.events import ENDED_FIRST, TUNER, ControlReceived, Ended, Refused, Resumed, SettingsChanged
from dtdg_lab.core.options import OPTIONS

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.runs.tables import RunTables

Outcome = Literal["asked", "waiting", "applied", "refused", "not applied"]
BY_RESUME = "resume"
FORKED = "forked"  # kind of the event that begins a fork
LATER_REQUEST = "A later request replaced it."
OTHER_SYSTEM = "The new system does not have this setting."
SET_AGAIN = "The run was resumed with another value."
UNDONE = "The run was resumed from an earlier step."
COLUMNS = ("time", "step", "who", "setting", "old", "new", "outcome", "reason")


@dataclass(frozen=True, slots=True)
class RequestedChange:
    """Settings that were asked for together, and what became of them.

    A request for settings that change at a step and others that change at an epoch's end is two of these, with one
    number: they are applied or refused separately.

    Attributes:
        number: from 1, in order of request.
        changes: setting -> its value before and after; an unknown value before is None.
        by: ``notebook``, ``page``, ``tuner`` or the name of a program; ``replay of`` one of these; ``fork of`` a run;
            ``resume``; empty if unknown.
        asked_s: seconds of training at the request.
        asked_step: the step that came next then.
        version: of the request; None where the ranks never received it.
        attempt: of the run.
        outcome: ``asked``: its step has not begun; ``waiting``: for the end of an epoch.
        reason: why it was not applied.
        seconds: of training when rank 0 applied it.
        steps: rank -> the first step under it.
        times: changes that are one entry, as a tuner's of one epoch.
    """

    number: int
    changes: Mapping[str, tuple[Any, Any]]
    by: str
    asked_s: float
    asked_step: int
    version: int | None
    attempt: int
    outcome: Outcome
    reason: str = ""
    seconds: float | None = None
    steps: Mapping[int, int] = field(default_factory=dict)
    times: int = 1

    @property
    def step(self) -> int:
        """The first step under it on rank 0; where it was not applied, the step that came next at the request."""
        return min(self.steps.values()) if self.steps and 0 not in self.steps else self.steps.get(0, self.asked_step)


def requested_changes(tables: RunTables, *, ended: bool = False) -> tuple[RequestedChange, ...]:
    """Return the changes of settings that were asked for, in order of request.

    Args:
        tables: of the run.
        ended: whether the run is over. A run that finished or was stopped records that; a run that failed does not.
    """
    return tables.once(("requested changes", ended), lambda: _Log(tables).read(ended))


def changes_frame(changes: tuple[RequestedChange, ...]) -> pd.DataFrame:
    """Return a row for each setting that was asked for; the index has the number of the request.

    ``time`` is seconds of training at the request, ``step`` the first step under the change, or the step that came
    next where it was not applied.
    """
    import pandas as pd

    rows = [
        (change.number, change.asked_s, change.step, change.by, name, old, new, change.outcome, change.reason)
        for change in changes
        for name, (old, new) in change.changes.items()
    ]
    frame = pd.DataFrame(rows, columns=["number", *COLUMNS]).set_index("number")
    return frame.astype({"old": object, "new": object})


KINDS = (FORKED, Resumed.kind, ControlReceived.kind, Refused.kind, SettingsChanged.kind)  # as rank 0 writes them
Record = Mapping[str, Any]  # an event with the columns of its table


class _Log:
    """The log while it is read: requests that are open, and the settings by then."""

    def __init__(self, tables: RunTables) -> None:
        self._tables = tables
        self._changes: list[RequestedChange] = []
        self._open: list[int] = []  # indices of changes that are asked for or wait
        self._values = tables.started_config.flat
        self._from_resume: set[str] = set()  # settings of a resume that wait for the end of its epoch
        self._tuned = (0, -1)  # attempt and epoch of the tuner's newest change
        self._applied: dict[tuple[Any, ...], list[list[int]]] = {}  # key of an event -> changes by each such event

    def read(self, ended: bool) -> tuple[RequestedChange, ...]:
        others = []
        for event, is_replaced in self._events():
            if event["rank"] == 0:
                self._add(event, is_replaced)
            elif not is_replaced:
                others.append(event)
        self._add_steps(others)
        self._close(ended)
        return tuple(self._changes)

    def _events(self) -> Iterator[tuple[Record, bool]]:
        """Yield the events in order of time, and whether a resume replaced each."""
        records: list[tuple[int, int, int, Record, bool]] = []
        for place, kind in enumerate(KINDS):
            kept = {id(event) for event in self._tables.events(kind)}
            records += [
                (event["attempt"], event["time_ns"], place, event, id(event) not in kept)
                for event in self._tables.events(kind, all_attempts=True)
            ]
        for *_, event, is_replaced in sorted(records, key=lambda record: record[:3]):
            yield event, is_replaced

    def _add(self, event: Record, is_replaced: bool) -> None:
        kind, data = event["kind"], event["data"]
        if kind == FORKED:
            self._add_fork(event)
        elif kind == Resumed.kind:
            self._resume(data)
        elif kind == ControlReceived.kind:
            self._ask(event, is_replaced)
        elif kind == Refused.kind:
            self._refuse(event, is_replaced)
        elif data.get("by"):
            self._tune(event, is_replaced)
        elif not is_replaced:
            self._apply(event)
        if kind == SettingsChanged.kind:
            self._values = self._values | data["changes"]

    def _new(self, event: Record, changes: Mapping[str, Any], by: str, outcome: Outcome, **more: Any) -> int:
        """Add a change of this event, and return its index."""
        old = {**self._values, **(event["data"].get("old") or {})}
        number = self._changes[-1].number + 1 if self._changes else 1
        change = RequestedChange(
            number=number,
            changes={name: (old.get(name), value) for name, value in changes.items()},
            by=by,
            asked_s=event["seconds"],
            asked_step=event["step"],
            version=event["data"].get("version"),
            attempt=event["attempt"],
            outcome=outcome,
        )
        self._changes.append(replace(change, **more))
        return len(self._changes) - 1

    def _add_fork(self, event: Record) -> None:
        changes, step = event["data"].get("changes"), event["step"]
        if changes:
            steps = dict.fromkeys(range(self._tables.ranks), step)
            by = f"fork of {event['data']['run']}"
            self._new(event, changes, by, "applied", seconds=event["seconds"], steps=steps)

    def _resume(self, data: Record) -> None:
        self._values = self._values | data.get("settings", {})
        changes = data.get("changes", {})
        self._from_resume = set(changes)
        for index in [*self._open]:
            names = set(self._changes[index].changes)
            if names <= set(changes):  # it is set again
                self._end(index, "not applied", SET_AGAIN)

    def _ask(self, event: Record, is_replaced: bool) -> None:
        data = event["data"]
        changes, by = data["request"].get("set"), data.get("by") or ""
        if not changes:
            return
        now = {name: value for name, value in changes.items() if _is_applied_at_steps(name)}
        later = {name: value for name, value in changes.items() if name not in now}
        number = None
        for part, outcome in ((now, "asked"), (later, "waiting")):
            if part:
                index = self._new(event, part, by, outcome)  # type: ignore[arg-type]  # one of two literals
                if number is not None:
                    self._changes[index] = replace(self._changes[index], number=number)
                number = self._changes[index].number
                self._open.append(index)
                if is_replaced:
                    self._end(index, "not applied", UNDONE)

    def _refuse(self, event: Record, is_replaced: bool) -> None:
        refused = Refused.read(event["data"])
        if refused.version is None:
            outcome: Outcome = "not applied" if refused.reason == ENDED_FIRST else "refused"
            self._new(event, refused.changes, refused.by or "", outcome, reason=refused.reason)
        elif not is_replaced:
            for index in self._asked_for(refused.changes):
                self._end(index, "refused", refused.reason)

    def _asked_for(self, changes: Mapping[str, Any]) -> list[int]:
        """Return the open changes that are the oldest request for exactly these settings, or its part."""
        parts: dict[int, list[int]] = {}
        for index in self._open:
            if _new_values(self._changes[index]) == changes:
                return [index]
            parts.setdefault(self._changes[index].number, []).append(index)
        for indices in parts.values():
            if {
                name: value for index in indices for name, value in _new_values(self._changes[index]).items()
            } == changes:
                return indices
        return []

    def _tune(self, event: Record, is_replaced: bool) -> None:
        """Add a tuner's change, to that before if it is of the same epoch."""
        changes, last = event["data"]["changes"], self._changes[-1] if self._changes else None
        key = (event["attempt"], event["epoch"])
        if last is not None and last.by == TUNER and self._tuned == key:
            old = {name: before for name, (before, _) in last.changes.items()}
            both = {name: (old.get(name, self._values.get(name)), value) for name, value in changes.items()}
            self._changes[-1] = replace(last, changes={**last.changes, **both}, times=last.times + 1)
            index = len(self._changes) - 1
        else:
            index = self._new(event, changes, TUNER, "applied", version=None)
        self._tuned = key
        if is_replaced:
            self._end(index, "not applied", UNDONE)
        else:
            self._take_effect([index], event)

    def _apply(self, event: Record) -> None:
        """End the requests that the ranks applied, or that later ones replaced."""
        applied, indices, unknown = event["data"]["changes"], [], dict(event["data"]["changes"])
        for index in [*self._open]:
            values = _new_values(self._changes[index])
            if event["data"]["when"] == "step" and not (self._is_of(index, event) and values == applied):
                continue
            if any(name in applied and applied[name] == value for name, value in values.items()):
                indices.append(index)
            else:
                reason = OTHER_SYSTEM if applied.keys().isdisjoint(values) else LATER_REQUEST
                self._end(index, "not applied", reason)
            unknown = {name: value for name, value in unknown.items() if name not in values}
        if unknown:
            by = BY_RESUME if self._from_resume >= unknown.keys() else ""
            indices.append(self._new(event, unknown, by, "applied", version=None))
        self._take_effect(indices, event)

    def _is_of(self, index: int, event: Record) -> bool:
        """Return whether a change was asked for with the version of an event."""
        change = self._changes[index]
        return (change.attempt, change.version) == (event["attempt"], event["data"]["version"])

    def _take_effect(self, indices: list[int], event: Record) -> None:
        for index in indices:
            if self._changes[index].outcome != "applied":
                self._end(index, "applied")
            self._changes[index] = replace(
                self._changes[index], seconds=event["seconds"], steps={event["rank"]: event["step"]}
            )
        self._applied.setdefault(_key(event), []).append(indices)

    def _end(self, index: int, outcome: Outcome, reason: str = "") -> None:
        self._changes[index] = replace(self._changes[index], outcome=outcome, reason=reason)
        if index in self._open:
            self._open.remove(index)

    def _add_steps(self, events: list[Record]) -> None:
        """Add the steps at which ranks above 0 applied what rank 0 did."""
        seen: dict[tuple[Any, ...], int] = {}
        for event in events:
            if event["kind"] != SettingsChanged.kind:
                continue
            key, rank = _key(event), event["rank"]
            place = seen[key, rank] = seen.get((key, rank), -1) + 1
            for indices in self._applied.get(key, [])[place : place + 1]:
                for index in indices:
                    change = self._changes[index]
                    self._changes[index] = replace(change, steps={**change.steps, rank: event["step"]})

    def _close(self, ended: bool) -> None:
        """Say what became of the requests that are still open."""
        newest = max((event["attempt"] for event in self._tables.events("started")), default=1)
        ended = ended or any(event["attempt"] == newest for event in self._tables.events(Ended.kind))
        for index in [*self._open]:
            change = self._changes[index]
            if ended:
                self._end(index, "not applied", ENDED_FIRST)
            elif change.outcome == "asked" and self._tables.steps.get(0, -1) >= change.asked_step:
                self._changes[index] = replace(change, outcome="waiting")  # until waiting changes make room for it


def _is_applied_at_steps(name: str) -> bool:
    return name in OPTIONS and OPTIONS[name].live == "step"


def _new_values(change: RequestedChange) -> dict[str, Any]:
    return {name: new for name, (_, new) in change.changes.items()}


def _key(event: Record) -> tuple[Any, ...]:
    """Return what the events of one change have in common on all ranks."""
    data = event["data"]
    changes = json.dumps(data["changes"], sort_keys=True)
    return event["attempt"], data["version"], data["when"], data.get("by"), changes
