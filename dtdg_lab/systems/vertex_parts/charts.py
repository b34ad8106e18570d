"""Charts of node parts: what each part needs from the others, load, waiting, bytes, memory, communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import System
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.partition.measured_partition import partition_graph
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.bar_charts import compared_bars
from dtdg_lab.visualization.chart import NOTHING_YET, CaptionedFigure, Chart, ChartOptions, Figure, Key, Section, card
from dtdg_lab.visualization.graphs.partition import (
    EVEN,
    binned,
    darkest_key,
    map_caption,
    over_mean,
    part_load,
    part_map,
)
from dtdg_lab.visualization.graphs.partition import load_caption as part_load_caption
from dtdg_lab.visualization.numbers import percent_text, three_digits
from dtdg_lab.visualization.palette import BASELINE_COLOUR, HEAT_SCALES, SOFT_COLOUR, series_colour
from dtdg_lab.visualization.runs.step_memory import step_memory_chart
from dtdg_lab.visualization.runs.transfers import Traffic, traffic_card, transfers_chart
from dtdg_lab.visualization.runs.waiting import communication_chart, waiting_chart
from dtdg_lab.visualization.traces import Attributes, bars, heat, level_bars, paper_label

TITLE = "What each part needs from the others"
LOAD_TITLE = "Load of the parts"
SNAPSHOTS = "training snapshot, oldest to newest"
UNPLANNED = "Nodes are being partitioned"
HEIGHT = 300
MOST_BARS = 12  # parts up to which each has a bar
_ENDS = 5  # parts at each end of the list, where there are more
_MAP, _BARS = [0.0, 0.68], [0.78, 1.0]  # widths

STEPS = Rollup(  # of the tiles' small lines
    "steps", sums=("time_s", "wait_s", "bytes_sent"), least=("step",), most=("step",), points=40
)


def has_parts(tables: RunTables) -> bool:
    """Return whether parts of the nodes are trained in full batches in this run."""
    return catalogue.system(tables.system).family == "vertex_parts"


def exchanges_rows(tables: RunTables) -> bool:
    """Return whether parts receive rows of the others in every step."""
    return has_parts(tables) and catalogue.system(tables.system).parts["parallel"] == "halo_vertex"


def copies_rows(tables: RunTables) -> bool:
    """Return whether parts hold copies of the rows that they need."""
    return has_parts(tables) and not exchanges_rows(tables)


def part_charts() -> Sequence[Chart]:
    """Return the picture, the supporting charts and the folded ones."""
    return (
        PICTURE,
        waiting_chart(applies=has_parts),
        transfers_chart(applies=exchanges_rows),
        _load_chart("supporting", copies_rows),  # beside waiting, as nothing is sent but gradients
        _load_chart("folded", exchanges_rows),
        step_memory_chart(has_parts),
        communication_chart("folded", applies=exchanges_rows),
    )


# What each part needs from the others, and its work.


def part_work(facts: PartitionFacts) -> Array:
    """Return the edges that each part aggregates over in all snapshots; with copies, those of copied nodes too."""
    edges = np.asarray(facts.maps["edges"], np.float64)
    if not facts.exchanges:
        edges = edges + np.asarray(facts.measures["replicated_edges"], np.float64)
    return edges @ np.diff(facts.bounds)


def needs_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a heat map of the rows that each part receives or copies, with bars of work; of one part, its edges."""
    facts = tables.event(PartitionFacts)
    if facts is None:
        return card([], TITLE, empty=UNPLANNED, height=HEIGHT)
    if facts.parts == 1:
        return _one_part(facts)
    times = over_mean(part_work(facts))
    verb = "received" if facts.exchanges else "copied"
    rows, bounds = binned(facts.maps["halo" if facts.exchanges else "replicated"], facts.bounds)
    hover = f"part %{{y}}, snapshot %{{x:.0f}}: %{{z:,.4~g}} rows {verb}<extra></extra>"
    style: Attributes = {"span": (0, float(rows.max()) or 1.0), "showscale": False, "hover": hover}
    style |= {"xgap": 1, "ygap": 1} if facts.parts <= 32 else {}
    x = (bounds - 0.5).tolist()
    data = [
        heat(f"rows {verb}", rows.round(2).tolist(), x, range(facts.parts), HEAT_SCALES["halo"], **style),
        _work_bars(times),
    ]
    bare: Attributes = {"showgrid": False, "zeroline": False, "tickangle": 0, "tickfont": {"size": 11}}
    ticks = [*range(0, facts.parts, max(1, -(-facts.parts // 16)))]
    part_names = {"tickvals": ticks, "ticktext": [f"part {part} " for part in ticks]}
    end = 1.02 * max(1.0, float(times.max()))
    layout: dict[str, Any] = {
        "xaxis": {"domain": _MAP, "range": [x[0], x[-1]], "showgrid": False},
        "yaxis": {"range": [facts.parts - 0.5, -0.5], "showgrid": False, **part_names},
        "xaxis2": {**bare, "domain": _BARS, "anchor": "y2", "range": [0, end], "tickvals": [0, 0.5, 1]},
        "yaxis2": {**bare, "anchor": "x2", "type": "category", "autorange": "reversed", "ticksuffix": " "},
    }
    keys: list[Key] = [darkest_key(float(rows.max()), "rows", "halo")]
    if times.max() > EVEN:
        keys.append(("most work", series_colour(1), "box"))
    mean_line: Attributes = {"type": "line", "xref": "x2", "yref": "paper", "x0": 1, "x1": 1, "y0": 0, "y1": 1}
    return card(
        data,
        TITLE,
        keys=keys,
        x_title=SNAPSHOTS,
        shapes=[{**mean_line, "line": {"color": BASELINE_COLOUR, "width": 1.2, "dash": "dash"}}],
        annotations=[_heading(f"Rows {verb}", _MAP[0]), _heading("Work; 1 is the mean", _BARS[0])],
        bargap=0.25,
        margin={"l": 68, "t": 22},
        height=HEIGHT,
        **layout,
    )


def needs_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how many edges join two parts, and which part has the most work."""
    facts = tables.event(PartitionFacts)
    if facts is None:
        return NOTHING_YET
    if facts.parts == 1:
        return "One part owns all nodes, so that no edge is cut and no row is received."
    times = over_mean(part_work(facts))
    work = "all parts have about the same work"
    if times.max() > EVEN:
        work = f"part {times.argmax()} has the most work: {three_digits(float(times.max()))} times the mean"
    return f"{percent_text(facts.shares['cut'])} of the edges join two parts, and {work}."


PICTURE = Chart(
    name="part_needs",
    title=TITLE,
    figure=needs_figure,
    caption=needs_caption,
    section="picture",
    applies=has_parts,
    rollups=(STEPS,),
    help="Strong columns are snapshots that cost most, strong rows are parts that read most from others.",
)


def _one_part(facts: PartitionFacts) -> Figure:
    """Return the edges of each snapshot, as nothing is received."""
    bounds = facts.bounds
    middles, edges = (0.5 * (bounds[1:] + bounds[:-1] - 1)).tolist(), facts.maps["edges"][0].round(2).tolist()
    return card(
        [bars("edges", middles, edges, series_colour(0), "snapshot %{x:.0f}: %{y:,.4~g} edges")],
        TITLE,
        unit="edges a snapshot",
        x_title=SNAPSHOTS,
        annotations=[_heading("With one part, nothing is received", 0)],
        bargap=0.15,
        height=HEIGHT,
        xaxis={"showgrid": False},
        yaxis={"rangemode": "tozero", "nticks": 6},
    )


def _work_bars(times: Array) -> Attributes:
    """Return a bar for each part, the largest in orange; of many parts those with most and least work."""
    parts = [*range(len(times))]
    if len(times) > MOST_BARS:
        order = np.argsort(-times, kind="stable").tolist()
        parts = [*order[:_ENDS], -1, *order[-_ENDS:]]
    busiest = int(times.argmax()) if times.max() > EVEN else -1
    names = [f"{len(times) - 2 * _ENDS} more" if part < 0 else f"part {part}" for part in parts]
    values = [0.0 if part < 0 else round(float(times[part]), 4) for part in parts]
    style: Attributes = {
        "text": ["" if part < 0 else three_digits(float(times[part])) for part in parts],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "insidetextfont": {"size": 11, "color": "#FFFFFF"},
        "xaxis": "x2",
        "yaxis": "y2",
    }
    colours = [series_colour(1) if part == busiest else series_colour(0) for part in parts]
    return level_bars("work", names, values, colours, "%{y}: %{x:.3~g} times the mean<extra></extra>", **style)


def _heading(text: str, x: float) -> Attributes:
    return paper_label(text, x, 1, SOFT_COLOUR, xanchor="left", yanchor="bottom")


# Load of the parts.


def load_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return nodes, edges, load and memory of each part over their means."""
    facts = tables.event(PartitionFacts)
    if facts is None:
        return card([], LOAD_TITLE, empty=UNPLANNED)
    figure = part_load(facts)
    figure["layout"].pop("height")  # as high as the charts beside it
    return figure


def load_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return which part has most of any quantity."""
    facts = tables.event(PartitionFacts)
    return NOTHING_YET if facts is None else part_load_caption(facts)


def _load_chart(section: Section, is_shown: Callable[[RunTables], bool]) -> Chart:
    return Chart(
        name="part_load",
        title=LOAD_TITLE,
        figure=load_figure,
        caption=load_caption,
        section=section,
        applies=is_shown,
        help="1 is an even share. Load is the number of walks into a part's nodes; a step ends with the slowest part.",
    )


PARTS = 4


def vertex_pictures(system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
    """Return the rows that a partition receives or copies, bytes between partitions, and partitioners compared."""
    partitioner = system.parts["partition"]
    name = "replicated" if system.parts["parallel"] == "cached_vertex" else "halo"
    partitions = {rule: partition_graph(graph, rule, PARTS) for rule in dict.fromkeys((partitioner, "hash", "metis"))}
    rows = {rule: float(getattr(partition.measures, name).sum()) for rule, partition in partitions.items()}
    facts = PartitionFacts.read(partitions[partitioner].to_dict())
    cards = [(part_map(name, facts), map_caption(name, facts))]
    if name == "halo":
        cards.append(_bytes_between_parts(facts))
    quantity = "Rows copied" if name == "replicated" else "Halo rows of a step"
    caption = (
        f"{quantity} with {PARTS} partitions of the same small graph. Fewer are better: a partitioner uses the "
        "structure of the graph or ignores it (hash)."
    )
    return [*cards, compared_bars(quantity, "rows", rows, highlighted=partitioner, caption=caption)]


def _bytes_between_parts(facts: PartitionFacts) -> CaptionedFigure:
    traffic = Traffic({pass_name: layers.sum(axis=0) for pass_name, layers in facts.predicted.items()})
    return traffic_card(None, traffic, who="partition"), (
        "Counted from the partition: neighbour rows forward, their gradients backward. Unlike ESDG's, they depend on "
        "the edges, and pairs differ."
    )
