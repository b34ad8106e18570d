"""Drawing of charts from small tables, with the checks that every figure and caption must pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.chart import Chart, ChartOptions

DEFAULTS = ChartOptions()


def draw(chart: Chart, tables: RunTables, options: ChartOptions = DEFAULTS) -> tuple[dict[str, Any], str]:
    """Return the figure and the caption of a chart, after checking that plotly and JSON accept the figure."""
    figure = checked_figure(chart.figure(tables, options))
    caption = chart.caption(tables, options)
    assert len(caption.split()) <= 20 and caption.endswith(".")
    return figure, caption


def checked_figure(figure: dict[str, Any]) -> dict[str, Any]:
    """Return a figure that plotly and JSON accept."""
    go.Figure(figure)  # raises on attributes that plotly does not know
    json.dumps(figure, allow_nan=False)
    return figure


def chart_named(name: str, charts: Sequence[Chart], tables: RunTables) -> Chart:
    """Return the one chart of that name that is shown for a run."""
    (chart,) = [chart for chart in charts if chart.name == name and chart.applies(tables)]
    return chart
