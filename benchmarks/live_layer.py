"""Latencies that a user sees: import, session, first point, record to browser; and the overhead of monitoring per step.

    python benchmarks/live_layer.py [--quick] [--starts W1 M1] [--json FILE] [--keep]

Two CPU engines; the browser rows need Debian's chromium. Each row prints min, median and max of its repetitions (the
browser's delay: median, 95th percentile, max) and our limit. With ``--starts`` it prints instead, for every system, the
seconds from a fresh interpreter to the first step of `lab.train`, with empty caches and with those that it left.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import result_files
from peers.lab import as_graph
from peers.workload import make

import dtdg_lab
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.stored_run import open_run

START_S = 60.0  # longest wait from a click until the run begins
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Notes, at every frame, when each step's point of the loss first stands in the chart.
WATCH = """() => { window.seen = {}; window.first = null; const find = root => { let hit = null;
  root.querySelectorAll('*').forEach(e => {
  if (e.dataset && e.dataset.chart === 'loss' && e.data) hit = e;
  if (!hit && e.shadowRoot) hit = find(e.shadowRoot); }); return hit; };
  let chart = null; const look = () => { chart = chart || find(document);
  const steps = chart && chart.data && chart.data.find(trace => trace.name === 'each step');
  const xs = steps && steps.x;
  if (xs && xs.length) { const last = xs[xs.length - 1];
  if (!(last in window.seen)) window.seen[last] = Date.now(); window.first = window.first || Date.now(); }
  requestAnimationFrame(look); }; look(); }"""


@dataclass(frozen=True)
class Row:
    """One measured quantity."""

    name: str
    unit: str
    values: tuple[float, float, float]
    what: str
    limit: float | None


def as_found(row: Row) -> dict[str, Any]:
    """The row by names; of the browser's delay the second value is the 95th percentile."""
    first, second, third = row.values
    values = {"value": row.values}
    if row.what != "min, median, max":
        values = {"value": (None, first, third), "95th percentile": second}
    limit = None if row.limit is None else f"at most {row.limit:g} {row.unit}"
    return {"name": row.name, "unit": row.unit, "reference": limit, **values}


def spread(values: list[float]) -> tuple[float, float, float]:
    return min(values), statistics.median(values), max(values)


def import_time(repeat: int) -> Row:
    """Seconds of `import dtdg_lab` in a fresh interpreter, the interpreter's own start taken off by timing inside."""
    code = "import time; t = time.perf_counter(); import dtdg_lab; print(time.perf_counter() - t)"
    values = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(repeat)]
    return Row("import dtdg_lab", "s", spread(values), "min, median, max", 0.5)


def session_ready(repeat: int, runs: Path) -> Row:
    """Seconds from Session(2) to two engines that have torch imported and rehearsed."""
    values = []
    for _ in range(repeat):
        started = time.perf_counter()
        session = Session(ranks=2, runs_dir=runs)
        values.append(time.perf_counter() - started)
        session.close()
    return Row("Session(2) ready", "s", spread(values), "min, median, max", 8.0)


def steady_config(epochs: int = 100_000) -> RunConfig:
    """Steps of about 20 ms on two ranks, one thread each."""
    return RunConfig(
        system="psg",
        dataset="growing",
        ranks=2,
        epochs=epochs,
        threads=1,
        hidden=32,
        evaluate_every=1000,
        generated_nodes=2000,
        generated_edges=20_000,
        generated_snapshots=60,
    )


