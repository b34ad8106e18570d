"""Fixed colours that colour-blind readers can distinguish (Okabe and Ito 2008), the same in every view and report.

Figures are made in light colours; pages in a dark theme draw them in those of ``DARK_COLOURS`` (``views/theme.js``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PHASE_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "batch": "#E69F00",
        "transfer": "#56B4E9",
        "compute": "#0072B2",
        "wait": "#C9CDD2",  # grey: time in which nothing is done
        "communicate": "#CC79A7",
        "update": "#009E73",
        "control": "#5B5F66",
        "evaluate": "#F0E442",
        "checkpoint": "#4B2A7B",
        "rebuild": "#D55E00",
    }
)

SPLIT_COLOURS: Mapping[str, str] = MappingProxyType(
    {"train": "#0072B2", "validation": "#D55E00", "test": "#009E73"},
)

PURGE_COLOUR = "#8A9099"
EDGE_COLOUR = "#0072B2"
VERTEX_COLOUR = "#E69F00"
STEP_COLOUR = "#9FC3DC"
BASELINE_COLOUR = "#5B5F66"
MARK_COLOUR = "#4B2A7B"
WARNING_COLOUR = "#B3261E"
TEXT_COLOUR = "#24292F"
GRID_COLOUR = "#E7EAEE"

# white is none; darker is more, also in grey
HEAT_SCALES: Mapping[str, tuple[tuple[float, str], ...]] = MappingProxyType(
    {
        "owned": ((0.0, "#FFFFFF"), (0.5, "#5BA3D0"), (1.0, "#08306B")),
        "halo": ((0.0, "#FFFFFF"), (0.5, "#F0904F"), (1.0, "#7F2704")),
        "replicated": ((0.0, "#FFFFFF"), (0.5, "#B58BC9"), (1.0, "#3F0F5C")),
        "bytes": ((0.0, "#FFFFFF"), (0.5, "#5FBF9A"), (1.0, "#00441B")),
    }
)

_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4B2A7B", "#5B5F66")


def series_colour(index: int) -> str:
    """The colour of rank, or run, number ``index``; repeats after eight."""
    return _SERIES[index % len(_SERIES)]


# what a light colour is in the dark theme; of others the lightness is mirrored and the hue kept
DARK_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        **{colour: colour for colour in (*PHASE_COLOURS.values(), *_SERIES)},
        "#FFFFFF": "#1B1F24",
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
    }
)

# colours of a page around the charts, by theme: CSS variables --dl-page, --dl-text and so on
PAGE_COLOURS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "light": MappingProxyType(
            {
                "page": "#FFFFFF",
                "text": TEXT_COLOUR,
                "soft": "#57606A",
                "line": "#DFE3E8",
                "back": "#F6F8FA",
                "field": "#FFFFFF",
                "field-line": "#8A9099",
                "off": "#F1F3F5",
                "off-text": "#676D78",
                "focus": "#0B57D0",
                "good": "#006D4F",
                "info": "#0B5CAD",
                "care": "#8A5A00",
                "bad": "#B3261E",
                "problem": "#842029",
                "alert": "#842029",
                "alert-back": "#F8D7DA",
                "alert-line": "#F1AEB5",
                "changed": "#FFF8E1",
                "act": "#0B5CAD",
                "go": "#1A7F37",
                "halt": "#B3261E",
                "mend": "#8A5A00",
                "on": "#FFFFFF",
                "handle": MARK_COLOUR,
            }
        ),
        "dark": MappingProxyType(
            {
                "page": "#1B1F24",
                "text": "#E6EAEE",
                "soft": "#A9B2BC",
                "line": "#3A414A",
                "back": "#252B32",
                "field": "#12161A",
                "field-line": "#7A838D",
                "off": "#2A3036",
                "off-text": "#9AA3AD",
                "focus": "#7CB7FF",
                "good": "#4CC38A",
                "info": "#6CB2F5",
                "care": "#F0B45A",
                "bad": "#F2645A",
                "problem": "#FF9A94",
                "alert": "#FF9A94",
                "alert-back": "#4A1F22",
                "alert-line": "#7A3338",
                "changed": "#3A3320",
                "act": "#2F74C0",
                "go": "#237A3B",
                "halt": "#C4382F",
                "mend": "#8F6000",
                "on": "#FFFFFF",
                "handle": "#A56BF5",
            }
        ),
    }
)
