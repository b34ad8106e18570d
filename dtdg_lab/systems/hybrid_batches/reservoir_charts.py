"""Folded charts of the reservoir: where batches came from, and how full it is by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches import captions
from dtdg_lab.systems.hybrid_batches.events import HybridFacts, SizeFacts
from dtdg_lab.systems.hybrid_batches.observations import CLOCK, is_hybrid, seconds_at, size_now
from dtdg_lab.systems.hybrid_batches.time_cards import begin_of, size_keys, size_line, stretches, time_axis, time_card
from dtdg_lab.visualization.chart import FIRST_SECOND, NOTHING_YET, Chart, ChartOptions, Figure, XAxis, trace_keys
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.traces import Attributes, bars, line

# Where batches came from.


SOURCES_TITLE = "Source of batches"
_RECENT_STEPS = 500
_BARS = 60
_NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "reservoir": ("from the reservoir", "#0072B2"),
        "snapshot": ("all nodes of its snapshots", "#56B4E9"),
        "new": ("built in the step", "#E69F00"),
    }
)


def _drawn_batches(tables: RunTables, options: ChartOptions) -> Rows:
    return tables.rows("targets") if options.whole_run else tables.last("targets", _RECENT_STEPS)


def sources_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return shares of the batches by their source, in bars of as many steps, or seconds, each."""
    x, rows = time_axis(tables, options), _drawn_batches(tables, options)
    if not len(rows):
        return time_card(tables, x, [], SOURCES_TITLE, unit="% of batches")
    times = _times(tables, rows, x)
    begin, end = float(np.nanmin(times)), float(np.nanmax(times))
    count = min(_BARS, max(1, round(end - begin) + 1)) if x == "steps" else _BARS
    stretch, middles = stretches(np.nan_to_num(times, nan=begin), begin, max(end, begin + 1e-3), count)
    total = np.bincount(stretch, minlength=count)
    is_filled, sources, width = total > 0, rows["source"].astype(str), (end - begin) / count or 1.0
    data = []
    for source, (name, colour) in _NAMES.items():
        share = 100 * np.bincount(stretch[sources == source], minlength=count)[is_filled] / total[is_filled]
        if share.any():
            hover = "%{y:.0f}% " + name + "<extra></extra>"
            places, heights = middles[is_filled].round(3).tolist(), share.round(1).tolist()
            data.append(bars(name, places, heights, colour, hover, width=width))
    layout: Attributes = {"barmode": "stack", "bargap": 0, "yaxis": {"range": [0, 100], "nticks": 4}}
    return time_card(tables, x, data, SOURCES_TITLE, begin=begin, unit="% of batches", keys=trace_keys(data), **layout)


def _times(tables: RunTables, rows: Rows, x: XAxis) -> Array:
    """Return where each row is on the axis."""
    if x == "steps":
        return rows["step"].astype(np.float64)
    ranks, times = rows["rank"], np.full(len(rows), np.nan)
    for rank in np.unique(ranks).tolist():
        times[ranks == rank] = seconds_at(tables, rank, rows["step"][ranks == rank] + 1)
    return times


def sources_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the share of the batches from the reservoir."""
    rows = _drawn_batches(tables, options)
    if not len(rows):
        return NOTHING_YET
    share = float((rows["source"].astype(str) == "reservoir").mean())
    return captions.SOURCES.format(share=percent_text(share)) if share or has_reservoir(tables) else captions.BUILT


SOURCES = Chart(
    name="batch_sources",
    title=SOURCES_TITLE,
    figure=sources_figure,
    caption=sources_caption,
    section="folded",
    applies=is_hybrid,
    rollups=(CLOCK,),
    help="A batch from the reservoir costs a step no time; one that is built in the step delays it.",
)

# How full the reservoir is.


RESERVOIR_TITLE = "Reservoir by size"
_POINTS = 300  # of a line
_SPANS = 10  # the newest plans with other sizes whose levels are drawn
_SLOT_S = 0.5  # parts record their levels about so often, each at its own moment


def reservoir_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return by size the share of the reservoirs' room that is taken, of all parts together."""
    layout: Attributes = {"unit": "% of its room", "empty": FIRST_SECOND, "yaxis": {"range": [0, 103], "nticks": 4}}
    spans, current, data = _level_spans(tables), _current_size(tables), []
    sizes = list({size.shares: size for span in spans for size in span.levels}.values())
    sizes.sort(key=lambda size: size.shares)
    for action, size in enumerate(sizes):
        x, share = list[float | None](), list[float | None]()
        for span in spans:
            if size in span.levels:
                batches, capacity = span.levels[size]
                x += [*span.seconds.tolist(), None]
                share += [*(100 * batches / np.maximum(capacity, 1)).round(1).tolist(), None]
        style = size_line(sizes, action, in_use=size == current)
        data.append(line(size.name, x[:-1], share[:-1], style.pop("colour"), "%{x:.1f} s: %{y:.0f}%", **style))
    begin = begin_of([float(span.seconds[0]) for span in spans[:1]], tables.seconds)
    return time_card(tables, "seconds", data, RESERVOIR_TITLE, begin=begin, keys=size_keys(sizes), **layout)