def overhead(run: Run) -> list[Row]:
    """Control and recording in the training thread, as a share of the step; and the delay of live settings in steps."""
    stored = open_run(run.path)
    phases = stored.table("phases")
    mine = phases[(phases["rank"] == 0) & ~phases.phase.isin(["evaluate", "checkpoint", "rebuild"])]
    begin, end = mine.groupby("step").start_ns.min(), mine.groupby("step").end_ns.max()
    steps = stored.table("steps").query("rank == 0").set_index("step")
    between = set(phases[phases.phase.isin(["evaluate", "checkpoint", "rebuild"])].step)
    shares, lengths = [], []
    for step in begin.index[20:-1]:
        if step + 1 not in begin.index or step + 1 in between:
            continue
        gap_s = (begin[step + 1] - end[step]) * 1e-9
        length_s = (begin[step + 1] - begin[step]) * 1e-9
        shares.append(100 * (gap_s + steps.control_s[step]) / length_s)
        lengths.append(1e3 * length_s)
    return [
        Row("step of the overhead run", "ms", spread(lengths), "min, median, max", None),
        Row("telemetry and control", "% of a step", spread(shares), "min, median, max", 2.0),
    ]


def control_points(run: Run, repeat: int) -> Row:
    """Steps from a request to the step it rules: 1 is the next one."""
    asked: dict[int, int] = {}
    for k in range(repeat):
        moment_ns = time.time_ns()
        version = run.set(learning_rate=1e-4 * (1 + k % 7))
        asked[version] = moment_ns
        time.sleep(0.11)
    time.sleep(0.5)
    stored = open_run(run.path)
    ends = stored.table("steps").query("rank == 0").set_index("step").time_ns
    events = stored.table("events")
    found = []
    for row in events[events.kind == "settings"].itertuples():
        moment_ns = asked.get(row.data["version"])
        if moment_ns is not None:
            under_way = int(ends[ends > moment_ns].index.min())
            found.append(float(row.step - under_way))
    return Row("slider to all ranks", "control points", spread(found), "min, median, max", 2.0)


def browser_rows(session: Session, seconds: float, repeat: int) -> list[Row]:
    """Click to first point, and record to drawn point, on a served page."""
    from playwright.sync_api import sync_playwright

    from dtdg_lab.dashboard.server import serve

    first_s: list[float] = []
    delays_ms: list[float] = []
    busy, stops_ms, numbers_s, previews_ms = list[float](), list[float](), list[float](), list[float]()
    with ExitStack() as stack:  # a server that is left open keeps the process from ending
        server = serve(session)
        stack.callback(server.stop)
        context = stack.enter_context(
            stack.enter_context(sync_playwright()).chromium.launch_persistent_context(
                tempfile.mkdtemp(),
                executable_path=CHROMIUM,
                headless=True,
                args=FLAGS,
                viewport={"width": 1400, "height": 900},
            )
        )
        page = context.pages[0]
        page.goto(server.url)
        page.wait_for_selector(".dl-chart .main-svg", timeout=60_000)
        page.locator(".dl-systems button", has_text="FlareDTDG").click()  # its picture has handles
        page.wait_for_timeout(1000)
        for _ in range(repeat):
            run, taken = _click_run(page, session, seconds)
            first_s.append(taken[0])
            delays_ms += taken[1]
            busy.append(_busy_share(page, seconds))
            numbers_s += _numbers_in_charts(page, run)
            previews_ms += _previews(page)
            stops_ms.append(_stop(page))
            run.wait(30)
            page.wait_for_timeout(2500)
    ordered = sorted(delays_ms)
    delay = (statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))], ordered[-1])
    return [
        Row("Run clicked to first point", "s", spread(first_s), "min, median, max", 2.0),
        Row("record to point in the browser", "ms", delay, "median, 95th percentile, max", 2000.0),
        Row("page busy while training", "% of the time", spread(busy), "min, median, max", 35.0),
        Row("Stop clicked to an answer", "ms", spread(stops_ms), "min, median, max", 500.0),
        Row("handle moved to its preview", "ms", spread(previews_ms), "min, median, max", 100.0),
        Row("change applied to its number in all charts", "s", spread(numbers_s), "min, median, max", 1.0),
    ]


