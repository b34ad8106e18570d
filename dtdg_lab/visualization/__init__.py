"""What runs and graphs look like: plain plotly figure dicts and sentences. Imports no plotly, no torch."""

from __future__ import annotations

from dtdg_lab.visualization.loss import compare_figure
from dtdg_lab.visualization.run_window import (
    BLOCKS,
    CHARTS,
    FEATURES,
    HYBRID,
    PARTITION,
    PHASE_ENERGY,
    SCHEDULE,
    TRAPEZOID,
    Progress,
    RunWindow,
)
from dtdg_lab.visualization.wall_time import wall_time_figure, wall_time_words

__all__ = [
    "BLOCKS",
    "CHARTS",
    "FEATURES",
    "HYBRID",
    "PARTITION",
    "PHASE_ENERGY",
    "SCHEDULE",
    "TRAPEZOID",
    "Progress",
    "RunWindow",
    "compare_figure",
    "wall_time_figure",
    "wall_time_words",
]
