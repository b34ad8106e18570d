"""EventLog: the events of a run by kind, without those that a resume replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeVar, cast

import numpy as np

from dtdg_lab.records.events import (
    ControlReceived,
    Event,
    RanksGathered,
    Refused,
    Requested,
    Resumed,
    SettingsChanged,
)
from dtdg_lab.records.lines import from_json, to_json
from dtdg_lab.records.position import AttemptClock
from dtdg_lab.records.replaced_rows import Starts, first_replaced

E = TypeVar("E", bound=Event)

EVENTS_OF_A_KIND = 1_000  # number of newest events kept per kind, so that many epochs do not displace a plan
ALL_KEPT = tuple(  # kinds whose events are all kept
    event.kind for event in (Requested, ControlReceived, Refused, SettingsChanged, Resumed, RanksGathered)
)


class EventLog:
    """Events by kind, each a dict of its table's columns with ``rank``, ``attempt``, and ``text``, its data as JSON."""

    def __init__(self) -> None:
        self._by_kind: dict[str, list[dict[str, Any]]] = {}

    def add(self, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Add events with their rank and attempt, in order of time per rank; yield each."""
        for event in events:
            event["text"] = to_json(event["data"])
            event["data"] = _parse(event["text"])  # share one object between equal data
            same_kind = self._by_kind.setdefault(event["kind"], [])
            same_kind.append(event)
            if len(same_kind) > 2 * EVENTS_OF_A_KIND and event["kind"] not in ALL_KEPT:
                del same_kind[:EVENTS_OF_A_KIND]
            yield event

    def newest(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """Return the newest events of a kind."""
        return self._by_kind.get(kind, [])[-count:]

    def count(self, *kinds: str) -> int:
        """Return the number of events of some kinds in memory."""
        return sum(len(self._by_kind.get(kind, ())) for kind in kinds)

    def in_order(self, kind: str, clock: AttemptClock) -> list[dict[str, Any]]:
        """Return events of one kind in order of time, with the ``seconds`` of training at each."""
        events = sorted(self._by_kind.get(kind, ()), key=itemgetter("time_ns"))
        attempts, times_ns = (np.array([event[name] for event in events]) for name in ("attempt", "time_ns"))
        for event, seconds in zip(events, clock.seconds_of(attempts, times_ns).tolist(), strict=True):
            event["seconds"] = seconds
        return events


def without_replaced_events(events: list[dict[str, Any]], starts: Starts) -> list[dict[str, Any]]:
    """Return the events of one kind without those replaced by a later attempt."""
    if len(starts) < 2:
        return events
    newest = {(event["rank"], event["step"]): event["attempt"] for event in events}

    def is_valid(event: dict[str, Any]) -> bool:
        limit, step = first_replaced(starts, event["rank"], event["attempt"]), event["step"] or 0
        return step < limit or (step == limit and newest[event["rank"], event["step"]] == event["attempt"])

    return [event for event in events if is_valid(event)]


@lru_cache(maxsize=4096)
def _parse(text: bytes) -> Any:
    return from_json(text)


@lru_cache(maxsize=256)
def _read_once(kind: Any, text: bytes) -> Any:
    return kind.read_plan(_parse(text))


def read_event(kind: type[E], text: bytes) -> E | None:
    """Return the event of recorded data, cached by text; None if a plan ended."""
    event: E | None = _read_once(cast(Any, kind), text)
    return event
