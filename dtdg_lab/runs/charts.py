"""All charts that a run may have: those of every run, then those of the families of systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import UnknownNameError
from dtdg_lab.core.rollups import Rollup
from dtdg_lab.visualization.chart import PLACES, Chart, ChartOptions
from dtdg_lab.visualization.common_charts import common_charts
from dtdg_lab.visualization.curves import CURVE_ROLLUPS
from dtdg_lab.visualization.sheet import Card

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables


def all_charts() -> tuple[Chart, ...]:
    """Return the charts of every run and of every registered family: a run may change its system while it trains."""
    return *common_charts(), *(chart for family in catalogue.families() for chart in family.charts())


def all_rollups() -> tuple[Rollup, ...]:
    """Return the sums that any chart or comparison needs; tables are made with them."""
    of_charts = (rollup for chart in all_charts() for rollup in chart.rollups)
    return tuple(dict.fromkeys([*of_charts, *CURVE_ROLLUPS]))


def charts_of(tables: RunTables) -> tuple[Chart, ...]:
    """Return the charts that a run can have now, in the order of the page: its picture leads."""
    shown = (chart for chart in all_charts() if chart.shown(tables))
    return tuple(sorted(shown, key=lambda chart: PLACES.index(chart.place)))


def chart_of(tables: RunTables, name: str) -> Chart:
    """Return the chart of a run by its name.

    Raises:
        UnknownNameError: the run has no such chart.
    """
    charts = {chart.name: chart for chart in charts_of(tables)}
    if name not in charts:
        raise UnknownNameError("chart of this run", name, charts)
    return charts[name]


def drawn_charts(tables: RunTables, options: ChartOptions) -> dict[Chart, Card]:
    """Return the charts of a run that have data, each as a card with its caption, in the order of the page."""
    cards = {chart: (chart.figure(tables, options), chart.caption(tables, options)) for chart in charts_of(tables)}
    return {chart: (figure, caption) for chart, (figure, caption) in cards.items() if figure["data"]}
