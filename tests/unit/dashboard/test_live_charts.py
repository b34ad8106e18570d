"""Charts of the page: which cards there are, what a display is sent and when, and what a person does in them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.live_charts import LiveCharts
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.systems.base import SystemFamily
from dtdg_lab.visualization.chart import Chart, ChartOptions, Figure, Question, always, card
from tests.registrations import registered_apart
from tests.tables import record_lines, run_tables, run_under_way

CONFIG = lab.RunConfig(system="pygt-dist", dataset="growing", ranks=2)


def _figure(tables: RunTables, options: ChartOptions) -> Figure:
    bars = {"type": "bar", "x": [*tables.steps], "y": [step + 1 for step in tables.steps.values()]}
    return card([bars] if tables.steps else [], "Steps", unit=f"at step {options.step}" if options.preview else "")


def _caption(tables: RunTables, options: ChartOptions) -> str:
    return f"{sum(step + 1 for step in tables.steps.values())} steps of {len(tables.steps)} ranks."


def _broken(tables: RunTables, options: ChartOptions) -> Figure:
    raise ZeroDivisionError("a slip")


class Counts(SystemFamily):
    """A family without systems that adds a chart, and one that cannot be drawn."""

    name = "counts"

    def charts(self) -> Sequence[Chart]:
        usual: dict[str, Any] = {"caption": _caption, "section": "supporting", "applies": always}
        counts = Chart(name="step_count", title="Steps", figure=_figure, toggles=("x",), **usual)
        return [counts, Chart(name="broken", title="Broken", figure=_broken, **usual)]


@pytest.fixture
def counted() -> Iterator[None]:
    with registered_apart():
        lab.register(Counts())
        yield


class Page:
    """The charts of a run with a display that sees some of them."""

    def __init__(self, *visible: str, config: lab.RunConfig = CONFIG, others: Sequence[Any] = ()) -> None:
        self.requests: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.charts = LiveCharts(lambda call: call(), self.requests.append, self.problems.append, lambda: others)
        for cards in (self.charts.picture, self.charts.others):
            cards._send_msg = lambda text: self.sent.append(json.loads(text))  # type: ignore[method-assign]
        self.tables = RunTables(config, rollups=all_rollups())
        self.charts.follow("run 1", self.tables, threading.Lock())
        if visible:
            self.tell("visible", visible=[*visible])

    def tell(self, kind: str, **said: Any) -> None:
        self.charts.others._handle_msg(json.dumps({"kind": kind, "display": "d", "visible": [], "calm": False, **said}))

    def add_steps(self, first: int, last: int) -> None:
        rows = [{"rank": rank, "step": step} for rank in (0, 1) for step in range(first, last)]
        self.tables.add_lines(record_lines("steps", rows))

    def drawn(self) -> list[dict[str, Any]]:
        """Tick, and acknowledge at once; return what was drawn."""
        self.sent.clear()
        for _ in range(3):
            self.charts.tick()
            for message in [message for message in self.sent if message["kind"] == "draw"]:
                self.tell("drawn", number=message["number"], ms=1, chart=message["chart"], visible=[message["chart"]])
        return [message for message in self.sent if message["kind"] == "draw"]


def test_a_chart_of_a_family_without_systems_is_shown_for_every_run(counted: None) -> None:
    page = Page("step_count")
    page.add_steps(0, 3)
    (message,) = page.drawn()
    assert message["figure"]["data"][0]["y"] == [3, 3] and message["caption"] == "6 steps of 2 ranks."
    assert "step_count" in Page(config=CONFIG.replace(system="psg")).charts.others.specs


def test_charts_of_a_family_with_systems_are_shown_for_these_only() -> None:
    parts, groups = Page(), Page(config=CONFIG.replace(system="psg"))
    assert set(parts.charts.picture.specs) == {"part_needs"} != set(groups.charts.picture.specs)
    assert {"loss", "step_time", "energy", "timeline"} <= set(parts.charts.others.specs)
    assert parts.charts.picture.specs["part_needs"].idea


def test_a_change_of_the_system_changes_the_cards() -> None:
    page = Page()
    change = {"version": 1, "changes": {"system": "psg"}, "when": "epoch"}
    page.tables.add_lines(record_lines("events", [{"kind": "settings", "data": change}]))
    page.charts.tick()
    assert set(page.charts.picture.specs) == set(Page(config=CONFIG.replace(system="psg")).charts.picture.specs)


def test_nothing_is_sent_before_a_display_reports_and_only_what_it_sees(counted: None) -> None:
    page = Page()
    page.add_steps(0, 3)
    assert page.drawn() == []
    page.tell("visible", visible=["step_count"])
    assert [message["chart"] for message in page.drawn()] == ["step_count"]


def test_a_chart_that_has_not_changed_is_not_sent_again(counted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr("dtdg_lab.dashboard.live_charts.time.monotonic", lambda: now_s[0])
    page = Page("step_count")
    page.add_steps(0, 3)
    first = page.drawn()
    now_s[0] = 10.0
    page.tables.add_lines(record_lines("memory", [{"peak_bytes": 1}]))
    assert len(first) == 1 and page.drawn() == [], "other tables have grown"
    now_s[0] = 20.0
    page.add_steps(3, 4)
    (message,) = page.drawn()
    assert message["figure"]["data"][0]["y"] == [4, 4] and message["number"] == first[0]["number"] + 1


def test_another_run_and_another_axis_are_sent_at_once(counted: None) -> None:
    page = Page("step_count")
    assert len(page.drawn()) == 1 and page.drawn() == []
    page.tell("option", chart="step_count", option="x", value="seconds", visible=["step_count"])
    assert len(page.drawn()) == 1
    labels = [toggle.label for toggle in page.charts.others.specs["step_count"].toggles]
    assert labels == ["Over steps"], "the axis that is not drawn"
    page.charts.follow("run 2", RunTables(CONFIG, rollups=all_rollups()), threading.Lock())
    assert len(page.drawn()) == 1 and page.charts.others.specs["step_count"].run == "run 2"


def test_the_menu_of_losses_offers_the_metrics_that_are_recorded() -> None:
    page = Page("loss")

    def labels() -> list[str]:
        return [toggle.label for toggle in page.charts.others.specs["loss"].toggles]

    page.drawn()
    assert labels() == ["Over seconds", "Linear axis"]
    row = {"split": "validation", "loss": 0.5, "metrics": {"mae": 0.2, "persistence_mae": 0.3}}
    page.tables.add_lines(record_lines("evaluations", [row]))
    page.charts.order.force("loss")
    page.drawn()
    assert labels()[2:] == ["Mean absolute error"]
    page.tell("option", chart="loss", option="metric", value="mae", visible=["loss"])
    (message,) = page.drawn()
    assert message["caption"] == "Validation mean absolute error is 0.200, against 0.300 for persistence."
    assert labels() == ["Over seconds", "Loss"]


def test_a_frozen_chart_stands_still_until_it_follows_again(counted: None) -> None:
    page = Page("step_count")
    page.add_steps(0, 3)
    page.drawn()
    page.tell("frozen", chart="step_count", on=True, visible=["step_count"])
    page.add_steps(3, 9)
    page.charts.age_frozen()
    assert page.drawn() == [] and page.charts.others.specs["step_count"].ago == "step 2, 6 steps ago"
    page.tell("visible", visible=[])
    page.tell("visible", visible=["step_count"])
    assert [message["caption"] for message in page.drawn()] == ["6 steps of 2 ranks."], "also scrolled away and back"
    page.tell("frozen", chart="step_count", on=False, visible=["step_count"])
    assert [message["caption"] for message in page.drawn()] == ["18 steps of 2 ranks."]


def test_charts_stay_at_the_step_of_a_drag_until_it_ends(counted: None) -> None:
    page = Page("step_count")
    units = []
    for kind, steps in [("dragged", (0, 3)), ("dragged", (3, 9)), ("cancelled", (9, 10)), ("dragged", (10, 12))]:
        page.add_steps(*steps)
        value = {} if kind == "cancelled" else {"value": 0.5}
        page.tell(kind, chart="window", handle="alpha", visible=["step_count"], **value)
        page.charts.order.force("step_count")
        (message,) = page.drawn()
        units.append(message["figure"]["layout"]["meta"]["card"]["unit"])
    assert units == ["at step 2", "at step 2", "", "at step 11"]


def test_a_handle_is_dragged_in_the_picture_in_which_it_was_taken() -> None:
    config = lab.RunConfig(system="flaredtdg", dataset="growing", ranks=2)
    page = Page("window", config=config)
    page.add_steps(0, 5)
    (taken, *_) = [message for message in page.drawn() if message["chart"] == "window"]
    page.add_steps(5, 20)  # the page holds the picture still, as a pointer is near
    page.tell("gripped", chart="window", handle="alpha", number=taken["number"], visible=["window"])
    page.sent.clear()
    page.tell("dragged", chart="window", handle="alpha", value=0.5, visible=["window"])
    assert (
        page.sent[-1]["figure"]["layout"]["meta"]["card"]["title"] == taken["figure"]["layout"]["meta"]["card"]["title"]
    )


def test_a_proposal_stays_for_a_while_after_it_was_requested(counted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr("dtdg_lab.dashboard.live_charts.time.monotonic", lambda: now_s[0])
    page = Page("step_count")
    page.add_steps(0, 3)

    def unit(now: float) -> str:
        now_s[0] = now
        page.charts.order.force("step_count")
        (message,) = page.drawn()
        return str(message["figure"]["layout"]["meta"]["card"]["unit"])

    said = {"chart": "window", "handle": "alpha", "value": 0.5, "visible": ["step_count"]}
    page.tell("dragged", **said)
    assert unit(60.0) == "at step 2", "the pointer is still down"
    page.tell("released", **said)
    assert [unit(64.0), unit(66.0)] == ["at step 2", ""]
    page.tell("dragged", **said)
    page.tell("gone")
    page.charts.tick()
    page.tell("visible", visible=["step_count"])
    assert unit(67.0) == "", "the page of the drag was closed"


def test_a_handle_that_is_released_requests_its_setting() -> None:
    page = Page()
    page.tell("released", chart="window", handle="window", value=5.6)
    page.tell("released", chart="window", handle="learning_rate", value=0.0123456)
    page.tell("clicked", chart="window", x=1, y=2, customdata={"alpha": 0.3})
    assert page.requests == [{"window": 6}, {"learning_rate": 0.0123}, {"alpha": 0.3}]


def test_a_chart_that_fails_says_so_and_leaves_the_others(counted: None, caplog: pytest.LogCaptureFixture) -> None:
    page = Page("broken", "step_count")
    page.add_steps(0, 3)
    page.sent.clear()
    page.charts.tick()
    number = page.sent[-1]["number"]
    page.tell("drawn", number=number, ms=1, chart=page.sent[-1]["chart"], visible=["broken", "step_count"])
    page.charts.tick()
    messages = {message["chart"]: message for message in page.sent if message["kind"] == "draw"}
    assert messages["step_count"]["figure"]["data"]
    broken = messages["broken"]
    assert broken["figure"]["layout"]["annotations"][0]["text"] == "This chart can't be drawn."
    assert "ZeroDivisionError" in broken["caption"] and caplog.text.count("Traceback") == 1
    for steps in (4, 5):
        page.add_steps(steps - 1, steps)
        page.charts.order.hurry()
        page.drawn()
    assert caplog.text.count("Traceback") == 1, "the same error is logged once"


@pytest.mark.parametrize(
    ("kind", "said"), [("asked", {}), ("frozen", {"on": True}), ("option", {"option": "x", "value": "seconds"})]
)
def test_messages_of_charts_that_a_change_of_system_took_away_are_passed_over(kind: str, said: dict[str, Any]) -> None:
    page = Page("loss")
    page.tell(kind, chart="caches", **said)
    assert page.problems == []


def test_a_question_reads_other_runs_under_their_locks() -> None:
    answered = threading.Event()

    def prepare(tables: RunTables, others: Sequence[RunTables]) -> list[dict[int, int]]:
        return [some.steps for some in (tables, *others)]

    def answer(steps: list[dict[int, int]]) -> list[dict[int, int]]:
        answered.set()
        return steps

    question = Question(name="steps", label="Count steps", help="Quick.", prepare=prepare, answer=answer)
    asking = replace(Counts().charts()[0], question=question)
    page = Page(others=[run_under_way(run_tables({}, {"steps": [{"step": 7}]}))])
    with registered_apart():
        lab.register(type("Asking", (SystemFamily,), {"name": "asking", "charts": lambda family: [asking]})())
        page.charts.follow("run 1", page.tables, threading.Lock())
        page.tell("asked", chart="step_count")
        assert answered.wait(5.0), page.problems


def test_messages_that_the_page_never_sends_are_refused() -> None:
    with pytest.raises(LabError, match="which cards do not know"):
        Page().tell("run rm")
