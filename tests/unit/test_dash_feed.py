"""What displays are told: followed by a display written here, no point is lost, doubled or out of place."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pretend_session import PretendRun
from synthetic_lines import energy_row, evaluation_row, knob_row, line, steady_run, step_row
from thinning import thinned

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.visualization.run_window import RunWindow
from dtdg_lab.widgets.live import ChartFeed, LiveCharts


class Display:
    """What live.js does with messages, in Python."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.captions: dict[str, str] = {}
        self.number = -1

    def take(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        message = json.loads(json.dumps(message, allow_nan=False))
        assert message["kind"] == "snapshot" or message["number"] == self.number + 1
        self.number = message["number"]
        self.figures.update(message["react"])
        self.captions.update(message["captions"])
        for chart, trace, xs, ys, drop in message.get("extend", []):
            drawn = self.figures[chart]["data"][trace]
            assert drop <= len(drawn["x"])
            drawn["x"] = drawn["x"][: len(drawn["x"]) - drop] + xs
            drawn["y"] = drawn["y"][: len(drawn["y"]) - drop] + ys
            assert len(drawn["x"]) <= message["points"]
        for chart, changes in message.get("relayout", {}).items():
            self.figures[chart]["layout"] |= changes

    def shows(self, window: RunWindow, x: str) -> bool:
        same = json.loads(json.dumps([window.figures(x), window.captions()]))
        return [self.figures, self.captions] == same


def plain(points: int = 1500) -> RunWindow:
    return RunWindow(RunConfig(ranks=2, epochs=20), points=points)


@pytest.mark.parametrize("x", ["steps", "seconds"])
@pytest.mark.parametrize("points", thinned([8, 50, 1500], keep=2))
def test_a_display_that_follows_patches_shows_what_the_window_holds(x, points):
    window, feed, display, chance = plain(points), ChartFeed(), Display(), random.Random(points)
    display.take(feed.snapshot(window, x))
    for number, record in enumerate(steady_run(150, slow_rank=1, slow_s=0.004)):
        window.add(record)
        if number in (200, 320):
            for rank in range(2):
                window.add(line("events", [knob_row(number // 4, number, learning_rate=0.01)], rank=rank))
        if number == 400:
            window.add(line("steps", [step_row(step, 9.0) for step in range(40, 60)], attempt=2))
        if chance.random() < 0.3:
            display.take(feed.patch(window, x))
            assert display.shows(window, x), number
    display.take(feed.patch(window, x))
    assert display.shows(window, x)
    assert feed.patch(window, x) is None


def test_metrics_come_with_their_axis_and_then_point_by_point():
    window, feed, display = RunWindow(RunConfig(dataset="sbm", task="link", epochs=20)), ChartFeed(), Display()
    display.take(feed.snapshot(window, "steps"))
    for step in range(10, 60, 10):
        window.add(line("steps", [step_row(at, 1.0) for at in range(step - 10, step)]))
        for split in ("train", "validation"):
            row = evaluation_row(step, split, 1 / step, metrics={"mrr": step / 100, "persistence_mrr": 0.2})
            window.add(line("evaluations", [row]))
        message = feed.patch(window, "steps")
        display.take(message)
        assert display.shows(window, "steps"), step
    assert "loss" not in message["react"], "once the axis is there, only points are sent"
    assert display.figures["loss"]["layout"]["yaxis2"]["title"]["text"] == "MRR"


def test_a_patch_holds_only_what_is_new():
    window, feed = plain(), ChartFeed()
    for step in range(1000):
        window.add(line("steps", [step_row(step, 1.0)]))
    feed.snapshot(window, "steps")
    window.add(line("steps", [step_row(1000, 1.0), step_row(1001, 1.0)]))
    message = feed.patch(window, "steps")
    assert message["extend"] == [["loss", 0, [1000, 1001], [1.0, 1.0], 0]]
    assert "loss" not in message["react"]


def test_the_newest_point_is_replaced_where_the_series_is_thinned():
    window, feed, display = plain(points=8), ChartFeed(), Display()
    window.add(line("steps", [step_row(step, 1.0) for step in range(10)]))
    display.take(feed.snapshot(window, "steps"))
    window.add(line("steps", [step_row(10, 1.0), step_row(11, 1.0)]))
    display.take(feed.patch(window, "steps"))
    assert window.loss.steps.stride == 2
    window.add(line("steps", [step_row(12, 1.0)]))
    message = feed.patch(window, "steps")
    assert message["extend"] == [["loss", 0, [12], [1.0], 1]]
    display.take(message)
    assert display.figures["loss"]["data"][0]["x"] == [0, 2, 4, 6, 8, 10, 12]


def test_marks_come_as_a_new_layout_and_not_as_new_data():
    window, feed = plain(), ChartFeed()
    window.add(line("steps", [step_row(step, 1.0) for step in range(30)]))
    feed.snapshot(window, "steps")
    window.add(line("events", [knob_row(12, 1, learning_rate=0.003)]))
    message = feed.patch(window, "steps")
    assert message["extend"] == [] and message["react"] == {}
    assert message["relayout"]["loss"]["annotations"][0]["text"] == "learning_rate 0.003"


def test_a_baseline_that_changes_is_drawn_anew():
    window, feed, display = plain(), ChartFeed(), Display()
    window.add(line("evaluations", [evaluation_row(10, "validation", 0.4)]))
    display.take(feed.snapshot(window, "steps"))
    window.add(line("evaluations", [evaluation_row(20, "validation", 0.3, persistence=0.6)]))
    display.take(feed.patch(window, "steps"))
    assert display.shows(window, "steps")


def test_a_reader_that_reports_after_the_first_steps_takes_the_line_over():
    window, feed, display = plain(), ChartFeed(), Display()
    window.add(line("steps", [step_row(step, 1.0, energy_j=0.5, source="modelled") for step in range(5)]))
    display.take(feed.snapshot(window, "steps"))
    window.add(line("energy", [energy_row(1.0, 3.0)]))
    window.add(line("energy", [energy_row(2.0, 3.0)]))
    display.take(feed.patch(window, "steps"))
    assert display.shows(window, "steps")
    assert display.figures["energy"]["data"][0]["y"] == [3.0, 6.0]


class Wired(LiveCharts):
    """Live charts whose messages go to a list of displays instead of a browser."""

    def __init__(self, waiting: RunWindow) -> None:
        super().__init__(waiting)
        self.messages: list[dict[str, Any]] = []

    def _send_msg(self, data: str) -> None:
        self.messages.append(json.loads(data))

    def ready(self) -> None:
        self._handle_msg('{"kind": "ready"}')


def test_nothing_is_sent_before_a_display_is_ready_and_a_late_one_gets_the_history():
    charts, run = Wired(plain()), PretendRun(RunConfig(ranks=2, epochs=5), 0)
    charts.follow(run)
    run.advance(30)
    assert not charts.update() and charts.messages == []
    charts.ready()
    first = Display()
    first.take(charts.messages[-1])
    assert first.shows(run.live, "steps")
    run.advance(10)
    assert charts.update() and not charts.update()
    charts.ready()  # a second display of the same dashboard: both are sent everything
    late = Display()
    for message in charts.messages[1:]:
        first.take(message)
    late.take(charts.messages[-1])
    assert first.figures == late.figures and late.shows(run.live, "steps")


def test_another_run_or_another_axis_is_a_snapshot():
    charts = Wired(plain())
    charts.ready()
    assert [message["kind"] for message in charts.messages] == ["snapshot"]
    run = PretendRun(RunConfig(ranks=2, epochs=5), 0)
    run.advance(5)
    charts.follow(run)
    charts.over("seconds")
    assert [message["kind"] for message in charts.messages] == ["snapshot"] * 3
    assert charts.messages[-1]["react"]["loss"]["data"][0]["x"][1] == pytest.approx(0.014)


def test_messages_that_live_js_never_sends_are_refused():
    with pytest.raises(LabError, match="only 'ready'"):
        Wired(plain())._handle_msg('{"kind": "run rm"}')
