"""The picture of node parts: the rows that each part needs from the others, and its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array
from dtdg_lab.systems.vertex_parts import captions
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Key, card
from dtdg_lab.visualization.graphs.partition import EVEN, darkest_key, over_mean
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import percent_text, three_digits
from dtdg_lab.visualization.palette import BASELINE_COLOUR, HEAT_SCALES, series_colour
from dtdg_lab.visualization.traces import Drawn, bars, heat, level_bars

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

TITLE = "What each part needs from the others"
SNAPSHOTS = "training snapshot, oldest to newest"
HEIGHT = 300
MOST_CELLS = 24_000
MOST_BARS = 12  # parts up to which each has a bar
_ENDS = 5  # parts at each end of the list, where there are more
_MAP, _BARS = [0.0, 0.68], [0.78, 1.0]  # widths
_SOFT = "#57606A"

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
    return has_parts(tables) and catalogue.system(tables.system).parts["parallel"] == "cached_vertex"


def part_work(facts: PartitionFacts) -> Array:
    """Return the edges that each part aggregates over in all snapshots; with copies, those of copied nodes too."""
    edges = np.asarray(facts.maps["edges"], np.float64)
    if not facts.exchanges:
        edges = edges + np.asarray(facts.measures["replicated_edges"], np.float64)
    return edges @ np.diff(facts.bounds)


def needs_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Draw the rows that each part receives or copies, and the work of each."""
    facts = tables.event(PartitionFacts)
    return card([], TITLE, empty="Nodes are being partitioned", height=HEIGHT) if facts is None else draw_needs(facts)


