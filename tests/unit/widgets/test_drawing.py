"""Whose turn it is to be drawn."""

from __future__ import annotations

from dtdg_lab.widgets.drawing import PATIENCE_S, DrawingOrder

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
