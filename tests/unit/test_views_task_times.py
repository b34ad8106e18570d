"""Tasks in pictures: predicted times against taken, their error over steps, and what overlap hides before and after."""

from __future__ import annotations

import json
import re
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.core.records import TABLES
from dtdg_lab.systems.decayed_windows.view import OVERLAP_KEPT as KEPT_STEPS
from dtdg_lab.systems.decayed_windows.view import (
    STRETCHES,
    TASK_TIMES_KEPT,
    OverlapLog,
    TaskLog,
    TrapezoidView,
    change_words,
    error_words,
    overlap_panels,
    task_panels,
)
from dtdg_lab.visualization.layout import grid
from dtdg_lab.visualization.style import Marks


def check(figure: dict[str, Any]) -> None:
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    assert figure["layout"]["title"]["text"]
    axes = {name for name in figure["layout"] if re.fullmatch(r"[xy]axis\d*", name)}
    assert axes and all("title" in figure["layout"][name] for name in axes)


def traces(figure: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure["data"] if "name" in trace}


def task_row(step: int, snapshot: int, kind: str, predicted_s: float, took_s: float) -> dict[str, Any]:
    row = (step, 0, 0, snapshot, kind, predicted_s, took_s)
    return dict(zip(TABLES["tasks"], row, strict=True))


def exchange_row(step: int, way: str, flying_s: float, exposed_s: float) -> dict[str, Any]:
    row = (step, 0, 0, way, "halo", 2, flying_s, exposed_s)
    return dict(zip(TABLES["exchanges"], row, strict=True))


class Shown:
    """The logs of tasks and exchanges together, as a view of a run keeps them."""

    def __init__(self, ranks: int = 2, overlap: bool = True) -> None:
        self.ranks, self.marks = ranks, Marks()
        self.tasks, self.exchanges = TaskLog(), OverlapLog(overlap)

    def truncate(self, step: int, attempt: int) -> None:
        self.tasks.truncate(step, attempt)
        self.exchanges.truncate(step, attempt)

    def panels(self) -> dict[str, Any]:
        return overlap_panels(self.exchanges, self.ranks, self.marks) | task_panels(self.tasks, self.marks)


def report(
    view: Shown, steps: Any, *, flying_s: float = 0.010, exposed_s: float = 0.002, off: float = 2.0,
    attempt: int = 1, ranks: int = 2,
) -> None:  # fmt: skip
    """Each rank tells four tasks, off by a factor, and its exchanges there and back."""
    for step in steps:
        for rank in range(ranks):
            for snapshot in (3, 4):
                view.tasks.row(rank, task_row(step, snapshot, "compute", 0.003 * off, 0.003), attempt)
                view.tasks.row(rank, task_row(step, snapshot, "communicate", 0.002, 0.002 * off), attempt)
            for way in ("forward", "backward"):
                view.exchanges.row(rank, exchange_row(step, way, flying_s / 2, exposed_s / 2), attempt)
            view.exchanges.step(rank, step)


def described(steps: int, *, overlap: bool = True, **more: Any) -> Shown:
    view = Shown(2, overlap)
    report(view, range(steps), **more)
    return view


# predicted times


def test_dots_lie_where_tasks_were_predicted_and_taken() -> None:
    figure, words = described(2).panels()["predicted"]
    check(figure)
    drawn = traces(figure)
    assert list(drawn) == ["equal", "computing", "exchanges"]
    assert (drawn["computing"]["x"], drawn["computing"]["y"]) == ([6.0] * 8, [3.0] * 8)
    assert (drawn["exchanges"]["x"], drawn["exchanges"]["y"]) == ([2.0] * 8, [4.0] * 8)
    assert drawn["equal"]["x"] == drawn["equal"]["y"] == [2.0, 6.0]
    assert drawn["computing"]["customdata"] == [[0, 0]] * 2 + [[0, 1]] * 2 + [[1, 0]] * 2 + [[1, 1]] * 2
    assert "the last 2 steps" in words and "The longest took 4 ms, predicted 2 ms" in words


