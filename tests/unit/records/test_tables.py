"""The record tables of a run as columns: resumes, laggards, damaged and odd lines, memory, sums, settings."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.records.lines import BLOCK_BYTES
from dtdg_lab.records.recent_rows import FEW_ROWS
from dtdg_lab.records.rollups import Rollup, Sums
from dtdg_lab.records.rows import Rows, Table, as_column
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs import parquet
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.frames import RunFrames
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_tables import open_tables
from tests.tables import START_NS, record_lines, run_tables

CONFIG = RunConfig(ranks=2)
LOSSES = Rollup(
    "steps", by=("rank",), sums=("loss",), least=("loss",), most=("loss", "step"), last=("epoch",), points=50
)
BEADS = {"beads": ("step", "colour", "weight")}
JOULES = Rollup("energy", by=("rank",), sums=("joules",), along="", all_attempts=True)


def steps(rank: int, first: int, last: int, attempt: int = 1, **values: Any) -> list[dict[str, Any]]:
    usual = {"rank": rank, "attempt": attempt}
    made = [{"step": at, "epoch": at // 10, "iteration": at % 10, "loss": float(at)} for at in range(first, last)]
    return [usual | row | values for row in made]


def write(folder: Path, rank: int, lines: list[dict[str, Any]], *, torn: bytes = b"") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"rank{rank}.jsonl"
    texts = [json.dumps({"v": 3, "seq": seq, **line}) for seq, line in enumerate(lines)]
    path.write_bytes("".join(f"{text}\n" for text in texts).encode() + torn)
    return path


def test_a_column_of_numbers_has_nan_for_what_is_unknown() -> None:
    assert as_column([1, None, 3]).tolist()[::2] == [1.0, 3.0]
    assert math.isnan(as_column([1, None, 3])[1])
    assert as_column([1, 2]).dtype == np.int64
    assert as_column([None, [1, 2], [3]]).tolist() == [None, [1, 2], [3]]
    assert math.isnan(as_column([1.5, "torn"])[1])
    assert as_column([True, None]).tolist() == [True, None]


def test_a_column_that_comes_later_is_unknown_before() -> None:
    table = Table()
    table.append({"rank": as_column([0, 1]), "loss": as_column([None, None])})
    table.append({"rank": as_column([2]), "loss": as_column(["no number"]), "new": as_column([7])})
    rows = table.rows()
    assert rows["loss"].tolist() == [None, None, "no number"]
    assert np.isnan(rows["new"][:2]).all() and rows["new"][2] == 7
    table.drop(np.array([True, False, False]))
    assert rows["rank"].tolist() != [0] and table.rows()["rank"].tolist() == [1, 2]


def test_rows_are_cut_sorted_grouped_and_counted_once() -> None:
    rows = Rows.of({"step": np.array([3, 1, 1, 2]), "split": as_column(["b", "a", "a", "b"])})
    assert rows.sort("step")["step"].tolist() == [1, 1, 2, 3]
    assert {name: len(some) for name, some in rows.by("split").items()} == {"a": 2, "b": 2}
    assert rows.once("step", "split")["step"].tolist() == [3, 1, 2]
    assert rows.where(rows["step"] > 1).to_dicts("step") == [{"step": 3}, {"step": 2}]


def test_steps_a_resume_made_again_are_left_out() -> None:
    first = steps(0, 0, 8) + steps(1, 0, 8)
    again = steps(0, 5, 7, attempt=2, loss=-1.0)
    tables = run_tables(CONFIG, {"steps": first + again})
    rows = tables.rows("steps").by("rank")
    assert rows[0]["loss"].tolist() == [0, 1, 2, 3, 4, -1, -1]
    assert rows[1]["step"].tolist() == [0, 1, 2, 3, 4]  # rank 1 has not come so far again
    assert len(tables.rows("steps", all_attempts=True)) == 18
    assert tables.resumes[0][0] == {0: 5}
    assert tables.progress.step == 7


def test_an_evaluation_where_the_run_was_resumed_counts_once() -> None:
    evaluations = [{"step": 5, "split": split, "loss": 1.0} for split in ("train", "validation")]
    again = [{"attempt": 2, "step": 5, "split": "train", "loss": 2.0}]
    tables = run_tables(
        CONFIG, {"steps": steps(0, 0, 8) + steps(0, 5, 6, attempt=2), "evaluations": evaluations + again}
    )
    rows = tables.rows("evaluations")
    assert sorted(zip(rows["split"].tolist(), rows["loss"].tolist(), strict=True)) == [
        ("train", 2.0),
        ("validation", 1.0),
    ]


def test_joules_of_replaced_steps_were_spent() -> None:
    joules = [{"attempt": attempt, "joules": 2.0, "time_ns": START_NS + attempt} for attempt in (1, 1, 2)]
    tables = run_tables(
        CONFIG, {"steps": steps(0, 0, 4) + steps(0, 1, 2, attempt=2), "energy": joules}, rollups=[JOULES]
    )
    assert tables.rollup(JOULES)["joules"].tolist() == [6.0]


def test_sums_of_a_long_run_are_those_of_all_its_rows() -> None:
    count = 12_000
    tables = RunTables(RunConfig(), rollups=[LOSSES], recent=200)
    for first in range(0, count, 100):
        tables.add_lines(record_lines("steps", steps(0, first, first + 100)))
    sums, recent = tables.rollup(LOSSES), tables.rows("steps")
    assert len(recent) < 2.1 * FEW_ROWS and recent["step"][-1] == count - 1
    assert sums["loss"].sum() == sum(range(count)) and sums["loss_known"].sum() == count
    assert len(sums) <= 2 * LOSSES.points and sums["loss_most"].max() == count - 1
    assert sums["bucket"].tolist() == sorted(sums["bucket"].tolist())


def test_rows_that_come_after_those_of_their_steps_are_summed() -> None:
    sent = Rollup("transfers", sums=("bytes",), prepare=lambda rows: whole_steps(rows, ranks=2))
    tables = run_tables(CONFIG, rollups=[sent])
    for first in range(0, 200, 20):
        for rank in (0, 1):
            tables.add_lines(record_lines("steps", steps(rank, first, first + 20)))
            tables.rollup(sent)  # a chart is drawn between two lines of one write
            bytes_sent = [{"rank": rank, "step": step, "bytes": 1} for step in range(first, first + 20)]
            tables.add_lines(record_lines("transfers", bytes_sent))
    assert tables.rollup(sent)["bytes"].sum() == 400


def whole_steps(rows: Rows, *, ranks: int) -> Rows:
    """Return the rows of steps of which all ranks have rows, as sums over ranks need them."""
    counts = np.bincount(rows["step"]) if len(rows) else np.empty(0)
    return rows.where(counts[rows["step"]] == ranks) if len(rows) else rows


@pytest.mark.parametrize("pace", [1, 2, 0])
def test_sums_count_each_row_of_a_rank_that_is_far_behind(pace: int) -> None:
    count, behind = 10_000, 0
    tables = RunTables(CONFIG, rollups=[LOSSES], recent=100)
    for first in range(0, count, 100):
        tables.add_lines(record_lines("steps", steps(0, first, first + 100, loss=1.0)))
        tables.add_lines(record_lines("steps", steps(1, behind, behind + 20 * pace, loss=1.0)))
        behind += 20 * pace
    tables.add_lines(record_lines("steps", steps(1, behind, count, loss=1.0)))
    assert {rank: rows["loss"].sum() for rank, rows in tables.rollup(LOSSES).by("rank").items()} == {0: count, 1: count}


def test_rows_whose_key_is_unknown_are_one_sum() -> None:
    by_source = Rollup("steps", by=("energy_source",), sums=("loss",), along="")
    run = run_tables(CONFIG, {"steps": steps(0, 0, 20)}, rollups=[by_source])
    assert run.rollup(by_source)["loss"].tolist() == [sum(range(20))]


def test_sums_follow_a_resume_into_dropped_rows(tmp_path: Path) -> None:
    first = [*record_lines("steps", steps(0, 0, 9_000))]
    again = [*record_lines("steps", steps(0, 100, 8_000, attempt=2, loss=0.0))]
    live = RunTables(RunConfig(), tmp_path / "records", [LOSSES], recent=200)
    write(tmp_path / "records", 0, first)
    while live.update():
        pass
    write(tmp_path / "records", 0, first + again)
    while live.update():
        pass
    stored = RunTables.open(RunConfig(), tmp_path / "records", [LOSSES], recent=200)
    for tables in (live, stored):
        assert tables.rollup(LOSSES)["loss"].sum() == sum(range(100))
        assert tables.rollup(LOSSES)["step_most"].max() == 7_999


def test_ranks_stay_side_by_side_while_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (
        ("recent_rows.FEW_ROWS", 100),
        ("recent_rows.PENDING_ROWS", 100),
        ("rank_files.UPDATE_BYTES", 8_000),
    ):
        monkeypatch.setattr(f"dtdg_lab.records.{name}", few)
    pairs = Rollup("steps", sums=("loss",), prepare=lambda rows: whole_steps(rows, ranks=2))
    times = Rollup("steps", by=("rank",), most=("seconds",), points=600)
    for rank, width in ((0, 1), (1, 400)):  # rank 1 writes far more bytes a step
        lines = []
        for attempt, first, last in ((1, 0, 300), (2, 250, 600)):
            late_ns = START_NS + attempt * 10**10 + rank * 10**6
            for row in steps(rank, first, last, attempt, loss=1.0):
                timed = row | {"time_ns": late_ns + 10**7 * row["step"]}
                beads = [{"rank": rank, "attempt": attempt, "step": row["step"], "weights": width * [1.0]}]
                lines += [*record_lines("steps", [timed]), *record_lines("beads", beads)]
        write(tmp_path, rank, lines)
    tables = RunTables.open(CONFIG, tmp_path, [pairs, times], recent=10)
    assert tables.rollup(pairs)["loss"].sum() == 2 * 600
    monkeypatch.setattr("dtdg_lab.records.rank_files.UPDATE_BYTES", 1 << 20)
    at_once = RunTables.open(CONFIG, tmp_path, [pairs, times])
    seconds = [some.rollup(times).sort("bucket", "rank")["seconds_most"].tolist() for some in (tables, at_once)]
    assert seconds[0] == seconds[1]


def test_the_common_step_is_that_of_the_rank_that_lags() -> None:
    tables = run_tables(CONFIG, {"steps": steps(0, 0, 25) + steps(1, 0, 13)})
    assert (tables.common_step, tables.complete_epoch) == (12, 0)
    tables.add_lines(record_lines("steps", steps(1, 13, 25)))
    assert (tables.common_step, tables.complete_epoch) == (24, 1)
    assert len(tables.last("steps", 5)) == 10


def test_rows_of_a_rank_without_steps_are_among_the_last() -> None:
    batches = [{"rank": rank, "step": 0} for rank in (0, 1)]
    tables = run_tables({}, {"steps": steps(0, 0, 300), "targets": batches})
    assert tables.last("targets", 100)["rank"].tolist() == [1]


def test_rows_that_are_in_sums_alone_cannot_be_replaced() -> None:
    tables = run_tables({"ranks": 1}, {"steps": steps(0, 0, 3_000)}, recent=100)
    for first in range(3_000, 20_000, 1_000):
        tables.add_lines(record_lines("steps", steps(0, first, first + 1_000)))
    oldest = int(tables.rows("steps")["step"][0])
    assert oldest > 0
    kept = [tables.recent_rows.holds_after(step) for step in (-1, oldest - 2, oldest - 1, 19_000)]
    assert kept == [False, False, True, True]


def test_a_torn_last_line_is_left_for_the_next_look(tmp_path: Path) -> None:
    line = next(iter(record_lines("steps", steps(0, 0, 3))))
    text = json.dumps({"v": 3, "seq": 1, **line}).encode()
    path = write(tmp_path, 0, [line], torn=text[:50])
    tables = RunTables.open(RunConfig(), tmp_path)
    assert len(tables.rows("steps")) == 3 and not tables.damaged
    path.write_bytes(path.read_bytes() + text[50:] + b"\n")
    assert tables.update() and len(tables.rows("steps")) == 6


def test_a_block_of_damage_does_not_end_reading(tmp_path: Path) -> None:
    damaged = 5 * (b"{" + b"x" * (BLOCK_BYTES // 4) + b"\n")
    path = tmp_path / "rank0.jsonl"
    text = json.dumps({"v": 3, "seq": 1, **next(iter(record_lines("steps", steps(0, 0, 3))))})
    path.write_bytes(damaged + f"{text}\n".encode())
    tables = RunTables(RunConfig(), tmp_path)
    while tables.update():
        pass
    assert len(tables.damaged) == 5 and len(tables.rows("steps")) == 3


def test_a_file_that_was_cut_is_read_again(tmp_path: Path) -> None:
    lines = [line for step in range(4) for line in record_lines("steps", steps(0, step, step + 1))]
    write(tmp_path, 0, lines)
    tables = RunTables.open(RunConfig(), tmp_path)
    write(tmp_path, 0, lines[:2])
    tables.update()
    assert tables.rows("steps")["step"].tolist() == [0, 1]
    assert "became shorter" in tables.damaged[0]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    line = next(iter(record_lines("steps", steps(0, 0, 1))))
    path = write(tmp_path, 0, [line])
    path.write_bytes(path.read_bytes() + b"{no line\n")
    with pytest.raises(DataError, match=r"line 2 of .*rank0\.jsonl is damaged"):
        RunTables.open(RunConfig(), tmp_path)
    tables = RunTables(RunConfig(), tmp_path)
    tables.update()
    assert len(tables.rows("steps")) == 1 and "line 2" in tables.damaged[0]


def test_lines_that_come_twice_or_never_are_counted() -> None:
    lines = [
        {**line, "seq": 10 + seq} for seq, line in enumerate(record_lines("steps", steps(0, 0, 1) + steps(1, 0, 1)))
    ]
    own = {**lines[0], "seq": 14}
    tables = RunTables(CONFIG)
    assert tables.add_lines([lines[0], lines[0], own]) == 2
    assert tables.sequence.missing == 3 and len(tables.rows("steps")) == 2


def test_tables_and_columns_from_outside_are_kept() -> None:
    tables = run_tables(
        CONFIG,
        {"beads": [{"step": 1, "colour": "red", "weights": [1, 2]}]},
        rollups=[beads := Rollup("beads", by=("colour",), sums=("step",), along="")],
    )
    assert tables.rows("beads")["weights"].tolist() == [[1, 2]]
    assert tables.rollup(beads).to_dicts("colour", "step") == [{"colour": "red", "step": 1.0}]
    assert len(tables.rows("nothing of this name")) == 0


@pytest.mark.parametrize("reads", ["as they come", "lines", "parquet"])
def test_rows_without_a_step_are_kept_whatever_is_resumed(tmp_path: Path, reads: str) -> None:
    beads = Rollup("beads", by=("colour",), sums=("weight",), along="")
    by_step = Rollup("beads", by=("colour",), sums=("weight",))
    run = RunDirectory.create(CONFIG, root=tmp_path)
    live = RunTables(CONFIG, run.records, [beads, by_step], recent=100)
    for attempt, first, last in ((1, 0, 9_000), (2, 8_000, 9_000)):
        with RecordWriter(run.record_file(0), 0, attempt, tables={**TABLES, **BEADS}) as writer:
            for step in range(first, last):
                row = {"step": step, "epoch": 0, "time_ns": START_NS + step}
                writer.row("steps", tuple(row.get(column) for column in TABLES["steps"]))
                writer.row("beads", (step if step % 2 else None, "red" if step % 2 else "blue", 1))
        while reads == "as they come" and live.update():
            pass
    if reads == "parquet":
        parquet.write_rank(run, 0)
    tables = live if reads == "as they come" else open_tables(run, CONFIG, [beads, by_step], recent=100)
    assert {row["colour"]: row["weight"] for row in tables.rollup(beads).to_dicts()} == {"red": 4_500, "blue": 5_000}
    assert tables.rollup(by_step)["weight"].sum() == 4_500, "a row without a step is in no bucket"
    assert len(tables.rows("beads")) < 2 * FEW_ROWS
    frame = RunFrames(run).frames(["beads"])["beads"]
    assert frame.groupby("colour")["weight"].sum().to_dict() == {"red": 4_500, "blue": 5_000}


def test_settings_follow_changes_and_resumes() -> None:
    changed = {"kind": "settings", "step": 3, "data": {"version": 1, "changes": {"epochs": 7}, "when": "step"}}
    tables = run_tables(CONFIG, events=[changed])
    assert tables.config.epochs == 7 and tables.started_config.epochs == CONFIG.epochs
    resumed = {"kind": "resumed", "attempt": 2, "step": 3, "time_ns": START_NS + 10**9}
    tables.add_lines(record_lines("events", [{**resumed, "data": {"settings": {"epochs": 9}, "changes": {}}}]))
    assert tables.config.epochs == 9


def test_all_changes_of_settings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtdg_lab.records.event_log.EVENTS_OF_A_KIND", 5)
    changes: list[dict[str, Any]] = [{"epochs": 7}, *({"learning_rate": 0.001 * k} for k in range(1, 30))]
    events = [
        {"kind": kind, "step": step, "data": {"version": step, "changes": change, "epoch": 0}}
        for step, change in enumerate(changes, start=1)
        for kind in ("settings", "epoch")
    ]
    tables = run_tables(CONFIG, events=events)
    assert (tables.event_log.count("settings"), tables.event_log.count("settings", "epoch") < 45) == (30, True)
    assert (tables.config.epochs, tables.config.learning_rate) == (7, 0.029)


def test_events_take_the_memory_of_their_texts() -> None:
    changes = [{"learning_rate": 1e-3 + 1e-6 * step} for step in range(200)]
    events = [{"kind": "settings", "step": step, "data": {"changes": change}} for step, change in enumerate(changes)]
    lines, tables = [*record_lines("events", events)], RunTables(CONFIG)
    tracemalloc.start()
    tables.add_lines(lines)
    assert tracemalloc.get_traced_memory()[0] < 2_000 * len(changes)
    tracemalloc.stop()


def test_seconds_do_not_count_between_attempts() -> None:
    rows = steps(0, 0, 11) + [
        {**row, "time_ns": START_NS + 10**12 + 10**7 * row["step"]} for row in steps(0, 10, 13, attempt=2)
    ]
    tables = run_tables(RunConfig(), {"steps": rows})
    assert tables.seconds == pytest.approx(0.12)  # 100 ms of the first attempt, 20 ms of the second
    assert tables.resumes == [({0: 10}, pytest.approx(0.1))]


def test_rows_of_an_older_attempt_that_come_late_are_left_out() -> None:
    tables = run_tables(CONFIG, {"steps": steps(0, 0, 30) + steps(0, 20, 40, attempt=2, loss=-1.0)})
    tables.add_lines(record_lines("steps", steps(1, 0, 30) + steps(1, 20, 40, attempt=2, loss=-1.0)))
    for rows in tables.rows("steps").by("rank").values():
        assert rows["step"].tolist() == [*range(40)]
        assert rows["loss"].tolist() == [*range(20), *[-1.0] * 20]


def test_what_a_run_prepares_is_known_until_it_trains() -> None:
    preparing = {"kind": "preparing", "time_ns": 1, "data": {"what": "metis divides 9 nodes", "left_s": 2.6}}
    tables = run_tables(CONFIG, events=[preparing])
    assert tables.preparing == "metis divides 9 nodes, about 3 s left"
    kernel = {"kind": "kernel", "time_ns": 2, "data": {"backend": "torch", "device": "cpu", "threads": 1}}
    tables.add_lines(record_lines("events", [kernel]))
    assert tables.preparing == ""


def test_what_a_run_does_between_steps_is_known_until_it_ends_or_the_next_step_is_made() -> None:
    evaluating = {"kind": "between_steps", "step": 30, "data": {"what": "Evaluating", "left_s": 2.6}}
    tables = run_tables(CONFIG, {"steps": steps(0, 0, 30)}, events=[evaluating])
    assert tables.between_steps == "Evaluating, about 3 s left"
    tables.add_lines(record_lines("events", [{**evaluating, "data": {"what": "", "left_s": None}}]))
    assert tables.between_steps == ""
    tables.add_lines(record_lines("events", [evaluating]))
    tables.add_lines(record_lines("steps", steps(1, 30, 40)))
    assert tables.between_steps, "another rank goes on where models are averaged"
    tables.add_lines(record_lines("steps", steps(0, 30, 31)))
    assert tables.between_steps == ""


def test_what_an_attempt_was_doing_when_it_was_killed_is_not_shown_of_the_next() -> None:
    evaluating = {"kind": "between_steps", "step": 30, "data": {"what": "Evaluating", "left_s": 2.6}}
    tables = run_tables(CONFIG, {"steps": steps(0, 0, 30)}, events=[evaluating])
    tables.add_lines(record_lines("steps", steps(0, 20, 25, attempt=2)))
    assert tables.between_steps == ""


def test_time_left_follows_from_the_pace_of_whole_epochs() -> None:
    assert run_tables(CONFIG).progress.seconds_left is None
    begun = run_tables(CONFIG.replace(epochs=20), {"steps": steps(0, 0, 5)})
    assert begun.progress.seconds_left is None, "how many steps an epoch has is unknown"
    progress = run_tables(CONFIG.replace(epochs=20), {"steps": steps(0, 0, 50)}).progress
    assert (progress.step, progress.epoch, progress.epochs) == (50, 5, 20)
    assert progress.seconds_left == pytest.approx(150 * 0.01, rel=0.1)


def test_what_is_shared_is_made_once_a_change() -> None:
    tables, made = run_tables(CONFIG), []
    for _ in range(2):
        tables.once("key", lambda: made.append(1))
    tables.add_lines(record_lines("steps", steps(0, 0, 1)))
    tables.once("key", lambda: made.append(1))
    assert len(made) == 2
    for _ in range(2):
        tables.once("other key", lambda: made.append(1), state=3)
        tables.add_lines(record_lines("steps", steps(0, 1, 2)))
    assert len(made) == 3, "what it depends on has not changed"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.floats(-5, 5)), min_size=1, max_size=80), st.integers(1, 79))
def test_sums_do_not_depend_on_how_rows_come(values: list[tuple[int, float]], cut: int) -> None:
    rollup = Rollup("any", sums=("value",), least=("value",), most=("value",), points=10)
    columns = {"step": np.array([step for step, _ in values]), "value": np.array([value for _, value in values])}
    whole, parts = Sums(rollup), Sums(rollup)
    whole.add(Rows.of(columns))
    for some in (slice(0, cut), slice(cut, None)):
        parts.add(Rows.of(columns).where(some))
    assert parts.width == whole.width
    for name in ("bucket", "value_least", "value_most"):
        assert parts.rows()[name].tolist() == whole.rows()[name].tolist()
    assert np.allclose(parts.rows()["value"], whole.rows()["value"])
