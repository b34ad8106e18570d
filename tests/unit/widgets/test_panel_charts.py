"""Cards of a page's own figures: only what is in view and has changed is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dtdg_lab.visualization.chart import card
from dtdg_lab.visualization.layout import frame
from dtdg_lab.widgets import panel_charts
from dtdg_lab.widgets.panel_charts import PanelCharts


class Clock:
    """A time that tests set."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(panel_charts, "time", made)
    return made


class Display:
    """What a page does: it says what is in view, and acknowledges what it has drawn."""

    def __init__(self, charts: PanelCharts, clock: Clock) -> None:
        self.charts, self.clock = charts, clock
        self.drawn: list[str] = []
        self.visible: tuple[str, ...] = ()
        charts._send_msg = self.take  # type: ignore[method-assign]

    def take(self, text: str) -> None:
        message = json.loads(text)
        if message["kind"] == "draw":
            self.drawn.append(message["chart"])
            self.tell("drawn", number=message["number"], chart=message["chart"], ms=5.0)

    def tell(self, kind: str, **more: Any) -> None:
        self.charts._handle_msg(
            json.dumps({"display": "d", "kind": kind, "visible": self.visible, "calm": False, **more})
        )

    def scroll_to(self, *names: str) -> None:
        self.visible = names
        self.tell("visible")

    def seconds(self, count: float) -> None:
        for _ in range(round(8 * count)):
            self.clock.now_s += 0.125
            self.charts.tick()


def figure(y: float) -> dict[str, Any]:
    return {"data": [{"x": [0], "y": [y]}], "layout": {}}


def test_charts_are_sent_once_they_are_in_view_and_again_when_they_change(clock):
    charts = PanelCharts("p", chart_height=300)
    display = Display(charts, clock)
    charts.draw({"a": (figure(1), "A."), "b": (figure(2), "B.")})
    display.seconds(2)
    assert display.drawn == [], "nobody looks"
    display.scroll_to("p-a")
    display.seconds(2)
    assert display.drawn == ["p-a"]
    display.scroll_to("p-a", "p-b")
    display.seconds(2)
    assert display.drawn == ["p-a", "p-b"]
    charts.draw({"a": (figure(1), "A."), "b": (figure(3), "B.")})
    display.seconds(2)
    assert display.drawn == ["p-a", "p-b", "p-b"]
    charts.draw({"c": (figure(1), "C.")})
    assert [spec["name"] for spec in json.loads(charts.cards)] == ["p-c"]


def test_a_card_has_the_title_of_its_figure_before_it_is_drawn(clock):
    charts = PanelCharts("p", chart_height=300)
    charts.draw({"a": ({"data": [], "layout": frame("Sizes", "x", "y")}, ""), "b": (card([], "Loss"), "")})
    assert [spec["title"] for spec in json.loads(charts.cards)] == ["Sizes", "Loss"]


def test_a_wide_chart_has_a_row_of_its_own_and_nothing_can_be_dragged(clock):
    charts = PanelCharts("p", chart_height=300)
    picture = card([{"x": [0], "y": [1]}], "Window", meta={"handles": [{"name": "alpha"}], "clickable": True})
    charts.draw({"a": (picture, ""), "b": (figure(1), "")}, wide=["a"])
    assert [spec["place"] for spec in json.loads(charts.cards)] == ["whole", "supporting"]
    meta = charts.figures()["p-a"]["layout"]["meta"]
    assert meta["clickable"] and "handles" not in meta and "handles" in picture["layout"]["meta"]


def test_a_click_on_a_point_is_passed_on(clock):
    charts = PanelCharts("p", chart_height=300)
    display, clicks = Display(charts, clock), []
    charts.on_click(lambda *point: clicks.append(point))
    display.tell("clicked", chart="p-a", x=1, y=2, customdata=[3])
    assert clicks == [("p-a", 1, 2, [3])]


def test_an_unknown_message_is_refused(clock):
    charts = PanelCharts("p", chart_height=300)
    with pytest.raises(Exception, match="Reload the page"):
        Display(charts, clock).tell("extended")