def test_the_error_is_that_of_half_the_tasks() -> None:
    log = TaskLog()
    for snapshot, predicted in enumerate((1.1, 1.5, 4.0)):
        log.row(0, task_row(7, snapshot, "compute", predicted, 1.0), 1)
    log.row(1, task_row(7, 0, "communicate", 0.25, 1.0), 1)
    assert log.errors() == [(7, {"compute": pytest.approx(0.5), "communicate": pytest.approx(0.75)})]
    words = error_words(log.errors())
    assert "In step 7 half of the predictions were off by at most 50 % for computing and 75 % for exchanges" in words
    assert error_words([]) != words


def test_errors_go_on_after_their_tasks_are_dropped() -> None:
    view = described(3 * TASK_TIMES_KEPT, off=3.0)
    report(view, range(3 * TASK_TIMES_KEPT, 6 * TASK_TIMES_KEPT), off=1.1)
    errors = view.tasks.errors()
    assert [step for step, _ in errors] == list(range(6 * TASK_TIMES_KEPT))
    assert errors[0][1]["compute"] == pytest.approx(2.0) and errors[0][1]["communicate"] == pytest.approx(2 / 3)
    assert errors[-1][1]["compute"] == pytest.approx(0.1)
    assert len({step for step, *_ in view.tasks.newest()}) == TASK_TIMES_KEPT
    figure, words = view.panels()["error"]
    check(figure)
    assert traces(figure)["computing"]["y"][:: 3 * TASK_TIMES_KEPT] == [200.0, 10.0]
    assert "10 % for computing and 9 % for exchanges" in words
    assert "in step 0 it was 200 % and 67 %" in words


def test_an_error_that_has_not_fallen_is_not_said_to_have() -> None:
    assert "it was" not in error_words(described(3 * TASK_TIMES_KEPT).tasks.errors())


def test_a_task_told_twice_counts_once_and_a_later_attempt_replaces() -> None:
    view = described(3 * TASK_TIMES_KEPT)
    once, drawn = view.tasks.newest(), view.panels()
    report(view, range(3 * TASK_TIMES_KEPT))
    assert view.tasks.newest() == once and view.panels() == drawn
    report(view, range(3 * TASK_TIMES_KEPT - 2, 3 * TASK_TIMES_KEPT), off=4.0, attempt=2)
    report(view, range(5), off=4.0, attempt=2)
    report(view, range(5), off=9.0, attempt=1)
    errors = dict(view.tasks.errors())
    assert [errors[step]["compute"] for step in (4, 5, 3 * TASK_TIMES_KEPT - 1)] == pytest.approx([3.0, 1.0, 3.0])


def test_what_an_earlier_attempt_did_after_the_resume_is_forgotten() -> None:
    view = described(3 * TASK_TIMES_KEPT)
    view.truncate(TASK_TIMES_KEPT, 2)
    assert (
        [step for step, _ in view.tasks.errors()]
        == list(range(TASK_TIMES_KEPT))
        == [s for s, _ in view.exchanges.seconds(2)]
    )
    report(view, [TASK_TIMES_KEPT], off=4.0, attempt=2)
    assert view.tasks.errors()[-1] == (
        TASK_TIMES_KEPT,
        {"compute": pytest.approx(3.0), "communicate": pytest.approx(0.75)},
    )


def test_many_tasks_are_drawn_in_part_and_kept_in_bounds() -> None:
    view = Shown(64)
    report(view, range(60), ranks=64)
    figure = view.panels()["predicted"][0]
    check(figure)
    assert sum(len(trace["x"]) for trace in figure["data"][1:]) <= 1_500
    log = TaskLog()
    for step in range(3_000):
        log.row(0, task_row(step, 0, "compute", 1.0, 1.0), 1)
    assert len(log.errors()) == len(log._attempts) == TASK_TIMES_KEPT + 1_000


