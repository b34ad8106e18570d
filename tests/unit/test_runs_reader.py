"""Reading records back: torn and damaged lines, attempts, unknown columns, Parquet that loses nothing."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import filelock
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_synthetic import START_NS, STEP_NS, evaluate, finished_run, write_steps

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.records import SCHEMA, TABLES
from dtdg_lab.runs import records
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.records import RecordWriter, RunTables, read_lines, tail

CONFIG = RunConfig(system="psg", dataset="growing", ranks=2)


def line(table: str, columns: list[str], rows: list[list[object]], *, rank: int = 0, seq: int = 0) -> str:
    return (
        json.dumps(
            {"v": SCHEMA, "rank": rank, "attempt": 0, "seq": seq, "table": table, "columns": columns, "rows": rows}
        )
        + "\n"
    )


def test_a_torn_last_line_is_left_out_and_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    good = line("memory", ["step"], [[1]])
    path.write_text(good + good[:30])
    assert len(list(read_lines(path))) == 1
    path.write_text(good + good[:-1])
    assert len(list(read_lines(path))) == 2
    path.write_text(good + good[:30] + "\n" + good)
    with pytest.raises(DataError, match=r"line 2 of .*rank0\.jsonl is damaged"):
        list(read_lines(path))
    path.write_text(good + line("memory", ["step"], [[1, 2]]))
    with pytest.raises(DataError, match="do not fit its columns"):
        list(read_lines(path))


def test_tail_follows_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    assert tail(path) == ([], 0)
    first, second = line("memory", ["step"], [[1]]), line("memory", ["step"], [[2]], seq=1)
    path.write_text(first + second[:20])
    lines, offset = tail(path)
    assert ([found["seq"] for found in lines], offset) == ([0], len(first))
    assert tail(path, offset) == ([], offset)
    path.write_text(first + second)
    lines, offset = tail(path, offset)
    assert ([found["seq"] for found in lines], offset) == ([1], len(first + second))
    path.write_text(first)
    assert tail(path, offset) == ([], len(first))
    path.write_text("{broken\n")
    with pytest.raises(DataError, match="byte 0"):
        tail(path)


def test_tables_have_rank_and_attempt_and_merging_changes_nothing(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    before = RunTables(run.path).frames()
    counts = RunTables(run).merge()
    assert RunTables(run).is_current()
    after = RunTables(run).frames()
    assert set(TABLES) <= set(after)
    assert {table: len(frame) for table, frame in after.items()} == {**dict.fromkeys(TABLES, 0), **counts}
    assert (len(after["steps"]), len(after["phases"]), len(after["energy"])) == (30, 210, 30)
    for table, frame in before.items():
        assert list(frame.columns[:2]) == ["rank", "attempt"]
        pd.testing.assert_frame_equal(frame, after[table])
    assert after["steps"]["time_ns"].dtype == "int64"
    knob = after["events"].query("kind == 'settings'")["data"].iloc[0]
    assert knob == {"version": 1, "changes": {"learning_rate": 0.003}, "when": "step"}
    import pyarrow.parquet

    for table, count in counts.items():
        assert pyarrow.parquet.read_metadata(run.table_file(table)).num_rows == count
        written = sum(len(found["rows"]) for rank in (0, 1) for found in read_lines(run.record_file(rank))
                      if found["table"] == table)  # fmt: skip
        assert written == count


def test_new_lines_make_merged_tables_stale(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    RunTables(run).merge()
    with RecordWriter(run.record_file(0), 0, 2) as writer:
        write_steps(writer, 15, 17)
    assert not RunTables(run).is_current()
    assert len(RunTables(run).frames()["steps"]) == 32


def test_unknown_tables_and_columns_survive(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    run.record_file(0).write_text(
        line("memory", ["step", "time_ns"], [[1, 10], [2, 20]])
        + line("memory", ["step", "time_ns", "swap_bytes"], [[3, 30, 7]], seq=1)
        + line("decisions", ["step", "action", "values"], [[1, "grow", [0.5, 1]], [2, None, [1]]], seq=2)
    )
    for _ in range(2):
        found = RunTables(run).frames()
        assert found["memory"]["swap_bytes"].isna().tolist() == [True, True, False]
        assert found["decisions"]["values"].tolist() == [[0.5, 1], [1]]
        assert found["decisions"]["action"].iloc[0] == "grow"
        RunTables(run).merge()
    assert run.table_file("decisions").is_file()


_VALUES = st.one_of(
    st.none(), st.integers(-9, 9), st.floats(-2, 2), st.sampled_from(["a", "b"]), st.lists(st.integers(0, 3))
)


@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from([0, 1]),
            st.sampled_from(["memory", "decisions"]),
            st.dictionaries(st.sampled_from(["one", "two", "three"]), _VALUES, min_size=1),
        ),
        min_size=1, max_size=12,
    ),
    cuts=st.sets(st.integers(1, 12)),
    follows=st.booleans(),
)  # fmt: skip
def test_merging_piece_by_piece_is_merging_at_once(lines: list[Any], cuts: set[int], follows: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        known = {"versions": {}}  # spares looking at this machine for every example
        pieces, whole = (
            RunDirectory.create(CONFIG, root=root / name, environment=known) for name in ("pieces", "whole")
        )
        follower = RunTables(pieces)
        for number, (rank, table, row) in enumerate(lines):
            text = line(table, list(row), [list(row.values())], rank=rank, seq=number)
            for run in (pieces, whole):
                with run.record_file(rank).open("a") as file:
                    file.write(text)
            if follows:
                list(follower.lines(new=True))
            if number + 1 in cuts:
                follower.merge(hold=follows)
        only = ("memory", "decisions")
        frames = [follower.frames(only)] if follows else []
        counts = RunTables(whole).merge()
        assert follower.counts() == counts
        merged = RunTables(whole).frames(only)
        assert follower.merge(hold=follows) == counts
        for found in (*frames, RunTables(pieces).frames(only)):
            for table, frame in found.items():
                assert sorted(frame.columns) == sorted(
                    merged[table].columns
                )  # the first line of rank 1 may have a column first
                pd.testing.assert_frame_equal(frame[merged[table].columns], merged[table])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that are parsed."""
    found: list[bytes] = []
    parse = records._parse
    monkeypatch.setattr(records, "_parse", lambda raw, *place: found.append(raw) or parse(raw, *place))
    return found


