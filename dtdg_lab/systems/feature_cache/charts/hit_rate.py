"""The chart of cache hits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.systems.feature_cache.charts import captions
from dtdg_lab.systems.feature_cache.charts.batches import RESOLVED, batch_sums, hit_rate, hit_rate_now
from dtdg_lab.systems.feature_cache.charts.run_facts import RECENT, fetches_features, first_step, has_cache, newest_step
from dtdg_lab.systems.feature_cache.charts.step_chart import over_steps
from dtdg_lab.visualization.changes.marks import change_marks
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.traces import line

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables
    from dtdg_lab.visualization.layout import Figure


_HIT_POINTS = 100


def _hits_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the share of remote rows that were in a cache, over the whole run."""
    (middles, rates), end = batch_sums(tables).rates(_HIT_POINTS), newest_step(tables) + 1
    x, y = np.minimum(middles, end).round(1).tolist(), (100 * rates).round(2).tolist()
    data = [line("hit rate", x, y, series_colour(0), "about step %{x:.0f}: %{y:.1f}%<extra></extra>")] if x else []
    axis = {"range": [0, 103], "tickvals": [0, 50, 100]}
    begin = float(first_step(tables))
    return over_steps(data, tables, (begin, max(end, begin + 1)), "Cache hit rate", unit="% of remote rows", yaxis=axis)


def _hits_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the hit rate now, and before the newest change."""
    rate, end = hit_rate_now(tables), newest_step(tables) + 1
    if rate is None:
        return NOTHING_YET
    if not has_cache(tables):
        return captions.HIT_RATE_NO_CACHE
    changes = [mark for mark in change_marks(tables, "steps") if mark.number is not None and mark.position < end]
    if changes:
        newest = changes[-1]
        previous_rate = hit_rate(tables, newest.position - RECENT, newest.position)
        current_rate = hit_rate(tables, max(newest.position, end - RECENT), end)
        if previous_rate is not None and current_rate is not None:
            texts = {"rate": percent_text(current_rate), "before": percent_text(previous_rate)}
            return captions.HIT_RATE_CHANGED.format(number=newest.number, **texts)
    return captions.HIT_RATE.format(rate=percent_text(rate), steps=min(RECENT, end - first_step(tables)))


HITS = Chart(
    name="hit_rate",
    title="Cache hit rate",
    figure=_hits_figure,
    caption=_hits_caption,
    place="supporting",
    shown=fetches_features,
    rollups=(RESOLVED,),
    help="Share of the other parts' rows that batches found in a cache. Shaded: links are slowed down.",
)