def test_a_task_of_no_time_and_one_of_another_kind_are_drawn() -> None:
    view = Shown(1)
    view.tasks.row(0, task_row(0, 0, "compute", 0.0, 0.0), 1)
    view.tasks.row(0, task_row(0, 0, "fetch", 1e-3, 2e-3), 1)
    panels = task_panels(view.tasks, view.marks)
    for figure, words in panels.values():
        check(figure)
        assert words
    assert list(traces(panels["predicted"][0])) == ["equal", "computing", "fetch"]


def test_stretches_of_one_snapshot_count_each() -> None:
    log = TaskLog()
    for _ in range(2):  # told twice
        for predicted, took in ((1.0, 1.0), (1.0, 2.0), (1.0, 4.0)):
            log.row(0, task_row(0, 5, "compute", predicted, took), 1)
    assert len(log.newest()) == 3 and log.errors() == [(0, {"compute": 0.5})]


# exchanges before and after


def test_exposed_and_in_flight_are_means_of_a_rank() -> None:
    view = described(5)
    view.exchanges.row(0, exchange_row(4, "forward", 0.045, 0.021), 1)  # told anew: 40 ms and 20 ms more on one of two
    assert view.exchanges.seconds(2)[3] == (3, (pytest.approx(0.010), pytest.approx(0.002)))
    assert view.exchanges.seconds(2)[4] == (4, (pytest.approx(0.030), pytest.approx(0.012)))
    figure, words = view.panels()["exposed"]
    check(figure)
    assert traces(figure)["in flight"]["y"] == [10.0] * 4 + [30.0]
    assert traces(figure)["exposed"]["y"] == [2.0] * 4 + [12.0]
    assert "in flight 14 ms of a step; 71 % of that is hidden" in words


def test_a_step_counts_when_every_rank_has_recorded_it() -> None:
    view = described(3)
    view.exchanges.row(0, exchange_row(3, "forward", 1.0, 1.0), 1)
    view.exchanges.step(0, 3)
    assert len(view.exchanges.seconds(2)) == 3
    view.exchanges.step(1, 3)
    assert view.exchanges.seconds(2)[3][1] == (0.5, 0.5)


def test_before_and_after_a_change_stand_beside_each_other() -> None:
    view = described(20, exposed_s=0.010, overlap=False)
    view.exchanges.changed(20, True, 1)
    report(view, range(20, 50), exposed_s=0.002)
    before, after = view.exchanges.stretches(2)
    assert (before.overlap, before.start, len(before.steps)) == (False, 0, 20)
    assert (after.overlap, after.start, len(after.steps)) == (True, 20, 30)
    assert (before.exposed_s, after.exposed_s) == pytest.approx((0.010, 0.002))
    figure, words = view.panels()["change"]
    check(figure)
    bars = traces(figure)
    assert bars["exposed"]["y"] == ["overlap off, from step 0", "overlap on, from step 20"]
    assert (bars["exposed"]["x"], bars["hidden"]["x"]) == ([10.0, 2.0], [0.0, 8.0])
    assert "10 ms of a step without overlap and 2 ms with it, 80 % less: means of 20 and 30 steps" in words


def test_overlap_that_hides_nothing_or_harms_is_called_so() -> None:
    view = described(5, exposed_s=0.0020)
    view.exchanges.changed(5, False, 1)
    report(view, range(5, 10), exposed_s=0.0020)
    assert "it hides nothing here" in change_words(view.exchanges.stretches(2))
    report(view, range(5, 10), exposed_s=0.0010)
    assert "100 % more" in change_words(view.exchanges.stretches(2))
    report(view, range(5, 10), exposed_s=0.0)
    assert "0 ms of a step without overlap and 2 ms with it:" in change_words(view.exchanges.stretches(2))


