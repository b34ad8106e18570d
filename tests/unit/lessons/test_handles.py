"""A picture with handles follows its sliders, and is there for pages without widgets."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.lessons.handles import PLOTLY, Handles
from dtdg_lab.visualization.chart import CaptionedFigure, card
from dtdg_lab.visualization.traces import line


def sloped(*, slope: int, start: int = 0) -> CaptionedFigure:
    values = [start, start + slope]
    return card([line("", [0, 1], values)], "A line"), f"ends at {values[-1]}"


def test_the_picture_follows_its_sliders() -> None:
    handles = Handles(sloped, {"slope": (2, 5)}, start=10)
    assert handles.caption == "ends at 12" and list(handles.figure["data"][0]["y"]) == [10, 12]
    handles.set(slope=5)
    assert handles.caption == "ends at 15" and handles.values == {"slope": 5}
    assert repr(handles) == "<Handles slope=5: ends at 15>"


def test_a_slider_begins_at_the_functions_default() -> None:
    handles = Handles(sloped, {"start": (-5, 0, 5), "slope": (2, 5)})
    assert handles.values == {"start": 0, "slope": 2}


def test_a_page_without_widgets_shows_the_picture() -> None:
    data, _ = Handles(sloped, {"slope": (2, 5)})._repr_mimebundle_()
    assert data[PLOTLY]["data"][0]["y"] == [0, 2]


def test_what_no_slider_has_is_refused() -> None:
    handles = Handles(sloped, {"slope": (2, 5)})
    with pytest.raises(UnknownNameError, match=r"Unknown handle 'start'.*slope"):
        handles.set(start=3)
    with pytest.raises(UnknownNameError, match=r"Unknown value of slope '3'.*2, 5"):
        handles.set(slope=3)
    assert handles.caption == "ends at 2"
    with pytest.raises(UnknownNameError, match=r"argument of sloped 'slop'.*slope"):
        Handles(sloped, {"slop": (1,)})
    for nothing in ({}, {"slope": ()}):
        with pytest.raises(ConfigError, match="handles="):
            Handles(sloped, nothing)
