"""RecordWriter: every flushed line survives, nothing goes unrecorded silently."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dtdg_lab.config.record_tables import SCHEMA, TABLES
from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.records.lines import read_lines
from dtdg_lab.runs.record_writer import RecordWriter
from tests.stored_runs import row, write_steps

EVENT = (0, 0, 1, "checkpoint", {})


def test_lines_have_the_format_of_core_records(tmp_path: Path) -> None:
    path, sent = tmp_path / "rank1.jsonl", []
    with RecordWriter(path, 1, 2, flush_s=60, sink=sent.append) as writer:
        write_steps(writer, 0, 2)
        writer.flush()
        writer.row("events", EVENT)
    lines = list(read_lines(path))
    assert [(line["seq"], line["table"], len(line["rows"])) for line in lines] == [
        (0, "steps", 2),
        (1, "phases", 14),
        (2, "events", 1),
    ]
    assert {(line["v"], line["rank"], line["attempt"]) for line in lines} == {(SCHEMA, 1, 2)}
    assert all(tuple(line["columns"]) == TABLES[line["table"]] for line in lines)
    assert lines[2]["rows"] == [list(EVENT)]
    assert b"".join(sent) == path.read_bytes()


def test_rows_reach_the_disk_without_being_asked(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "rank0.jsonl", 0, 0, flush_s=0.01)
    writer.row("events", EVENT)
    deadline = time.monotonic() + 10
    while not writer.path.stat().st_size and time.monotonic() < deadline:
        time.sleep(0.01)
    assert next(read_lines(writer.path))["rows"] == [list(EVENT)]
    writer.close()
    writer.close()


def test_a_step_is_reached_once_the_other_ranks_have_written_it_in_this_attempt(tmp_path: Path) -> None:
    own = RecordWriter(tmp_path / "rank0.jsonl", 0, 2, flush_s=60)
    assert own.reached(5, ()) and not own.reached(0, (1,))
    with RecordWriter(tmp_path / "rank1.jsonl", 1, 1) as before:
        write_steps(before, 0, 9)
    other = RecordWriter(tmp_path / "rank1.jsonl", 1, 2, flush_s=60)
    assert not own.reached(5, (1,)), "those steps are of the attempt before"
    write_steps(other, 5, 7)
    assert not own.reached(6, (1,)), "a kill would lose what is queued"
    other.flush()
    assert own.reached(6, (1,)) and not own.reached(7, (1,))
    other.row("events", EVENT)
    other.close()
    assert own.reached(6, (1,)), "lines of other tables may follow"
    own.close()


def test_sequence_numbers_go_on_and_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    for attempt in (0, 1):
        with RecordWriter(path, 0, attempt) as writer:
            writer.row("events", EVENT)
    with path.open("ab") as file:
        file.write(b'{"v": 1, "rank": 0, "attempt": 1, "seq": 2, "tab')
    with RecordWriter(path, 0, 2) as writer:
        writer.row("events", EVENT)
    assert [(line["seq"], line["attempt"]) for line in read_lines(path)] == [(0, 0), (1, 1), (2, 2)]
    path.write_bytes(path.read_bytes()[:-1])  # only the newline is missing: the line is whole and stays
    with RecordWriter(path, 0, 3) as writer:
        writer.row("events", EVENT)
    assert [line["seq"] for line in read_lines(path)] == [0, 1, 2, 3]


def test_a_long_last_line_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    for _ in range(2):
        with RecordWriter(path, 0, 0, flush_s=60) as writer:
            for _ in range(3000):
                writer.row("events", (0, 0, 1, "checkpoint", {"text": "x" * 50}))
    assert [line["seq"] for line in read_lines(path)] == [0, 1]
    assert path.stat().st_size > 4 * 2**16


def test_not_a_number_is_null_and_an_event_keeps_the_fact(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    with RecordWriter(path, 0, 0, flush_s=60) as writer:
        writer.row("steps", row("steps", step=4, epoch=1, loss=0.5))
        writer.row("steps", row("steps", step=5, epoch=1, loss=float("nan"), global_loss=np.float32("inf")))
        writer.row("steps", row("steps", step=6, epoch=1, loss=float("nan")))
        writer.row("events", (6, 1, 1, "failed", {"rank": 0, "losses": [1.0, float("-inf")]}))
    raw = path.read_text()
    assert not {"NaN", "Infinity"} & {
        word for word in raw.replace('"', " ").replace(",", " ").split() if word != '"nan"'
    }
    lines = [json.loads(text, parse_constant=pytest.fail) for text in raw.splitlines()]
    loss = TABLES["steps"].index("loss")
    assert [step[loss] for step in lines[0]["rows"]] == [0.5, None, None]
    assert lines[1]["rows"][0][4] == {"rank": 0, "losses": [1.0, None]}
    facts = {
        (fact[4]["table"], fact[4]["column"]): (fact[0], fact[3], fact[4]["value"], fact[4]["rows"])
        for fact in lines[2]["rows"]
    }
    assert facts["steps", "loss"] == (5, "not_finite", "nan", 2)
    assert facts["steps", "global_loss"] == (5, "not_finite", "inf", 1)
    assert facts["events", "data"][:2] == (6, "not_finite")


def test_numpy_values_are_recorded_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    with RecordWriter(path, 0, 0) as writer:
        writer.row("memory", (np.int64(3), np.int32(1), np.float32(0.5), None, True))
    assert next(read_lines(path))["rows"] == [[3, 1, 0.5, None, True]]


def test_wrong_rows_are_refused_where_they_are_made(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "rank0.jsonl", 0, 0) as writer:
        with pytest.raises(UnknownNameError, match="Did you mean 'steps'"):
            writer.row("step", (1,))
        with pytest.raises(ConfigError, match="needs 5 values, not 1"):
            writer.row("memory", (1,))
    assert writer.path.stat().st_size == 0


def test_a_full_disk_is_raised_by_check_and_by_close(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").symlink_to("/dev/full")
    writer = RecordWriter(tmp_path / "rank0.jsonl", 0, 0, flush_s=0.01)
    writer.check()
    writer.row("events", EVENT)
    deadline = time.monotonic() + 10
    with pytest.raises(RunStoreError, match="disk is full"):
        while time.monotonic() < deadline:
            writer.check()
            time.sleep(0.01)
    with pytest.raises(RunStoreError, match="disk is full"):
        writer.close()


def test_a_value_json_cannot_hold_is_raised_not_lost(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "rank0.jsonl", 0, 0, flush_s=60)
    writer.row("events", (0, 0, 1, "odd", {"value": object()}))
    with pytest.raises(RunStoreError, match="a object cannot be recorded"):
        writer.flush()
    with pytest.raises(RunStoreError):
        writer.close()


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "records").write_text("a file in place of the folder")
    with pytest.raises(RunStoreError, match="There is a file where a folder is needed"):
        RecordWriter(tmp_path / "records" / "rank0.jsonl", 0, 0)


def test_a_lost_live_channel_is_kept_as_an_event_and_the_file_goes_on(tmp_path: Path) -> None:
    calls = []

    def sink(block: bytes) -> None:
        calls.append(block)
        raise ConnectionError("nobody listens")

    with RecordWriter(tmp_path / "rank0.jsonl", 0, 0, flush_s=60, sink=sink) as writer:
        writer.row("events", EVENT)
        writer.flush()
        writer.row("events", EVENT)
    rows = [values for line in read_lines(writer.path) for values in line["rows"]]
    assert [values[3] for values in rows] == ["checkpoint", "sink_lost", "checkpoint"]
    assert "nobody listens" in rows[1][4]["reason"]
    assert len(calls) == 1


def test_rows_of_many_threads_are_all_there_once(tmp_path: Path) -> None:
    import threading

    with RecordWriter(tmp_path / "rank0.jsonl", 0, 0, flush_s=0.001) as writer:

        def work(thread: int) -> None:
            for number in range(2000):
                writer.row("events", (thread * 2000 + number, 0, 1, "checkpoint", {}))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    steps = [values[0] for line in read_lines(writer.path) for values in line["rows"]]
    assert sorted(steps) == list(range(8000))


def test_kill_leaves_every_flushed_line(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    program = (
        "import sys, time\nfrom dtdg_lab.runs.record_writer import RecordWriter\n"
        "writer = RecordWriter(sys.argv[1], 0, 0, flush_s=0.002)\nstep = 0\n"
        "while True:\n    writer.row('events', (step, 0, 1, 'checkpoint', {}))\n    step += 1\n"
        "    if step % 50 == 0:\n        writer.flush()\n        print(step, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    described = 0
    while described < 2000:
        described = int(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    described = max([described, *map(int, child.stdout.read().split())])
    child.wait()
    child.stdout.close()
    steps = [values[0] for line in read_lines(path) for values in line["rows"]]
    assert steps == list(range(len(steps)))
    assert len(steps) >= described
    with RecordWriter(path, 0, 1) as writer:
        writer.row("events", EVENT)
    numbers = [line["seq"] for line in read_lines(path)]
    assert numbers == list(range(len(numbers)))
