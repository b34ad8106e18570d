"""Supporting charts of training in one process: memory over a step, and edges that snapshots have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dtdg_lab.systems.single import captions
from dtdg_lab.systems.single.events import OverlapProfile
from dtdg_lab.systems.single.picture import is_plain, is_shared
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, card
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import EDGE_COLOUR
from dtdg_lab.visualization.runs.step_memory import step_memory_chart
from dtdg_lab.visualization.traces import Drawn, bars

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables


def common_edges_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the share of edges that the snapshots of a group have in common, by size of the group."""
    profile = tables.event(OverlapProfile)
    data = []
    if profile is not None and len(profile.sizes) > 1:
        sizes, shares = profile.sizes[1:], profile.shares[1:]  # one snapshot has all of its edges in common
        hover = "%{x} snapshots: %{y:.3g}%<extra></extra>"
        data = [bars("common", list(map(str, sizes)), [100 * s for s in shares], EDGE_COLOUR, hover, width=0.6)]
    looks: Drawn = {"xaxis": {"type": "category", "showgrid": False}, "yaxis": {"range": [0, 100]}}
    return card(data, "Edges in common", unit="% of edges", x_title="snapshots in a group", **looks)


def common_edges_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the share of edges in common at the size in use, else at the smallest."""
    profile = tables.event(OverlapProfile)
    if profile is None or len(profile.sizes) < 2:
        return NOTHING_YET
    size = max(profile.chosen, profile.sizes[1])
    share = profile.shares[profile.sizes.index(size)]
    return captions.COMMON.format(size=size, share=percent_text(share))


STEP_MEMORY = replace(step_memory_chart(lambda tables: is_plain(tables) or is_shared(tables)), place="supporting")
COMMON_EDGES = Chart(
    name="common_edges",
    title="Edges in common",
    figure=common_edges_figure,
    caption=common_edges_caption,
    place="supporting",
    shown=is_shared,
    help="The more edges snapshots have in common, the more one product for all of them saves.",
)
