"""The log of changes: who asked for which settings, and what became of each request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.records.events import (
    TUNER,
    AttemptStarted,
    ControlReceived,
    Ended,
    Refused,
    Requested,
    Resumed,
    SettingsChanged,
)
from dtdg_lab.records.tables import RunTables

if TYPE_CHECKING:
    import pandas as pd


Outcome = Literal["asked", "waiting", "applied", "refused", "not applied"]
BY_RESUME = "resume"
FORKED = "forked"  # kind of the event that begins a fork
ENDED_FIRST = "The run ended first."
LATER_REQUEST = "A later request replaced it."
OTHER_SYSTEM = "The new system does not have this setting."
SET_AGAIN = "The run was resumed with another value."
UNDONE = "The run was resumed from an earlier step."
COLUMNS = ("time", "step", "who", "setting", "old", "new", "outcome", "reason")


@dataclass(slots=True)
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
        is_received: whether the ranks have received it.
        version: of the request; None where the ranks never received it.
        attempt: of the run.
        outcome: ``asked``: its step has not begun; ``waiting``: for the end of an epoch.
        reason: why it was not applied.
        seconds: of training when rank 0 applied it.
        steps: rank -> the first step under it.
        times: changes that are one entry, as a tuner's of one epoch.
    """

    number: int
    changes: dict[str, tuple[Any, Any]]
    by: str
    asked_s: float
    asked_step: int
    version: int | None
    attempt: int
    outcome: Outcome
    reason: str = ""
    seconds: float | None = None
    steps: dict[int, int] = field(default_factory=dict)
    times: int = 1
    is_received: bool = True

    @property
    def new_values(self) -> dict[str, Any]:
        """The values that were asked for, by setting."""
        return {name: new for name, (_, new) in self.changes.items()}

    @property
    def step(self) -> int:
        """The first step under it on rank 0; where it was not applied, the step that came next at the request."""
        return min(self.steps.values()) if self.steps and 0 not in self.steps else self.steps.get(0, self.asked_step)

    def end(self, outcome: Outcome, reason: str = "") -> None:
        """Set how the change ended; only the log does."""
        self.outcome, self.reason = outcome, reason


def requested_changes(tables: RunTables, *, ended: bool = False) -> tuple[RequestedChange, ...]:
    """Return the changes of settings that were asked for, in order of request.

    Args:
        tables: of the run.
        ended: whether the run is over. A run that finished or was stopped records that; a run that failed does not.
    """
    changes = tables.once("requested changes", lambda: _Log(tables).read(), state=log_state(tables))
    return tuple(_settled(change, tables, ended) if change.outcome in OPEN else change for change in changes)


def has_ended(tables: RunTables) -> bool:
    """Return whether the newest attempt finished or was stopped; one that failed does not record its end."""
    newest = max((event["attempt"] for event in tables.events(AttemptStarted.kind)), default=1)
    return any(event["attempt"] == newest for event in tables.events(Ended.kind))


def log_state(tables: RunTables) -> tuple[Any, ...]:
    """Return what the log depends on: it is read again where this has changed."""
    resumes = tuple(tuple(steps.items()) for steps, _ in tables.resumes)
    return tables.event_log.count(*KINDS, AttemptStarted.kind, Ended.kind), resumes


def _settled(change: RequestedChange, tables: RunTables, ended: bool) -> RequestedChange:
    """Return a change that was neither applied nor refused, as it stands now."""
    if ended:
        return replace(change, outcome="not applied", reason=ENDED_FIRST)
    if change.outcome == "asked" and change.is_received and tables.steps.get(0, -1) >= change.asked_step:
        return replace(change, outcome="waiting")  # until waiting changes make room for it
    return change


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


EVENTS = (Resumed, Requested, ControlReceived, Refused, SettingsChanged)  # as rank 0 writes them
KINDS = (FORKED, *(event.kind for event in EVENTS))
OPEN = ("asked", "waiting")
Record = Mapping[str, Any]  # an event with the columns of its table


