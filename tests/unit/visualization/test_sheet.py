"""Cards on a sheet, as ``lab.plot`` and saved figures have them."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.visualization.chart import Figure, card, trace_keys
from dtdg_lab.visualization.palette import HEAT_SCALES
from dtdg_lab.visualization.sheet import as_figure, sheet, standalone
from dtdg_lab.visualization.traces import bars, colour_bar, heat, label, level_bars, line, points, rule


def curve(title: str = "Loss", **changes: Any) -> Figure:
    return card([line(title, [0, 1], [2, 3])], title, unit="J", keys=[("training", "#0072B2", "line")], **changes)


def texts(figure: Figure) -> list[str]:
    return [note["text"] for note in figure["layout"]["annotations"]]


def test_a_figure_has_title_unit_keys_and_caption_in_words() -> None:
    figure = as_figure(curve(), "Loss is 3.")
    head, foot = texts(figure)
    assert head.startswith("<b>Loss</b>") and "J" in head and head.endswith('#0072B2">━</span> training')
    assert foot == "Loss is 3."
    go.Figure(figure)


def test_long_keys_go_to_further_lines() -> None:
    keys = [(f"a phase with a long name {number}", "#0072B2", "box") for number in range(12)]
    (head,) = texts(as_figure(card([line("", [0], [1])], "Energy", keys=keys)))
    assert head.count("<br>") == 2


def test_cards_stand_beside_each_other_on_axes_of_their_own() -> None:
    figure = sheet([(curve("a"), "A."), (curve("b"), "B."), (curve("c"), "C.")], title="Run", wide={2})
    layout = figure["layout"]
    assert [trace["xaxis"] for trace in figure["data"]] == ["x", "x2", "x3"]
    assert layout["xaxis"]["domain"][1] < layout["xaxis2"]["domain"][0]
    assert layout["yaxis"]["domain"] == layout["yaxis2"]["domain"]
    assert layout["yaxis3"]["domain"][1] < layout["yaxis"]["domain"][0]
    assert layout["xaxis3"]["domain"][1] > 0.9 and layout["xaxis2"]["anchor"] == "y2"
    assert layout["title"]["text"] == "Run"
    go.Figure(figure)


def test_marks_stay_at_their_place_of_the_card() -> None:
    marked = curve(shapes=[rule(x=1)], annotations=[label("here", 1, 3), label("right", 1, 0.5, xref="paper")])
    layout = sheet([(curve(), ""), (marked, "")])["layout"]
    (shape,) = layout["shapes"]
    assert (shape["xref"], shape["x0"]) == ("x2", 1)
    assert [shape["y0"], shape["y1"]] == pytest.approx(layout["yaxis2"]["domain"])
    here, right = (note for note in layout["annotations"] if note["text"] in ("here", "right"))
    assert (here["xref"], here["yref"]) == ("x2", "y2")
    assert right["xref"] == "paper" and right["x"] == pytest.approx(layout["xaxis2"]["domain"][1])


def test_a_picture_of_several_axes_keeps_its_lanes() -> None:
    data = [line("a", [0], [1]), line("b", [0], [1], yaxis="y2")]
    lanes = card(data, "Lanes", yaxis={"domain": [0.5, 1.0]}, yaxis2={"domain": [0.0, 0.4], "anchor": "x"})
    figure = sheet([(curve(), ""), (lanes, "")])
    layout = figure["layout"]
    assert [trace["yaxis"] for trace in figure["data"]] == ["y", "y2", "y3"]
    low, high = layout["yaxis2"]["domain"]
    assert layout["yaxis3"]["domain"][1] < low < high and layout["yaxis3"]["anchor"] == "x2"


def test_bars_keep_their_gaps_and_names_have_room() -> None:
    bars = [level_bars("a", ["rank 0, epoch 12"], [1], "#0072B2")]
    named = card(bars, "Timeline", barmode="overlay", bargap=0.22, height=82, yaxis={"type": "category"})
    figure = sheet([(named, "")])
    assert figure["data"][0]["width"] == 0.78
    assert figure["layout"]["xaxis"]["domain"][0] * 1000 > 16 * 6


def test_an_empty_card_keeps_its_axes_and_its_words() -> None:
    figure = sheet([(card([], "Loss"), "Nothing measured yet."), (curve(), "")])
    (note,) = (each for each in figure["layout"]["annotations"] if each["text"] == "Appears with the first step")
    assert (note["xanchor"], note["yanchor"]) == ("center", "middle") and len(figure["data"]) == 2
    go.Figure(figure)


def test_a_colour_bar_stands_beside_its_plot() -> None:
    cells = heat("rows", [[1.0]], [0], [0], HEAT_SCALES["halo"], span=(0, 1), colorbar=colour_bar("rows"))
    figure = sheet([(card([cells], "Rows"), ""), (curve(), "")])
    bar, layout = figure["data"][0]["colorbar"], figure["layout"]
    assert layout["xaxis"]["domain"][1] == bar["x"] < layout["xaxis2"]["domain"][0]
    assert bar["len"] == pytest.approx(layout["yaxis"]["domain"][1] - layout["yaxis"]["domain"][0])
    go.Figure(figure)


def test_keys_are_those_of_named_traces() -> None:
    data = [
        line("predicted", [0, 1], [0, 1], "#0072B2"),
        line("bound", [0, 1], [1, 1], "#5B5F66", dash="dash"),
        points("measured", [0], [1], "#24292F", marker={"symbol": "diamond-open"}),
        points("measured", [1], [1], "#24292F"),
        bars("a &lt; b", [0], [1], ["#D55E00", "#009E73"]),
        line("seed 0", [0, 1], [0, 1], showlegend=False),
        line("", [0, 1], [0, 1]),
    ]
    assert trace_keys(data) == [
        ("predicted", "#0072B2", "line"),
        ("bound", "#5B5F66", "dash"),
        ("measured", "#24292F", "open-diamond"),
        ("a < b", "#D55E00", "box"),
    ]


@pytest.mark.parametrize(("modes", "expected"), [(["group", None], "group"), (["group", "stack"], "stack")])
def test_bars_of_a_sheet_are_in_one_mode(modes: list[str | None], expected: str) -> None:
    cards = [(curve(barmode=mode) if mode else curve(), "") for mode in modes]
    assert sheet(cards)["layout"]["barmode"] == expected


def test_only_cards_get_their_title_on_paper() -> None:
    whole = sheet([(curve(), "")], title="Run")
    assert standalone(whole) is whole and standalone(curve())["layout"]["annotations"]
