"""Made-up runs for the charts that every run has, and these charts drawn of them."""

from __future__ import annotations

from typing import Any

from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.chart import Chart, ChartOptions, Figure
from dtdg_lab.visualization.runs.overview import common_charts
from tests.tables import START_NS, run_tables

OPTIONS = ChartOptions()
CHARTS = {chart.name: chart for chart in common_charts()}
ROLLUPS = [rollup for chart in CHARTS.values() for rollup in chart.rollups]
OWN_STEPS = {"system": "dynahb", "exchange": "models"}
STARTED = {"kind": "started", "time_ns": START_NS}


def run_of(config: dict[str, Any] | None = None, events: Any = (), **tables: list[dict[str, Any]]) -> RunTables:
    return run_tables(config or {}, tables, events=events, rollups=ROLLUPS)


def drawn(name: str, run: RunTables, options: ChartOptions = OPTIONS) -> tuple[Figure, str]:
    chart: Chart = CHARTS[name]
    return chart.figure(run, options), chart.caption(run, options)


def card_of(figure: Figure) -> dict[str, Any]:
    words: dict[str, Any] = figure["layout"]["meta"]["card"]
    return words


def traces(figure: Figure) -> dict[str, Any]:
    return {trace["name"]: trace for trace in figure["data"]}


def steps(count: int, ranks: int = 2, *, first: int = 0, **columns: Any) -> list[dict[str, Any]]:
    usual = {"time_s": 0.1, "compute_s": 0.06, "wait_s": 0.02, "communicate_s": 0.02, "global_loss": 0.5}
    return [
        {"rank": rank, "step": step, **usual, **columns}
        for step in range(first, first + count)
        for rank in range(ranks)
    ]


def evaluation(step: int, loss: float | None, split: str = "validation", **columns: Any) -> dict[str, Any]:
    return {"step": step, "split": split, "loss": loss, "persistence_loss": 0.045, "mean_loss": 0.1, **columns}


def phases(ranks: int, count: int = 12, *, late: float = 0.0) -> list[dict[str, Any]]:
    """Steps of 100 ms: 60 computing, then 40 waiting on even ranks; rank r is r * ``late`` seconds behind."""
    rows = []
    for rank in range(ranks):
        for step in range(count):
            begin = START_NS + int(1e8 * step - 1e9 * rank * late)
            between = begin + 60_000_000
            last = "communicate" if rank % 2 else "wait"
            common = {"rank": rank, "step": step, "epoch": step // 4}
            rows.append({**common, "phase": "compute", "start_ns": begin, "end_ns": between})
            rows.append({**common, "phase": last, "start_ns": between, "end_ns": begin + 100_000_000})
    return rows


def readings(seconds: range, ranks: int = 2, joules: float | None = 10.0, **columns: Any) -> list[dict[str, Any]]:
    usual = {"interval_s": 1.0, "watts": 22.0, "reader": "model", "source": "modelled", "scope": "rank"}
    return [
        {"rank": rank, "time_ns": START_NS + int(1e9 * second), "joules": joules, **usual, **columns}
        for second in seconds
        for rank in range(ranks)
    ]
