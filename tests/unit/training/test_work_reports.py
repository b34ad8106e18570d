"""What rank 0 does between steps is recorded if it takes more than a second, and so is its end."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from dtdg_lab.records.events import BetweenSteps
from dtdg_lab.training import work_reports
from dtdg_lab.training.position import Position
from dtdg_lab.training.work_reports import WorkReports


class Recorder:
    def __init__(self) -> None:
        self.written: list[tuple[str, float | None]] = []

    def write(self, position: Position, event: BetweenSteps) -> None:
        assert position == Position(1, 0, 7)
        self.written.append((event.what, event.left_s))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(work_reports.time, "monotonic", lambda: now[0])
    return now


def report(clock: list[float], seconds: list[float], expected_s: float | None = None) -> list[Any]:
    recorder = Recorder()
    with closing(WorkReports(recorder, Position(1, 0, 7), "Evaluating")) as reports:
        if expected_s is not None:
            reports.begin(expected_s)
        for number, took in enumerate(seconds):
            clock[0] += took
            reports(number + 1, len(seconds))
    return recorder.written


def test_short_work_is_not_reported(clock):
    assert report(clock, [0.2, 0.2, 0.2]) == report(clock, [], expected_s=0.5) == []


def test_long_work_is_reported_with_the_seconds_left_and_its_end(clock):
    texts, lefts = zip(*report(clock, [0.6] * 5), strict=True)
    assert texts == ("Evaluating", "Evaluating", "Evaluating", "")
    assert lefts == (pytest.approx(1.8), pytest.approx(1.2), pytest.approx(0.6), None)


def test_work_without_parts_is_reported_where_it_is_expected_to_take_long(clock):
    assert report(clock, [], expected_s=8.0) == [("Evaluating", 8.0), ("", None)]


def test_the_end_is_reported_after_an_error(clock):
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError), closing(WorkReports(recorder, Position(1, 0, 7), "Evaluating")) as reports:
        reports.begin(2.0)
        raise ZeroDivisionError
    assert recorder.written[-1] == ("", None)
