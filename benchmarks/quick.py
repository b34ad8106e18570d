"""All benchmarks at once: the quick, most telling part of each, in one table beside the stored results.

    python benchmarks/quick.py [--full] [--only NAME ...] [--device cuda] [--keep]

``make bench`` runs it, each benchmark for five minutes at most. A row is compared with the one of its case in
``benchmarks/results/quick``, which ``--keep`` writes, or with ``--full`` in ``benchmarks/results``: whole benchmarks
have larger graphs. A row gets a mark if its median fell by more than 15 % and everything measured now lies beyond
everything stored. A time measured once has no interval, and so no mark; a number of bytes needs none. The exit code
stays 0, since machines and their load differ. Where a case has ratios, only these are compared. Of results from
this machine when a loop in Python took 15 % more or less time, ratios alone are compared; beside those of another
machine they are shown and never marked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import result_files

FELL = 0.15
ANOTHER = ", another machine"  # even ratios differ between processors, so they are shown and not marked
SCRIPTS = Path(__file__).resolve().parent
LIMIT_S = 300  # of a quick benchmark; a full one has none
# What is run of each, besides all that --quick has; growth is left out, since exponents are no speed
QUICK: dict[str, tuple[str, ...]] = {
    "kernels": (),
    "models": (),
    "steps": (),
    "greendygnn": (),
    "partitions": (),
    "live_layer": (),
    "record_tables": (),
}
# Ratios by which machines can be compared, and whether a larger one is better, where it depends by part. Others are no
# speed.
RATIOS: dict[str, bool | dict[str, bool]] = {
    "ratio": {"models rows": True, "kernels rows": True},
    "ratios": {"kernels rows": True, "kernels shared": False},
    "reached": True,
}
COUNTED_UNITS = {"bytes", "control points"}  # do not depend on the load of the machine
LOWER_UNITS = {"s", "ms", "ns", "J", "bytes", "control points", "% of a step"}


@dataclass(frozen=True)
class Compared:
    """One measured quantity of a case, now and as it is stored.

    Attributes:
        where: benchmark and part.
        case: of the row, in words.
        what: the quantity.
        now: its median.
        stored: likewise, in the stored row; None without one.
        worse: by which share it fell, below 0 where it rose; None where it is not judged.
        apart: whether everything measured now is worse than everything stored; never for rows of another machine.
        about: commit, date and machine of the stored row.
    """

    where: str
    case: str
    what: str
    now: float
    stored: float | None
    worse: float | None
    apart: bool
    about: str

    @property
    def fell(self) -> bool:
        """Whether it is marked."""
        return self.worse is not None and self.worse > FELL and self.apart


def larger_is_better(where: str, what: str, unit: str | None) -> bool | None:
    """Whether a larger value of a quantity of a benchmark's part is better; None where that cannot be said."""
    of = RATIOS.get(what.partition(" ")[0])
    if isinstance(of, dict):
        of = of.get(where)
    return of if of is not None else (False if unit in LOWER_UNITS else None)


def compare(
    name: str, part: str, rows: Sequence[Mapping[str, Any]], here: Mapping[str, Any], folder: Path
) -> Iterator[Compared]:
    """The quantities of a part's rows that are better when they are larger, or smaller, beside the stored ones.

    Args:
        name: of the benchmark.
        part: of it.
        rows: as ``result_files.as_row`` makes them.
        here: this machine.
        folder: of the stored ones.
    """
    file, where = folder / f"{name}.json", f"{name} {part}"
    of = json.loads(file.read_text()).get(part, {}) if file.exists() else {}
    known = {result_files.key(row): row["measured"] for row in of.get("rows", ())}
    other = _other_machine(of["machine"], here) if of else ""
    for row in rows:
        measured = known.get(result_files.key(row), {})
        case = ", ".join(str(value) for value in row["case"].values())
        senses = {what: larger_is_better(where, what, values.get("unit")) for what, values in row["measured"].items()}
        judged = [what for what, better in senses.items() if better is not None]
        ratios = [what for what in judged if what.partition(" ")[0] in RATIOS]
        for what in ratios or judged:
            of_now, of_stored = row["measured"][what], measured.get(what, {})
            now, stored = of_now["median"], of_stored.get("median")
            change = now / stored - 1 if stored and (not other or what in ratios) else None
            worse = None if change is None else (-change if senses[what] else change)
            about = f"{of['commit']} {of['date']}{other}" if stored is not None else ""
            lower, higher = (of_now, of_stored) if senses[what] else (of_stored, of_now)
            is_known = all(_is_counted_or_repeated(values) for values in (of_now, of_stored))
            apart = other != ANOTHER and is_known and _end(lower, "max") < _end(higher, "min")
            yield Compared(where, case, what, now, stored, worse, apart, about)


