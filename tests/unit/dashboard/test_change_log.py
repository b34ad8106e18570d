"""The log of changes as the page shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dtdg_lab.dashboard.change_log import HEADS, entries_of, listed, rows_of, undo_of
from dtdg_lab.visualization.changes.log import RequestedChange
from dtdg_lab.widgets.changes import ChangeLog


def change(number: int, changes: dict[str, tuple[Any, Any]], outcome: Any = "applied", **facts: Any) -> RequestedChange:
    usual: dict[str, Any] = {"by": "page", "asked_s": 33.4, "asked_step": 300, "version": number, "attempt": 1}
    if outcome == "applied":
        usual |= {"seconds": 33.5, "steps": {0: 301, 1: 301}}
    return RequestedChange(number=number, changes=changes, outcome=outcome, **{**usual, **facts})


@pytest.mark.parametrize(
    ("made", "what", "meta", "note"),
    [
        (change(1, {"alpha": (0.1, 0.3)}), ("alpha", "0.1 → 0.3"), "0:33 · step 301 · you", ""),
        (change(9, {"alpha": (0.1, 0.3)}), ("alpha", "0.1 → 0.3"), "0:33 · step 301 · another page", ""),
        (change(1, {"window": (8, 6)}, "waiting"), ("window", "8 → 6"), "0:33 · you", "Waiting for epoch 15"),
        (
            change(3, {"parts": (2, 3)}, "refused", by="notebook", version=None, reason="2 ranks can't share 3 parts."),
            ("parts", "2 → 3"),
            "0:33 · notebook",
            "Refused: 2 ranks can't share 3 parts.",
        ),
        (change(2, {"slow_rank": (-1, 1)}, "asked"), ("slow down rank", "none → 1"), "0:33 · you", "Asked"),
        (
            change(2, {"alpha": (None, 0.2)}, "not applied", by="sweep.py", reason="The run ended first."),
            ("alpha", "0.2"),
            "0:33 · sweep.py",
            "Not applied: the run ended first.",
        ),
        (
            change(4, {"alpha": (0.1, 0.2)}, by="tuner", times=3),
            ("alpha", "0.1 → 0.2, 3 times"),
            "0:33 · step 301 · tuner",
            "",
        ),
    ],
)
def test_an_entry_says_what_was_changed_by_whom_and_what_became_of_it(made, what, meta, note):
    (entry,) = entries_of([made], own_versions={1, 2, 3}, epoch=14)
    assert entry.changes == (what,)
    assert (entry.meta, entry.note, entry.state) == (meta, note, made.outcome)


def test_settings_of_one_request_are_one_entry_that_is_open_while_a_part_is():
    parts = [change(1, {"alpha": (0.1, 0.3)}), change(1, {"window": (8, 6)}, "waiting")]
    (entry,) = entries_of(parts, own_versions={1}, epoch=2)
    assert [name for name, _ in entry.changes] == ["alpha", "window"]
    assert (entry.state, entry.note) == ("waiting", "Waiting for epoch 3")


def test_the_newest_entry_is_first_and_undo_asks_for_the_old_values():
    log = [change(1, {"alpha": (0.1, 0.3), "window": (8, 6)}), change(2, {"alpha": (None, 0.5)})]
    assert [entry.number for entry in entries_of(log, own_versions=set(), epoch=1)] == [2, 1]
    assert undo_of(log, 1) == {"alpha": 0.1, "window": 8}
    assert undo_of(log, 2) == {}


def test_a_single_change_has_one_effect():
    log = [change(1, {"alpha": (0.1, 0.3)}), change(2, {"alpha": (0.3, 0.5)})]
    shown, offers = ChangeLog(lambda message: None), []
    for count in (0, 1, 2):
        shown.draw(entries_of(log[:count], own_versions=set(), epoch=1))
        offers.append(json.loads(shown.content)["more"])
    assert offers == ["", "Show its effect", "Show all 2 with their effects"]


def test_the_newest_of_many_changes_are_listed():
    log = [change(1 + place, {"alpha": (0.1, 0.3)}) for place in range(500)]
    assert [some.number for some in listed(log)] == [*range(301, 501)]
    assert listed(log[:7]) == log[:7] and listed([]) == []


def test_undo_is_offered_while_the_run_is_active_and_the_setting_has_the_new_value():
    log = [change(1, {"alpha": (0.1, 0.3)}), change(2, {"window": (8, 6)}), change(3, {"alpha": (0.3, 0.1)})]

    def undoable(settings: dict[str, Any]) -> list[int]:
        rows = [row.number for row in rows_of(log, set(), 1, settings) if row.undo]
        assert rows == [entry.number for entry in entries_of(log, set(), 1, settings) if entry.undo]
        return rows

    assert undoable({"alpha": 0.1, "window": 6}) == [3, 2]
    assert undoable({"alpha": 0.3, "window": 8}) == [1]
    assert undoable({}) == [], "the run has ended"
    assert entries_of([change(1, {"alpha": (None, 0.5)})], set(), 1, {"alpha": 0.5})[0].undo is False


def test_rows_of_the_table_have_a_cell_for_each_head():
    log = [change(1, {"alpha": (0.1, 0.3)}), change(2, {"parts": (2, 3)}, "refused", reason="No.")]
    second, first = rows_of(log, {1, 2}, 1, effects={1: ["94 ms → 80 ms", "no clear change"]}, columns=2)
    assert len(first.cells) == len(second.cells) == len(HEADS) + 2
    assert first.cells == ("0:33", "301", "you", "alpha 0.1 → 0.3", "Applied", "94 ms → 80 ms", "no clear change")
    assert second.cells[1:5] == ("–", "you", "parts 2 → 3", "Refused: No.")
