"""Reading records back: torn and damaged lines, attempts, unknown columns, Parquet that loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config.record_tables import SCHEMA, TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.records.lines import RecordFile, read_lines
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.frames import RunFrames
from dtdg_lab.runs.parquet import current_note, files_of, is_current, write_rank
from dtdg_lab.runs.record_writer import RecordWriter
from tests.stored_runs import START_NS, STEP_NS, evaluate, finished_run, write_steps

CONFIG = RunConfig(system="psg", dataset="growing", ranks=2)


def line(table: str, columns: list[str], rows: list[list[object]], *, rank: int = 0, seq: int = 0) -> str:
    return (
        json.dumps(
            {"v": SCHEMA, "rank": rank, "attempt": 0, "seq": seq, "table": table, "columns": columns, "rows": rows}
        )
        + "\n"
    )


def write_ranks(run: RunDirectory) -> None:
    for rank in run.record_files():
        write_rank(run, rank)


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
    with pytest.raises(DataError, match="do not match its columns"):
        list(read_lines(path))


KEYS: dict[str, dict[str, object]] = {
    "steps": {"step": 0, "epoch": 0},
    "events": {"step": 0, "epoch": 0, "time_ns": 1, "kind": "a", "data": {}},
}


@pytest.mark.parametrize("is_missing", [True, False])
@pytest.mark.parametrize(
    ("table", "column", "wrong"),
    [
        ("steps", "step", None),
        ("steps", "epoch", "0"),
        ("events", "time_ns", None),
        ("events", "kind", None),
        ("events", "data", None),
    ],
)
def test_a_line_without_its_key_columns_is_damaged(
    table: str, column: str, wrong: object, is_missing: bool, tmp_path: Path
) -> None:
    facts = {name: wrong if name == column else value for name, value in KEYS[table].items()}
    words = f"column {column} of table {table} has the wrong type"
    if is_missing:
        del facts[column]
        words = f"table {table} lacks the column {column}"
    run = finished_run(tmp_path, epochs=1)
    whole = run.record_file(1).read_text()
    run.record_file(1).write_text(whole + line(table, [*facts], [[*facts.values()]], rank=1, seq=10_000))
    for read in (lambda: RunTables.open(CONFIG, run.records), RunFrames(run).frames):
        with pytest.raises(DataError, match=rf"rank1\.jsonl is damaged \(.*{words}"):
            read()


def test_a_growing_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    file = RecordFile(path)
    assert file.read() == []
    first, second = line("memory", ["step"], [[1]]), line("memory", ["step"], [[2]], seq=1)
    path.write_text(first + second[:20])
    assert file.read() == [(first.strip().encode(), f"line 1 of {path}")] and file.read() == []
    path.write_text(first + second)
    assert file.read() == [(second.strip().encode(), f"line 2 of {path}")] and file.offset == len(first + second)
    path.write_text(first)
    assert file.is_cut()


def test_tables_have_rank_and_attempt_and_parquet_changes_nothing(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    before = RunFrames(run.path).frames()
    write_ranks(run)
    counts = RunFrames(run).counts()
    assert all(is_current(run, rank) for rank in (0, 1))
    after = RunFrames(run).frames()
    assert set(TABLES) <= set(after)
    assert {table: len(frame) for table, frame in after.items()} == {**dict.fromkeys(TABLES, 0), **counts}
    assert (len(after["steps"]), len(after["phases"]), len(after["energy"])) == (30, 210, 30)
    for table, frame in before.items():
        assert list(frame.columns[:2]) == ["rank", "attempt"]
        pd.testing.assert_frame_equal(frame, after[table])
    assert after["steps"]["time_ns"].dtype == "int64"
    knob = after["events"].query("kind == 'settings'")["data"].iloc[0]
    assert knob == {"version": 1, "changes": {"learning_rate": 0.003}, "when": "step"}
    for table, count in counts.items():
        lines = [found for rank in (0, 1) for found in read_lines(run.record_file(rank)) if found["table"] == table]
        assert sum(len(found["rows"]) for found in lines) == count


def test_new_lines_make_parquet_stale(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    write_ranks(run)
    with RecordWriter(run.record_file(0), 0, 2) as writer:
        write_steps(writer, 15, 17)
    assert not is_current(run, 0) and is_current(run, 1)
    assert len(RunFrames(run).frames()["steps"]) == 32


def test_damaged_parquet_is_written_again(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    write_ranks(run)
    steps = RunFrames(run).frames()["steps"]
    file = files_of(run, current_note(run, 0) or {})["phases"][0]
    for damage in ((run.records / "rank0.json").unlink, lambda: file.write_bytes(b""), file.unlink):
        damage()
        assert not is_current(run, 0)
        pd.testing.assert_frame_equal(RunFrames(run).frames()["steps"], steps)
        write_ranks(run)
        assert is_current(run, 0)


def test_parquet_serves_where_lines_are_missing(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    write_ranks(run)
    frames = RunFrames(run).frames()
    for path in run.record_files().values():
        path.unlink()
    for table, frame in RunFrames(run).frames().items():
        pd.testing.assert_frame_equal(frame, frames[table])


def test_a_column_that_changes_its_type_gets_a_further_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    values = [None, 1, 2.5, "text", [1, 2]]
    lines = [line("odd", ["step", "value"], [[seq, value]], seq=seq) for seq, value in enumerate(values)]
    run.record_file(0).write_text("".join(lines))
    read = RecordFile.read
    monkeypatch.setattr(RecordFile, "read", lambda file, most=0: read(file, 1))  # a line a block
    write_ranks(run)
    assert len(files_of(run, current_note(run, 0) or {})["odd"]) == 4  # unknown, whole, fractions, texts
    values = RunFrames(run).frames()["odd"]["value"].tolist()
    assert pd.isna(values[0]) and values[1:] == [1, 2.5, "text", [1, 2]]


def test_unknown_tables_and_columns_survive(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    run.record_file(0).write_text(
        line("memory", ["step", "time_ns"], [[1, 10], [2, 20]])
        + line("memory", ["step", "time_ns", "swap_bytes"], [[3, 30, 7]], seq=1)
        + line("decisions", ["step", "action", "values"], [[1, "grow", [0.5, 1]], [2, None, [1]]], seq=2)
    )
    for _ in range(2):
        found = RunFrames(run).frames()
        assert found["memory"]["swap_bytes"].isna().tolist() == [True, True, False]
        assert found["decisions"]["values"].tolist() == [[0.5, 1], [1]]
        assert found["decisions"]["action"].iloc[0] == "grow"
        write_ranks(run)
    assert [*files_of(run, current_note(run, 0) or {})] == ["decisions", "memory"]


def test_a_last_line_that_gets_its_newline_later_is_read_once(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    text = line("memory", ["step"], [[1]])
    run.record_file(0).write_text(text[:-1])
    file = RecordFile(run.record_file(0))
    assert len(file.read()) == 1
    run.record_file(0).write_text(text + line("memory", ["step"], [[2]], seq=1))
    assert [place for _, place in file.read()] == [f"line 2 of {file.path}"]
    assert RunFrames(run).counts() == {"memory": 2}


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
    found, everything = RunFrames(run).frames(), RunFrames(run).frames(all_attempts=True)
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
    steps = RunFrames(run).frames()["steps"]
    assert steps.query("rank == 1")["step"].tolist() == list(range(10))


def test_a_run_without_records_has_empty_tables(tmp_path: Path) -> None:
    found = RunFrames(RunDirectory.create(CONFIG, root=tmp_path).path).frames()
    assert {table: list(frame.columns) for table, frame in found.items()} == {
        table: ["rank", "attempt", *columns] for table, columns in TABLES.items()
    }
    assert not any(len(frame) for frame in found.values())


values = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=5)
values |= st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2)


@pytest.mark.slow
@given(st.lists(st.lists(st.tuples(values, values), min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_values_survive_parquet(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[list[tuple[object, object]]]
) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path_factory.mktemp("runs"), environment={"schema": 1})
    text = "".join(line("odd", ["a", "b"], [list(pair) for pair in block], seq=seq) for seq, block in enumerate(blocks))
    run.record_file(0).write_text(text)
    write_ranks(run)
    frame = RunFrames(run).frames()["odd"]
    given_rows = [pair for block in blocks for pair in block]
    assert len(frame) == len(given_rows)
    for column, place in (("a", 0), ("b", 1)):
        for found, pair in zip(frame[column], given_rows, strict=True):
            if pair[place] is None:
                assert found is None or pd.isna(found)
            else:
                assert found == pair[place] or float(found) == pytest.approx(float(pair[place]))
