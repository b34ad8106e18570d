"""Records of a long run: lines to tables and Parquet, a stored run opened and finished, live updates of its page.

    python benchmarks/record_tables.py [--quick] [--run RUN] [--json FILE] [--keep]

A short run of GreenDyGNN is repeated, with higher steps and later times, until its lines are as long as an hour's.

live    milliseconds of the processor for an update of 25 steps of every rank: adding the lines, then five charts with
        captions, made and encoded as on the page.
open    lines, or Parquet files, to all charts of the run.
finish  the Parquet files of each rank, in a process of its own; then summary, report and status.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import result_files

import dtdg_lab as lab
from dtdg_lab.records.lines import read_lines
from dtdg_lab.records.rows import Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs import parquet
from dtdg_lab.runs.charts import all_rollups, charts_of, drawn_charts
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.visualization.chart import ChartOptions

LINE_S = 0.1  # a rank writes a line for each table this often
STEP_S = 0.005
CLOCKS = ("time_ns", "start_ns", "end_ns")
Source = Iterator[tuple[dict[str, Any], int, int]]
ONCE = {"started", "parts", "kernel", "preparing", "partition", "features", "ended", "memory_trace"}  # kinds of events
UPDATE_STEPS = 25
CHARTS = ("loss", "step_time", "energy", "timeline")  # and the picture


def train(folder: Path) -> Path:
    """Train the short run."""
    config = lab.RunConfig(
        system="greendygnn", dataset="growing", ranks=2, parts=2, threads=1, epochs=8, congestion="oscillating"
    )
    with lab.Session(ranks=2, runs_dir=folder) as session:
        return Path(session.train(config).wait(300).path)


def repeated(path: Path, rank: int | None = None) -> Source:
    """Yield lines of a rank again and again, later each time, with the newest step and how often it was repeated.

    Args:
        path: of the rank's lines.
        rank: that they are of then; the same by default.
    """
    lines = list(read_lines(path))
    rows = [row for line in lines if line["table"] == "steps" for row in _dicts(line)]
    steps, epochs = max(row["step"] for row in rows) + 1, max(row["epoch"] for row in rows) + 1
    times = [row["time_ns"] for row in rows]
    scale = STEP_S * steps * 1e9 / (max(times) - min(times))
    seq = 0
    for number in range(1 << 30):
        for line in lines:
            moved = _moved(line, number, (steps, epochs), (min(times), scale, round(STEP_S * steps * 1e9)))
            if moved["rows"]:
                yield {**moved, "rank": line["rank"] if rank is None else rank, "seq": seq}, number * steps, number
                seq += 1


def _dicts(line: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(line["columns"], row, strict=True)) for row in line["rows"]]


def _moved(line: dict[str, Any], number: int, counts: tuple[int, int], clock: tuple[int, float, int]) -> dict[str, Any]:
    first_ns, scale, span_ns = clock
    moved = []
    for row in _dicts(line):
        if number and line["table"] == "events" and row["kind"] in ONCE:
            continue
        for name in CLOCKS:
            if row.get(name) is not None:
                row[name] = first_ns + number * span_ns + round((row[name] - first_ns) * scale)
        for name, count in zip(("step", "epoch"), counts, strict=True):
            if row.get(name) is not None:
                row[name] += number * count
        if line["table"] == "events" and row["kind"] == "epoch":
            row["data"] = {**row["data"], "epoch": row["epoch"]}
        moved.append(list(row.values()))
    return {**line, "rows": moved}


def write_long_run(short: Path, target: Path, megabytes: float) -> int:
    """Write a run of so many megabytes of lines; return the steps of a rank."""
    shutil.copytree(short, target, ignore=shutil.ignore_patterns("records", "summary.json", "report.html"))
    (target / "records").mkdir()
    files = sorted((short / "records").glob("rank*.jsonl"))
    last = 0
    for file in files:
        size = 0
        with (target / "records" / file.name).open("wb") as out:
            for line, step, _ in repeated(file):
                text = orjson.dumps(line) + b"\n"
                # as RecordWriter writes them, with spaces: readers look for the key with a space
                size += out.write(text.replace(b'"attempt":', b'"attempt": ', 1))
                last = step
                if size >= megabytes * 1e6 / len(files):
                    break
    return last


def measure(part: Any, *given: Any) -> dict[str, Any]:
    """Run a function in a process of its own; return its seconds, processor seconds and peak memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (part, *given))


def _measured(part: Any, *given: Any) -> dict[str, Any]:
    part(*given, warm=True)
    before_bytes = _peak_bytes()
    began_s, cpu_s = time.perf_counter(), time.process_time()
    part(*given)
    spent = {"wall_s": time.perf_counter() - began_s, "cpu_s": time.process_time() - cpu_s}
    return {**spent, "peak_bytes": _peak_bytes(), "imports_bytes": before_bytes}


def _peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def open_lines(folder: Path, *, warm: bool = False) -> None:
    """Open a run from its lines and draw all its charts."""
    if not warm:
        run = open_run(folder)
        drawn_charts(RunTables.open(run.config, run.directory.records, all_rollups()), ChartOptions())


