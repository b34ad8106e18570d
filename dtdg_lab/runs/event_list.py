"""A run's events as rows people read: changes once with the step they were applied at, checkpoints counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.parts import parts_line
from dtdg_lab.views.block_facts import block_facts, blocks_left, blocks_words
from dtdg_lab.views.block_memory import memory_facts, memory_words
from dtdg_lab.views.chunk_words import chunks_words
from dtdg_lab.views.congestion_log import links_of
from dtdg_lab.views.feature_facts import feature_facts, feature_words, features_left
from dtdg_lab.views.hybrid_facts import hybrid_facts, hybrid_left, hybrid_words
from dtdg_lab.views.partition_facts import facts_of
from dtdg_lab.views.partition_words import head_words
from dtdg_lab.views.schedule_facts import is_end, schedule_facts, schedule_words
from dtdg_lab.views.trapezoid_facts import trapezoid_facts, trapezoid_left, trapezoid_words

# Told elsewhere on the page, or so many that they would hide the rest.
_PASSED_OVER = ("epoch", "checkpoint", "asked", "ended")

Row = tuple[str, str, str, str, str]


def event_rows(events: Sequence[dict[str, Any]]) -> list[Row]:
    """Rows (time since the start, step, ranks, event, what) in order of time.

    A knob change is told by every rank: it becomes one row with the step at which it was applied, or with every
    rank's step where they differ. Ends of epochs are left out; checkpoints become one row that counts them.
    """
    if not events:
        return []
    start_ns = min(event["time_ns"] for event in events)
    rows: list[tuple[int, Row]] = []
    for group in _groups(events):
        first = group[0]
        seconds = format_seconds((first["time_ns"] - start_ns) / 1e9)
        ranks = sorted({int(event["rank"]) for event in group})
        row = (seconds, _steps(group), ", ".join(map(str, ranks)), first["kind"], _words(first["kind"], first["data"]))
        rows.append((first["time_ns"], row))
    saved = [event for event in events if event["kind"] == "checkpoint"]
    if saved:
        last = saved[-1]
        seconds = format_seconds((last["time_ns"] - start_ns) / 1e9)
        what = f"{len(saved)} written; this is the last"
        rows.append((last["time_ns"], (seconds, _step(last), str(last["rank"]), "checkpoint", what)))
    return [row for _, row in sorted(rows, key=lambda item: item[0])]


def _groups(events: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Events that are one: a change of a version in an attempt; a kind told by several ranks for one step."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for event in events:
        if event["kind"] in _PASSED_OVER:
            continue
        if event["kind"] == "knob":
            data = event["data"] or {}
            key: tuple[Any, ...] = ("knob", event["attempt"], data.get("version"), data.get("when"))
        else:
            key = (event["kind"], event["attempt"], _step(event), repr(event["data"]))
        groups.setdefault(key, []).append(event)
    return list(groups.values())


def _step(event: dict[str, Any]) -> str:
    step = event["step"]
    return "" if step is None or math.isnan(step) else str(int(step))


def _steps(group: list[dict[str, Any]]) -> str:
    steps = {int(event["rank"]): _step(event) for event in group}
    if len(set(steps.values())) == 1:
        return next(iter(steps.values()))
    where = ", ".join(f"rank {rank} at {step}" for rank, step in sorted(steps.items()))
    return where if (group[0]["data"] or {}).get("apart") else f"NOT AT ONE STEP: {where}"


def _words(kind: str, data: Any) -> str:
    if not isinstance(data, dict):
        return "" if data is None else str(data)
    if kind == "knob":
        changes = ", ".join(f"{name} = {value}" for name, value in (data.get("changes") or {}).items())
        return f"{changes} (version {data.get('version')}, before the next {data.get('when', 'step')})"
    if kind in _SAID:
        return _SAID[kind](data)
    return ", ".join(f"{name}: {value}" for name, value in data.items())


def _partition(data: dict[str, Any]) -> str:
    return "no partition from here on" if data.get("layout", "") is None else head_words(facts_of(data))


def _schedule(data: dict[str, Any]) -> str:
    return "no schedule from here on" if is_end(data) else schedule_words(schedule_facts(data))


def _blocks(data: dict[str, Any]) -> str:
    return "no blocks of time from here on" if blocks_left(data) else blocks_words(block_facts(data))


def _trapezoid(data: dict[str, Any]) -> str:
    return "no windows from here on" if trapezoid_left(data) else trapezoid_words(trapezoid_facts(data))


def _hybrid(data: dict[str, Any]) -> str:
    return "no hybrid batches from here on" if hybrid_left(data) else hybrid_words(hybrid_facts(data))


def _features(data: dict[str, Any]) -> str:
    return "features are at hand from here on" if features_left(data) else feature_words(feature_facts(data))


def _congestion(data: dict[str, Any]) -> str:
    links = links_of(data, 0)
    return f"{links.pattern}: {links.words or 'nothing is added to any link'}"


def _gathered(data: dict[str, Any]) -> str:
    return f"waited {format_seconds(data['wait_s'])} for the other ranks, and served their rounds of averaging"


def _chunks(data: dict[str, Any]) -> str:
    return "no chunks from here on" if trapezoid_left(data) else chunks_words(data)


def _memory(data: dict[str, Any]) -> str:
    facts = memory_facts(data)
    return memory_words(facts, blocks=facts.count)


# of plans and traces what matters, since all of it is drawn
_SAID: Mapping[str, Callable[[dict[str, Any]], str]] = MappingProxyType(
    {
        "parts": parts_line, "partition": _partition, "schedule": _schedule, "blocks": _blocks,
        "gathered": _gathered, "empty reservoir": lambda data: str(data.get("reason")),
        "chunks": _chunks, "trapezoid": _trapezoid, "hybrid": _hybrid, "memory_trace": _memory,
        "features": _features, "congestion": _congestion,
    }
)  # fmt: skip
