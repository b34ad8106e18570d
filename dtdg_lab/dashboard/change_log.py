"""The log of changes as the page shows it: entries for the left column, rows for the table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

from dtdg_lab.records.events import PAGE
from dtdg_lab.visualization.changes.log import RequestedChange
from dtdg_lab.visualization.numbers import clock_text
from dtdg_lab.visualization.run_names import setting_label, value_text
from dtdg_lab.widgets.changes import ChangeEntry, EffectRow

PRECEDENCE = (
    "refused",
    "waiting",
    "asked",
    "not applied",
    "applied",
)  # if parts differ, the first is the entry's state
LISTED = 200  # number of newest requests that are shown; a program may make thousands
HEADS = ("Time", "Step", "Who", "Change", "Outcome")
YOU, ANOTHER_PAGE = "you", "another page"

NOTHING: Mapping[Any, Any] = MappingProxyType({})

Settings = Mapping[str, Any]
Effects = Mapping[int, Sequence[str]]  # number of a change -> its effects, a text for each column


def who(change: RequestedChange, own_versions: Collection[int]) -> str:
    """Return who requested a change; ``own_versions`` are the versions that this page has requested."""
    if change.by != PAGE:
        return change.by or "unknown"
    return YOU if change.version is None or change.version in own_versions else ANOTHER_PAGE


def listed(changes: Sequence[RequestedChange]) -> Sequence[RequestedChange]:
    """Return the newest changes, which the page shows; ``run.requests()`` has all."""
    first = changes[-1].number - LISTED if changes else 0
    return [change for change in changes[-2 * LISTED :] if change.number > first]  # at most two share a number


def entries_of(
    changes: Iterable[RequestedChange], own_versions: Collection[int], epoch: int, settings: Settings = NOTHING
) -> list[ChangeEntry]:
    """Return the entries of the log, newest first.

    Args:
        changes: changes in order of request.
        own_versions: versions that this page has requested.
        epoch: the run's current epoch, counted from 1.
        settings: the run's current settings; empty if it accepts no changes.
    """
    return [_entry(parts, own_versions, epoch, settings) for parts in reversed(_by_number(changes))]


def _by_number(changes: Iterable[RequestedChange]) -> list[list[RequestedChange]]:
    """Return the parts of each request, since settings of a step and settings of an epoch are applied separately."""
    return [list(parts) for _, parts in groupby(changes, key=lambda change: change.number)]


def _entry(
    parts: Sequence[RequestedChange], own_versions: Collection[int], epoch: int, settings: Settings
) -> ChangeEntry:
    state = _state(parts)
    facts = [clock_text(parts[0].asked_s)]
    if state == "applied":
        facts.append(f"step {parts[0].step:,}")
    facts.append(who(parts[0], own_versions))
    return ChangeEntry(
        number=parts[0].number,
        changes=tuple(change_texts(parts)),
        meta=" · ".join(facts),
        note=_note(parts, state, epoch),
        state=state,
        undo=state == "applied" and bool(undoing(parts)) and _is_in_effect(parts, settings),
    )


def _is_in_effect(parts: Sequence[RequestedChange], settings: Settings) -> bool:
    """Return whether no setting was changed again."""
    return all(name in settings and settings[name] == new for part in parts for name, (_, new) in part.changes.items())


def _state(parts: Sequence[RequestedChange]) -> str:
    return min((part.outcome for part in parts), key=PRECEDENCE.index)


def change_texts(parts: Sequence[RequestedChange]) -> list[tuple[str, str]]:
    """Return each setting with its old and new value, such as ``("window", "8 → 6")``."""
    texts = []
    for part in parts:
        times = f", {part.times} times" if part.times > 1 else ""
        for name, (old, new) in part.changes.items():
            old_text = "" if old is None else f"{value_text(name, old)} → "
            texts.append((setting_label(name), f"{old_text}{value_text(name, new)}{times}"))
    return texts


def _note(parts: Sequence[RequestedChange], state: str, epoch: int) -> str:
    reason = next((part.reason for part in parts if part.outcome == state and part.reason), "")
    if state == "refused":
        return f"Refused: {reason}"
    if state == "waiting":
        return f"Waiting for epoch {epoch + 1}"
    if state == "not applied":
        return f"Not applied: {reason[:1].lower()}{reason[1:]}" if reason else "Not applied: the run ended first."
    return "Asked" if state == "asked" else ""


def undoing(parts: Sequence[RequestedChange]) -> dict[str, Any]:
    """Return the changes that restore the old values; empty if an old value is unknown."""
    old = {name: old_value for part in parts for name, (old_value, _) in part.changes.items()}
    return {} if None in old.values() else old


def undo_of(changes: Iterable[RequestedChange], number: int) -> dict[str, Any]:
    """Return the changes that undo the change with a number."""
    return undoing([change for change in changes if change.number == number])


def rows_of(
    changes: Iterable[RequestedChange],
    own_versions: Collection[int],
    epoch: int,
    settings: Settings = NOTHING,
    *,
    effects: Effects = NOTHING,
    columns: int = 0,
) -> list[EffectRow]:
    """Return the rows of the table, newest first; ``columns`` is the number of columns in ``effects``."""
    rows = []
    for parts in reversed(_by_number(changes)):
        entry = _entry(parts, own_versions, epoch, settings)
        step = f"{parts[0].step:,}" if entry.state == "applied" else "–"
        what = ", ".join(f"{name} {values}" for name, values in entry.changes)
        outcome = entry.note or "Applied"
        cells = (clock_text(parts[0].asked_s), step, who(parts[0], own_versions), what, outcome)
        effect = tuple(effects.get(entry.number, ()))
        rows.append(
            EffectRow(entry.number, entry.state, (*cells, *effect, *[""] * (columns - len(effect))), entry.undo)
        )
    return rows
