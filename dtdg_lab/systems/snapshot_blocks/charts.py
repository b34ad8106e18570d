"""Charts of ESDG: its picture, communication, bytes, graphs transferred, hidden exchange, memory against blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows, known
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_blocks.block_study import TITLE as BLOCK_MEMORY_TITLE
from dtdg_lab.systems.snapshot_blocks.block_study import StepCost, cost_caption, draw_block_costs
from dtdg_lab.systems.snapshot_blocks.ownership_chart import PICTURE, is_esdg
from dtdg_lab.systems.snapshot_blocks.periods import plan_periods
from dtdg_lab.visualization.axes import FROM_ZERO, byte_unit
from dtdg_lab.visualization.changes.marks import over_steps
from dtdg_lab.visualization.chart import (
    FIRST_STEP,
    NOTHING_YET,
    STEPS_TITLE,
    Chart,
    ChartOptions,
    Figure,
    card,
    trace_keys,
)
from dtdg_lab.visualization.numbers import bytes_text, percent_text
from dtdg_lab.visualization.palette import BASELINE_COLOUR, TEXT_COLOUR, series_colour
from dtdg_lab.visualization.runs.transfers import transfers_chart
from dtdg_lab.visualization.runs.waiting import RECENT, communication_chart, communication_time
from dtdg_lab.visualization.traces import Attributes, line

EQUAL_SHARE = 0.005  # share saved up to which graphs count as transferred in full
TRANSFERS = Rollup("transfers", by=("rank",), sums=("bytes", "whole_bytes"), least=("step",), most=("step",))
HIDDEN = Rollup(
    "exchanges", by=("collective",), sums=("in_flight_s", "exposed_s"), least=("step",), most=("step",), points=100
)
STEP_SECONDS = Rollup("steps", sums=("time_s",), least=("step",), most=("step",))
_COLLECTIVES = {"to_vertices": "to nodes", "to_snapshots": "to snapshots", "halo": "neighbours"}


def esdg_charts() -> Sequence[Chart]:
    """Return the picture, the supporting charts and the folded ones."""
    return PICTURE, communication_chart(applies=is_esdg), transfers_chart(applies=is_esdg), *FOLDED


# Graphs that a step transfers to the device.


def graphs_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the bytes of graphs in a step over all ranks, beside those of graphs in full."""
    title, rows = "Graphs transferred", tables.rollup(TRANSFERS)
    if not len(rows):
        empty = "Graphs stay on the device" if tables.common_step >= 0 else FIRST_STEP
        return card([], title, x_title=STEPS_TITLE, empty=empty)
    buckets, index = np.unique(rows["bucket"], return_inverse=True)
    x = _middles(buckets, tables.width(TRANSFERS))
    transferred, in_full = (
        np.bincount(index, rows[name] / rows[f"{name}_known"].clip(1)) for name in ("bytes", "whole_bytes")
    )
    unit, factor = byte_unit(float(max(transferred.max(), in_full.max())))
    hover = "step %{x:.0f}: %{y:.3~g} " + unit
    data = [
        line(name, *_with_gaps(buckets, x, (values / factor).round(4)), colour, hover, dash=dash)
        for name, values, colour, dash in (
            ("transferred", transferred, series_colour(0), "solid"),
            ("each in full", in_full, BASELINE_COLOUR, "dash"),
        )
    ]
    texts: Attributes = {"unit": f"{unit} per step, all ranks", "keys": trace_keys(data), "x_title": STEPS_TITLE}
    figure = card(data, title, **texts, yaxis={**FROM_ZERO, "nticks": 5})
    return over_steps(figure, tables, rows["step_least"].min(), rows["step_most"].max())