# In the page: the charts below all shadow roots, and how many of those in view show a change's number.
FIND = """() => { const charts = []; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.classList.contains('dl-chart') && e.data) charts.push(e); if (e.shadowRoot) walk(e.shadowRoot); });
  walk(document); window.charts = charts; return charts.length; }"""
NUMBERED = """number => { const dated = window.charts.filter(e => ['loss', 'energy'].includes(e.dataset.chart));
  return dated.every(e => (e.layout.annotations || []).some(a => (a.text || '').includes(number))); }"""
PREVIEWED = """() => { const picture = window.charts.find(e => e.dataset.chart === 'window');
  return (picture.layout.annotations || []).some(a => /Release to apply/.test(a.text || '')); }"""


def _busy_share(page: Any, seconds: float) -> float:
    """Percent of the time that the page's main thread works."""
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable")
    spent_s = []
    for wait_ms in (0, 1000 * seconds):
        page.wait_for_timeout(wait_ms)
        metrics = {each["name"]: each["value"] for each in client.send("Performance.getMetrics")["metrics"]}
        spent_s.append(metrics["TaskDuration"])
    return 100 * (spent_s[1] - spent_s[0]) / seconds


def _stop(page: Any) -> float:
    """Milliseconds until the head of the page says that the run stops."""
    began_s = time.perf_counter()
    page.locator("button[data-action=stop]").first.click()
    page.get_by_text(re.compile("^Stop(ping|ped)")).first.wait_for(timeout=30_000)
    return 1e3 * (time.perf_counter() - began_s)


def _numbers_in_charts(page: Any, run: Run) -> list[float]:
    """Seconds from the step that applied a change to its number in all charts over time."""
    found = []
    for number in range(1, 4):
        page.evaluate(FIND)
        run.set(learning_rate=1e-3 * (1 + number))
        page.wait_for_function(NUMBERED, arg=str(number), timeout=30_000, polling="raf")
        seen_ns = time.time_ns()
        applied = [event for event in run.live.events("settings") if event["data"]["version"] == number]
        found.append((seen_ns - max(event["time_ns"] for event in applied)) / 1e9)
    return found


def _previews(page: Any) -> list[float]:
    """Milliseconds from a handle's move to the preview in the picture."""
    handles = page.locator(".dl-handle")
    handles.first.wait_for(timeout=30_000)
    found = []
    for _ in range(3):
        page.evaluate(FIND)
        for _ in range(2):  # from near by, the handle stands still
            box = handles.last.bounding_box()
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.wait_for_timeout(200)
        page.mouse.down()
        began_s = time.perf_counter()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 30)
        page.wait_for_function(PREVIEWED, timeout=30_000, polling="raf")
        found.append(1e3 * (time.perf_counter() - began_s))
        page.keyboard.press("Escape")
        page.mouse.up()
        page.wait_for_timeout(1500)
    return found


def _click_run(page: Any, session: Session, seconds: float) -> tuple[Run, tuple[float, list[float]]]:
    before = session.current
    page.evaluate(WATCH)
    stale = page.evaluate("() => Object.keys(window.seen).length")
    clicked_ms = page.evaluate("() => Date.now()")
    page.locator("button[data-action^=run]").first.click()
    latest_s = time.monotonic() + START_S
    while session.current is None or (before is not None and session.current.id == before.id):
        if time.monotonic() > latest_s:
            raise RuntimeError(f"no run began within {START_S:g} s of the click")
        time.sleep(0.005)
    page.wait_for_timeout(1000 * seconds)
    seen = page.evaluate("() => window.seen")
    run = session.current
    ends = open_run(run.path).table("steps").groupby("step").time_ns.max()
    moments = {int(float(step)): moment for step, moment in seen.items()}
    fresh = {step: moment for step, moment in moments.items() if step in ends.index and moment > clicked_ms}
    delays = [moment - ends[step] * 1e-6 for step, moment in fresh.items() if step > 5]
    if not fresh or stale > len(seen):
        raise RuntimeError("the chart never showed a point of the new run")
    return run, ((min(fresh.values()) - clicked_ms) / 1000, [float(delay) for delay in delays])