def test_a_run_that_had_it_one_way_says_how_to_see_the_other() -> None:
    assert "Set overlap off" in change_words(described(3).exchanges.stretches(2))
    assert "Set overlap on" in change_words(described(3, overlap=False).exchanges.stretches(2))
    view = described(3)
    view.exchanges.changed(3, True, 1)
    report(view, range(3, 6))
    assert len(view.exchanges.stretches(2)) == 1, "a change to the same value is none"


def test_a_change_told_before_or_after_the_rows_of_its_steps_counts_alike() -> None:
    views = [described(6, exposed_s=0.004) for _ in range(2)]
    views[0].exchanges.changed(10, False, 1)
    for view in views:
        report(view, range(6, 14))
    views[1].exchanges.changed(10, False, 1)
    assert views[0].exchanges.stretches(2) == views[1].exchanges.stretches(2)
    assert [len(each.steps) for each in views[0].exchanges.stretches(2)] == [10, 4]


def test_a_change_of_an_attempt_that_was_undone_is_forgotten() -> None:
    view = described(10)
    view.exchanges.changed(5, False, 1)
    view.truncate(5, 2)
    report(view, range(5, 10), attempt=2)
    assert [each.overlap for each in view.exchanges.stretches(2)] == [True]


def test_long_runs_keep_the_newest_steps_of_each_stretch() -> None:
    log = OverlapLog(False)
    log.changed(500, True, 1)
    for step in range(5_000):
        log.row(0, exchange_row(step, "forward", 0.01, 0.001 if step >= 500 else 0.01), 1)
        log.step(0, step)
    before, after = log.stretches(1)
    assert before.steps == tuple(range(500 - KEPT_STEPS, 500)) and after.steps == tuple(
        range(5_000 - KEPT_STEPS, 5_000)
    )
    assert (before.exposed_s, after.exposed_s) == pytest.approx((0.01, 0.001))
    assert len(log._rows[0]) == len(log._attempts) <= 2 * KEPT_STEPS * STRETCHES


def test_a_line_ends_where_steps_are_no_longer_kept() -> None:
    view = described(3)
    report(view, [7, 8])
    line = traces(view.panels()["exposed"][0])["exposed"]
    assert line["x"] == [0, 1, 2, 3, 7, 8] and line["y"][3] is None


# all panels


def test_logs_of_nothing_say_what_is_to_come() -> None:
    view = Shown()
    assert not view.tasks and not view.exchanges.seconds(2)
    for figure, words in view.panels().values():
        check(figure)
        assert words and figure["layout"]["annotations"][-1]["text"].startswith("no ")


@pytest.mark.parametrize("steps", [1, 30])
def test_all_panels_form_one_figure(steps: int) -> None:
    panels = described(steps).panels()
    assert list(panels) == ["exposed", "change", "predicted", "error"]
    check(grid(list(panels.values()), title="Tasks"))
    assert all(words for _, words in panels.values())


def test_changes_are_marked() -> None:
    view = described(10)
    view.marks.settings_changed({"version": 1, "changes": {"overlap": "off"}, "when": "epoch"}, 0, 5, 0.1, 1)
    for name in ("exposed", "error"):
        notes = view.panels()[name][0]["layout"]["annotations"]
        assert [note["text"] for note in notes] == ["overlap off"]


@pytest.mark.parametrize("off", ["off", False])
def test_overlap_switched_off_is_noted_however_it_was_set(off: Any) -> None:
    view = TrapezoidView(1, Marks())
    view.setting_changed({"step": 1, "data": {"changes": {"overlap": off}}}, 1)
    for step in range(2):
        view.overlap.row(0, exchange_row(step, "forward", 0.01, 0.01), 1)
        view.overlap.step(0, step)
    assert [(each.overlap, each.start) for each in view.overlap.stretches(1)] == [(True, 0), (False, 1)]
