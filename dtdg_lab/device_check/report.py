"""The device check as text of 100 columns, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from itertools import accumulate

from dtdg_lab.core.units import format_seconds
from dtdg_lab.device_check.check import DeviceCheck
from dtdg_lab.device_check.check_row import CheckRow

WIDTH = 100
_WORDS = {"ok": "ok", "failed": "FAIL", "unavailable": "-"}
_MISSING = "."  # a case that a quick check leaves out
_TABLES = {"losses": "losses of a short epoch", "synchronization": "steps that never wait for the device"}
_LISTS = {"phases": "phases that sum to the step", "group": "training in a group"}


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
    for check_name, head in _TABLES.items():
        of_check = [row for row in rows if row.check == check_name]
        if of_check:
            yield f"  {head}"
            yield from _table(of_check)
    for check_name, head in _LISTS.items():
        words = [f"{row.system} {_WORDS[row.state]}" for row in rows if row.check == check_name]
        if words:
            yield from _wrapped(f"{head}: {', '.join(words)}", "  ")
    for row in rows:
        if row.check not in (*_TABLES, *_LISTS) and row.state != "unavailable":
            yield from _wrapped(f"{_WORDS[row.state]:<4}  {row.title}: {row.value}", "  ", "        ")
    yield ""


def _table(rows: Sequence[CheckRow]) -> Iterator[str]:
    """Yield lines of systems, with the models as columns, in as many tables as the width needs."""
    words = {(row.system, row.model): _WORDS[row.state] for row in rows}
    systems, models = (list(dict.fromkeys(names)) for names in zip(*words, strict=True))
    first = max(map(len, systems))
    while models:
        widths = {model: max(len(model), *map(len, _WORDS.values())) for model in models}
        ends = accumulate(1 + width for width in widths.values())
        shown = [model for model, end in zip(models, ends, strict=True) if first + end <= WIDTH] or models[:1]
        models = models[len(shown) :]
        yield " ".join([" " * first, *(model.ljust(widths[model]) for model in shown)]).rstrip()
        for system in systems:
            cells = (words.get((system, model), _MISSING).ljust(widths[model]) for model in shown)
            yield " ".join([system.ljust(first), *cells]).rstrip()


def _reasons(rows: Sequence[CheckRow]) -> list[str]:
    """Return the first sentence of each reason once, with the devices, systems and models that it concerns."""
    facts: list[tuple[str, ...]] = []
    for row in rows:
        if row.state == "unavailable":
            sentence = row.value.partition(". ")[0].replace(f"system {row.system!r}", "this system").rstrip(".")
            facts.append((sentence, row.check, row.device, row.system, row.model))
    for position in (2, 3, 4):
        facts = _joined(facts, position)
    lines = []
    for sentence, check, devices, systems, models in facts:
        case = f"{check} {models}".rstrip() + (f" on {systems}" if systems else "")
        lines += _wrapped(f"{case} ({devices}): {sentence}.", "  ", "    ")
    return lines


def _joined(facts: Sequence[tuple[str, ...]], position: int) -> list[tuple[str, ...]]:
    """Merge facts that differ in one position only, whose values are then joined."""
    values: dict[tuple[str, ...], list[str]] = {}
    for fact in facts:
        values.setdefault((*fact[:position], *fact[position + 1 :]), []).append(fact[position])
    return [
        (*rest[:position], ", ".join(filter(None, dict.fromkeys(joined))), *rest[position:])
        for rest, joined in values.items()
    ]


def _wrapped(text: str, indent: str, later: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  " if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    )