def draw_needs(facts: PartitionFacts) -> Figure:
    """Draw a heat map of parts and snapshots with bars of work; of one part, bars of edges by snapshot."""
    if facts.parts == 1:
        return _one_part(facts)
    times = over_mean(part_work(facts))
    verb = "received" if facts.exchanges else "copied"
    rows, bounds = _binned(facts.maps["halo" if facts.exchanges else "replicated"], facts.bounds)
    ticks = range(0, facts.parts, max(1, -(-facts.parts // 16)))
    even: Drawn = {"type": "line", "xref": "x2", "yref": "paper", "x0": 1, "x1": 1, "y0": 0, "y1": 1}
    hover = f"part %{{y}}, snapshot %{{x:.0f}}: %{{z:,.4~g}} rows {verb}<extra></extra>"
    looks: Drawn = {"span": (0, float(rows.max()) or 1.0), "showscale": False, "hover": hover}
    looks |= {"xgap": 1, "ygap": 1} if facts.parts <= 32 else {}
    x, y = (bounds - 0.5).tolist(), range(facts.parts)
    data = [
        heat(f"rows {verb}", rows.round(2).tolist(), x, y, HEAT_SCALES["halo"], **looks),
        *_work_bars(times),
    ]
    plain: Drawn = {"showgrid": False, "zeroline": False, "tickangle": 0, "tickfont": {"size": 11}}
    names = {"tickvals": [*ticks], "ticktext": [f"part {part} " for part in ticks]}
    top = max(1.0, float(times.max()))
    layout: dict[str, Any] = {
        "xaxis": {"domain": _MAP, "range": [x[0], x[-1]], "showgrid": False},
        "yaxis": {"range": [facts.parts - 0.5, -0.5], "showgrid": False, **names},
        "xaxis2": {**plain, "domain": _BARS, "anchor": "y2", "range": [0, 1.02 * top], "tickvals": [0, 0.5, 1]},
        "yaxis2": {**plain, "anchor": "x2", "type": "category", "autorange": "reversed", "ticksuffix": " "},
    }
    keys: list[Key] = [darkest_key(float(rows.max()), "rows", "halo")]
    if times.max() > EVEN:
        keys.append(("most work", series_colour(1), "box"))
    return card(
        data,
        TITLE,
        keys=keys,
        x_title=SNAPSHOTS,
        shapes=[{**even, "line": {"color": BASELINE_COLOUR, "width": 1.2, "dash": "dash"}}],
        annotations=[
            _heading(f"Rows {verb}", _MAP[0]),
            _heading("Work; 1 is the mean", _BARS[0]),
        ],
        bargap=0.25,
        margin={"l": 68, "t": 22},
        height=HEIGHT,
        **layout,
    )


def needs_caption(tables: RunTables, options: ChartOptions) -> str:
    """Say how many edges join two parts, and which part has the most work."""
    facts = tables.event(PartitionFacts)
    if facts is None:
        return NOTHING_YET
    if facts.parts == 1:
        return captions.ONE_PART
    times = over_mean(part_work(facts))
    template = captions.MOST_WORK if times.max() > EVEN else captions.EVEN_WORK
    cut, part = percent_text(facts.shares["cut"]), int(times.argmax())
    return template.format(cut=cut, part=part, times=three_digits(float(times.max())))


PICTURE = Chart(
    name="part_needs",
    title=TITLE,
    figure=needs_figure,
    caption=needs_caption,
    place="picture",
    shown=has_parts,
    rollups=(STEPS,),
    help="Strong columns are snapshots that cost most, strong rows are parts that read most from others.",
)


def _one_part(facts: PartitionFacts) -> Figure:
    """Draw the edges of each snapshot, as nothing is received."""
    bounds = facts.bounds
    middles, edges = (0.5 * (bounds[1:] + bounds[:-1] - 1)).tolist(), facts.maps["edges"][0].round(2).tolist()
    data = [bars("edges", middles, edges, series_colour(0), "snapshot %{x:.0f}: %{y:,.4~g} edges")]
    axes: dict[str, Any] = {"xaxis": {"showgrid": False}, "yaxis": {"rangemode": "tozero", "nticks": 6}}
    heading = [_heading("With one part, nothing is received", 0)]
    return card(
        data, TITLE, unit="edges a snapshot", x_title=SNAPSHOTS, annotations=heading, bargap=0.15, height=HEIGHT, **axes
    )


def _binned(values: Array, bounds: Array) -> tuple[Array, Array]:
    """Return values and bounds with as few columns as can be drawn: means of neighbouring ones."""
    stride = -(-values.size // MOST_CELLS)
    if stride == 1:
        return values, bounds
    firsts = np.arange(0, values.shape[1], stride)
    widths = np.diff(bounds)
    means = np.add.reduceat(values * widths, firsts, axis=1) / np.add.reduceat(widths, firsts)
    return means, np.append(bounds[firsts], bounds[-1])


def _work_bars(times: Array) -> list[Drawn]:
    """Return a bar for each part, the largest in orange; of many parts those with most and least work."""
    shown = [*range(len(times))]
    if len(times) > MOST_BARS:
        order = np.argsort(-times, kind="stable").tolist()
        shown = [*order[:_ENDS], -1, *order[-_ENDS:]]
    most = int(times.argmax()) if times.max() > EVEN else -1
    names = [f"{len(times) - 2 * _ENDS} more" if part < 0 else f"part {part}" for part in shown]
    values = [0.0 if part < 0 else round(float(times[part]), 4) for part in shown]
    looks: Drawn = {
        "text": ["" if part < 0 else three_digits(float(times[part])) for part in shown],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "insidetextfont": {"size": 11, "color": "#FFFFFF"},
        "xaxis": "x2",
        "yaxis": "y2",
    }
    colours = [series_colour(1) if part == most else series_colour(0) for part in shown]
    return [level_bars("work", names, values, colours, "%{y}: %{x:.3~g} times the mean<extra></extra>", **looks)]


def _heading(text: str, x: float) -> Drawn:
    placed = {"xref": "paper", "yref": "paper", "x": x, "y": 1, "xanchor": "left", "yanchor": "bottom"}
    return {"text": text, **placed, "showarrow": False, "font": {"size": 11.5, "color": _SOFT}}
