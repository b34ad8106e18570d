"""Events of a run as rows of a table for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.core.units import format_seconds
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.records.events import (
    RegisteredCode,
)

Part = Mapping[str, Any]


Runs = Sequence[Sequence[int]]


def parts_line(parts: Mapping[str, Part]) -> str:
    """Return the snapshots of each part as text, such as ``train: snapshots 0 to 11, test: snapshots 15 to 38``."""
    return ", ".join(f"{name}: {_where(part)}" for name, part in parts.items())


def empty_parts(parts: Mapping[str, Part]) -> list[str]:
    """Return a sentence for each part with snapshots without edges."""
    captions = []
    for name, part in parts.items():
        runs: Runs = part["without_edges"]
        count, total = sum(last - first + 1 for first, last in runs), part["last"] - part["first"] + 1
        if count:
            named = {"train": "training"}.get(name, name)
            captions.append(
                f"{count} of {total} {named} snapshots have no edges ({', '.join(map(_ends, runs))}): "
                "keep this in mind when reading the scores of this part."
            )
    return captions


def _where(part: Part) -> str:
    runs: Runs = part["without_edges"]
    empty = f" (no edges in {', '.join(map(_ends, runs))})" if runs else ""
    return f"snapshots {_ends((part['first'], part['last']))}{empty}"


def _ends(run: Sequence[int]) -> str:
    first, last = run
    return str(first) if first == last else f"{first} to {last}"


MOST_OF_A_KIND = 200  # maximum number of events of a kind per rank


# Kinds that are shown elsewhere on the page, or that would hide the rest by their number.
EXCLUDED_KINDS = ("epoch", "checkpoint", "requested", "control_received", "ended")


Row = tuple[str, str, str, str, str]


EventText = Callable[[dict[str, Any]], str]


def event_rows(events: Sequence[dict[str, Any]]) -> list[Row]:
    """Return rows (time since the start, step, ranks, event, text) in order of time.

    Every rank logs a change of live settings. The changes become one row with the step at which they were applied, or
    with every rank's step if these differ. Ends of epochs are left out. Checkpoints become one row with their number,
    and so do events of a kind that were ``left_out``; see :meth:`RunTables.events`.
    """
    if not events:
        return []
    start_ns = min(event["time_ns"] for event in events)
    rows: list[tuple[int, Row]] = []
    for group in _groups(events):
        first = group[0]
        seconds = format_seconds((first["time_ns"] - start_ns) / 1e9)
        ranks = sorted({int(event["rank"]) for event in group})
        what = _words(first["kind"], first["data"])
        if first.get("left_out"):
            what = f"{first['left_out'] + 1} more events; this is the last: {what}"
        row = (seconds, _steps(group), ", ".join(map(str, ranks)), first["kind"], what)
        rows.append((first["time_ns"], row))
    saved = [event for event in events if event["kind"] == "checkpoint"]
    if saved:
        last = saved[-1]
        seconds = format_seconds((last["time_ns"] - start_ns) / 1e9)
        what = f"{len(saved) + last.get('left_out', 0)} written; this is the last"
        rows.append((last["time_ns"], (seconds, _step(last), str(last["rank"]), "checkpoint", what)))
    return [row for _, row in sorted(rows, key=lambda item: item[0])]


def _groups(events: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group events that belong together: changes of a version; a kind that several ranks logged for a step."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for event in events:
        if event["kind"] in EXCLUDED_KINDS:
            continue
        if event.get("left_out"):
            key: tuple[Any, ...] = ("left out", event["kind"])
        elif event["kind"] == "settings":
            data = event["data"] or {}
            key = ("settings", event["attempt"], data.get("version"), data.get("when"))
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
    positions = ", ".join(f"rank {rank} at {step}" for rank, step in sorted(steps.items()))
    return positions if (group[0]["data"] or {}).get("own_steps") else f"NOT AT ONE STEP: {positions}"


def _words(kind: str, data: Any) -> str:
    if not isinstance(data, dict):
        return "" if data is None else str(data)
    if kind == "settings":
        changes = ", ".join(f"{name} = {value}" for name, value in (data.get("changes") or {}).items())
        return f"{changes} (version {data.get('version')}, before the next {data.get('when', 'step')})"
    texts = _texts(tuple(catalogue.FAMILIES))
    if kind in texts:
        return texts[kind](data)
    return ", ".join(f"{name}: {value}" for name, value in data.items())


@cache
def _texts(families: tuple[str, ...]) -> Mapping[str, EventText]:
    """Return kind of event -> function that describes it in a sentence; plans and traces are described briefly."""
    texts: dict[str, EventText] = {
        "parts": parts_line,
        "partition": PartitionFacts.text,
        RegisteredCode.kind: RegisteredCode.text,
        "gathered": lambda data: (
            f"waited {format_seconds(data['wait_s'])} for the other ranks, and served their rounds of averaging"
        ),
    }
    for name in families:
        texts |= catalogue.family(name).event_texts()
    return texts
