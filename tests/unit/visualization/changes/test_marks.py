"""Marks of changes in charts."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.changes.marks import change_marks, with_changes
from dtdg_lab.visualization.chart import XAxis, card
from tests.tables import START_NS, record_lines, run_tables


def change(version: int, step: int, *, rank: int = 0, **changes: Any) -> dict[str, Any]:
    data = {"version": version, "changes": changes, "when": "step"}
    time_ns = START_NS + int(1e9 * step)
    return {"kind": "settings", "rank": rank, "step": step, "time_ns": time_ns, "data": data}


def marked(run: RunTables, x: XAxis = "steps", begin: float = 0, end: float = 100) -> dict[str, Any]:
    layout: dict[str, Any] = with_changes(card([{}], "Loss"), run, x, begin, end, width=360)["layout"]
    return layout


def chips(layout: dict[str, Any]) -> list[str]:
    return [note["text"] for note in layout["annotations"]]


def steps(count: int, attempt: int = 1, first: int = 0) -> list[dict[str, Any]]:
    rows = [{"rank": rank, "attempt": attempt, "step": first + step} for rank in (0, 1) for step in range(count)]
    return [{**row, "time_ns": START_NS + int(1e9 * (row["step"] + 1 + 100 * (attempt - 1)))} for row in rows]


def test_a_change_is_a_line_under_its_number() -> None:
    run = run_tables({}, {"steps": steps(50)}, events=[change(1, 20, rank=rank, learning_rate=0.1) for rank in (0, 1)])
    layout = marked(run)
    assert chips(layout) == ["1"] and [shape["x0"] for shape in layout["shapes"]] == [20]
    note = layout["annotations"][0]
    assert note["name"] == "changes 1" and note["captureevents"] and "0.1" in note["hovertext"]


def test_close_changes_share_a_chip() -> None:
    events = [change(1, 20, learning_rate=0.1), change(2, 23, learning_rate=0.2), change(3, 60, learning_rate=0.3)]
    layout = marked(run_tables({}, {"steps": steps(80)}, events=events))
    assert chips(layout) == ["1–2", "3"] and len(layout["shapes"]) == 3
    assert len(layout["annotations"][0]["hovertext"].split("<br>")) == 2


def test_a_chip_ends_some_pixels_after_its_first_change() -> None:
    run = run_tables({}, {"steps": steps(80)}, events=[change(n, 4 * n, learning_rate=0.1) for n in range(1, 8)])
    layout = marked(run)
    assert chips(layout) == ["1–3", "4–6", "7"], "each is 14 pixels from the next"
    assert [note["x"] for note in layout["annotations"]] == [4, 16, 28]


def test_only_changes_in_view_and_the_newest_are_drawn() -> None:
    run = run_tables({}, {"steps": steps(80)}, events=[change(n, n, learning_rate=0.1) for n in range(1, 41)])
    assert len(marked(run)["shapes"]) == 20
    assert chips(marked(run, begin=39.5)) == ["40"]


def test_marks_are_made_again_only_where_there_are_new_ones() -> None:
    run = run_tables({}, {"steps": steps(50)}, events=[change(1, 20, learning_rate=0.1)])
    marks = change_marks(run, "steps")
    run.add_lines(record_lines("steps", steps(5, first=50)))
    assert change_marks(run, "steps") is marks
    run.add_lines(record_lines("events", [change(2, 52, learning_rate=0.2)]))
    assert len(change_marks(run, "steps")) == 2


def test_a_resume_is_an_arrow() -> None:
    run = run_tables({}, {"steps": [*steps(50), *steps(20, attempt=2, first=40)]})
    layout = marked(run)
    assert chips(layout) == ["↻"] and layout["annotations"][0]["hovertext"] == "resumed at step 40"


@pytest.mark.parametrize(("x", "at"), [("steps", 20.0), ("seconds", 20.0)])
def test_a_mark_stands_at_its_step_or_second(x: XAxis, at: float) -> None:
    started = {"kind": "started", "step": 0, "time_ns": START_NS}
    run = run_tables({}, {"steps": steps(50)}, events=[started, change(1, 20, learning_rate=0.1)])
    assert marked(run, x)["shapes"][0]["x0"] == pytest.approx(at)


def test_ranks_with_steps_of_their_own_are_named() -> None:
    run = run_tables(
        {}, {"steps": steps(50)}, events=[change(1, 20, learning_rate=0.1), change(1, 25, rank=1, learning_rate=0.1)]
    )
    assert marked(run)["annotations"][0]["hovertext"].endswith("(rank 0 at step 20, rank 1 at step 25)")
