"""The end of a run: summary values by hand, merged tables, killed ranks, the report and comparisons."""

from __future__ import annotations

import html.parser
import io
import json
import math
import re
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.record_tables import OWN_PHASES, PHASES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, DataError, RunStoreError, UnknownNameError
from dtdg_lab.runs import finish as finish_module
from dtdg_lab.runs import report, summary
from dtdg_lab.runs.comparison import compare
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.event_rows import event_rows
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.frames import RunFrames
from dtdg_lab.runs.parquet import current_note, files_of, is_current
from dtdg_lab.runs.progress import show_progress
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


def test_lines_that_arrive_while_finishing_are_in_the_final_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_run_that_is_resumed_while_its_files_are_written_stays_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    congested = summary._congested_epochs({"steps": steps, "events": events}, list(range(epochs)))
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


class _Page(html.parser.HTMLParser):
    """Outside references, text of scripts by id, and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []
        self.scripts: dict[str, str] = {}
        self.words = ""
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [value or "" for name, value in attrs if name in ("src", "href")]
        self._script = dict(attrs).get("id") or "code" if tag == "script" else self._script

    def handle_endtag(self, tag: str) -> None:
        self._script = None if tag == "script" else self._script

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.words += data
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


def test_the_report_is_self_contained_and_says_what_happened(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    finish(run, "finished")
    page = _Page(run.report_file.read_text())
    assert page.outside == []
    assert not {"link", "img", "iframe"} & set(page.tags)
    assert "default-src 'none'" in run.report_file.read_text()
    figures = json.loads(page.scripts["figures"], parse_constant=pytest.fail)
    assert {"loss", "step_time", "energy", "timeline"} <= set(figures)
    step_losses = next(trace for trace in figures["loss"]["data"] if trace["name"] == "each step")
    assert len(step_losses["x"]) == 15
    assert "Plotly.newPlot" in page.scripts["code"]
    stored = open_run(run.path)
    for caption in stored.captions().values():
        assert caption in page.words
    for words in (
        "learning_rate = 0.003 (version 1",
        "40.0%",
        run.id,
        "made by the generator",
        "group_window",
        "Number of consecutive snapshots in a group",
        "dtdg_lab run config.json",
        "lab.RunConfig(",
    ):
        assert words in page.words


def test_the_report_escapes_everything_it_is_given(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    evil = "</script><script>alert('x')</script><img src=http://evil>"
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        refused = {"version": 2, "changes": {}, "reason": evil}
        writer.row("events", (3, 0, 1_700_000_000_000_000_001, "refused", refused))
        writer.row(
            "events",
            (4, 0, 1_700_000_000_080_000_000, "settings", {"version": 2, "changes": {evil: 1}, "when": "step"}),
        )
    finish(run, "failed", evil)
    page = _Page(run.report_file.read_text())
    assert page.outside == []
    assert "img" not in page.tags
    assert page.words.count(evil) == 3


def test_without_plotly_the_report_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(tmp_path)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    finish(run, "finished")
    page = _Page(run.report_file.read_text())
    assert "pip install 'dtdg-lab[lab]'" in page.words
    assert "code" not in page.scripts
    assert open_run(run.path).captions()["loss"] in page.words


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


LINK = {"accuracy": 0.8, "mrr": None, "persistence_accuracy": 0.75}
PARTS = {
    "train": {"first": 0, "last": 11, "without_edges": [[3, 3]]},
    "test": {"first": 15, "last": 38, "without_edges": [[20, 29], [38, 38]]},
}


def _link_run(root: Path) -> RunDirectory:
    run = finished_run(root, task="link")
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        writer.row("events", (0, 0, 1_700_000_000_000_000_000, "parts", PARTS))
        evaluate(writer, 15, "validation", 0.5, 0.6, later_ns=1, metrics=LINK | {"accuracy": 0.1})
        evaluate(writer, 15, "test", 0.75, 1.25, later_ns=2, metrics=LINK)
    return run


def test_metrics_of_the_judged_part_are_in_summary_report_frame_and_comparison(tmp_path: Path) -> None:
    run = _link_run(tmp_path)
    summary = finish(run, "finished")
    assert (summary["task"], summary["skill_split"], summary["metrics"]) == ("link", "test", LINK)
    assert summary["without_edges"] == {"train": 1, "test": 11}
    page = _Page(run.report_file.read_text())
    for words in (
        "test accuracy (persistence 0.75)",
        "· link ·",
        "1 of 12 training snapshots have no edges (3):",
        "11 of 24 test snapshots have no edges (20 to 29, 38):",
        "test: snapshots 15 to 38 (no edges in 20 to 29, 38)",
    ):
        assert words in page.words, words
    frame = open_run(run.path).to_pandas()
    assert frame["accuracy"].dropna().tolist() == [0.1, 0.8]
    assert "metrics" not in frame
    assert "persistence_accuracy" in frame
    table = compare([run.path]).table
    assert table[["task", "accuracy"]].to_numpy().tolist() == [["link", 0.8]]
    assert "persistence_accuracy" not in table
    finish(other := finished_run(tmp_path), "finished")
    table = compare([run.path, other.path]).table
    assert table["task"].tolist() == ["link", "regression"]  # one column, although it is a setting that differs
    assert table["accuracy"].isna().tolist() == [False, True]


@pytest.mark.slow
def test_comparison_shows_the_settings_that_differ_and_only_those(tmp_path: Path) -> None:
    runs = [finished_run(tmp_path, epochs=epochs, learning_rate=rate) for epochs, rate in ((2, 0.01), (3, 0.02))]
    for run in runs:
        finish(run, "finished")
    found = compare([runs[0].path, open_run(runs[1].path)])
    assert found.differing == ("epochs", "learning_rate")
    assert found.table.index.tolist() == [run.id for run in runs]
    assert found.table["learning_rate"].tolist() == [0.01, 0.02]
    assert found.table["steps"].tolist() == [10, 15]
    assert not {"seed", "hidden", "system"} & set(found.table.columns)
    names = [trace.get("name") for trace in found.figure["data"]]
    assert names[:2] == ["PSG, learning rate 0.01, 2 epochs", "PSG, learning rate 0.02, 3 epochs"]
    assert "differ in: epochs, learning_rate" in found._repr_html_()


def test_equal_runs_are_told_apart_by_name(tmp_path: Path) -> None:
    runs = [finished_run(tmp_path) for _ in range(2)]
    found = compare([run.path for run in runs])
    assert found.differing == ()
    assert found.table["test_loss"].isna().all()
    assert [trace.get("name") for trace in found.figure["data"]][:2] == ["PSG", "PSG (2)"] == [*found.labels]
    with pytest.raises(ConfigError, match="got no run"):
        compare([])
    with pytest.raises(ConfigError, match="as one list"):
        compare("runs/a", "runs/b")
    with pytest.raises(RunStoreError, match="is not a run"):
        compare([tmp_path])


def test_settings_to_do_it_again_make_the_same_config() -> None:
    settings = {"dataset": "growing", "ranks": 2, "parts": 4, "group_window": 8, "learning_rate": 0.5}
    config = RunConfig(**settings)
    changed = report.changed_settings(config)
    assert changed == {"system": "psg", "model": "tgcn", **settings}
    assert RunConfig(**changed) == config
    cell = report.python_cell(config)
    built = re.search(r"lab\.RunConfig\((.*?)\n\)", cell, re.DOTALL)
    assert built is not None
    compile(cell, "cell", "exec")
    assert eval(f"RunConfig({built[1]})") == config
    assert len(report.explained(config)) == len(config.flat)
    assert all(meaning for *_, meaning in report.explained(config))


def test_a_change_applied_at_different_steps_is_shown_as_such() -> None:
    def event(rank: int, step: int, kind: str = "settings", data: object = None) -> dict[str, object]:
        facts = {"attempt": 1, "epoch": 0, "time_ns": 1000 * step}
        return {"rank": rank, "step": step, "kind": kind, "data": data, **facts}

    knob = {"version": 1, "changes": {"slow_ms": 5}, "when": "step"}
    rows = event_rows(
        [
            event(0, 0, "started", {"ranks": 2}),
            event(0, 7, data=knob),
            event(1, 8, data=knob),
            event(0, 8, "epoch"),
            event(0, 8, "checkpoint"),
            event(0, 9, "checkpoint"),
        ]
    )
    change = "slow_ms = 5 (version 1, before the next step)"
    assert [row[1:] for row in rows] == [
        ("0", "0", "started", "ranks: 2"),
        ("NOT AT ONE STEP: rank 0 at 7, rank 1 at 8", "0, 1", "settings", change),
        ("9", "0", "checkpoint", "2 written; this is the last"),
    ]


def test_many_events_of_a_kind_do_not_hide_the_others(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        for step in range(250):
            writer.row("events", (step, 0, 10**18 + step, "plan", {"step": step}))
            writer.row("events", (step, 0, 10**18 + step, "checkpoint", {}))
        writer.row("events", (250, 0, 10**18 + 250, "paused", {}))
    tables = RunFrames(run)
    assert len(tables.events()) == 501 + len(tables.events(without=("plan", "checkpoint", "paused")))
    rows = [row for row in event_rows(tables.events(limit=100)) if row[3] in ("plan", "checkpoint", "paused")]
    assert len(rows) == 100 + 3
    assert [row[1:] for row in rows[-3:]] == [
        ("249", "0", "plan", "150 more events; this is the last: step: 249"),
        ("249", "0", "checkpoint", "250 written; this is the last"),
        ("250", "0", "paused", ""),
    ]


def test_the_bar_follows_a_run_to_its_end(tmp_path: Path) -> None:
    stored = open_run(finished_run(tmp_path).path)
    handle = SimpleNamespace(status="running", reason="", live=stored.live, lock=threading.Lock())

    def end() -> None:
        time.sleep(0.1)
        handle.reason, handle.status = "stopped by hand", "stopped"

    ending = threading.Thread(target=end)
    ending.start()
    screen = io.StringIO()
    assert show_progress(handle, every_s=0.02, file=screen, mininterval=0) == "stopped"
    ending.join()
    assert "running" in screen.getvalue()
    last = screen.getvalue().split("\r")[-1]
    assert "3/3" in last
    assert "stopped: stopped by hand" in last
    assert "step=15" in last
    assert "loss=0.1667" in last
    assert "imbalance=1.20" in last


def test_a_family_whose_summary_fails_is_named_and_the_rest_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished_run(tmp_path)
    family = next(each for each in catalogue.families() if each.summary_meanings)

    def fails(*tables: Any) -> dict[str, Any]:
        raise ValueError("no such column")

    monkeypatch.setattr(family, "summary", fails)
    summary = finish(run, "finished")
    assert summary["epochs"] == 3 and summary["family_errors"] == {family.name: "ValueError: no such column"}
    assert all(summary[name] is None for name in family.summary_meanings)
    assert f"family &#39;{family.name}&#39; are missing" in run.report_file.read_text()