def reservoir_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how many batches of the size in use are held."""
    spans, size = _level_spans(tables), _current_size(tables)
    if size is None or not spans or size not in spans[-1].levels:
        return NOTHING_YET
    batches, capacity = (int(level[-1]) for level in spans[-1].levels[size])
    return captions.RESERVOIR.format(held=f"{batches:,}", capacity=f"{capacity:,}", size=size.name)


def _current_size(tables: RunTables) -> SizeFacts | None:
    facts = tables.event(HybridFacts)
    return None if facts is None else size_now(tables, facts)


@dataclass(frozen=True, slots=True)
class _LevelSpan:
    """Levels while the same sizes could be chosen, from when every part had recorded its own.

    Attributes:
        seconds: of training.
        levels: size -> the batches that all parts hold then, and the most that they can.
    """

    seconds: Array
    levels: Mapping[SizeFacts, tuple[Array, Array]]


def _level_spans(tables: RunTables) -> list[_LevelSpan]:
    """Return the levels of the sizes of each plan, in order."""

    def spans() -> list[_LevelSpan]:
        plans: list[tuple[float, Sequence[SizeFacts]]] = []
        for event, facts in tables.typed(HybridFacts):
            if facts is not None and (not plans or plans[-1][1] != facts.sizes):
                plans.append((float(event["seconds"]), facts.sizes))
        rows, plans = tables.rows("reservoir"), plans[-_SPANS:]
        ends = [*(begin for begin, _ in plans), np.inf][1:]
        result = []
        for number, ((begin, sizes), end) in enumerate(zip(plans, ends, strict=True)):
            is_inside = (rows["seconds"] < end) & (rows["action"] < len(sizes))
            is_inside &= (rows["seconds"] >= begin) | (number == 0)  # the first levels may come before their plan
            seconds, levels = _sum_levels(rows.where(is_inside), max_points=_POINTS // len(plans))
            if levels:
                by_size = {sizes[action]: level for action, level in levels.items()}
                result.append(_LevelSpan(seconds, by_size))
        return result

    return tables.once("hybrid: reservoir levels", spans)


def _sum_levels(rows: Rows, *, max_points: int) -> tuple[Array, Mapping[int, tuple[Array, Array]]]:
    by_part = [
        (int(action), part_rows)
        for action, action_rows in rows.by("action").items()
        for part_rows in action_rows.by("part").values()
    ]
    if not by_part:
        return np.empty(0), {}
    begin = max(float(part_rows["seconds"][0]) for _, part_rows in by_part)
    end = float(rows["seconds"].max())
    count = min(max_points, int((end - begin) / _SLOT_S) + 1)
    seconds = np.linspace(max(begin, end - (count - 1) * _SLOT_S) if count < max_points else begin, end, count)
    levels: dict[int, tuple[Array, Array]] = {}
    for action, part_rows in by_part:
        stretch = np.clip(np.searchsorted(part_rows["seconds"], seconds + 1e-6, side="right") - 1, 0, None)
        batches, capacity = part_rows["held"][stretch], part_rows["capacity"][stretch]
        sums = levels.get(action, (0, 0))
        levels[action] = (sums[0] + batches, sums[1] + capacity)
    return seconds.round(3), levels


def has_reservoir(tables: RunTables) -> bool:
    """Return whether a run keeps batches in a reservoir."""
    return is_hybrid(tables) and bool(tables.config["reservoir"])


RESERVOIR = Chart(
    name="reservoir",
    title=RESERVOIR_TITLE,
    figure=reservoir_figure,
    caption=reservoir_caption,
    section="folded",
    applies=has_reservoir,
    rollups=(CLOCK,),
    help="The fuller a size is, the more of its steps take their batch from here. A flat line is full.",
)
