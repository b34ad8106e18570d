"""The end of a run: summary values by hand, merged tables, and ranks that were killed."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.record_tables import OWN_PHASES, PHASES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, DataError, UnknownNameError
from dtdg_lab.runs import finish as finish_module
from dtdg_lab.runs import summary
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.parquet import current_note, files_of, is_current
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_run import TRAIN_STEP, StoredRun, open_run
from dtdg_lab.runs.summary import SUMMARY_MEANINGS
from dtdg_lab.visualization.runs.curves import bytes_at
from tests.stored_runs import PHASE_MS, START_NS, STEP_NS, evaluate, finished_run, row, write_steps

CONFIG = RunConfig(system="psg", dataset="growing", ranks=2)


def test_summary_values_by_hand(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    summary = finish(run.path, "finished")
    assert json.loads(run.summary_file.read_text(), parse_constant=pytest.fail) == summary
    assert (summary["status"], summary["protocol"], summary["epochs"], summary["steps"]) == ("finished", "warm", 3, 15)
    assert (summary["train_loss"], summary["validation_loss"], summary["test_loss"]) == (0.5, pytest.approx(0.6), 0.75)
    assert (summary["persistence_loss"], summary["mean_loss"], summary["skill_split"]) == (1.25, 4.0, "test")
    assert summary["skill"] == pytest.approx(1 - 0.75 / 1.25)
    assert summary["epoch_time_s"] == pytest.approx(5 * 0.02)
    assert summary["phase_time_s"] == pytest.approx(
        {phase: (PHASE_MS[0][phase] + PHASE_MS[1][phase]) / 2e3 for phase in PHASE_MS[0]}
    )
    assert summary["imbalance"] == pytest.approx(15 / 10)
    assert summary["wait_share"] == pytest.approx(5 / 40)
    assert (summary["bytes_sent"], summary["bytes_received"]) == (30_000, 30_000)
    assert (summary["peak_bytes"], summary["peak_rss_bytes"]) == (5_001, 20_001)
    assert summary["energy_j"] == {"modelled": pytest.approx(30 * 0.4)}
    assert (summary["cut_edges"], summary["halo_share"]) == (None, None)
    assert summary["records"] == {"energy": 30, "evaluations": 7, "events": 10, "memory": 2, "phases": 210, "steps": 30}
    assert SUMMARY_MEANINGS.keys() <= summary.keys()
    assert run.status()["state"] == "finished"


def test_the_most_loaded_rank_decides_the_imbalance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, phases in zip((1, 0), [PHASE_MS[0], PHASE_MS[1]], strict=True):
        monkeypatch.setitem(PHASE_MS, rank, phases)
    assert finish(finished_run(tmp_path).path, "finished")["imbalance"] == pytest.approx(15 / 10)


@pytest.mark.slow
def test_finishing_twice_changes_nothing_and_again_after_a_resume_adds(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    finish(run, "failed", "rank 1 was killed", rank=1)
    files = [run.summary_file, run.report_file, run.status_file, files_of(run, current_note(run, 0) or {})["steps"][0]]
    before = [path.stat().st_mtime_ns for path in files]
    finish(run, "failed", "rank 1 was killed", rank=1)
    assert [path.stat().st_mtime_ns for path in files] == before
    status = run.status()
    assert (status["state"], status["reason"], status["rank"], status["attempt"]) == (
        "failed",
        "rank 1 was killed",
        1,
        1,
    )
    with RecordWriter(run.record_file(0), 0, 2) as writer:
        write_steps(writer, 15, 20)
    summary = finish(run, "stopped")
    assert (summary["steps"], summary["attempts"], summary["status"]) == (20, 2, "stopped")
    assert summary["records"]["steps"] == 35


def test_bytes_of_steps_that_a_resume_made_again_count_everywhere(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        for step in (3, 12):
            writer.row("fetches", row("fetches", step=step, epoch=0, purpose="miss", bytes=500))
        writer.row("fetches", row("fetches", step=12, epoch=0, purpose="probe", bytes=7))
    gathered = {"wait_s": 0.1, "bytes_sent": 50, "bytes_received": 50}
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 2) as writer:
            write_steps(writer, 10, 15, attempt_ns=50 * STEP_NS)
            writer.row("events", (15, 3, START_NS + 66 * STEP_NS, "gathered", gathered))
            writer.row("fetches", row("fetches", step=11, epoch=0, purpose="miss", bytes=500))
            writer.row("resolved", row("resolved", step=11, epoch=0, hits=[1], misses=[1], wait_s=0.0))
    summary, opened = finish(run, "finished"), open_run(run.path)
    assert (summary["bytes_sent"], summary["feature_bytes"], summary["probe_bytes"]) == (40_100, 2_000, 7)
    assert opened.table("steps", all_attempts=True)["bytes_sent"].sum() == 40_000
    assert opened.table("steps")["bytes_sent"].sum() == 30_000, "rows of steps that count"
    sent = bytes_at(opened.live, [0.0, 0.305, math.inf], [3, 11, math.inf])
    assert sent is not None and sent.tolist() == [0, 30_000 + 1_000 + 2_000, 42_100], "one step after the resume"


def test_lines_that_arrive_while_finishing_are_in_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 may still be closing its file when rank 0 brings the run to its end."""
    run = finished_run(tmp_path)
    written = finish_module.write_report

    def write_late(stored: StoredRun, **options: Any) -> Path:
        assert stored.status == "starting"  # the state comes last, when all files are complete
        path = written(stored, **options)
        if not late:
            late.append(True)
            with RecordWriter(run.record_file(1), 1, 1) as writer:
                write_steps(writer, 15, 16)
        return path

    late: list[bool] = []
    monkeypatch.setattr(finish_module, "write_report", write_late)
    assert finish(run, "finished")["records"]["steps"] == 31
    assert is_current(run, 1)


