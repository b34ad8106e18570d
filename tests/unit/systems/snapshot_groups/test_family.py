"""Schedules in summaries, reports and charts of stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.report import event_rows
from dtdg_lab.runs.stored_run import open_run
from tests.schedule_records import epoch_rows, event, schedule_data
from tests.stored_runs import finished_run
from tests.tables import START_NS

TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]


def scheduled_run(root: Path, *, epochs: int = 3, **more: Any) -> RunDirectory:
    """A run of two ranks, written as ranks write it."""
    run = RunDirectory.create(RunConfig(system="psg", dataset="growing", ranks=2, epochs=epochs), root=root)
    recorded = [("events", [event(schedule_data(TIMES, ASSIGNMENT, **more))])]
    for epoch in range(epochs):
        end = {"step": 2 * (epoch + 1), "epoch": epoch, "time_ns": START_NS + int((epoch * 1000 + 9) * 1e9)}
        ended = {**end, "kind": "epoch", "data": {"epoch": epoch}}
        recorded += [*epoch_rows(ASSIGNMENT, TIMES, epoch=epoch), ("events", [ended])]
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 1) as writer:
            for table, rows in recorded:
                for row in rows:
                    if row.get("rank", 0) == rank:
                        writer.row(table, tuple(row.get(name) for name in TABLES[table]))
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
    sentences = [row[4] for row in event_rows(open_run(run.path).events) if row[3] == "schedule"]
    assert len(sentences) == 1 and "5 groups on 2 ranks" in sentences[0] and len(sentences[0]) < 300


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


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"scheduler": "round_robin"}, False),
        ({"scheduler": "fold"}, True),
        ({"scheduler": "fold", "group_times": "size"}, False),
        ({"scheduler": "best_of", "group_times": "size"}, True),
    ],
)
def test_a_run_has_a_clock_where_measured_times_or_a_search_affect_its_schedule(
    settings: dict[str, str], expected: bool
) -> None:
    assert catalogue.family("snapshot_groups").has_clock(RunConfig(system="psg", **settings)) is expected