def test_a_second_merge_reads_only_new_lines_and_one_that_was_cut_short_begins_anew(
    tmp_path: Path, read: list[bytes]
) -> None:
    run = finished_run(tmp_path)
    RunTables(run).merge()
    with RecordWriter(run.record_file(1), 1, 2) as writer:
        write_steps(writer, 15, 17)
    read.clear()
    assert 0 < RunTables(run).unmerged_share < 0.5
    assert RunTables(run).merge()["steps"] == 32
    assert len(read) == len({"steps", "phases"})
    assert RunTables(run).unmerged_share == 0
    steps = RunTables(run).frames()["steps"]
    assert steps["rank"].is_monotonic_increasing
    other = run.table_file("memory").read_bytes()
    cut, emptied = (partial(run.table_file("phases").write_bytes, text) for text in (other, b""))
    for damage in (run.merged_file.unlink, cut, emptied):
        damage()
        read.clear()
        RunTables(run).merge()
        assert len(read) > 4
        pd.testing.assert_frame_equal(RunTables(run).frames()["steps"], steps)


def test_rows_held_by_a_follower_are_not_read_again(tmp_path: Path, read: list[bytes]) -> None:
    run = finished_run(tmp_path)
    tables = RunTables(run)
    list(tables.lines(new=True))
    tables.merge(hold=True)
    with RecordWriter(run.record_file(1), 1, 2) as writer:
        write_steps(writer, 15, 17)
    list(tables.lines(new=True))
    read.clear()
    assert (len(tables.frames()["steps"]), tables.counts()["steps"], tables.merge(hold=True)["steps"]) == (32, 32, 32)
    assert not read
    with RecordWriter(run.record_file(1), 1, 2) as writer:
        write_steps(writer, 17, 18)
    assert next(tables.lines(new=True))["table"] == "steps", "reading stops before the end"
    read.clear()
    assert len(tables.frames()["steps"]) == 33 and len(read) == len({"steps", "phases"})


def test_tables_that_are_merged_while_they_are_read_have_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished_run(tmp_path)
    RunTables(run).merge()
    with RecordWriter(run.record_file(1), 1, 2) as writer:
        write_steps(writer, 15, 17)
    stored = records._stored

    def merge_first(file: Path, remedy: str) -> Any:
        monkeypatch.setattr(records, "_stored", stored)
        RunTables(run).merge()
        return stored(file, remedy)

    monkeypatch.setattr(records, "_stored", merge_first)
    assert len(RunTables(run).frames(("steps",))["steps"]) == 32
    run.merged_file.unlink()  # as while a merge is under way
    monkeypatch.setattr(records, "MERGE_S", 0.05)
    with filelock.FileLock(run.live / "merge.lock"):
        assert len(RunTables(run).frames(("steps",))["steps"]) == 32


def test_a_file_that_appears_during_a_merge_is_merged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(tmp_path)
    late = run.record_file(1)
    lines, ends = late.read_text(), RunTables.sizes
    late.unlink()

    def appears(tables: RunTables) -> dict[int, int]:
        found = ends(tables)
        late.write_text(lines)
        return found

    monkeypatch.setattr(RunTables, "sizes", appears)
    assert RunTables(run).merge()["steps"] == 15
    monkeypatch.undo()
    (run.records / ".steps.parquet.0.tmp").write_text("of a merge that was killed")
    assert RunTables(run).merge()["steps"] == 30
    assert not list(run.records.glob(".*"))