def test_a_run_resumed_while_its_files_are_written_stays_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long run the files take seconds: a user may repair and resume before."""
    run = finished_run(tmp_path)
    written = finish_module.write_report

    def resume_then_write(stored: StoredRun, **options: Any) -> Path:
        stored.directory.write_status("running", attempt=2)
        return written(stored, **options)

    monkeypatch.setattr(finish_module, "write_report", resume_then_write)
    assert finish(run, "failed", "rank 1 died", rank=1)["status"] == "failed"
    assert (run.status()["attempt"], run.recorded_status()["state"]) == (2, "running")


def test_views_of_a_damaged_run_are_not_empty_once_it_is_restored(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    lines = run.record_file(0).read_text()
    shown = open_run(run.path)
    run.record_file(0).write_text(f"broken\n{lines}")
    with pytest.raises(DataError, match="damaged"):
        shown.figures()
    run.record_file(0).write_text(lines)
    assert shown.figures() == open_run(run.path).figures()


def test_a_long_run_has_the_balance_and_the_slow_epochs_of_its_definition() -> None:
    """All epochs at once have the sums of one epoch after another."""
    draw, epochs, each = np.random.default_rng(0), 500, 3
    step, rank = (of.ravel() for of in np.meshgrid(np.arange(epochs * each), [0, 1], indexing="ij"))
    phases = {f"{phase}_s": draw.random(len(step)) for phase in PHASES}
    steps = pd.DataFrame({"rank": rank, "step": step, "epoch": step // each, "time_s": 9.0, **phases})
    own = steps[[f"{phase}_s" for phase in OWN_PHASES]].sum(axis=1).to_numpy().reshape(epochs, each, 2)
    longest = own.max(axis=2).sum(axis=1)
    found = summary._balance(steps)
    assert found["iteration_imbalance"] == pytest.approx(np.median(longest / own.sum(axis=1).mean(axis=1)))
    assert found["waste_share"] == pytest.approx(np.median((longest - own.sum(axis=1).mean(axis=1)) / (9.0 * each)))
    assert found["critical_path_share"] == pytest.approx(np.median(longest / (9.0 * each)))
    paced = own.max(axis=2)[own.argmax(axis=2) == found["slowest_rank"]].sum()
    assert found["slowest_rank_share"] == pytest.approx(paced / longest.sum())

    starts = np.sort(draw.choice(epochs * each, 400)).tolist()  # some at one step
    slow = draw.integers(0, 2, len(starts)).tolist()
    links = [{"delay_ms": [[0.0, float(late)], [0.0, 0.0]], "mbit": [[None] * 2] * 2} for late in slow]
    events = pd.DataFrame({"kind": "congestion", "rank": 0, "attempt": 1, "step": starts, "data": links})
    congested = summary._congested_epochs(events, steps, list(range(epochs)))
    late = [interval for interval, is_slow in zip(pairwise([*starts, math.inf]), slow, strict=True) if is_slow]
    assert congested == {
        epoch
        for epoch in range(epochs)
        if any(start <= epoch * each + each - 1 and end > epoch * each for start, end in late)
    }


def test_a_killed_run_has_what_is_known_and_null_for_the_rest(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        write_steps(writer, 0, 7)
        evaluate(writer, 5, "validation", 0.5, 1.0)
    with run.record_file(0).open("ab") as file:
        file.write(b'{"v": 1, "rank": 0, "att')
    summary = finish(run, "failed", "rank 1 died", rank=1)
    assert (summary["steps"], summary["epochs"], summary["rank"]) == (7, 1, 1)
    assert (summary["test_loss"], summary["train_loss"], summary["peak_bytes"]) == (None, None, None)
    assert (summary["skill"], summary["skill_split"]) == (0.5, "validation")
    assert summary["energy_j"] == {"modelled": 3.5}
    assert "rank 1 died" in run.report_file.read_text()


def test_a_run_that_never_made_a_step_has_no_zeros(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    summary = finish(run, "failed", "no engine")
    measured = {
        name: value for name, value in summary.items() if name in SUMMARY_MEANINGS and name not in ("epochs", "steps")
    }
    assert measured.pop("phase_time_s") == dict.fromkeys(PHASE_MS[0])
    assert set(measured.values()) == {None}
    assert (summary["epochs"], summary["steps"]) == (0, 0)
    assert "unknown" in run.report_file.read_text()


def test_finish_refuses_what_is_no_end_and_damaged_records(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    with pytest.raises(ConfigError, match="does not end a run"):
        finish(run, "running")
    whole = run.record_file(1).read_text()
    run.record_file(1).write_text(whole[:40] + "\n" + whole)
    with pytest.raises(DataError, match="line 1"):
        finish(run, "finished")
    assert run.status()["state"] == "starting"


def test_an_opened_run_gives_frames_events_and_figures(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    stored = open_run(str(run.path))
    assert (stored.id, stored.status, stored.summary) == (run.id, "starting", {})
    finish(run, "finished", "all done")
    assert (stored.status, stored.reason, stored.config) == ("finished", "all done", run.config())
    frame = stored.to_pandas()
    wanted = """rank epoch step split loss time_s batch_s transfer_s compute_s communicate_s wait_s update_s control_s
                bytes_sent bytes_received energy_j energy_source"""
    assert set(wanted.split()) <= set(frame.columns)
    assert frame["split"].value_counts().to_dict() == {TRAIN_STEP: 30, "train": 3, "validation": 3, "test": 1}
    assert frame.query("split == 'test'")["time_s"].isna().all()
    assert [event["kind"] for event in stored.events].count("settings") == 2
    assert stored.events[0]["kind"] == "started"
    assert stored.environment["python"]
    assert len(stored.table("phases")) == 210
    with pytest.raises(UnknownNameError, match="Did you mean 'phases'"):
        stored.table("phase")
    assert stored.report() == run.report_file


def test_a_family_whose_summary_fails_is_named_beside_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(tmp_path)
    family = next(each for each in catalogue.families() if each.summary_meanings)

    def fails(*tables: Any) -> dict[str, Any]:
        raise ValueError("no such column")

    monkeypatch.setattr(family, "summary", fails)
    summary = finish(run, "finished")
    assert summary["epochs"] == 3 and summary["family_errors"] == {family.name: "ValueError: no such column"}
    assert all(summary[name] is None for name in family.summary_meanings)
    assert f"family &#39;{family.name}&#39; are missing" in run.report_file.read_text()
