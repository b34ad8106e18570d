"""A chart over steps with slow links shaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.feature_cache.charts.link_history import LinkHistory, link_history
from dtdg_lab.visualization.changes.marks import with_changes
from dtdg_lab.visualization.chart import STEPS_TITLE, card
from dtdg_lab.visualization.traces import Drawn, box

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables
    from dtdg_lab.visualization.layout import Figure


_SHADE, _MOST_SHADES = "rgba(230,159,0,0.13)", 200


def over_steps(data: list[Drawn], tables: RunTables, span: tuple[float, float], title: str, **settings: Any) -> Figure:
    """Return a chart over steps: slow links shaded, changed settings marked."""
    figure = card(data, title, x_title=STEPS_TITLE, **{"xaxis": {"range": [*span]}, **settings})
    if not data:
        return figure
    layout = figure["layout"]
    layout = {**layout, "shapes": [*slow_shades(link_history(tables), span), *layout["shapes"]]}
    return {**figure, "layout": with_changes(layout, tables, "steps", *span)}


def slow_shades(links: LinkHistory, span: tuple[float, float]) -> list[Drawn]:
    """Return shapes over the steps in which a link is slow."""
    slow = [(begin, end) for begin, end, is_slow in links.stretches(links.is_slow.astype(int), *span) if is_slow]
    style: Drawn = {"yref": "paper", "layer": "below", "line": {"width": 0}, "fillcolor": _SHADE}
    return [box(stretch, (0, 1), **style) for stretch in slow[-_MOST_SHADES:]]