class _Log:
    """The log while it is read: its entries, those that are open, and the settings by then."""

    def __init__(self, tables: RunTables) -> None:
        self._tables = tables
        self._entries: list[RequestedChange] = []
        self._open: list[RequestedChange] = []  # asked for or waiting, oldest first
        resumes = tables.events(Resumed.kind, all_attempts=True)
        self._first_steps = {event["attempt"]: event["step"] for event in resumes if event["rank"] == 0}
        self._values = dict(tables.started_config.flat)
        self._from_resume: set[str] = set()  # settings of a resume, which may wait for the end of its epoch
        self._tuned = (0, -1)  # attempt and epoch of the tuner's newest change
        self._applied: dict[
            tuple[Any, ...], list[list[RequestedChange]]
        ] = {}  # key of an event -> entries by each such event

    def read(self) -> tuple[RequestedChange, ...]:
        """Return the log of all events."""
        events_of_other_ranks = []
        for event, is_replaced in self._events():
            if event["rank"] == 0:
                self._add(event, is_replaced)
            elif not is_replaced and event["kind"] == SettingsChanged.kind:
                events_of_other_ranks.append(event)
        self._add_steps(events_of_other_ranks)
        if has_ended(self._tables):
            for entry in self._open:
                entry.end("not applied", ENDED_FIRST)
        return tuple(self._entries)

    def _events(self) -> Iterator[tuple[Record, bool]]:
        """Yield the events in order of time, and whether a resume replaced each."""
        records: list[tuple[int, int, int, int, Record, bool]] = []
        for kind_index, kind in enumerate(KINDS):
            kept_ids = {id(event) for event in self._tables.events(kind)}
            for event in self._tables.events(kind, all_attempts=True):
                records.append(
                    (event["attempt"], event["time_ns"], kind_index, len(records), event, id(event) not in kept_ids)
                )
        for *_, record, is_replaced in sorted(records):
            yield record, is_replaced

    def _add(self, event: Record, is_replaced: bool) -> None:
        kind, data = event["kind"], event["data"]
        if kind == FORKED:
            self._add_fork(event)
        elif kind == Resumed.kind:
            self._resume(event)
        elif kind == Requested.kind:
            self._ask(event, data["changes"])
        elif kind == ControlReceived.kind:
            self._receive(event, is_replaced)
        elif kind == Refused.kind:
            self._refuse(event, is_replaced)
        elif data.get("by"):
            self._tune(event, is_replaced)
        elif not is_replaced:
            self._apply(event)
        if kind == SettingsChanged.kind:
            self._values.update(data["changes"])

    def _new(
        self, event: Record, new: Mapping[str, Any], by: str, outcome: Outcome, version: int | None
    ) -> RequestedChange:
        """Add an entry for this event; what was asked before the first step of an attempt has that step."""
        old_values = self._values | (event["data"].get("old") or {})
        entry = RequestedChange(
            number=self._entries[-1].number + 1 if self._entries else 1,
            changes={name: (old_values.get(name), value) for name, value in new.items()},
            by=by,
            asked_s=event["seconds"],
            asked_step=max(event["step"], self._first_steps.get(event["attempt"], 0)),
            version=version,
            attempt=event["attempt"],
            outcome=outcome,
        )
        self._entries.append(entry)
        return entry

    def _close(self, entry: RequestedChange, outcome: Outcome, reason: str = "") -> None:
        entry.end(outcome, reason)
        if entry in self._open:
            self._open.remove(entry)

    def _add_fork(self, event: Record) -> None:
        changes, step = event["data"].get("changes"), event["step"]
        if changes:
            entry = self._new(event, changes, f"fork of {event['data']['run']}", "applied", None)
            entry.seconds, entry.steps = event["seconds"], {rank: step for rank in range(self._tables.ranks)}

    def _resume(self, event: Record) -> None:
        data = event["data"]
        self._values.update(data.get("settings", {}))
        self._from_resume = set(data.get("changes", {}))
        for entry in [*self._open]:
            if not entry.is_received and entry.attempt < event["attempt"]:
                self._close(entry, "not applied", ENDED_FIRST)
            elif entry.changes.keys() <= self._from_resume:
                self._close(entry, "not applied", SET_AGAIN)

    def _receive(self, event: Record, is_replaced: bool) -> None:
        entries = [entry for entry in self._open if _is_of(entry, event)]
        for entry in entries or self._ask(event, event["data"]["request"].get("set") or {}):
            entry.is_received, entry.asked_step = True, event["step"]
            if is_replaced:
                self._close(entry, "not applied", UNDONE)

    def _ask(self, event: Record, changes: Mapping[str, Any]) -> list[RequestedChange]:
        """Add the entries of a request that the ranks have not received yet."""
        data, by = event["data"], event["data"].get("by") or ""
        at_step = {name: value for name, value in changes.items() if _is_applied_at_steps(name)}
        at_epoch = {name: value for name, value in changes.items() if name not in at_step}
        entries = [self._new(event, at_step, by, "asked", data["version"])] if at_step else []
        entries += [self._new(event, at_epoch, by, "waiting", data["version"])] if at_epoch else []
        for entry in entries:
            entry.number, entry.is_received = entries[0].number, False
        self._open += entries
        return entries

    def _refuse(self, event: Record, is_replaced: bool) -> None:
        refused = Refused.read(event["data"])
        if refused.version is None:
            self._new(event, refused.changes, refused.by or "", "refused", None).reason = refused.reason
        elif not is_replaced:
            for entry in self._asked_for(refused.changes):
                self._close(entry, "refused", refused.reason)

    def _received(self) -> list[RequestedChange]:
        """Return the open entries that the ranks know of."""
        return [entry for entry in self._open if entry.is_received]

    def _asked_for(self, changes: Mapping[str, Any]) -> list[RequestedChange]:
        """Return the open entries of the oldest request for exactly these settings, or of its part."""
        requests: dict[int, list[RequestedChange]] = {}
        for entry in self._received():
            if entry.new_values == changes:
                return [entry]
            requests.setdefault(entry.number, []).append(entry)
        for entries in requests.values():
            if {name: value for entry in entries for name, value in entry.new_values.items()} == changes:
                return entries
        return []

    def _tune(self, event: Record, is_replaced: bool) -> None:
        """Add a tuner's change, to the entry before if that is of the same epoch."""
        changes, last = event["data"]["changes"], self._entries[-1] if self._entries else None
        epoch = (event["attempt"], event["epoch"])
        if last is not None and last.by == TUNER and self._tuned == epoch:
            for name, value in changes.items():
                old, _ = last.changes.get(name, (self._values.get(name), None))
                last.changes[name] = (old, value)
            last.times += 1
            entry = last
        else:
            entry = self._new(event, changes, TUNER, "applied", None)
        self._tuned = epoch
        if is_replaced:
            entry.end("not applied", UNDONE)
        else:
            self._take_effect([entry], event)

    def _apply(self, event: Record) -> None:
        """Close the requests that the ranks applied, and those that later ones replaced."""
        changed = SettingsChanged.read(event["data"])
        changes, entries, unknown = changed.changes, list[RequestedChange](), dict(changed.changes)
        for entry in self._received():
            if changed.when == "step" and not (_is_of(entry, event) and entry.new_values == changes):
                continue
            if any(name in changes and changes[name] == value for name, value in entry.new_values.items()):
                self._close(entry, "applied")
                entries.append(entry)
            else:
                reason = OTHER_SYSTEM if changes.keys().isdisjoint(entry.changes) else LATER_REQUEST
                self._close(entry, "not applied", reason)
            unknown = {name: value for name, value in unknown.items() if name not in entry.changes}
        if unknown:
            by = BY_RESUME if self._from_resume >= unknown.keys() else ""
            entries.append(self._new(event, unknown, by, "applied", None))
        self._take_effect(entries, event)

    def _take_effect(self, entries: list[RequestedChange], event: Record) -> None:
        for entry in entries:
            entry.seconds, entry.steps = event["seconds"], {event["rank"]: event["step"]}
        self._applied.setdefault(_key(event), []).append(entries)

    def _add_steps(self, events: list[Record]) -> None:
        """Add the steps at which ranks above 0 applied what rank 0 did."""
        counts: dict[tuple[Any, ...], int] = {}
        for event in events:
            key, rank = _key(event), event["rank"]
            index = counts[key, rank] = counts.get((key, rank), -1) + 1
            for entry in next(iter(self._applied.get(key, [])[index : index + 1]), ()):
                entry.steps[rank] = event["step"]


def _is_applied_at_steps(name: str) -> bool:
    return name in OPTIONS and OPTIONS[name].live == "step"


def _is_of(entry: RequestedChange, event: Record) -> bool:
    """Return whether a change was asked for with the version of an event."""
    return (entry.attempt, entry.version) == (event["attempt"], event["data"]["version"])


def _key(event: Record) -> tuple[Any, ...]:
    """Return what the events of one change have in common on all ranks."""
    changed = SettingsChanged.read(event["data"])
    return event["attempt"], changed.version, changed.when, changed.by, str(changed.changes)
