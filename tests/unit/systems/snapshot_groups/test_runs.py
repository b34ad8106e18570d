"""Schedules in summaries, reports and pictures of whole runs, and the pictures of simulations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

import dtdg_lab as lab
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.report import event_rows
from dtdg_lab.runs.run import open_run
from dtdg_lab.systems.snapshot_groups.forecast import ScheduleStudy
from dtdg_lab.systems.snapshot_groups.schedulers.base import outcome
from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import schedule_round_robin as round_robin
from dtdg_lab.systems.snapshot_groups.simulation import simulation_figure
from dtdg_lab.visualization.layout import frame
from dtdg_lab.visualization.panels import grid
from tests.runs_synthetic import finished_run
from tests.schedules_synthetic import epoch_lines, event, schedule_data
from tests.synthetic_lines import START_NS

TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]


def scheduled_run(root: Path, *, epochs: int = 3, **more: Any) -> RunDirectory:
    """A run of two ranks, written as ranks write it."""
    run = RunDirectory.create(RunConfig(system="psg", dataset="growing", ranks=2, epochs=epochs), root=root)
    described = event(schedule_data(TIMES, ASSIGNMENT, **more))["rows"][0]
    lines = [each for epoch in range(epochs) for each in epoch_lines(ASSIGNMENT, TIMES, epoch=epoch)]
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 1) as writer:
            if rank == 0:
                writer.row("events", tuple(described))
            for each in lines:
                for row in each["rows"] if each["rank"] == rank else ():
                    writer.row(each["table"], tuple(row))
            if rank == 0:
                for epoch in range(epochs):
                    end = (2 * (epoch + 1), epoch, START_NS + int((epoch * 1000 + 9) * 1e9), "epoch", {"epoch": epoch})
                    writer.row("events", end)
    return run


def test_summary_holds_what_the_schedule_came_to(tmp_path: Path) -> None:
    summary = finish(scheduled_run(tmp_path), "finished")
    assert (summary["scheduler"], summary["groups"], summary["iterations"]) == ("fold", 5, 2)
    assert summary["schedule_s"] == 0.004 and summary["predicted_epoch_s"] == pytest.approx(0.7)
    assert summary["over_bound"] == pytest.approx(1.4)
    assert summary["imbalance"] == pytest.approx(1.5, rel=1e-4)
    assert summary["iteration_imbalance"] == pytest.approx(1.4, rel=1e-4)
    assert (summary["slowest_rank"], summary["slowest_rank_share"]) == (1, pytest.approx(4 / 7, rel=1e-4))
    time_s = 0.7 + 2 * 0.004  # 4 ms of exchange, update and control an iteration
    assert summary["waste_share"] == pytest.approx(0.2 / time_s, rel=1e-3)
    assert summary["critical_path_share"] == pytest.approx(0.7 / time_s, rel=1e-3)


@pytest.mark.slow
def test_summary_of_sizes_claims_no_seconds_and_of_other_runs_no_schedule(tmp_path: Path) -> None:
    assert finish(scheduled_run(tmp_path / "a", source="size"), "finished")["predicted_epoch_s"] is None
    other = finish(finished_run(tmp_path / "b"), "finished")
    assert other["scheduler"] is None and other["over_bound"] is None
    assert other["iteration_imbalance"] == pytest.approx(15 / 12.5)  # 10 ms against 15 ms
    assert (other["slowest_rank"], other["slowest_rank_share"]) == (1, 1.0)


def test_the_list_of_events_has_a_sentence_for_each_schedule(tmp_path: Path) -> None:
    run = scheduled_run(tmp_path)
    finish(run, "finished")
    what = [row[4] for row in event_rows(open_run(run.path).events) if row[3] == "schedule"]
    assert len(what) == 1 and "5 groups on 2 ranks" in what[0] and len(what[0]) < 300


def test_a_stored_run_draws_its_last_epoch(tmp_path: Path) -> None:
    run = scheduled_run(tmp_path)
    finish(run, "finished")
    stored = open_run(run.path)
    assert stored.captions()["schedule"] == "Ranks waited for 28% of their time in epoch 3, which took 706 ms."
    assert stored.family.epoch_bounds(stored, 5).to_dict() == pytest.approx({0: 0.5, 1: 0.5, 2: 0.5})


def test_a_run_that_left_its_schedule_ended_without_one(tmp_path: Path) -> None:
    run = scheduled_run(tmp_path)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        writer.row("events", (6, 3, START_NS + int(3e12), "schedule", {"layout": None}))
    summary = finish(run, "finished")
    assert summary["scheduler"] is None and summary["iteration_imbalance"] == pytest.approx(1.4, rel=1e-4)
    assert [row[4] for row in event_rows(open_run(run.path).events) if row[3] == "schedule"][1:] == [
        "no schedule from here on"
    ]


def outcomes(*ranks: int) -> list[dict[str, Any]]:
    """psg and a schedule as good as the bound."""
    times = [0.1 * (1 + i % 7) for i in range(256)]
    rows = []
    for count in ranks:
        plan = round_robin(times, count, per_rank=1)
        bound = sum(times) / count
        found = outcome("psg", plan, times, per_rank=1, allreduce_s=0.0, bound_s=bound, solve_s=0.001)
        best = found.row() | {"scheduler": "best_of", "throughput": 1.0, "imbalance": None, "idle_share": 0.0}
        rows += [found.row(), best]
    return rows


def test_simulation_draws_every_scheduler_the_bound_and_the_paper() -> None:
    rows = [{"curve": curve} | row for curve in ("linear", "exponential") for row in outcomes(4, 16, 64)]
    figure = simulation_figure(rows)
    go.Figure(figure)
    json.dumps(figure, allow_nan=False)
    titles = [note["text"] for note in figure["layout"]["annotations"] if note["text"].startswith("<b>")]
    assert "<b>Throughput per rank · linear</b>" in titles and "<b>Imbalance of an epoch · exponential</b>" in titles
    lines = [trace for trace in figure["data"] if trace["xaxis"] == "x"]
    described = {row["ranks"]: row["throughput"] for row in rows if row["scheduler"] == "psg"}
    assert dict(zip(lines[0]["x"], lines[0]["y"], strict=True)) == pytest.approx(described, abs=1e-5)
    assert [trace["name"] for trace in lines] == ["psg", "best_of", "bound: none can be better", "the paper's DyGNeX-G"]
    assert lines[3]["x"] == [512, 1024] and lines[3]["y"] == [0.95, 0.85]
    words = " ".join(note["text"].replace("<br>", " ") for note in figure["layout"]["annotations"])
    assert "On 64 ranks best_of keeps 100% of one rank's throughput; the bound is 100%" in words
    assert "the ratio is infinite" in words
    assert simulation_figure([])["layout"]["annotations"]


def test_plot_draws_a_study() -> None:
    rows = outcomes(4, 16)
    study = ScheduleStudy({}, "nothing")
    assert "nothing simulated" in lab.plot(study).to_json()
    assert "Throughput" in lab.plot(simulation_figure(rows)).to_json()


def test_a_wide_panel_has_a_row_to_itself() -> None:
    panels = [
        ({"data": [{"type": "bar", "x": [1], "y": [1]}], "layout": frame(str(i), "x", "y")}, "") for i in range(5)
    ]
    layout = grid(panels, title="", wide={1})["layout"]
    domains = [layout[f"xaxis{number}"]["domain"] for number in ("", "3", "5", "7", "9")]
    assert [round(end - start, 2) for start, end in domains] == [0.44, 1.0, 0.44, 0.44, 0.44]
    tops = [round(layout[f"yaxis{number}"]["domain"][1], 2) for number in ("", "3", "5", "7", "9")]
    assert tops[0] > tops[1] > tops[2] == tops[3] > tops[4]
