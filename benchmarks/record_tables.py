"""Records of a long run: lines to tables and Parquet, a stored run opened and finished, live updates of its page.

    python benchmarks/record_tables.py [--megabytes 650] [--steps 1000 100000] [--ranks 2 8] [--run RUN] [--json FILE]

A short run of GreenDyGNN is repeated, with higher steps and later times, until its lines are as long as an hour's.

live    milliseconds of the processor for an update of 25 steps of every rank: adding the lines, then five charts with
        captions, made and encoded as on the page.
open    lines, or Parquet files, to all charts of the run.
finish  the Parquet files of each rank, in a process of its own; then summary, report and status.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

import dtdg_lab as lab
from dtdg_lab.core.rows import Rows
from dtdg_lab.runs import parquet
from dtdg_lab.runs.charts import all_rollups, charts_of, drawn_charts
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.record_lines import read_lines
from dtdg_lab.runs.run import open_run
from dtdg_lab.runs.tables import RunTables
from dtdg_lab.visualization.chart import ChartOptions

LINE_S = 0.1  # a rank writes a line for each table this often
STEP_S = 0.005
CLOCKS = ("time_ns", "start_ns", "end_ns")
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


def repeated(path: Path, rank: int | None = None) -> Iterator[tuple[dict[str, Any], int, int]]:
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
    shutil.copytree(short, target, ignore=shutil.ignore_patterns("records"))
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


def measure(part: Any, *given: Any) -> dict[str, float]:
    """Run a function in a process of its own; return its seconds, processor seconds and peak memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (part, *given))


def _measured(part: Any, *given: Any) -> dict[str, float]:
    part(*given, warm=True)
    before_mb = _peak_mb()
    began_s, cpu_s = time.perf_counter(), time.process_time()
    part(*given)
    spent = {"wall_s": time.perf_counter() - began_s, "cpu_s": time.process_time() - cpu_s}
    return {**spent, "peak_mb": _peak_mb(), "imports_mb": before_mb}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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


def live(short: Path, ranks: int, steps: int) -> dict[str, float]:
    """Return the milliseconds of updates at the end of a run of so many steps."""
    config = open_run(short).config.replace(ranks=ranks, parts=ranks)
    tables = RunTables(config, rollups=all_rollups())
    files = sorted((short / "records").glob("rank*.jsonl"))
    sources = [repeated(files[rank % len(files)], rank) for rank in range(ranks)]
    while tables.common_step < steps:
        tables.add_lines([next(source)[0] for source in sources])
    charts = [chart for chart in charts_of(tables) if chart.name in CHARTS or chart.place == "picture"]
    adding, drawing = [], []
    for _ in range(40):
        lines, first = [], tables.common_step
        for source in sources:
            for line, _, _ in source:
                lines.append(line)
                if line["table"] == "steps" and Rows.of({"step": _steps(line)})["step"].max() >= first + UPDATE_STEPS:
                    break
        began_s = time.process_time()
        tables.add_lines(lines)
        added_s = time.process_time()
        for chart in charts:
            figure = chart.figure(tables, ChartOptions())
            orjson.dumps(figure, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
            chart.caption(tables, ChartOptions())
        adding.append(1e3 * (added_s - began_s))
        drawing.append(1e3 * (time.process_time() - added_s))
    return {"add_ms": statistics.median(adding), "draw_ms": statistics.median(drawing)}


def _steps(line: dict[str, Any]) -> Any:
    import numpy as np

    return np.array([row[line["columns"].index("step")] for row in line["rows"]])


def main() -> None:
    """Measure what the command line asks for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=650)
    parser.add_argument("--steps", type=int, nargs="*", default=[1_000, 100_000])
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 8])
    parser.add_argument("--run", type=Path, help="a short run with two ranks, in place of a new one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        short = arguments.run or train(Path(folder) / "short")
        for ranks in arguments.ranks:
            for steps in arguments.steps:
                found[f"live, {ranks} ranks, {steps:,} steps"] = live(short, ranks, steps)
                print(
                    f"live, {ranks} ranks, {steps:,} steps", found[f"live, {ranks} ranks, {steps:,} steps"], flush=True
                )
        long = Path(folder) / short.name
        print("steps of a rank:", write_long_run(short, long, arguments.megabytes), flush=True)
        found["open, lines"] = measure(open_lines, long)
        print("open, lines", found["open, lines"], flush=True)
        for rank in (0, 1):
            found[f"Parquet of rank {rank}"] = measure(write_rank, long, rank)
            print(f"Parquet of rank {rank}", found[f"Parquet of rank {rank}"], flush=True)
        found["open, Parquet"] = measure(open_parquet, long)
        print("open, Parquet", found["open, Parquet"], flush=True)
        found["summary and report"] = measure(complete, long)
        print("summary and report", found["summary and report"], flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
