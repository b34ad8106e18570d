"""The log of changes: numbers, who, old and new values, and what became of each request."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.visualization.changes.log import (
    ENDED_FIRST,
    LATER_REQUEST,
    OTHER_SYSTEM,
    SET_AGAIN,
    UNDONE,
    RequestedChange,
    changes_frame,
    requested_changes,
)
from tests.tables import run_tables

CONFIG = {"system": "flaredtdg", "dataset": "growing", "alpha": 0.1, "window": 8}
Record = dict[str, Any]


def asked(step: int, version: int, by: str | None = "a.py", old: Record | None = None, **changes: Any) -> Record:
    data = {"version": version, "request": {"set": changes}, "received_at": "step", "by": by, "old": old}
    return {"kind": "control_received", "step": step, "data": data}


def accepted(step: int, version: int, **changes: Any) -> Record:
    return {"kind": "requested", "step": step, "data": {"version": version, "changes": changes, "by": "a.py"}}


def applied(step: int, version: int, when: str = "step", rank: int = 0, **changes: Any) -> Record:
    data = {"version": version, "changes": changes, "when": when}
    return {"kind": "settings", "step": step, "rank": rank, "data": data}


def refused(step: int, version: int | None, reason: str, **changes: Any) -> Record:
    data = {"version": version, "changes": changes, "reason": reason, "by": "a.py", "old": {"window": 8}}
    return {"kind": "refused", "step": step, "data": data if version is None else {**data, "by": None, "old": None}}


def of_attempt(attempt: int, *events: Record) -> list[Record]:
    return [{**event, "attempt": attempt} for event in events]


def log(*events: Record, steps: int = 0, ended: bool = False) -> tuple[RequestedChange, ...]:
    rows = [{"rank": rank, "step": step, "iteration": step} for rank in (0, 1) for step in range(steps)]
    return requested_changes(run_tables(CONFIG, {"steps": rows}, events=events), ended=ended)


def outcomes(*events: Record, **more: Any) -> list[tuple[int, str, str]]:
    return [(change.number, change.outcome, change.reason) for change in log(*events, **more)]


def test_a_change_at_a_step_is_applied_by_each_rank_at_its_step() -> None:
    events = asked(4, 1, alpha=0.3), applied(4, 1, alpha=0.3), applied(6, 1, rank=1, alpha=0.3)
    (change,) = log(*events)
    assert (change.number, change.by, change.outcome) == (1, "a.py", "applied")
    assert change.changes == {"alpha": (0.1, 0.3)}
    assert (change.asked_s, change.asked_step, change.seconds) == (pytest.approx(0), 4, pytest.approx(0))
    assert (change.step, dict(change.steps)) == (4, {0: 4, 1: 6})


def test_old_values_are_recorded_ones_or_follow_from_the_changes_before() -> None:
    events = [asked(2, 1, alpha=0.3), applied(2, 1, alpha=0.3), asked(4, 2, alpha=0.5), applied(4, 2, alpha=0.5)]
    assert [change.changes["alpha"] for change in log(*events)] == [(0.1, 0.3), (0.3, 0.5)]
    (change,) = log(asked(4, 1, old={"alpha": 0.7}, alpha=0.3))
    assert change.changes["alpha"] == (0.7, 0.3)


def test_changes_at_the_end_of_an_epoch_wait() -> None:
    waits = asked(4, 1, window=6)
    assert outcomes(waits, steps=9) == [(1, "waiting", "")]
    assert outcomes(waits, applied(10, 1, "epoch", window=6)) == [(1, "applied", "")]
    assert outcomes(waits, refused(10, 1, "too short", window=6)) == [(1, "refused", "too short")]
    assert outcomes(waits, {"kind": "ended", "step": 9}) == [(1, "not applied", ENDED_FIRST)]
    assert outcomes(waits, ended=True) == [(1, "not applied", ENDED_FIRST)]


def test_of_two_waiting_requests_the_later_one_rules() -> None:
    events = asked(4, 1, window=6), asked(5, 2, window=4), applied(10, 2, "epoch", window=4)
    assert outcomes(*events) == [(1, "not applied", LATER_REQUEST), (2, "applied", "")]


def test_what_another_system_does_not_have_is_not_applied() -> None:
    events = asked(4, 1, window=6), asked(5, 2, system="psg"), applied(10, 2, "epoch", system="psg")
    assert outcomes(*events) == [(1, "not applied", OTHER_SYSTEM), (2, "applied", "")]


def test_one_of_two_waiting_requests_is_refused() -> None:
    events = asked(4, 1, window=6), asked(5, 2, chunks=9), refused(10, 2, "no", window=6)
    assert outcomes(*events, applied(10, 2, "epoch", chunks=9)) == [(1, "refused", "no"), (2, "applied", "")]


def test_a_change_that_does_not_say_when_was_made_at_a_step() -> None:
    change = {"kind": "settings", "step": 4, "data": {"version": 1, "changes": {"alpha": 0.3}}}
    assert outcomes(asked(4, 1, alpha=0.3), change, {**change, "rank": 1}) == [(1, "applied", "")]


def test_a_request_for_settings_of_both_kinds_is_two_changes_with_one_number() -> None:
    events = (
        asked(4, 1, alpha=0.3, window=6),
        applied(4, 1, alpha=0.3),
        asked(6, 2, alpha=0.4),
        applied(6, 2, alpha=0.4),
    )
    changes = log(*events)
    assert [(change.number, [*change.changes], change.outcome) for change in changes] == [
        (1, ["alpha"], "applied"),
        (1, ["window"], "waiting"),
        (2, ["alpha"], "applied"),
    ]


def test_a_change_at_a_step_that_fits_only_with_what_waits_waits_too() -> None:
    assert outcomes(asked(4, 1, alpha=0.3)) == [(1, "asked", "")]
    assert outcomes(asked(4, 1, alpha=0.3), steps=6) == [(1, "waiting", "")]
    both = asked(4, 1, alpha=0.3, window=6)
    assert outcomes(both, applied(9, 1, "epoch", alpha=0.3, window=6)) == [(1, "applied", ""), (1, "applied", "")]
    assert outcomes(both, refused(9, 1, "no", alpha=0.3, window=6)) == [(1, "refused", "no"), (1, "refused", "no")]


def test_requests_are_numbered_in_their_order_whatever_becomes_of_them() -> None:
    waits, refusal = accepted(0, 1, alpha=0.3), refused(0, None, "Choose 1 or more.", window=0)
    assert outcomes(waits, refusal, steps=6) == [(1, "asked", ""), (2, "refused", "Choose 1 or more.")]
    first, second = log(waits, refusal, asked(4, 1, alpha=0.3), applied(4, 1, alpha=0.3))
    assert (first.number, first.outcome, first.step, first.asked_step) == (1, "applied", 4, 4)
    assert (second.number, second.outcome, second.changes) == (2, "refused", {"window": (8, 0)})


def test_a_request_that_the_ranks_have_not_received_is_left_alone_by_an_epochs_end() -> None:
    events = accepted(4, 1, window=6), asked(4, 1, window=6), accepted(9, 2, window=4), applied(9, 1, "epoch", window=6)
    assert outcomes(*events) == [(1, "applied", ""), (2, "waiting", "")]


def test_a_request_before_the_first_step_of_a_resumed_run_has_that_step() -> None:
    first = of_attempt(1, asked(4, 1, alpha=0.3), applied(4, 1, alpha=0.3), accepted(7, 2, alpha=0.4))
    second = of_attempt(
        2, refused(0, None, "No.", window=0), {"kind": "resumed", "step": 8, "data": {"settings": {}, "changes": {}}}
    )
    changes = log(*first, *second)
    assert [(change.outcome, change.reason, change.asked_step) for change in changes] == [
        ("applied", "", 4),
        ("not applied", ENDED_FIRST, 7),
        ("refused", "No.", 8),
    ]


def test_requests_that_the_ranks_never_received_are_refused_or_not_applied() -> None:
    events = refused(3, None, "Choose 1 or more.", window=0), accepted(7, 1, window=6), {"kind": "ended", "step": 9}
    refusal, left = log(*events)
    assert (refusal.outcome, refusal.reason, refusal.version) == ("refused", "Choose 1 or more.", None)
    assert (refusal.by, refusal.changes, refusal.step) == ("a.py", {"window": (8, 0)}, 3)
    assert (left.number, left.outcome, left.reason) == (2, "not applied", ENDED_FIRST)


def tuned(step: int, epoch: int, rank: int = 0, **changes: Any) -> Record:
    data = {"version": 0, "changes": changes, "when": "step", "by": "greedy"}
    return {"kind": "settings", "step": step, "epoch": epoch, "rank": rank, "data": data}


def test_a_tuner_has_an_entry_an_epoch() -> None:
    alphas = (0.2, 0.3, 0.2)
    first = [tuned(9, 0, rank, alpha=alpha) for alpha in alphas for rank in (0, 1)]
    once, again = log(*first, *(tuned(19, 1, rank, alpha=0.5) for rank in (0, 1)))
    assert (once.by, once.times, once.changes, dict(once.steps)) == ("tuner", 3, {"alpha": (0.1, 0.2)}, {0: 9, 1: 9})
    assert (again.number, again.times, again.changes) == (2, 1, {"alpha": (0.2, 0.5)})


def test_pauses_are_no_changes_of_settings_and_unknown_causes_are_empty() -> None:
    pause = {"kind": "control_received", "step": 3, "data": {"version": 1, "request": {"pause": True}}}
    (change,) = log(pause, applied(5, 2, alpha=0.3))
    assert (change.by, change.outcome, change.changes) == ("", "applied", {"alpha": (0.1, 0.3)})


def test_the_changes_of_a_fork_are_its_first() -> None:
    data = {"run": "psg-1", "step": 40, "changes": {"alpha": 0.3}, "old": {"alpha": 0.2}}
    (change,) = log({"kind": "forked", "step": 40, "data": data})
    assert (change.by, change.changes, dict(change.steps)) == ("fork of psg-1", {"alpha": (0.2, 0.3)}, {0: 40, 1: 40})
    assert log({"kind": "forked", "step": 40, "data": {**data, "changes": {}}}) == ()


# resumes


def resumed_log(before: list[Record], after: list[Record], **resume: Any) -> list[tuple[int, str, str]]:
    """Return the outcomes in a run of 20 steps that is resumed at step 10."""
    settings = {"alpha": 0.1, "window": 8, **resume}
    begun = {"kind": "resumed", "step": 10, "data": {"settings": settings, "changes": resume, "iteration": 0}}
    rows = [{"step": step, "iteration": step, "rank": rank} for rank in (0, 1) for step in range(20)]
    rows += [{"step": step, "iteration": step, "rank": rank, "attempt": 2} for rank in (0, 1) for step in range(10, 15)]
    events = [*of_attempt(1, *before), *of_attempt(2, begun, *after)]
    tables = run_tables(CONFIG, {"steps": rows}, events=events)
    return [(change.number, change.outcome, change.reason) for change in requested_changes(tables)]


def test_a_resume_undoes_what_came_after_its_checkpoint() -> None:
    before = [asked(4, 1, alpha=0.3), applied(4, 1, alpha=0.3), asked(15, 2, alpha=0.4), applied(15, 2, alpha=0.4)]
    after = [asked(12, 1, alpha=0.5), applied(12, 1, alpha=0.5)]
    assert resumed_log(before, after) == [(1, "applied", ""), (2, "not applied", UNDONE), (3, "applied", "")]


def test_a_request_waits_through_a_resume() -> None:
    waits = asked(4, 1, window=6)
    assert resumed_log([waits], []) == [(1, "waiting", "")]
    assert resumed_log([waits], [applied(14, 0, "epoch", window=6)]) == [(1, "applied", "")]
    assert resumed_log([waits], [], window=5) == [(1, "not applied", SET_AGAIN)]
    gone = [waits, applied(16, 1, "epoch", window=6)]
    assert resumed_log(gone, []) == [(1, "waiting", "")], "applied after the checkpoint: it waits again"


def test_the_frame_has_a_row_for_each_setting() -> None:
    events = asked(4, 1, alpha=0.3, window=6), applied(4, 1, alpha=0.3), refused(6, None, "no", window=0)
    frame = changes_frame(log(*events))
    assert [*frame.columns] == ["time", "step", "who", "setting", "old", "new", "outcome", "reason"]
    assert frame.drop(columns="time").reset_index().to_numpy().tolist() == [
        [1, 4, "a.py", "alpha", 0.1, 0.3, "applied", ""],
        [1, 4, "a.py", "window", 8, 6, "waiting", ""],
        [2, 6, "a.py", "window", 8, 0, "refused", "no"],
    ]
    assert changes_frame(()).empty
