"""Charts of node parts beside the picture: waiting, bytes between ranks, load of the parts, memory, communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.systems.vertex_parts.picture import PICTURE, copies_rows, exchanges_rows, has_parts
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Place, card
from dtdg_lab.visualization.graphs.partition import load_caption as part_load_caption
from dtdg_lab.visualization.graphs.partition import part_load
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.runs.communication import communication_chart
from dtdg_lab.visualization.runs.step_memory import step_memory_chart
from dtdg_lab.visualization.runs.transfers import transfers_chart
from dtdg_lab.visualization.runs.waiting import waiting_chart

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

LOAD = "Load of the parts"


def part_charts() -> Sequence[Chart]:
    """Return the picture, the supporting charts and the folded ones."""
    return (
        PICTURE,
        waiting_chart(shown=has_parts),
        transfers_chart(shown=exchanges_rows),
        _load_chart("supporting", copies_rows),  # beside waiting, as nothing is sent but gradients
        _load_chart("folded", exchanges_rows),
        step_memory_chart(has_parts),
        communication_chart("folded", shown=exchanges_rows),
    )


def _load_chart(place: Place, shown: Callable[[RunTables], bool]) -> Chart:
    return Chart(
        name="part_load",
        title=LOAD,
        figure=load_figure,
        caption=load_caption,
        place=place,
        shown=shown,
        help="1 is an even share. Load is the number of walks into a part's nodes; a step ends with the slowest part.",
    )


def load_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Draw nodes, edges, load and memory of each part over their means."""
    facts = tables.event(PartitionFacts)
    if facts is None:
        return card([], LOAD, empty="Nodes are being partitioned")
    figure = part_load(facts)
    figure["layout"].pop("height")  # as high as the charts beside it
    return figure


def load_caption(tables: RunTables, options: ChartOptions) -> str:
    """Say which part has most of anything."""
    facts = tables.event(PartitionFacts)
    return NOTHING_YET if facts is None else part_load_caption(facts)
