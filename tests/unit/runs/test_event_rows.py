"""Rows of the log of events: one change is one row, and no kind hides another."""

from __future__ import annotations

from pathlib import Path

from dtdg_lab.runs.event_rows import event_rows
from dtdg_lab.runs.frames import RunFrames
from dtdg_lab.runs.record_writer import RecordWriter
from tests.stored_runs import finished_run


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
