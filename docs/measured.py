"""Tables of what the benchmarks measured, from benchmarks/results/*.json.

A page places one by a comment, with as many of the conditions as it needs:

    <!-- measured FILE PART; by KEY; only KEY=VALUE, KEY=VALUE; show MEASURE, MEASURE; without KEY, KEY -->

A line of the table is a case, a column a measure. ``by`` gives each value of a key, such as a system, its own columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
PLACE = re.compile(r"^<!-- measured (.+?) -->$", re.M)
Row = Mapping[str, Any]
# what a column is called, where its name says too little
LABELS = {
    "again_s": "again",
    "apart": "largest relative difference of losses",
    "cell_out": "one cell left out",
    "condition_out": "one condition left out",
    "epoch_j": "energy of an epoch",
    "exponent_of_memory": "exponent of memory",
    "first_s": "empty caches",
    "fitted": "fitted",
    "floor_s": "floor",
    "lab_bytes": "memory of this lab",
    "lab_s": "this lab",
    "largest_condition_out": "largest error, condition left out",
    "memory_share": "share of the other's memory",
    "middle": "same condition at W = 16",
    "over": "difference",
    "peer_bytes": "memory of the other",
    "pipad_s": "pipad",
    "ratio": "ratio",
    "ratios compiled": "compiled",
    "ratios dgl": "DGL",
    "ratios groups of 2": "groups of 2",
    "ratios groups of 4": "groups of 4",
    "ratios groups of 8": "groups of 8",
    "ratios plain": "plain",
    "reached": "reached",
    "regret_cell_out": "regret of the law's window",
    "regret_condition_out": "regret of the law's window, condition left out",
    "regret_middle": "regret of W = 16",
    "seconds": "time",
    "single_s": "single",
    "size": "largest size",
    "step_bytes": "memory of a step",
    "taken_bytes": "memory",
    "taken_s": "time",
    "window_out": "one window left out",
}


def stored() -> dict[str, dict[str, Any]]:
    """Every benchmark's file, by name."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))}


def placed(markdown: str) -> str:
    """Return a page with its tables."""
    return PLACE.sub(lambda found: table_of(found[1]), markdown)


def table_of(asked: str) -> str:
    """Return the table that a comment asks for, and where its numbers come from."""
    name, *conditions = (each.strip() for each in asked.split(";"))
    file, _, part = name.partition(" ")
    found = stored()[file][part]
    given = {
        key: [each.strip() for each in of.split(",")] for key, _, of in (each.partition(" ") for each in conditions)
    }
    if unknown := set(given) - {"by", "only", "show", "without"}:
        raise ValueError(
            f"<!-- measured {asked} -->: unknown condition {sorted(unknown)}; by, only, show, without exist"
        )
    only = dict(each.split("=") for each in given.get("only", ()))
    rows = [row for row in found["rows"] if all(str(row["case"].get(key)) == value for key, value in only.items())]
    for row in rows:
        row["measured"] = {what: of for what, of in row["measured"].items() if what in given.get("show", (what,))}
    rows = [row for row in rows if row["measured"]]
    if not rows:
        raise ValueError(f"<!-- measured {asked} -->: no row of benchmarks/results/{file}.json is so")
    (by,) = given.get("by", (None,))
    drawn = columns(rows, by, {*given.get("without", ()), *only})
    return f"{drawn}\n{origin(found)}\n"


def columns(rows: Sequence[Row], by: str | None, without: set[str]) -> str:
    """Rows as a Markdown table; a key that is the same in all rows has no column."""
    keys = list(dict.fromkeys(key for row in rows for key in row["case"]))
    several = {key for key in keys if len({row["case"].get(key) for row in rows}) > 1}
    keys = [key for key in keys if key not in without and key != by and (key in several or len(rows) == 1)]
    lines: dict[tuple[Any, ...], dict[tuple[str, Any], str]] = {}
    texts: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        line = tuple(row["case"].get(key) for key in keys)
        of = lines.setdefault(line, {})
        for what, values in row["measured"].items():
            assert (what, row["case"].get(by)) not in of, f"two rows are {line}: {what}"
            of[what, row["case"].get(by)] = spread(values)
        texts.setdefault(line, {}).update({text: row[text] for text in ("reference", "note") if text in row})
    measures = sorted({each: None for of in lines.values() for each in of}, key=lambda each: _place(each, rows, by))
    said = [text for text in ("reference", "note") if any(text in of for of in texts.values())]
    alone = len({what for what, _ in measures}) == 1
    head = [key.replace("_", " ") if key != "what" else "" for key in keys]
    head += [_head(what, of, by, alone=alone) for what, of in measures]
    head += [{"reference": "paper or limit", "note": "remark"}[text] for text in said]
    body = [
        [
            *("" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line),
            *(of.get(each, "-") for each in measures),
            *(texts[line].get(text, "-") for text in said),
        ]
        for line, of in lines.items()
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *body)) + "\n"


def _place(column: tuple[str, Any], rows: Sequence[Row], by: str | None) -> tuple[int, int]:
    measures = list(dict.fromkeys(what for row in rows for what in row["measured"]))
    values = list(dict.fromkeys(row["case"].get(by) for row in rows))
    return measures.index(column[0]), values.index(column[1])


def _head(what: str, of: Any, by: str | None, *, alone: bool) -> str:
    label = LABELS.get(what, what.replace("_", " "))
    if of is None:
        return label
    value = f"{of:,} {by}" if isinstance(of, int) else f"`{of}`"
    return value if alone else f"{label}: {value}"


def spread(values: Mapping[str, Any]) -> str:
    """Median with minimum and maximum, as far as they are known, and the unit."""
    unit = values.get("unit")
    texts = {name: number(values[name], unit) for name in ("min", "median", "max") if name in values}
    ends = f"at most {texts['max']}" if "max" in texts else ""
    if "min" in texts:
        ends = f"{texts['min']} to {texts['max']}"
    middle = texts.get("median", "")
    text = f"{middle} ({ends})" if middle and ends else middle or ends
    spoken = {"share": " %", "bytes": "", "s": "", None: ""}.get(unit, f" {unit}")
    return text + spoken


def number(value: float, unit: str | None) -> str:
    """Three digits, thousands apart; seconds and bytes with a unit that fits."""
    from dtdg_lab.core.units import format_bytes

    if unit == "bytes":
        return format_bytes(value)
    if unit == "s" and value < 0.1:
        return f"{1e3 * value:.3g} ms"
    shown = 100 * value if unit == "share" else value
    if unit is None and abs(shown) >= 0.01:
        shown = round(shown, 2)
    text = f"{shown:,.0f}" if abs(shown) >= 1000 else f"{shown:.3g}"
    return f"{text} s" if unit == "s" else text


def origin(found: Mapping[str, Any]) -> str:
    """Command, commit, date and machine of a table."""
    machine = found["machine"]
    known = [machine["processor"]]
    known += [f"{machine[of]} {unit}" for of, unit in (("cores", "cores"), ("memory_gib", "GiB")) if machine[of]]
    known.append(f"torch {machine['torch']}")
    where = ", ".join(each for each in known if each)
    text = f"`{found['command']}`, commit {found['commit']} of {found['date']}; {where}"
    if found["source"] != "measured":
        text += f"; {found['source']}"
    return f"*{text}.*"
