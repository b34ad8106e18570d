"""Charts of node parts beside the picture: waiting, bytes between ranks, load of the parts, memory, communication."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dtdg_lab.core.rows import Array
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.systems.vertex_parts import captions
from dtdg_lab.systems.vertex_parts.picture import (
    EVEN,
    PICTURE,
    copies_rows,
    exchanges_rows,
    has_parts,
    over_mean,
    part_work,
)
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Key, Place, card
from dtdg_lab.visualization.charts import Drawn, points, rule
from dtdg_lab.visualization.communication import communication_chart
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import bytes_text, three_digits
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.step_memory import step_memory_chart
from dtdg_lab.visualization.transfers import transfers_chart
from dtdg_lab.visualization.waiting import waiting_chart

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

LOAD = "Load of the parts"
_MEMORY = "memory"
_SPREAD = 0.5  # of the room of a part, over which its dots stand beside each other


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
    kinds = _kinds(facts)
    keys: list[Key] = [(name, series_colour(place), "dot") for place, name in enumerate(kinds)]
    data = [_dots(place, name, values, len(kinds)) for place, (name, values) in enumerate(kinds.items())]
    x_axis = {"dtick": max(1, -(-facts.parts // 16)), "range": [-0.6, facts.parts - 0.4], "showgrid": False}
    top = 1.08 * max(float(over_mean(values).max()) for values in kinds.values())
    axes: Drawn = {"xaxis": x_axis, "yaxis": {"range": [0, top], "nticks": 5}}
    return card(data, LOAD, unit="1 is the mean", keys=keys, x_title="part", shapes=[rule(y=1, width=1)], **axes)


def load_caption(tables: RunTables, options: ChartOptions) -> str:
    """Say which part has the largest load."""
    facts = tables.event(PartitionFacts)
    if facts is None:
        return NOTHING_YET
    times = over_mean(facts.load)
    if times.max() <= EVEN:
        return captions.EVEN_LOAD
    return captions.LOAD.format(part=int(times.argmax()), times=three_digits(float(times.max())))


def _kinds(facts: PartitionFacts) -> Mapping[str, Array]:
    layout = "halo_vertex" if facts.exchanges else "cached_vertex"
    return {"nodes": facts.vertices, "edges": part_work(facts), "load": facts.load, _MEMORY: facts.memory[layout]}


def _dots(place: int, name: str, values: Array, kinds: int) -> Drawn:
    shift = _SPREAD * (place / max(kinds - 1, 1) - 0.5)
    texts = [bytes_text(value) if name == _MEMORY else f"{value:,.0f} {name}" for value in values.tolist()]
    x, y = [part + shift for part in range(len(values))], over_mean(values).round(4).tolist()
    hover = "part %{customdata[0]}: %{customdata[1]}, %{y:.3~g} times the mean"
    customdata = [[part, text] for part, text in enumerate(texts)]
    size = 7.0 if len(values) <= 16 else 4.0
    return points(name, x, y, series_colour(place), hover, size=size, customdata=customdata)
