"""Colours by computation: told apart by colour-blind readers, and text that stands out, in both themes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from dtdg_lab.visualization import palette
from dtdg_lab.visualization.palette import (
    DARK_COLOURS,
    PAGE_COLOURS,
    PHASE_COLOURS,
    SPLIT_COLOURS,
    coloured,
    series_colour,
    theme_script,
    variables,
)

# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as seen by readers without one kind of cones
READERS = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
LEAST_DISTANCE = 15.0  # CIELAB; 2.3 is what one just sees beside each other
LEAST_CONTRAST = 4.5  # WCAG 2.2, text
SERIES = {f"series {index}": series_colour(index) for index in range(8)}


def linear(colour: str) -> NDArray[np.float64]:
    coded = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def lab(colour: str, reader: str) -> NDArray[np.float64]:
    seen = np.clip(READERS[reader] @ linear(colour), 0, 1)
    share = TO_XYZ @ seen / WHITE
    x, y, z = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    dim, bright = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (bright + 0.05) / (dim + 0.05)


def in_theme(colour: str, theme: str) -> str:
    return colour if theme == "light" else DARK_COLOURS[colour.upper()]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("reader", list(READERS))
@pytest.mark.parametrize("named", [SERIES, PHASE_COLOURS, SPLIT_COLOURS], ids=["series", "phases", "splits"])
def test_no_two_colours_of_a_legend_are_seen_as_one(named: dict[str, str], reader: str, theme: str) -> None:
    seen = {name: lab(in_theme(colour, theme), reader) for name, colour in named.items()}
    near = {pair: round(float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])), 1) for pair in combinations(seen, 2)}
    worst = min(near, key=near.__getitem__)
    assert near[worst] >= LEAST_DISTANCE, f"{worst} are {near[worst]} apart"


def test_the_measure_sees_what_is_told_apart_by_hue_alone() -> None:
    reds = np.linalg.norm(lab("#C00000", "deuteranopia") - lab("#5C6B00", "deuteranopia"))
    assert reds < LEAST_DISTANCE < np.linalg.norm(lab("#C00000", "all cones") - lab("#5C6B00", "all cones"))
    assert np.allclose(lab("#FFFFFF", "all cones"), [100, 0, 0], atol=0.02)
    assert contrast("#FFFFFF", "#000000") == pytest.approx(21) and contrast("#767676", "#FFFFFF") > LEAST_CONTRAST


ON = {  # text -> what it is written on
    "text": ("page", "back", "field", "changed"),
    "soft": ("page", "back", "field"),
    "problem": ("page", "back"),
    "good": ("page",),
    "info": ("page",),
    "care": ("page",),
    "bad": ("page",),
    "alert": ("alert-back",),
    "off-text": ("off",),
    "on": ("act", "go", "halt", "mend"),
}


@pytest.mark.parametrize("theme", list(PAGE_COLOURS))
def test_text_stands_out_from_what_it_is_written_on(theme: str) -> None:
    page = PAGE_COLOURS[theme]
    found = {(text, on): contrast(page[text], page[on]) for text, all_on in ON.items() for on in all_on}
    assert {pair: round(ratio, 2) for pair, ratio in found.items() if ratio < LEAST_CONTRAST} == {}


@pytest.mark.parametrize("theme", list(PAGE_COLOURS))
def test_text_of_charts_stands_out(theme: str) -> None:
    page = PAGE_COLOURS[theme]["page"]
    written = [palette.TEXT_COLOUR, palette.MARK_COLOUR, palette.WARNING_COLOUR, palette.BASELINE_COLOUR]
    assert {
        one: contrast(in_theme(one, theme), page) for one in written if contrast(in_theme(one, theme), page) < 4.5
    } == {}
    edges = {name: contrast(PAGE_COLOURS[theme][name], page) for name in ("field-line", "focus", "handle")}
    assert min(edges.values()) >= 3, f"the edge of a control, or what shows the focus, is hard to see: {edges}"


def test_both_themes_have_the_same_names_and_pages_get_them() -> None:
    assert set(PAGE_COLOURS["light"]) == set(PAGE_COLOURS["dark"])
    assert PAGE_COLOURS["light"]["page"] == "#FFFFFF" and DARK_COLOURS["#FFFFFF"] == PAGE_COLOURS["dark"]["page"]
    assert "--dl-text: #E6EAEE;" in variables("dark")
    assert coloured("text") == "var(--dl-text, #24292F)"
    assert '"#0072B2": "#4F8CC4"' in theme_script() and "function dlMirrored" in theme_script()