# From a fresh interpreter to the first step, in a child process.


LIMITS_S = {"W1": 3.0, "M1": 10.0}
OWN_SETTINGS = {"esdg-hybrid": {"row_ranks": 1}}  # on one rank
SHORT_WINDOW = {"window": 6}  # of the six snapshots that M1 has for training
WINDOWED = ("flaredtdg", "full-history", "recent-only", "dynagraph")
FIRST_STEP = """
import json, os, sys, time
began_s = time.perf_counter()
import dtdg_lab as lab
from dtdg_lab.training.loop import Trainer
def reached(trainer, work):
    print(time.perf_counter() - began_s, flush=True)
    os._exit(0)
Trainer._train_step = reached
lab.train(lab.RunConfig(**json.loads(sys.argv[1])), runs_dir=sys.argv[2], progress=False)
"""


def starts(graph_name: str) -> list[dict[str, Any]]:
    """One row a system: with empty caches of partitions, chunks and batches, and again.

    The package's modules are compiled beforehand, as pip leaves them: else every start would compile them.
    """
    rows = []
    compileall.compile_dir(Path(dtdg_lab.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        stored = as_graph(make(graph_name)).store(root=cache)
        for system in catalogue.names("systems"):
            for made in cache.iterdir():
                if made.name != "graphs":
                    shutil.rmtree(made)
            config = {"system": system, "dataset": stored, **OWN_SETTINGS.get(system, {})}
            if graph_name == "M1" and system in WINDOWED:
                config |= SHORT_WINDOW
            command = [sys.executable, "-c", FIRST_STEP, json.dumps(config), folder]
            environment = {**os.environ, "DTDG_LAB_CACHE": str(cache)}
            first_s, again_s = (
                float(subprocess.check_output(command, env=environment, text=True).splitlines()[-1]) for _ in range(2)
            )
            limit = f"at most {LIMITS_S[graph_name]:g} s"
            rows.append(
                {"graph": graph_name, "system": system, "first_s": first_s, "again_s": again_s, "reference": limit}
            )
            print(f"{graph_name:3} {system:18} {first_s:6.2f} s, again {again_s:6.2f} s   {limit}", flush=True)
    return rows


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, under a minute")
    parser.add_argument("--starts", nargs="+", choices=LIMITS_S, help="seconds to the first step instead, by graph")
    result_files.add_arguments(parser)
    chosen = parser.parse_args(given)
    result_files.parts_on(parser, chosen.device)
    return chosen


def main() -> None:
    given = arguments()
    if given.starts:
        rows_of = {f"starts on {name}": starts(name) for name in given.starts}
        result_files.write(given, result_files.machine(), rows_of)
        return
    repeat = 1 if given.quick else 3
    rows = [import_time(5)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DTDG_LAB_STATE"] = str(Path(folder) / "state")
        rows.append(session_ready(repeat, Path(folder)))
        with Session(ranks=2, runs_dir=folder) as session:
            run = session.train(steady_config())
            while run.live.progress.step < 50:
                time.sleep(0.05)
            rows.append(control_points(run, 10 if given.quick else 50))
            run.stop()
            run.wait(60)
            rows += overhead(run)
            if CHROMIUM:
                rows += browser_rows(session, 6 if given.quick else 15, repeat)
            else:
                print("no chromium: the browser rows are left out")
    for row in rows:
        limit = "" if row.limit is None else f"limit {row.limit:g}"
        figures = " ".join(f"{value:9.3f}" for value in row.values)
        print(f"{row.name:32s} {figures} {row.unit:15s} {row.what:30s} {limit}")
    result_files.write(given, result_files.machine(), {"rows": [as_found(row) for row in rows]})


if __name__ == "__main__":
    main()
