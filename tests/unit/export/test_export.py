"""Exported runs: files that hold what the run holds, valid by their formats' rules, and read back."""

from __future__ import annotations

import asyncio
import errno
import gzip
import io
import json
import os
import random
import runpy
import shutil
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient

import dtdg_lab as lab
from dtdg_lab.cli import main
from dtdg_lab.cluster.local import train
from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.cluster.replay import replay
from dtdg_lab.cluster.stopping_rule import Verdict
from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.export.artifacts import run_page, script
from dtdg_lab.export.chrome_trace import chrome_trace
from dtdg_lab.export.export import KINDS, export
from dtdg_lab.runs.exports import ExportedRun, PartialRun, open_run
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.packed_run import ABOUT, PARQUET_KEY, SCHEMA, pack, zip_of
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_run import StoredRun
from tests.factories import small_config
from tests.stored_runs import START_NS, evaluate, finished_run, write_steps
from tests.thinning import thinned
from tests.timelines import check_timeline

WHOLE = ("html", "parquet")


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """Two ranks, two attempts, a knob, rows of more tables and a value that JSON has not."""
    run = finished_run(tmp_path_factory.mktemp("steered"), epochs=4)
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 2) as writer:
            write_steps(writer, 18, 22, attempt_ns=10**9)
            writer.row("groups", (18, 3, 2, START_NS, START_NS + 5_000_000, 0.004))
            writer.row("exchanges", (18, 3, 0, "forward", "to_vertices", 3, 0.004, 0.001))
            writer.row("events", (19, 3, START_NS + 10**9, "partition_looked_at", {"<script>": [1, {"a": None}]}))
            writer.row("memory", (20, START_NS, float("nan"), 1, 2))
            if rank == 0:
                evaluate(writer, 22, "validation", 0.4, 1.0, later_ns=2 * 10**9, metrics={"mae": 0.5})
    finish(run, "finished")
    return StoredRun(run)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A run of this process that its settings foretell."""
    config = small_config(parts=2, epochs=1, group_window=4, threads=1)
    return train(config, runs_dir=tmp_path_factory.mktemp("trained"), progress=False)


def same_run(read: StoredRun, run: StoredRun) -> None:
    """Everything but checkpoints."""
    assert (read.id, read.config, read.status, read.reason) == (run.id, run.config, run.status, run.reason)
    assert (read.summary, read.environment) == (run.summary, run.environment)
    pd.testing.assert_frame_equal(pd.DataFrame(read.events), pd.DataFrame(run.events))
    for name in run.tables.tables():
        for every in (True, False):
            pd.testing.assert_frame_equal(read.table(name, all_attempts=every), run.table(name, all_attempts=every))
    assert read.figures() == run.figures()
    assert read.captions() == run.captions()


@pytest.mark.slow
@pytest.mark.parametrize("kind", WHOLE)
def test_a_page_and_tables_give_the_whole_run_again(steered: StoredRun, kind: str, tmp_path: Path) -> None:
    made = export(steered, tmp_path, kind)
    read = open_run(made)
    assert isinstance(read, ExportedRun)
    assert (read.source, read.thinned) == (made, "")
    same_run(read, steered)
    folder = read.path
    assert folder.is_dir() and not folder.is_relative_to(tmp_path)
    del read
    assert not folder.exists()


def test_tables_as_a_folder_are_the_same_and_each_says_what_it_is_of(steered: StoredRun, tmp_path: Path) -> None:
    made = export(steered, tmp_path / "tables", "parquet")
    assert made.is_dir()
    same_run(open_run(made), steered)  # type: ignore[arg-type]
    table = pq.read_table(made / "tables" / "steps.parquet")
    described = json.loads(table.schema.metadata[PARQUET_KEY])
    assert described["summary"] == steered.summary
    assert described["environment"] == steered.environment
    shutil.copy(made / "tables" / "steps.parquet", tmp_path / "steps.parquet")
    alone = open_run(tmp_path / "steps.parquet")
    assert isinstance(alone, PartialRun)
    assert alone.config == steered.config
    pd.testing.assert_frame_equal(alone.table("steps"), steered.table("steps", all_attempts=True))
    with pytest.raises(UnknownNameError, match="phases"):
        alone.table("phases")


@pytest.mark.slow
def test_what_was_read_back_can_be_exported_again(steered: StoredRun, tmp_path: Path) -> None:
    page = export(open_run(export(steered, tmp_path, "parquet")), tmp_path, "html")
    same_run(open_run(page), steered)  # type: ignore[arg-type]


def test_a_run_under_way_is_taken_as_far_as_it_has_come(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "runs")
    with run.record_file(1).open("ab") as file:
        file.write(b'{"v": 1, "torn')
    read = open_run(export(run.path, tmp_path, "html"))
    assert isinstance(read, ExportedRun)
    assert (read.status, read.summary) == ("starting", {})
    assert len(read.table("steps")) == 30


def test_the_page_needs_nothing_else(steered: StoredRun) -> None:
    page = run_page(steered)
    assert len(page) < 10_000_000
    text = page.decode()
    assert "default-src 'none'" in text[:2000]
    assert " src=" not in text.partition("</style>")[2].split("<script>")[0]
    assert "<link" not in text
    assert '<script>": [1' not in text  # of an event
    for part in ("What happened", "Numbers", "Events", "Settings", "Environment", "Do it again", "Tables in this page"):
        assert f"<h2>{part}</h2>" in text
    assert "They are complete" in text


def test_a_page_that_would_be_too_large_is_thinned_and_says_so(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "runs", epochs=4)
    draw = random.Random(0)
    with RecordWriter(run.record_file(0), 0, 1) as writer:  # times as they are: without a pattern
        for step in range(20, 8000):
            start = START_NS + step * 10**7 + draw.randrange(10**6)
            writer.row("phases", (step, step // 100, "compute", start, start + draw.randrange(10**6)))
    finish(run, "finished")
    whole = StoredRun(run)
    limit = len(run_page(whole)) - 5_000
    page = run_page(whole, most_bytes=limit)
    assert len(page) <= limit
    assert "They do not all fit into this page: one step in" in page.decode()
    (tmp_path / "thin.html").write_bytes(page)
    read = open_run(tmp_path / "thin.html")
    assert isinstance(read, ExportedRun)
    assert "phases" in read.thinned
    assert len(whole.table("phases")) / 5 < len(read.table("phases")) < len(whole.table("phases"))
    for table in ("evaluations", "events", "steps"):
        pd.testing.assert_frame_equal(read.table(table), whole.table(table))
    assert read.summary == whole.summary
    for limit in range(pack(whole).size - 4_000, 0, -4_000):
        try:
            smaller = pack(whole, most_bytes=limit)
        except RunStoreError as error:
            assert "kind='parquet'" in str(error)
            break
        assert smaller.size <= limit
    assert "steps" in smaller.thinned  # as far as it went
    with pytest.raises(RunStoreError, match="kind='parquet'"):
        run_page(whole, most_bytes=1_000_000)


def test_the_same_run_gives_the_same_bytes(steered: StoredRun) -> None:
    assert pack(steered).zipped() == pack(StoredRun(steered.directory)).zipped()


# events


@pytest.mark.slow
def test_tensorboard_reads_what_was_recorded(steered: StoredRun, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = export(steered, tmp_path, "tensorboard")
    assert sorted(path.name for path in made.iterdir()) == ["all", ABOUT, "rank0", "rank1"]
    for file in made.rglob("*tfevents*"):
        assert file.name == f"events.out.tfevents.{(START_NS + 20_000_000) // 10**9}.dtdg_lab"
        assert os.uname().nodename.encode() not in file.read_bytes()
    everything, rank1 = EventAccumulator(str(made / "all")), EventAccumulator(str(made / "rank1"))
    everything.Reload()
    rank1.Reload()
    steps = steered.table("steps")
    of_rank_1 = steps[steps["rank"] == 1]
    described = rank1.Scalars("time/compute (s)")
    assert [event.step for event in described] == of_rank_1["step"].tolist()
    assert [event.value for event in described] == pytest.approx(of_rank_1["compute_s"].tolist())
    assert [event.wall_time for event in described] == pytest.approx((of_rank_1["time_ns"] / 1e9).tolist(), abs=1e-6)
    validated = steered.table("evaluations").query("split == 'validation'")
    assert [event.value for event in everything.Scalars("loss/validation")] == pytest.approx(list(validated["loss"]))
    joules = everything.Scalars("energy/joules so far")
    assert joules[-1].value == pytest.approx(steered.summary["total_j"])
    assert [event.value for event in everything.Scalars("balance/imbalance")] == pytest.approx([15 / 12.5] * 22)
    assert everything.Scalars("metric/validation mae")[-1].value == 0.5
    settings = everything.SummaryMetadata("_hparams_/session_start_info").plugin_data
    assert settings.plugin_name == "hparams"
    assert b"epochs" in settings.content


def test_tensorboard_events_hold_settings_and_losses_but_are_not_read_back(steered: StoredRun, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    made = export(steered, tmp_path, "tensorboard")
    everything = EventAccumulator(str(made / "all"))
    everything.Reload()
    described = make_ndarray(everything.Tensors("run/config/text_summary")[0].tensor_proto).reshape(-1)[0]
    assert lab.RunConfig.from_json(described.decode()) == steered.config
    own = steered.table("steps").query("rank == 0")
    assert [event.step for event in everything.Scalars("loss/step")] == own["step"].tolist()
    assert [event.value for event in everything.Scalars("loss/step")] == pytest.approx(own["global_loss"].tolist())
    for path in (made, made / "all", next((made / "all").iterdir())):
        with pytest.raises(RunStoreError, match=r"not a run|neither a run nor an export"):
            open_run(path)


# timeline


def test_a_timeline_is_valid_and_sums_to_the_phases(steered: StoredRun, tmp_path: Path) -> None:
    made = export(steered, tmp_path, "trace")
    read = json.loads(made.read_text())
    events = read["traceEvents"]
    check_timeline(events)
    phases = steered.table("phases", all_attempts=True)
    known = (phases["end_ns"] - phases["start_ns"]).groupby([phases["rank"], phases["phase"]]).sum()
    found: dict[tuple[int, str], int] = {}
    for event in events:
        if event.get("cat") == "phase":
            place = event["args"]["rank"], event["name"]
            found[place] = found.get(place, 0) + round(event["dur"] * 1000)
    assert found == known.to_dict()
    names = {event["name"] for event in events if event["ph"] == "C"}
    assert names >= {"training loss", "bytes moved by the step", "joules so far", "memory (RSS)"}
    live_settings = [event for event in events if event["name"] == "settings"]
    assert len(live_settings) == 2
    assert {event["s"] for event in live_settings} == {"g"}
    assert any(event["ph"] == "b" and event["name"] == "exchange: to_vertices, layer 0" for event in events)
    steps = [event for event in events if event.get("cat") == "step"]
    assert len(steps) == len(steered.table("steps", all_attempts=True))


@pytest.mark.slow
def test_a_timeline_holds_settings_phases_and_steps_but_is_not_read_back(steered: StoredRun, tmp_path: Path) -> None:
    made, packed = export(steered, tmp_path, "trace"), export(steered, tmp_path / "t.json.gz", "trace")
    assert gzip.decompress(packed.read_bytes()) == made.read_bytes()
    read = json.loads(made.read_text())
    noted = read["otherData"]["dtdg_lab"]
    assert (noted["config"], noted["summary"]) == (steered.config.model_dump(), steered.summary)
    for table, category in (("steps", "step"), ("evaluations", "evaluation"), ("groups", "group")):
        known = steered.table(table, all_attempts=True)
        rows = [event["args"] for event in read["traceEvents"] if event.get("cat") == category]
        assert len(rows) == len(known)
        assert sorted(row["step"] for row in rows) == sorted(known["step"].tolist())
    for path in (made, packed):
        with pytest.raises(RunStoreError, match="neither a run nor an export"):
            open_run(path)


@pytest.mark.parametrize("seed", thinned(range(5)))
def test_a_timeline_stays_valid_where_clocks_overlap(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    run = finished_run(tmp_path)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        for step in range(60):
            start = START_NS + draw.randrange(10**8)
            phase = draw.choice(("evaluate", "checkpoint", "compute", "rebuild"))
            writer.row("phases", (step, step // 20, phase, start, start + draw.randrange(10**7)))
            writer.row("groups", (step, step // 20, step, start, start + draw.randrange(10**7), None))
    events = chrome_trace(StoredRun(run))
    check_timeline(events)
    assert len([event for event in events if event.get("cat") == "group"]) == 60


# to do it again


def test_a_script_repeats_its_run_bit_for_bit(
    trained: StoredRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = export(trained, tmp_path / "it.py", "script")
    read = open_run(made)
    assert isinstance(read, PartialRun)
    assert (read.id, read.config, read.tables) == (trained.id, trained.config, {})
    monkeypatch.setattr("sys.argv", [str(made), str(tmp_path / "runs")])
    run = runpy.run_path(str(made), run_name="__main__")["run"]
    assert run.path.parent == tmp_path / "runs"
    assert run.config == trained.config
    for table, column in (("steps", "global_loss"), ("evaluations", "loss")):
        assert run.table(table)[column].tolist() == trained.table(table)[column].tolist()
    assert f"validation_loss: {trained.summary['validation_loss']!r}, recorded" in capsys.readouterr().out


def test_a_notebook_repeats_its_run_exactly(
    trained: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = export(trained, tmp_path, "notebook")
    notebook = nbformat.read(made, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    read = open_run(made)
    assert isinstance(read, PartialRun)
    assert (read.kind, read.config) == ("notebook", trained.config)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in code:
        exec(compile(cell.source, made.name, "exec"), names)
    assert names["run"].table("steps")["global_loss"].tolist() == trained.table("steps")["global_loss"].tolist()
    assert names["now"] == names["recorded"] != {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_a_notebook_runs_in_jupyter(trained: StoredRun, tmp_path: Path) -> None:
    notebook = nbformat.read(export(trained, tmp_path, "notebook"), as_version=4)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    asyncio.run(client.async_execute())
    drawn = [kind for cell in notebook.cells for o in cell.get("outputs", []) for kind in o.get("data", {})]
    assert "application/vnd.plotly.v1+json" in drawn
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize("kind", ["script", "notebook"])
def test_a_steered_run_is_repeated_from_what_was_recorded(steered: StoredRun, kind: str, tmp_path: Path) -> None:
    made = export(steered, tmp_path, kind)
    text = made.read_text()
    assert "lab.runs.replay(" in text
    assert "Session(ranks=" in text
    assert "learning_rate = 0.003" in text
    read = open_run(made)
    assert isinstance(read, ExportedRun)
    pd.testing.assert_frame_equal(pd.DataFrame(read.events), pd.DataFrame(steered.events))
    pd.testing.assert_frame_equal(read.table("steps"), steered.table("steps"))
    assert "without the tables" in read.thinned
    if kind == "script":
        compile(text, made.name, "exec")
    else:
        nbformat.validate(nbformat.read(made, as_version=4))


def test_the_script_of_a_steered_run_does_the_same_bit_for_bit(
    trained: StoredRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "replay", replay, raising=False)
    monkeypatch.setattr(lab, "open_run", open_run, raising=False)
    config = trained.config.replace(epochs=5)
    run = run_config(
        config, runs_dir=tmp_path / "first", judge=lambda seen: Verdict("finish", "enough") if len(seen) > 1 else None
    ).run
    made = export(run, tmp_path / "it.py", "script")
    export(run, tmp_path / "it.ipynb", "notebook")
    shutil.rmtree(tmp_path / "first")
    monkeypatch.setattr("sys.argv", [str(made), str(tmp_path / "runs")])
    again = runpy.run_path(str(made), run_name="__main__")["run"]
    assert again.summary["epochs"] < 5
    assert again.environment["repeats"]["bit_for_bit"]
    assert "bit for bit" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in nbformat.read(tmp_path / "it.ipynb", as_version=4).cells[1:4]:
        if cell.cell_type == "code":
            exec(compile(cell.source, "it.ipynb", "exec"), names)
    assert names["run"].environment["repeats"]["bit_for_bit"]


def test_a_script_holds_all_settings_not_only_those_that_differ_today(trained: StoredRun, tmp_path: Path) -> None:
    names, text = {}, script(trained).decode()
    exec(text.partition("RECORDED")[0], names)
    assert names["CONFIG"] == trained.config
    assert [name for name in trained.config.flat if f"    {name}=" not in text] == []


# writing


@pytest.mark.parametrize("kind", list(KINDS))
def test_nothing_is_overwritten_unless_it_is_wanted(steered: StoredRun, kind: str, tmp_path: Path) -> None:
    made = export(steered, tmp_path, kind)
    assert made.parent == tmp_path
    assert steered.id in made.name
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RunStoreError, match="overwrite=True"):
        export(steered, tmp_path, kind)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert export(steered, tmp_path, kind, overwrite=True) == made
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(before)


def test_a_folder_of_something_else_is_never_replaced(steered: StoredRun, tmp_path: Path) -> None:
    mine = tmp_path / "mine" / f"{steered.id}.tensorboard"
    mine.mkdir(parents=True)
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(RunStoreError, match="is not an export, so overwrite=True does not overwrite it"):
        export(steered, tmp_path / "mine", "tensorboard", overwrite=True)
    assert (mine / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_full_disk_leaves_nothing(
    steered: StoredRun, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dtdg_lab.core.files.os.fsync", full)
    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(RunStoreError, match="disk is full"):
        export(steered, tmp_path, kind)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_refused(steered: StoredRun, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="'html'"):
        export(steered, tmp_path, "htlm")
    with pytest.raises(ConfigError, match="a run, a race"):
        export(42, tmp_path)
    with pytest.raises(RunStoreError, match="does not exist"):
        export(steered, tmp_path / "none" / "a.html")
    with zipfile.ZipFile(export(steered, tmp_path, "parquet")) as archive:
        table = open_run(archive.extract("tables/steps.parquet", tmp_path))
    with pytest.raises(ConfigError, match="needs a whole run"):
        export(table, tmp_path)


def test_the_command_line_exports(steered: StoredRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.zip"
    assert main(["export", str(steered.path), "--kind", "parquet", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    same_run(open_run(out), steered)  # type: ignore[arg-type]
    assert main(["export", str(steered.path), "--kind", "parquet", "--out", str(out)]) == 2
    assert "it exists already" in capsys.readouterr().err
    assert main(["export", str(steered.path), "--kind", "parquet", "--out", str(out), "--overwrite"]) == 0


# reading


def _about(**changes: Any) -> dict[str, bytes]:
    return {ABOUT: json.dumps({"schema": 1, "kind": "run", "run": "a", **changes}).encode()}


def _foreign(steered: StoredRun) -> dict[str, tuple[bytes, str]]:
    """Return files that are none of ours, or damaged, and what is said of each."""
    page, packed = run_page(steered), dict(pack(steered).files)
    zipped, table = zip_of(packed), io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), table)
    middle = page.index(b"id='dtdg-lab-packed'>") + 5_000
    strange, no_config = "neither a run nor an export", {name: packed[name] for name in packed if name != "config.json"}
    return {
        "bytes.bin": (bytes(range(256)), strange),
        "empty.html": (b"", strange),
        "notes.txt": (b"nothing of ours", strange),
        "list.json": (b"[1, 2]", strange),
        "book.ipynb": (b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', strange),
        "other.zip": (zip_of({"a.txt": b"a"}), strange),
        "trace.json": (b'{"traceEvents": []}', strange),
        "x.gz": (b"\x1f\x8b nothing", strange),
        "events.out.tfevents.1.x": (b"nothing", strange),
        "page.html": (b"<!DOCTYPE html><p>hello", "no tables"),
        "cut.html": (page[:middle], "no tables|damaged"),
        "changed.html": (page[:middle] + b"AAAA" + page[middle + 4 :], "damaged"),
        "broken.json": (b'{"traceEvents": [', "damaged"),
        "cut.zip": (zipped[: len(zipped) // 2], "damaged"),
        "no-config.zip": (zip_of(no_config), "config"),
        "bad-table.zip": (zip_of(packed | {"tables/steps.parquet": b"PAR1 no"}), "steps"),
        "newer.zip": (zip_of(packed | _about(schema=SCHEMA + 1)), "newer version"),
        "climbs.zip": (zip_of(packed | _about(run="../../a")), "for a folder"),
        "foreign.parquet": (table.getvalue(), "not exported"),
        "cut.parquet": (packed["tables/steps.parquet"][:300], "damaged"),
    }


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_is_none_of_ours_is_told_apart_and_left_alone(steered: StoredRun, tmp_path: Path) -> None:
    for name, (content, words) in _foreign(steered).items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RunStoreError, match=words) as raised:
            open_run(tmp_path / name)
        assert name in str(raised.value) and (tmp_path / name).read_bytes() == content
    with pytest.raises(RunStoreError, match="nothing at that path"):
        open_run(tmp_path / "nothing.html")


def test_a_report_says_where_its_run_is(steered: StoredRun) -> None:
    with pytest.raises(RunStoreError, match="it is a run's report"):
        open_run(steered.directory.report_file)


def test_folders_are_opened_as_ever(steered: StoredRun, tmp_path: Path) -> None:
    assert type(open_run(steered.path)) is StoredRun
    with pytest.raises(RunStoreError, match="is not a run"):
        open_run(tmp_path)


def test_a_zip_opens_elsewhere(steered: StoredRun, tmp_path: Path) -> None:
    made = export(steered, tmp_path, "parquet")
    with zipfile.ZipFile(made) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("config.json"))["system"] == "psg"
        archive.extractall(tmp_path / "out")
    frame = pd.read_parquet(tmp_path / "out" / "tables" / "evaluations.parquet")
    assert frame["loss"].tolist() == steered.table("evaluations", all_attempts=True)["loss"].tolist()