def open_parquet(folder: Path, *, warm: bool = False) -> None:
    """Open a run from Parquet and draw all its charts."""
    if not warm:
        run = open_run(folder)
        drawn_charts(run.live, ChartOptions())


def write_rank(folder: Path, rank: int, *, warm: bool = False) -> None:
    """Write the Parquet files of a rank."""
    if not warm:
        parquet.write_rank(RunDirectory.open(folder), rank)


def complete(folder: Path, *, warm: bool = False) -> None:
    """Write summary, report and status of a run whose ranks have written Parquet."""
    if not warm:
        finish(folder, "finished")


def filled(short: Path, ranks: int, steps: int) -> tuple[RunTables, list[Source]]:
    """Return the tables of a run after so many steps, and the lines that follow, of every rank."""
    config = open_run(short).config.replace(ranks=ranks, parts=ranks)
    tables = RunTables(config, rollups=all_rollups())
    files = sorted((short / "records").glob("rank*.jsonl"))
    sources = [repeated(files[rank % len(files)], rank) for rank in range(ranks)]
    while tables.common_step < steps:
        tables.add_lines([next(source)[0] for source in sources])
    return tables, sources


def next_lines(tables: RunTables, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Return the lines of the next 25 steps of every rank."""
    lines, first = [], tables.common_step
    for source in sources:
        for line, _, _ in source:
            lines.append(line)
            if line["table"] == "steps" and Rows.of({"step": _steps(line)})["step"].max() >= first + UPDATE_STEPS:
                break
    return lines


def charts_of_update(tables: RunTables) -> list[Any]:
    """Return the five charts that an update of the page draws."""
    return [chart for chart in charts_of(tables) if chart.name in CHARTS or chart.section == "picture"]


def draw(charts: Sequence[Any], tables: RunTables) -> None:
    """Draw charts with their captions, and encode them."""
    for chart in charts:
        figure = chart.figure(tables, ChartOptions())
        orjson.dumps(figure, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
        chart.caption(tables, ChartOptions())


def live(short: Path, ranks: int, steps: int) -> dict[str, float]:
    """Return the milliseconds of updates at the end of a run of so many steps."""
    tables, sources = filled(short, ranks, steps)
    charts, adding, drawing = charts_of_update(tables), [], []
    for _ in range(40):
        lines = next_lines(tables, sources)
        began_s = time.process_time()
        tables.add_lines(lines)
        added_s = time.process_time()
        draw(charts, tables)
        adding.append(1e3 * (added_s - began_s))
        drawing.append(1e3 * (time.process_time() - added_s))
    updates = [added + drawn for added, drawn in zip(adding, drawing, strict=True)]
    return {
        "update_ms": statistics.median(updates),
        "adding_ms": statistics.median(adding),
        "drawing_ms": statistics.median(drawing),
    }


def _steps(line: dict[str, Any]) -> Any:
    import numpy as np

    return np.array([row[line["columns"].index("step")] for row in line["rows"]])


def live_rows(short: Path, quick: bool) -> list[dict[str, Any]]:
    """Return one row for each number of ranks and steps before."""
    rows = []
    for ranks, limit in ((2, "at most 10 ms"),) if quick else ((2, "at most 10 ms"), (8, "at most 25 ms")):
        for steps in (1_000,) if quick else (1_000, 100_000 if ranks > 2 else 1_000_000):
            row = {"case": f"{ranks} ranks, after {steps:,} steps", **live(short, ranks, steps), "reference": limit}
            rows.append(row)
            print(row, flush=True)
    return rows


def measure_stored(short: Path, folder: Path, megabytes: float) -> list[dict[str, Any]]:
    """Return one row for each thing that is done with a run of so many megabytes of lines."""
    long = folder / short.name
    print("steps of a rank:", write_long_run(short, long, megabytes), flush=True)
    parts: dict[str, tuple[str, Any, *tuple[Any, ...]]] = {
        "lines to all charts": ("at most 20 s and 500 MB", open_lines),
        "lines of rank 0 to Parquet": ("at most 15 s with the summary, and 500 MB", write_rank, 0),
        "lines of rank 1 to Parquet": ("at the same time", write_rank, 1),
        "Parquet to all charts": ("at most 3 s and 500 MB", open_parquet),
        "summary and report": ("at most 15 s with Parquet, and 500 MB", complete),
    }
    rows = []
    for case, (limit, part, *given) in parts.items():
        rows.append({"case": case, **measure(part, long, *given), "reference": limit})
        print(rows[-1], flush=True)
    return rows


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="30 megabytes and 1,000 steps, under a minute")
    parser.add_argument("--run", type=Path, help="a short run with two ranks, in place of a new one")
    result_files.add_arguments(parser)
    chosen = parser.parse_args(given)
    result_files.parts_on(parser, chosen.device)
    return chosen


def main() -> None:
    """Measure, and print each row."""
    given = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        short = given.run or train(folder / "short")
        live_part = live_rows(short, given.quick)
        stored_part = measure_stored(short, folder, 30 if given.quick else 650)
    result_files.write(given, result_files.machine(), {"live": live_part, "stored": stored_part})


if __name__ == "__main__":
    main()
