"""Figures as SVG: everything stands where the axes say, within them, and texts stay texts."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from dtdg_lab.visualization.layout import frame
from dtdg_lab.visualization.svg import colour_of, figure_svg, scale_of, ticks_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*traces: dict[str, Any], **layout: Any) -> ET.Element:
    return ET.fromstring(figure_svg({"data": list(traces), "layout": frame("a < b", "x", "y", **layout)}))


def inner(svg: ET.Element) -> ET.Element:
    """What is clipped: the marks."""
    return svg.find(f"{SVG}svg")


def texts(svg: ET.Element) -> list[str]:
    return [each.text for each in svg.iter(f"{SVG}text")]


def test_bars_are_as_high_as_their_values_and_stand_on_each_other() -> None:
    one = {"type": "bar", "name": "one", "x": [0, 1], "y": [10.0, 5.0], "marker": {"color": "#010203"}}
    two = {"type": "bar", "name": "two", "x": [0, 1], "y": [10.0, 20.0], "marker": {"color": "#040506"}}
    rects = list(inner(drawn(one, two, barmode="stack")).iter(f"{SVG}rect"))
    bars = {fill: [rect for rect in rects if rect.get("fill") == fill] for fill in ("#010203", "#040506")}
    (low, half), (onto, tall) = bars["#010203"], bars["#040506"]
    assert float(low.get("height")) == pytest.approx(2 * float(half.get("height")), abs=0.2)
    assert float(tall.get("height")) == pytest.approx(2 * float(onto.get("height")), abs=0.2)
    assert float(onto.get("y")) + float(onto.get("height")) == pytest.approx(float(low.get("y")), abs=0.2)
    assert float(tall.get("y")) >= float(inner(drawn(one, two, barmode="stack")).get("y"))


def test_lines_break_where_a_value_lacks_and_end_with_the_axes() -> None:
    line = {"type": "scatter", "mode": "lines", "name": "l", "x": [0, 1, 2, 3], "y": [0.0, None, 50.0, 1.0]}
    svg = drawn(line, yaxis={"range": [0, 1]})
    (path,) = (each for each in inner(svg).iter(f"{SVG}path") if each.get("fill") == "none")
    assert path.get("d").count("M") == 2
    box = inner(svg)
    assert box.get("viewBox").split() == [box.get(key) for key in ("x", "y", "width", "height")]


def test_heat_maps_have_the_colours_of_their_scale_and_axes_can_be_turned_around() -> None:
    heat = {"type": "heatmap", "x": [0, 1], "y": [0, 1], "z": [[0.0, 1.0], [0.5, None]], "zmin": 0, "zmax": 1,
            "colorscale": [[0.0, "#000000"], [1.0, "#ffffff"]], "colorbar": {"title": {"text": "share"}}}  # fmt: skip
    svg = drawn(heat, yaxis={"range": [1.5, -0.5]})
    cells = {cell.get("fill"): cell for cell in inner(svg).iter(f"{SVG}rect")}
    assert set(cells) == {"#000000", "#ffffff", "#808080"} and "share" in texts(svg)
    assert float(cells["#000000"].get("y")) < float(cells["#808080"].get("y"))
    assert float(cells["#000000"].get("x")) < float(cells["#ffffff"].get("x"))
    assert colour_of([(0.0, "#000000"), (1.0, "#ffffff")], 7.0) == "#ffffff"


def test_texts_are_escaped_and_a_label_tells_what_is_shown() -> None:
    svg = drawn({"type": "bar", "name": "<script>", "x": ["a & b"], "y": [1]})
    assert svg.get("role") == "img" and svg.get("aria-label") == "a < b"
    assert {"a < b", "a & b", "x", "y"} <= set(texts(svg)) and not list(svg.iter(f"{SVG}script"))


def test_ticks_are_round_and_within_the_axis() -> None:
    linear = scale_of({}, [0.0, 37.0], 0, 100)
    assert [text for _, text in ticks_of({}, linear)] == ["0", "10", "20", "30"]
    powers = scale_of({"type": "log"}, [1.0, 1000.0], 0, 100)
    assert [text for _, text in ticks_of({"type": "log"}, powers)] == ["1", "10", "100", "1,000"]
    named = scale_of({}, ["psg", "blad"], 0, 100)
    assert [text for _, text in ticks_of({}, named)] == ["psg", "blad"] and named.at("psg") < named.at("blad")
    assert ticks_of({"tickvals": [5, 99], "ticktext": ["five", "far"]}, linear) == [(linear.at(5), "five")]