def test_a_last_line_that_gets_its_newline_later_is_read_once(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    text = line("memory", ["step"], [[1]])
    run.record_file(0).write_text(text[:-1])
    tables = RunTables(run)
    assert len(list(tables.lines(new=True))) == 1
    run.record_file(0).write_text(text + line("memory", ["step"], [[2]], seq=1))
    assert [found["seq"] for found in tables.lines(new=True)] == [1]
    assert RunTables(run).merge() == {"memory": 2}


def resumed_run(root: Path) -> RunDirectory:
    """Attempt 1 did 12 steps (11 on rank 1); attempt 2 went on from the checkpoint at step 10 to step 15."""
    run = RunDirectory.create(CONFIG, root=root)
    for rank, reached in ((0, 12), (1, 11)):
        with RecordWriter(run.record_file(rank), rank, 1) as writer:
            write_steps(writer, 0, reached)
            model = ("model", "modelled", "rank", "processor", "a")
            writer.row("energy", (START_NS + reached * STEP_NS, 0.2, 9.0, 40.0, 1.0, *model))
            if rank == 0:
                evaluate(writer, 5, "validation", 2.0, 1.0)
                evaluate(writer, 10, "validation", 1.5, 1.0)
                evaluate(writer, 10, "train", 1.4, 1.0)
                writer.row("events", (11, 2, START_NS + 11 * STEP_NS, "settings", {"version": 1, "changes": {}}))
        with RecordWriter(run.record_file(rank), rank, 2) as writer:
            later = 60_000_000_000
            if rank == 0:
                evaluate(writer, 10, "validation", 1.6, 1.0, later_ns=later)
            write_steps(writer, 10, 15, attempt_ns=later)
            writer.row("energy", (START_NS + later + 15 * STEP_NS, 0.1, 1.0, 10.0, 1.0, *model))
    return run


def test_rows_a_resume_replaced_are_left_out(tmp_path: Path) -> None:
    run = resumed_run(tmp_path)
    found, everything = RunTables(run).frames(), RunTables(run).frames(all_attempts=True)
    for rank in (0, 1):
        mine = found["steps"][found["steps"]["rank"] == rank]
        assert mine["step"].tolist() == list(range(15))
        assert mine["attempt"].tolist() == [1] * 10 + [2] * 5
    assert len(everything["steps"]) == 12 + 5 + 11 + 5
    assert len(found["phases"]) == 7 * 30
    losses = found["evaluations"].set_index(["step", "split"])["loss"].to_dict()
    assert losses == {(5, "validation"): 2.0, (10, "validation"): 1.6, (10, "train"): 1.4}
    assert len(everything["evaluations"]) == 4
    assert found["events"].query("kind == 'settings'").empty
    assert len(everything["events"].query("kind == 'settings'")) == 1
    assert found["energy"]["joules"].sum() == 20.0


def test_a_rank_that_wrote_nothing_after_the_resume_loses_the_same_steps(tmp_path: Path) -> None:
    run = resumed_run(tmp_path)
    whole = run.record_file(1).read_text().splitlines(keepends=True)
    run.record_file(1).write_text("".join(text for text in whole if '"attempt": 1' in text))
    steps = RunTables(run).frames()["steps"]
    assert steps.query("rank == 1")["step"].tolist() == list(range(10))


def test_lines_of_all_ranks_come_in_order_of_attempt_and_time(tmp_path: Path) -> None:
    lines = list(RunTables(resumed_run(tmp_path)).lines())
    assert sorted(line["attempt"] for line in lines) == [line["attempt"] for line in lines]
    for rank in (0, 1):
        numbers = [line["seq"] for line in lines if line["rank"] == rank]
        assert numbers == sorted(numbers)


def test_a_run_without_records_has_empty_tables(tmp_path: Path) -> None:
    found = RunTables(RunDirectory.create(CONFIG, root=tmp_path).path).frames()
    assert {table: list(frame.columns) for table, frame in found.items()} == {
        table: ["rank", "attempt", *columns] for table, columns in TABLES.items()
    }
    assert not any(len(frame) for frame in found.values())


values = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=5)
values |= st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2)


@pytest.mark.slow
@given(st.lists(st.lists(st.tuples(values, values), max_size=4), min_size=1, max_size=4))
def test_any_values_survive_merging(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[list[tuple[object, object]]]
) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path_factory.mktemp("runs"), environment={"schema": 1})
    text = "".join(line("odd", ["a", "b"], [list(pair) for pair in block], seq=seq) for seq, block in enumerate(blocks))
    run.record_file(0).write_text(text)
    RunTables(run).merge()
    frame = RunTables(run).frames()["odd"]
    given_rows = [pair for block in blocks for pair in block]
    assert len(frame) == len(given_rows)
    for column, place in (("a", 0), ("b", 1)):
        for found, pair in zip(frame[column], given_rows, strict=True):
            if pair[place] is None:
                assert found is None or pd.isna(found)
            else:
                assert found == pair[place] or float(found) == pytest.approx(float(pair[place]))
