"""The device check as text of 100 columns, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dtdg_lab.core.units import format_seconds
from dtdg_lab.device_check.check import DeviceCheck
from dtdg_lab.device_check.check_row import CheckRow

WIDTH = 100
_WORDS = {"ok": "ok", "failed": "FAIL", "unavailable": "-"}
_MISSING = "."  # a case that a quick check leaves out
_HEADS = {
    "losses": "losses of a short epoch, and phases that sum to the step",
    "synchronization": "steps that never wait for the device",
    "group": "training in a group",
}
_TABLES = ("losses", "synchronization")  # by system and model


def format_check(check: DeviceCheck) -> str:
    """Return a check as text: for each device a table of systems and models, then failures with remedies."""
    devices = dict.fromkeys(row.device for row in check.rows)
    lines = [line for device in devices for line in _device(device, check)]
    reasons = _reasons(check.rows)
    if reasons:
        lines += ["not available (-):", *reasons, ""]
    if check.failed:
        lines.append("failed:")
        for row in check.failed:
            lines += _wrapped(f"{row.device}: {row.title}: {row.value}", "  ")
            lines += _wrapped(f"-> {row.remedy}", "     ")
        lines.append("")
    count = len(check.failed)
    outcome = (
        f"{count} of {len(check.rows)} rows failed" if count else f"all {len(check.rows)} rows are ok or not available"
    )
    return "\n".join([*lines, f"{outcome}, in {format_seconds(check.seconds)}"])


def check_json(check: DeviceCheck) -> str:
    """Return a check as JSON: ``ok``, ``seconds``, ``devices`` and ``rows``."""
    rows = [row.to_dict() for row in check.rows]
    values = {"ok": not check.failed, "seconds": round(check.seconds, 1), "devices": dict(check.devices), "rows": rows}
    return json.dumps(values, indent=2)


def _device(device: str, check: DeviceCheck) -> Iterator[str]:
    rows = [row for row in check.rows if row.device == device]
    name = check.devices.get(device)
    yield f"{device} ({name})" if name else device
    for kind in _TABLES:
        of_kind = [row for row in rows if row.check == kind]
        if of_kind:
            phases = {row.system: row for row in rows if row.check == "phases"} if kind == "losses" else {}
            yield f"  {_HEADS[kind]}"
            yield from _table(of_kind, phases)
    grouped = [row for row in rows if row.check == "group"]
    if grouped:
        words = [f"{row.system} {_WORDS[row.state]}" for row in grouped]
        yield from _wrapped(f"{_HEADS['group']}: {', '.join(words)}", "  ")
    for row in rows:
        if row.check not in (*_TABLES, "phases", "group") and row.state != "unavailable":
            yield from _wrapped(f"{_WORDS[row.state]:<4}  {row.title}: {row.value}", "  ", "        ")
    yield ""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table: a model, or the phases."""

    head: str
    cells: dict[str, str]

    @property
    def width(self) -> int:
        return max(len(self.head), *map(len, self.cells.values()))


def _table(rows: Sequence[CheckRow], phases: dict[str, CheckRow]) -> Iterator[str]:
    """Yield lines of systems, with the models as columns, in as many tables as the width needs."""
    systems = list(dict.fromkeys(row.system for row in rows))
    columns = [
        _Column(model, {row.system: _WORDS[row.state] for row in rows if row.model == model})
        for model in dict.fromkeys(row.model for row in rows)
    ]
    if phases:
        columns.append(_Column("phases", {system: _WORDS[row.state] for system, row in phases.items()}))
    first = max(map(len, systems))
    while columns:
        count, width = 0, first
        while count < len(columns) and width + 1 + columns[count].width <= WIDTH:
            width += 1 + columns[count].width
            count += 1
        shown, columns = columns[: max(count, 1)], columns[max(count, 1) :]
        yield " ".join([" " * first, *(column.head.ljust(column.width) for column in shown)]).rstrip()
        for system in systems:
            cells = (column.cells.get(system, _MISSING).ljust(column.width) for column in shown)
            yield " ".join([system.ljust(first), *cells]).rstrip()


def _reasons(rows: Sequence[CheckRow]) -> list[str]:
    """Return each reason once, with all that it concerns."""
    titles: dict[str, list[str]] = {}
    for row in rows:
        if row.state == "unavailable":
            titles.setdefault(row.value, []).append(f"{row.device} {row.title}")
    lines = []
    for reason, concerned in titles.items():
        more = f" and {len(concerned) - 1} more" if len(concerned) > 1 else ""
        lines += _wrapped(f"{concerned[0]}{more}: {reason}", "  ", "    ")
    return lines


def _wrapped(text: str, indent: str, later: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  " if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    )
