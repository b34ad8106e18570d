"""Tables of a stored run: from Parquet they are those from its lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records import recent_rows
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs import parquet, stored_tables
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.frames import RunFrames
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_tables import open_tables
from tests.stored_runs import START_NS, STEP_NS, evaluate, finished_run, write_steps


def write_parquet(run: RunDirectory) -> None:
    for rank in run.record_files():
        parquet.write_rank(run, rank)


def slowest(rows: Rows) -> Rows:
    """The row of the rank that waits least in each step."""
    return rows.sort("step", "wait_s").once("step")


ROLLUPS = (
    Rollup("steps", by=("rank",), sums=("loss", "compute_s"), least=("loss",), most=("step", "seconds"), points=4),
    Rollup("steps", sums=("loss",), prepare=slowest, points=4),
    Rollup("energy", by=("device",), sums=("joules",), along="", all_attempts=True),
    Rollup("evaluations", by=("split",), last=("loss", "metrics"), points=4),
)


def resumed_run(root: Path) -> RunDirectory:
    run = finished_run(root, epochs=8)
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 1) as writer:
            evaluate(writer, 40, "train", 0.1, 0.2, later_ns=(3 + rank) * 1_000_003)  # after the last step
        with RecordWriter(run.record_file(rank), rank, 2) as writer:
            write_steps(writer, 25, 43, attempt_ns=50 * STEP_NS)
            if rank == 0:
                started = {"ranks": 2, "attempt": 2, "dataset": "growing", "source": "made"}
                writer.row("events", (25, 5, START_NS + 74 * STEP_NS, "started", started))
                evaluate(writer, 25, "validation", 0.1, 0.2, later_ns=50 * STEP_NS, metrics={"mse": 0.1})
    return run


@pytest.mark.parametrize("few", [4_000, 20])
def test_tables_from_parquet_are_those_from_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    for module in (recent_rows, stored_tables):
        monkeypatch.setattr(module, "FEW_ROWS", few)
    run, config = resumed_run(tmp_path), RunConfig(system="psg", dataset="growing", ranks=2, epochs=8)
    lines = RunTables.open(config, run.records, ROLLUPS, recent=10)
    write_parquet(run)
    stored = open_tables(run, config, ROLLUPS, recent=10)
    assert stored.progress == lines.progress
    assert (stored.common_step, stored.complete_epoch) == (lines.common_step, lines.complete_epoch)
    assert stored.resumes == lines.resumes
    for rollup in ROLLUPS:
        kept, expected = stored.rollup(rollup), lines.rollup(rollup)
        assert stored.width(rollup) == lines.width(rollup)
        for name in rollup.sums:
            assert np.allclose(np.sort(kept[name]), np.sort(expected[name])), (rollup, name)
        for name in (f"{column}_most" for column in rollup.most):
            assert np.sort(kept[name]).tolist() == np.sort(expected[name]).tolist(), (rollup, name)
    for name in ("steps", "phases", "evaluations"):
        newest = [tables.rows(name).sort("rank", "step") for tables in (stored, lines)]
        count = min(map(len, newest), default=0)
        for column in ("step", "epoch", "seconds"):
            assert newest[0][column][-count // 4 :].tolist() == newest[1][column][-count // 4 :].tolist()
    for kind in ("started", "settings", "epoch"):
        kept_events, events = stored.events(kind), lines.events(kind)
        assert [event["data"] for event in kept_events] == [event["data"] for event in events]
        assert [event["seconds"] for event in kept_events] == [event["seconds"] for event in events]


def test_lines_are_read_where_parquet_is_old(tmp_path: Path) -> None:
    run, config = finished_run(tmp_path), RunConfig(system="psg", dataset="growing", ranks=2)
    write_parquet(run)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        write_steps(writer, 15, 18)
    assert open_tables(run, config).steps == {0: 17, 1: 14}


def test_tables_from_parquet_follow_the_lines_that_come_later(tmp_path: Path) -> None:
    run, config = finished_run(tmp_path), RunConfig(system="psg", dataset="growing", ranks=2)
    write_parquet(run)
    tables = open_tables(run, config)
    assert not tables.update()
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        write_steps(writer, 15, 18)
    assert tables.update() and tables.steps == {0: 17, 1: 14}
    assert len(tables.rows("steps")) == 2 * 15 + 3


def test_a_resume_recounts_rows_that_parquet_has_as_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (recent_rows, stored_tables):
        monkeypatch.setattr(module, "FEW_ROWS", 4)
    run, config = finished_run(tmp_path, epochs=8), RunConfig(system="psg", dataset="growing", ranks=2, epochs=8)
    write_parquet(run)
    tables = open_tables(run, config, ROLLUPS, recent=5)
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 2) as writer:
            write_steps(writer, 10, 14, attempt_ns=50 * STEP_NS)
    while tables.update():
        pass
    lines = RunTables.open(config, run.records, ROLLUPS)
    by_rank = ROLLUPS[0]
    assert tables.rollup(by_rank)["loss_known"].sum() == lines.rollup(by_rank)["loss_known"].sum() == 2 * 14


def test_a_rank_is_no_further_than_where_a_resume_began(tmp_path: Path) -> None:
    run, config = finished_run(tmp_path, epochs=8), RunConfig(system="psg", dataset="growing", ranks=2, epochs=8)
    with RecordWriter(run.record_file(0), 0, 2) as writer:
        write_steps(writer, 10, 14, attempt_ns=50 * STEP_NS)
    write_parquet(run)
    stored, lines = open_tables(run, config), RunTables.open(config, run.records)
    assert stored.steps == lines.steps == {0: 13, 1: 9}


def test_steps_of_events_are_whole_numbers(tmp_path: Path) -> None:
    run, config = finished_run(tmp_path), RunConfig(system="psg", dataset="growing", ranks=2)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        writer.row("events", (None, None, START_NS + 1, "sink_lost", {"reason": "gone"}))
    lines = RunTables.open(config, run.records)
    write_parquet(run)
    stored = open_tables(run, config)
    for kind in ("sink_lost", "epoch", "started"):
        steps = [[repr(event["step"]) for event in tables.events(kind)] for tables in (lines, stored)]
        assert steps[0] == steps[1]


def test_texts_and_numbers_that_few_readers_take_are_kept(tmp_path: Path) -> None:
    run, config = finished_run(tmp_path), RunConfig(system="psg", dataset="growing", ranks=2)
    data = {"path": "caf\udce9", "bytes": 2**70}
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        writer.row("events", (15, 5, START_NS + 16 * STEP_NS, "odd", data))
    lines = RunTables.open(config, run.records)
    write_parquet(run)
    for tables in (lines, open_tables(run, config)):
        assert [event["data"] for event in tables.events("odd")] == [data]


@pytest.mark.parametrize("reads", ["tables", "frames"])
def test_files_written_again_while_read_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    run, config = finished_run(tmp_path), RunConfig(system="psg", dataset="growing", ranks=2)
    write_parquet(run)
    files_of = parquet.files_of

    def begun_again(directory: RunDirectory, note: parquet.Note) -> dict[str, list[Path]]:
        files = files_of(directory, note)
        for file in run.records.glob("rank*.json"):
            file.unlink()  # what a writer does first
        return files

    monkeypatch.setattr(parquet, "files_of", begun_again)
    if reads == "tables":
        tables = open_tables(run, config)
        assert len(tables.rows("steps")) == 30 and not tables.update()
    else:
        assert RunFrames(run).counts()["steps"] == len(RunFrames(run).frames()["steps"]) == 30


def test_frames_are_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(tmp_path)
    write_parquet(run)
    read, calls = RunFrames.tables, []

    def read_as_a_resume_begins(frames: RunFrames, wanted: Any = None) -> dict[str, Any]:
        if not calls:
            with RecordWriter(run.record_file(0), 0, 2) as writer:
                write_steps(writer, 5, 9, attempt_ns=50 * STEP_NS)
        calls.append(wanted)
        return read(frames, wanted)

    monkeypatch.setattr(RunFrames, "tables", read_as_a_resume_begins)
    mixed = RunFrames(run).frames()
    monkeypatch.undo()
    whole = RunFrames(run).frames()
    assert {name: len(frame) for name, frame in mixed.items()} == {name: len(frame) for name, frame in whole.items()}


def test_a_frame_can_be_changed(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    write_parquet(run)
    evaluations = RunFrames(run).frames(("evaluations",))["evaluations"]
    evaluations.loc[0, "loss"] = 7.0
    assert evaluations["loss"][0] == 7.0


def test_rows_without_steps_are_kept_by_their_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, config = finished_run(tmp_path), RunConfig(system="psg", dataset="growing", ranks=2)
    count = len(RunFrames(run).frames(("energy",))["energy"])
    monkeypatch.setattr(stored_tables, "FEW_ROWS", count // 2)
    write_parquet(run)
    assert {*open_tables(run, config, ROLLUPS).rows("energy")["rank"]} == {0, 1}