def graphs_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return what the newest step moved, compared with graphs in full."""
    rows = tables.rows("transfers")
    rows = rows.where(rows["step"] <= tables.common_step)
    if not len(rows):
        return NOTHING_YET if tables.common_step < 0 else "Graphs stay on the device, so that no step moves any."
    step = int(rows["step"].max())
    if step < tables.common_step:
        return f"Graphs stay on the device: no step has moved any since step {step:,}."
    newest = rows.where(rows["step"] == step)
    moved, in_full = (float(newest[name].sum()) for name in ("bytes", "whole_bytes"))
    saved = 1 - moved / in_full if in_full else 0.0
    less = f"{percent_text(saved)} less than whole graphs" if saved > EQUAL_SHARE else "each graph in full"
    return f"A step moved {bytes_text(moved)}, {less}."


# Share of communication that is hidden.


def hidden_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the hidden share of the time in flight over steps, of each collective and of all."""
    title, rows = "Hidden row exchange", tables.rollup(HIDDEN)
    unit = "% of the time in flight"
    if not len(rows):
        empty = "With one rank, nothing is sent" if tables.ranks == 1 else "Appears with the first exchange"
        return card([], title, unit=unit, x_title=STEPS_TITLE, empty=empty)
    collectives = rows.by("collective")
    curves: list[tuple[str, str, Rows]] = [
        (_COLLECTIVES.get(name, name.replace("_", " ")), series_colour(index), exchanges)
        for index, (name, exchanges) in enumerate(collectives.items())
    ]
    if len(collectives) > 1:
        curves.append(("all", TEXT_COLOUR, rows))
    data = []
    for name, colour, exchanges in curves:
        buckets, index = np.unique(exchanges["bucket"], return_inverse=True)
        in_flight, exposed = (np.bincount(index, exchanges[column]) for column in ("in_flight_s", "exposed_s"))
        share = np.where(in_flight > 0, 100 * (1 - exposed / np.where(in_flight > 0, in_flight, 1)), np.nan)
        x, y = _with_gaps(buckets, _middles(buckets, tables.width(HIDDEN)), share.clip(0).round(2))
        data.append(line(name, x, y, colour, "step %{x:.0f}: %{y:.0f}%", width=2 if name == "all" else 1.2))
    axis = {"range": [-2, 102], "nticks": 5}
    figure = card(data, title, unit=unit, keys=trace_keys(data), x_title=STEPS_TITLE, yaxis=axis)
    return over_steps(figure, tables, rows["step_least"].min(), rows["step_most"].max())


def hidden_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the hidden share of the last steps."""
    time = communication_time(tables)
    if time is None:
        return NOTHING_YET
    share = f"{percent_text(time.hidden_share)} of" if time.hidden_share > 0 else "No"
    steps = min(RECENT, max(tables.common_step + 1, 1))
    return f"{share} row exchange was hidden over the last {steps} steps."


# Peak memory and time of a step by number of blocks.


def block_costs(tables: RunTables) -> dict[int, StepCost]:
    """Return the peak and the mean time of a step by the numbers of blocks that this run has had."""

    def costs() -> dict[int, StepCost]:
        rows = tables.rollup(STEP_SECONDS)
        costs_by_blocks: dict[int, StepCost] = {}
        for period in plan_periods(tables):
            inside = rows.where((rows["step_least"] >= period.first) & (rows["step_most"] < period.end))
            count = float(inside["time_s_known"].sum())
            seconds = float(inside["time_s"].sum()) / count if count else None
            earlier = costs_by_blocks.get(period.blocks, StepCost(period.blocks, None, None))
            peak = earlier.peak_bytes if period.peak_bytes is None else period.peak_bytes
            step_s = earlier.step_s if seconds is None else seconds
            costs_by_blocks[period.blocks] = StepCost(period.blocks, peak, step_s)
        return dict(sorted(costs_by_blocks.items()))

    return tables.once("block costs", costs)


def block_memory_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return bars of the peak and points of the time of a step, by the numbers of blocks that this run has had."""
    return draw_block_costs([*block_costs(tables).values()])


def block_memory_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return what the blocks in use need."""
    periods = plan_periods(tables)
    if not periods:
        return NOTHING_YET
    cost = block_costs(tables)[periods[-1].blocks]
    return NOTHING_YET if cost.peak_bytes is None or cost.step_s is None else cost_caption(cost)


FOLDED = (
    Chart(
        name="graphs_transferred",
        title="Graphs transferred",
        figure=graphs_figure,
        caption=graphs_caption,
        section="folded",
        applies=is_esdg,
        rollups=(TRANSFERS,),
        help="With several blocks, graphs that do not fit the memory are brought for each block, as differences.",
    ),
    Chart(
        name="hidden_communication",
        title="Hidden row exchange",
        figure=hidden_figure,
        caption=hidden_caption,
        section="folded",
        applies=is_esdg,
        rollups=(HIDDEN,),
        help="Share of the time in flight in which ranks computed. At 0% they waited for all of it.",
    ),
    Chart(
        name="block_memory",
        title=BLOCK_MEMORY_TITLE,
        figure=block_memory_figure,
        caption=block_memory_caption,
        section="folded",
        applies=is_esdg,
        rollups=(STEP_SECONDS,),
        help="A bar for each number of blocks that this run has had. Change Time blocks to add one.",
    ),
)


def _middles(buckets: Array, width: float) -> Array:
    """Return the middle step of each bucket."""
    return width * (buckets + 0.5) - 0.5


def _with_gaps(buckets: Array, x: Array, y: Array) -> tuple[list[float], list[float | None]]:
    """Return the points of a line that ends before buckets without rows."""
    jumps = np.flatnonzero(np.diff(buckets) > 1) + 1
    return np.insert(x, jumps, x[jumps - 1]).tolist(), known(np.insert(y, jumps, np.nan))
