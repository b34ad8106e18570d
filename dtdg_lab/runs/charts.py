"""All charts that a run may have: those of every run, then those of the families of systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core import catalogue
from dtdg_lab.core.rollups import Rollup
from dtdg_lab.visualization.chart import Chart
from dtdg_lab.visualization.common_charts import common_charts
from dtdg_lab.visualization.curves import CURVE_ROLLUPS

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
    """Return the charts that a run can have now."""
    return tuple(chart for chart in all_charts() if chart.shown(tables))
