"""The device check as text of 100 columns, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from itertools import accumulate

from dtdg_lab.core.units import format_seconds
from dtdg_lab.device_check.check import DeviceCheck
from dtdg_lab.device_check.check_row import CheckRow, State

WIDTH = 100
_WORDS = {"ok": "ok", "modelled": "modelled", "failed": "FAIL", "not run": "skip", "unavailable": "-"}
_MISSING = "."  # a case without a row
_LEGEND = {
    "skip": "not run, as processes failed",
    "-": "not available, for a reason below",
    ".": "left out: by --quick, or as it is not available",
    "modelled": "computed from assumed watts, not measured",
}
_TABLES = {"losses": "losses of a short epoch", "synchronization": "steps that never wait for the device"}
_LISTS = {"phases": "phases that sum to the step", "group": "training in a group"}


def format_check(check: DeviceCheck) -> str:
    """Return a check as text: for each device a table of systems and models, then reasons and remedies."""
    devices = dict.fromkeys(row.device for row in check.rows)
    lines = [line for device in devices for line in _device(device, check)]
    words = {word for line in lines for word in line.split()}
    if legend := [f"{word} = {meaning}" for word, meaning in _LEGEND.items() if word in words]:
        lines += [*_wrapped(f"legend: {'; '.join(legend)}", ""), ""]
    if reasons := _reasons(check.rows, "unavailable"):
        lines += ["not available (-):", *reasons, ""]
    if check.failed:
        lines += ["failed:", *_reasons(check.rows, "failed"), ""]
    count, idle = len(check.failed), sum(row.state == "not run" for row in check.rows)
    outcome = (
        f"{count} of {len(check.rows)} rows failed{f', {idle} were not run because of this' if idle else ''}"
        if count
        else f"all {len(check.rows)} rows are ok, modelled or not available"
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
            yield from _differences(of_check)
            yield from _table(of_check)
    for check_name, head in _LISTS.items():
        of_check = [row for row in rows if row.check == check_name]
        if of_check:
            words = [f"{row.system} {_WORDS[row.state]}" for row in of_check]
            yield from _wrapped(f"{head}: {', '.join(words)}", "  ")
            yield from _differences(of_check)
    for row in rows:
        if row.check not in (*_TABLES, *_LISTS) and row.state not in ("unavailable", "not run"):
            value = "see below" if row.state == "failed" else row.value
            yield from _wrapped(f"{_WORDS[row.state]:<4}  {row.title}: {value}", "  ", "        ")
    yield ""


def _differences(rows: Sequence[CheckRow]) -> Iterator[str]:
    """Yield for each comparison its references, the largest difference and the tolerance."""
    groups: dict[tuple[str, float], dict[str, float]] = {}  # the largest difference from each reference
    for row in rows:
        for difference in row.differences:
            reference = difference.reference.replace(f"{row.system} on", "the same system on")
            largest_of = groups.setdefault((difference.name, difference.allowed), {})
            largest_of[reference] = max(largest_of.get(reference, 0.0), difference.largest)
    for (name, allowed), largest_of in groups.items():
        largest, references = max(largest_of.values()), ", ".join(largest_of)
        yield from _wrapped(f"{name} differs by at most {largest:.1e} ({allowed:g} allowed) from {references}", "    ")
    trained = dict.fromkeys(row.system for row in rows if row.state == "ok" and not row.differences)
    if groups and trained:
        yield from _wrapped(f"trained, but compared with nothing: {', '.join(trained)}", "    ")


def _table(rows: Sequence[CheckRow]) -> Iterator[str]:
    """Yield lines of systems, with the models as columns, in as many tables as the width needs."""
    words = {(row.system, row.model): _WORDS[row.state] for row in rows}
    systems, models = (list(dict.fromkeys(names)) for names in zip(*words, strict=True))
    first = max(map(len, systems))
    while models:
        widths = {model: max(len(model), *map(len, words.values())) for model in models}
        ends = accumulate(1 + width for width in widths.values())
        shown = [model for model, end in zip(models, ends, strict=True) if first + end <= WIDTH] or models[:1]
        models = models[len(shown) :]
        yield " ".join([" " * first, *(model.ljust(widths[model]) for model in shown)]).rstrip()
        for system in systems:
            cells = (words.get((system, model), _MISSING).ljust(widths[model]) for model in shown)
            yield " ".join([system.ljust(first), *cells]).rstrip()


def _reasons(rows: Sequence[CheckRow], state: State) -> list[str]:
    """Return each reason of a state once with its remedy, and the devices, systems and models that it concerns."""
    facts: list[tuple[str, ...]] = []
    for row in rows:
        if row.state == state:
            reason = row.value.replace(f"system {row.system!r}", "this system")
            # what a system does not support has no remedy that is worth a line
            remedy = row.remedy if state == "failed" or not row.model else ""
            facts.append((reason, remedy, row.check, row.device, row.system, row.model))
    for position in (3, 4, 5):
        facts = _joined(facts, position)
    lines = []
    for reason, remedy, check, devices, systems, models in facts:
        case = f"{check} {models}".rstrip() + (f" on {systems}" if systems else "")
        lines += _wrapped(f"{case} ({devices}): {reason}{'' if reason.endswith('.') else '.'}", "  ", "    ")
        if remedy:
            lines += _wrapped(f"-> {remedy}", "     ")
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