def _is_counted_or_repeated(values: Mapping[str, Any]) -> bool:
    """Return whether a difference between medians can be told from noise; False for nothing stored."""
    return values.get("unit") in COUNTED_UNITS or values.get("min") != values.get("max")


def _end(values: Mapping[str, float], end: str) -> float:
    """The least or the greatest of what was measured; its median where it was measured once."""
    return values.get(end, values["median"])


def _other_machine(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Why seconds are not compared: another machine, or this one at another speed; empty where they are."""
    if any(there.get(each) != here.get(each) for each in ("processor", "cores")):
        return ANOTHER
    before, now = there.get("loop_ms"), here.get("loop_ms")
    if not before or not now:
        return ", at an unknown speed"
    return "" if 1 - FELL < now / before < 1 + FELL else f", when the machine was {now / before:.2f} times as fast"


def table(rows: Sequence[Compared]) -> str:
    """The rows that are stored too, as text; below it those that fell, and how many are not stored."""
    cells = [("benchmark", "case", "measured", "stored", "now", "change", "", "stored row")]
    for row in (row for row in rows if row.stored is not None):
        change = "" if row.worse is None else f"{-100 * row.worse:+.0f} %"
        mark = "<-- FELL" if row.fell else ""
        cells.append(
            (row.where, row.case[:60], row.what, f"{row.stored:.4g}", f"{row.now:.4g}", change, mark, row.about)
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(each, widths, strict=True)).rstrip() for each in cells]
    judged = [row for row in rows if row.worse is not None]
    fell = [f"{row.where}: {row.case} ({row.what})" for row in judged if row.fell]
    end = f"{len(fell)} of {len(judged)} compared rows fell by more than {100 * FELL:.0f} %."
    new = Counter(row.where for row in rows if row.stored is None)
    lacking = ", ".join(f"{count} of {where}" for where, count in new.items()) or "none"
    return "\n".join([*lines, "", end, *fell, f"Not stored, and so not shown: {lacking}."])


def measure(name: str, words: Sequence[str], limit_s: float | None) -> tuple[dict[str, Any], str]:
    """Run one benchmark; its JSON, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, str(SCRIPTS / f"{name}.py"), *words, "--json", str(file)]
        errors = Path(folder) / "errors.txt"  # no pipe, which ranks of a killed benchmark would keep open
        with (
            errors.open("w") as stream,
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stream, process_group=0) as process,
        ):
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return {}, f"{name}: not within {limit_s:g} s"
            finally:  # its ranks, too: they would slow down what is measured next
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode or not file.exists():
            return {}, f"{name}: {(errors.read_text().strip().splitlines() or ['no rows'])[-1]}"
        return json.loads(file.read_text()), ""


def main() -> None:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="whole benchmarks: hours")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=QUICK, help=", ".join(QUICK))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="device to measure on (default cpu)")
    parser.add_argument("--keep", action="store_true", help="store the quick rows in benchmarks/results/quick")
    given = parser.parse_args()
    if given.full and given.keep:
        parser.error("--keep stores quick rows: a whole benchmark keeps its own with python benchmarks/NAME.py --keep.")
    for ending in (signal.SIGTERM, signal.SIGHUP):  # so that the benchmark that runs is ended, too
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    folder = result_files.FOLDER if given.full else result_files.FOLDER / "quick"
    compared: list[Compared] = []
    failed, begun = [], time.monotonic()
    for name in given.only or QUICK:
        started = time.monotonic()
        words = () if given.full else ("--quick",) if given.device == "cuda" else (*QUICK[name], "--quick")
        words += () if given.device == "cpu" else ("--device", given.device)
        found, why = measure(name, words, None if given.full else LIMIT_S)
        failed += [why] * bool(why)
        parts = {part: rows for part, rows in result_files.parts_of(found).items() if part != "plan"}
        for part, rows in parts.items():
            compared += compare(result_files.stored_name(name, given.device), part, rows, found["machine"], folder)
        print(f"{name}: {time.monotonic() - started:.0f} s{' - ' + why if why else ''}", flush=True)
        if given.keep and parts:
            ran = " ".join(["python", f"benchmarks/{name}.py", *words])
            kept = {part: found[part] for part in parts}
            result_files.keep(
                result_files.stored_name(name, given.device), found["machine"], kept, folder=folder, ran=ran
            )
    print(f"\n{table(compared)}\nIt took {time.monotonic() - begun:.0f} s.")
    if failed:
        print(
            f"NOT MEASURED: {'; '.join(failed)}. python benchmarks/NAME.py --quick shows how far each comes, and why."
        )


if __name__ == "__main__":
    main()
