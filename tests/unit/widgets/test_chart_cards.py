"""Cards of a page's own figures: only what is in view and has changed is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dtdg_lab.visualization.chart import card
from dtdg_lab.visualization.sheet import sheet
from dtdg_lab.widgets import chart_cards
from dtdg_lab.widgets.chart_cards import PATIENCE_S, DrawingOrder, PanelCharts


class Clock:
    """A time that tests set."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(chart_cards, "time", made)
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
    charts.draw({"a": (sheet([], title="Sizes"), ""), "b": (card([], "Loss"), "")})
    assert [spec["title"] for spec in json.loads(charts.cards)] == ["Sizes", "Loss"]


def test_a_wide_chart_has_a_row_of_its_own_and_nothing_can_be_dragged(clock):
    charts = PanelCharts("p", chart_height=300)
    picture = card([{"x": [0], "y": [1]}], "Window", meta={"handles": [{"name": "alpha"}], "clickable": True})
    charts.draw({"a": (picture, ""), "b": (figure(1), "")}, wide=["a"])
    assert [spec["section"] for spec in json.loads(charts.cards)] == ["whole", "supporting"]
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


CHARTS = ("window", "loss", "energy")


def order(*visible: str) -> DrawingOrder:
    made = DrawingOrder()
    made.place(CHARTS, {"window"})
    made.hear("a", visible)
    return made


def drawn(made: DrawingOrder, until_s: float, *, tick_s: float = 0.125) -> list[str]:
    """Draw what is due at every tick, at once."""
    names = []
    for tick in range(round(until_s / tick_s)):
        now_s = tick * tick_s
        for name, _ in made.due(now_s):
            made.looked(name, now_s)
            made.acknowledge("a", made.sent(name, now_s), 10.0)
            names.append(name)
            break
    return names


def test_only_charts_in_view_are_due_and_those_that_came_into_view_at_once():
    made = order("loss")
    assert list(made.due(0.0)) == [("loss", True)]
    made.sent("loss", 0.0)
    assert list(made.due(0.1)) == []
    made.hear("a", ["loss", "energy"])
    assert list(made.due(0.1)) == [("energy", True)]


def test_the_picture_takes_every_second_turn_and_others_a_turn_a_second():
    names = drawn(order(*CHARTS), 10.0)
    assert 35 <= names.count("window") <= 41
    assert 9 <= names.count("loss") <= 11 and 9 <= names.count("energy") <= 11


def test_the_picture_has_every_second_drawing_of_a_page_that_is_slow():
    names = drawn(order(*CHARTS), 60.0, tick_s=0.7)
    assert names.count("window") >= 0.45 * len(names)


def test_a_picture_is_calm_where_a_viewer_wants_little_motion():
    made = order(*CHARTS)
    made.calm("b", True)
    assert drawn(made, 10.0).count("window") <= 11
    closed = order(*CHARTS)
    closed.calm("b", True)
    closed.forget("b")
    assert drawn(closed, 10.0).count("window") >= 35


def test_nothing_is_sent_before_the_last_message_was_acknowledged():
    made = order(*CHARTS)
    number = made.sent("window", 0.0)
    assert not made.is_free(1.0)
    made.acknowledge("a", number - 1, 20.0)
    assert not made.is_free(1.0), "that was an older one"
    made.acknowledge("a", number, 20.0)
    assert made.is_free(1.0)


def test_a_display_that_does_not_answer_is_given_up_until_it_speaks_again():
    made = order(*CHARTS)
    made.sent("window", 0.0)
    assert made.is_free(PATIENCE_S + 1) and made.in_view() == frozenset()
    made.hear("a", ["window"])
    assert list(made.due(PATIENCE_S + 1)) == [("window", True)]


def test_a_chart_that_a_display_did_not_draw_is_sent_again():
    made = order(*CHARTS)
    made.acknowledge("a", made.sent("loss", 0.0), None, "loss")
    assert ("loss", True) in list(made.due(0.1))


def test_a_second_display_is_waited_for_too_and_forgotten_when_it_closes():
    made = order("loss")
    made.hear("b", ["loss"])
    number = made.sent("loss", 0.0)
    made.acknowledge("a", number, 5.0)
    assert not made.is_free(0.1)
    made.forget("b")
    assert made.is_free(0.1)


def test_a_page_is_busy_when_drawings_take_long_on_average():
    made = order("loss")
    made.acknowledge("a", made.sent("loss", 0.0), 3000.0)
    assert not made.is_busy
    for _ in range(10):
        made.acknowledge("a", made.sent("loss", 0.0), 3000.0)
    assert made.is_busy


def test_all_charts_in_view_are_due_when_there_is_hurry():
    made = order(*CHARTS)
    for name in CHARTS:
        made.sent(name, 0.0)
    assert list(made.due(0.1)) == []
    made.hurry()
    assert {name for name, _ in made.due(0.1)} == {*CHARTS}
