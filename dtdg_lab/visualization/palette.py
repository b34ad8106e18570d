"""Colours of views and reports, fixed and distinguishable by colour-blind readers, and the two themes of pages."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

_READ = tomllib.loads((Path(__file__).parent / "palette.toml").read_text(encoding="utf-8"))
PHASE_COLOURS: Mapping[str, str] = MappingProxyType(_READ["phases"])
SPLIT_COLOURS: Mapping[str, str] = MappingProxyType(_READ["splits"])
PURGE_COLOUR = "#8A9099"
EDGE_COLOUR = "#0072B2"
VERTEX_COLOUR = "#E69F00"
STEP_COLOUR = "#9FC3DC"
BASELINE_COLOUR = "#5B5F66"
MARK_COLOUR = "#4B2A7B"
WARNING_COLOUR = "#B3261E"
TEXT_COLOUR = "#24292F"
SOFT_COLOUR = "#57606A"  # of words beside others
INK_COLOUR = "#1B1F23"  # of words on light bars, whose colour is the same in both themes
GRID_COLOUR = "#E7EAEE"
AMBER_COLOURS = ("#FBEBCB", "#F3C766", "#C98A00")  # from little to much

HEAT_SCALES: Mapping[str, tuple[tuple[float, str], ...]] = MappingProxyType(
    {name: tuple(zip((0.0, 0.5, 1.0), colours, strict=True)) for name, colours in _READ["heat"].items()}
)
_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4B2A7B", "#5B5F66")


def series_colour(index: int) -> str:
    """Return the colour of rank or run number ``index``; colours repeat after eight."""
    return _SERIES[index % len(_SERIES)]


# what a light colour is in the dark theme; of others the lightness is mirrored and the hue kept
DARK_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        **{colour: colour for colour in (*PHASE_COLOURS.values(), *_SERIES)},
        "#FFFFFF": "#1B1F24",
        INK_COLOUR: INK_COLOUR,
        TEXT_COLOUR: "#E6EAEE",
        GRID_COLOUR: "#30363D",
        "#0072B2": "#4F8CC4",
        "#56B4E9": "#8FD3F7",
        "#009E73": "#1FB587",
        "#D55E00": "#E06A1A",
        "#C9CDD2": "#565D66",
        BASELINE_COLOUR: "#D5DAE0",
        MARK_COLOUR: "#A56BF5",
        WARNING_COLOUR: "#F2645A",
        PURGE_COLOUR: "#8A9099",
        STEP_COLOUR: "#4F7F9E",
        "#DDE2E8": "#343B44",  # left out
        "#F1F3F6": "#262C33",  # outside
        **dict(zip(AMBER_COLOURS, ("#3A311D", "#6E5316", "#E69F00"), strict=True)),
    }
)

PAGE_COLOURS: Mapping[str, Mapping[str, str]] = MappingProxyType(_READ["page"])
PASS_COLOURS: Mapping[str, str] = MappingProxyType({"forward": "#0072B2", "rerun": "#E69F00", "backward": "#4B2A7B"})


def translucent(colour: str, opacity: float) -> str:
    """Return a colour of six hexadecimal digits with an opacity from 0 to 1."""
    red, green, blue = bytes.fromhex(colour[1:])
    return f"rgba({red},{green},{blue},{opacity})"


@cache
def theme_script() -> str:
    """Return JavaScript functions (``theme.js``) with the colours they need; they stand before other code."""
    dark = {light.upper(): colour for light, colour in DARK_COLOURS.items()}
    page = {theme: dict(colours) for theme, colours in PAGE_COLOURS.items()}
    constants = f"const DL_DARK = {json.dumps(dark)}\nconst DL_PAGE = {json.dumps(page)}\n"
    return constants + (Path(__file__).parent / "theme.js").read_text(encoding="utf-8")


def variables(theme: str) -> str:
    """Return the colours of a page in ``light`` or ``dark`` as CSS variables ``--dl-...``."""
    return " ".join(f"--dl-{name}: {colour};" for name, colour in PAGE_COLOURS[theme].items())


def coloured(name: str) -> str:
    """Return a page colour for a style: the theme's, else that of the light theme."""
    return f"var(--dl-{name}, {PAGE_COLOURS['light'][name]})"
