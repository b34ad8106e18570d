"""Parts of a run's report: its event list, splits, and how to repeat it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import PROTOCOLS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.units import format_seconds
from dtdg_lab.visualization.partition import facts_of, head_words

# The parts of a run's sequence in words, from its event ``parts``.


Part = Mapping[str, Any]
Runs = Sequence[Sequence[int]]


def parts_line(parts: Mapping[str, Part]) -> str:
    """Which snapshots are which part: ``train: snapshots 0 to 11, test: snapshots 15 to 38``."""
    return ", ".join(f"{name}: {_where(part)}" for name, part in parts.items())


def empty_parts(parts: Mapping[str, Part]) -> list[str]:
    """One sentence for each part that holds snapshots without edges."""
    captions = []
    for name, part in parts.items():
        runs: Runs = part["without_edges"]
        count, total = sum(last - first + 1 for first, last in runs), part["last"] - part["first"] + 1
        if count:
            named = {"train": "training"}.get(name, name)
            captions.append(
                f"{count} of {total} {named} snapshots have no edges ({', '.join(map(_ends, runs))}): "
                "read the scores of this part with that in mind."
            )
    return captions


def _where(part: Part) -> str:
    runs: Runs = part["without_edges"]
    empty = f" (no edges in {', '.join(map(_ends, runs))})" if runs else ""
    return f"snapshots {_ends((part['first'], part['last']))}{empty}"


def _ends(run: Sequence[int]) -> str:
    first, last = run
    return str(first) if first == last else f"{first} to {last}"


# A run's events as rows people read: changes once with the step they were applied at, checkpoints counted.


# Shown elsewhere on the page, or so many that they would hide the rest.
_PASSED_OVER = ("epoch", "checkpoint", "asked", "ended")

Row = tuple[str, str, str, str, str]
EventText = Callable[[dict[str, Any]], str]


def event_rows(events: Sequence[dict[str, Any]]) -> list[Row]:
    """Rows (time since the start, step, ranks, event, what) in order of time.

    Every rank logs a change of live settings: it becomes one row with the step at which it was applied, or with every
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
    """Events that are one: a change of a version in an attempt; a kind logged by several ranks for one step."""
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
    if kind in _texts():
        return _texts()[kind](data)
    return ", ".join(f"{name}: {value}" for name, value in data.items())


def _partition(data: dict[str, Any]) -> str:
    return "no partition from here on" if data.get("layout", "") is None else head_words(facts_of(data))


def _gathered(data: dict[str, Any]) -> str:
    return f"waited {format_seconds(data['wait_s'])} for the other ranks, and served their rounds of averaging"


@cache
def _texts() -> Mapping[str, EventText]:
    """Kind of event -> a sentence: of plans and traces what matters, since all of it is drawn."""
    found: dict[str, EventText] = {"parts": parts_line, "partition": _partition, "gathered": _gathered}
    for family in catalogue.families():
        found |= family.event_texts()
    return found


# How to do a run again: as a Python cell, as a command, and what the settings mean.


_NAMED = ("system", "dataset", "model")


def changed_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that make these: the three names, and whatever differs from their defaults."""
    names = {name: config[name] for name in _NAMED}
    usual = RunConfig(**names).flat
    return (
        names
        | {name: value for name, value in config.flat.items() if usual.get(name) != value and name != "parts"}
        | ({"parts": config.parts} if config.parts != config.ranks else {})
    )


def python_cell(config: RunConfig) -> str:
    """A cell that trains with these settings on a local cluster."""
    settings = "".join(f"    {name}={value!r},\n" for name, value in changed_settings(config).items())
    return (
        f"import dtdg_lab as lab\n\nconfig = lab.RunConfig(\n{settings})\n"
        f"with lab.Session(ranks={config.ranks}) as session:\n"
        "    run = session.train(config)\n    run.wait()\n    print(run.summary)\n"
    )


def shell_command(config_file: str = "config.json") -> str:
    """The command that trains with a config file."""
    return f"python -m dtdg_lab run {config_file}"


def explained(config: RunConfig) -> list[tuple[str, Any, str, str]]:
    """(name, value, unit, meaning) of every setting, in the config's order."""
    return [(name, value, *_meaning(name, value)) for name, value in config.flat.items()]


def _meaning(name: str, value: Any) -> tuple[str, str]:
    if name in OPTIONS:
        return OPTIONS[name].unit, OPTIONS[name].meaning
    if name == "protocol":
        return "", f"What an evaluation number means: {PROTOCOLS[value].meaning}."
    return "", {"system": "How training is distributed.", "dataset": "What is learnt.", "model": "What learns."}[name]
