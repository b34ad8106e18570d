"""Fixed colours, told apart by colour-blind readers (Okabe and Ito 2008), the same in every view and report."""

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
        "checkpoint": "#7A4E9E",
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
MARK_COLOUR = "#7A4E9E"
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

_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A4E9E", "#5B5F66")


def series_colour(index: int) -> str:
    """The colour of rank, or run, number ``index``; repeats after eight."""
    return _SERIES[index % len(_SERIES)]
