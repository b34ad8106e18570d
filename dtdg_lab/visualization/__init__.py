"""What runs and graphs look like: plain plotly figure dicts and sentences. Imports no plotly, no torch."""

from __future__ import annotations

from dtdg_lab.visualization.loss import compare_figure, wall_time_figure, wall_time_words
from dtdg_lab.visualization.run_window import CHARTS, Progress, RunWindow

__all__ = ["CHARTS", "Progress", "RunWindow", "compare_figure", "wall_time_figure", "wall_time_words"]
