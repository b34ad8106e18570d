"""The batch size over time: sizes that a controller chose, or a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtdg_lab.systems.hybrid_batches import captions
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.systems.hybrid_batches.observations import (
    CLOCK,
    Decision,
    is_hybrid,
    recent_decisions,
    spread_decisions,
)
from dtdg_lab.systems.hybrid_batches.time_cards import begin_of, end_of, time_axis, time_card, time_of
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Key, Mark, XAxis
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.visualization.traces import Drawn, line, points

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

# The sizes that a controller chose, or a person.


SIZES_TITLE = "Batch size over time"
_RECENT = 20  # decisions that the caption counts
_NAMES, _NAMED_SIZES = 16, 5  # sizes that the axis has room for, and with their names
_HAND_SET = 100  # stretches without a controller
_BEST, _EXPLORING = series_colour(0), series_colour(4)


def sizes_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the size of each decision, and of stretches in which no controller chose."""
    x = time_axis(tables, options)
    choices, hand_set = spread_decisions(tables), _hand_set(tables, x)
    begin = begin_of([time_of(decision, x) for decision in choices[:1]], end_of(tables, x))
    names = _names(choices, hand_set)
    rows = {name: row for row, name in enumerate(names)}
    data = [
        line(name, [max(start, begin), end], [rows[name]] * 2, BASELINE_COLOUR, "%{fullData.name}", width=4)
        for name, start, end, _ in hand_set
        if name in rows and end >= begin
    ]
    keys: list[Key] = [("fixed size", BASELINE_COLOUR, "line")] if data else []
    kinds: tuple[tuple[str, str, str, Mark, bool], ...] = (
        ("best value", _BEST, "square", "box", True),
        ("exploring", _EXPLORING, "x", "cross", False),
    )
    for label, colour, symbol, mark, is_best in kinds:
        of_kind = [decision for decision in choices if decision.is_best == is_best and decision.size in rows]
        if of_kind:
            places = [time_of(decision, x) for decision in of_kind]
            hover = "%{x:.1f} s: %{customdata}" if x == "seconds" else "step %{x}: %{customdata}"
            marker: Drawn = {"marker": {"symbol": symbol}, "customdata": [decision.size for decision in of_kind]}
            data.append(points(label, places, [rows[d.size] for d in of_kind], colour, hover, size=6, **marker))
            keys.append((label, colour, mark))
    stride = -(-len(names) // _NAMED_SIZES)
    ticks = {
        "tickvals": list(range(len(names)))[:: stride or 1],
        "ticktext": [f"{name} " for name in names][:: stride or 1],
    }
    axis = {**ticks, "range": [-0.6, max(len(names), 1) - 0.4], "tickfont": {"size": 10.5}}
    layout: Drawn = {"unit": "snapshots × nodes", "keys": keys, "empty": "Appears with the first decision"}
    return time_card(tables, x, data, SIZES_TITLE, begin=begin, yaxis=axis, margin={"l": 78}, **layout)


def sizes_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the size that the newest decisions chose most often, or the one that is set."""
    facts, choices = tables.event(HybridFacts), recent_decisions(tables)
    if facts is not None and not facts.is_controlled:
        return captions.SET.format(size=facts.size.name)
    if not choices:
        return NOTHING_YET
    recent = [decision.size for decision in choices[-_RECENT:]]
    ((size, count),) = Counter(reversed(recent)).most_common(1)
    return captions.CHOSEN.format(size=size, count=count, decisions=len(recent))


def _hand_set(tables: RunTables, x: XAxis) -> list[tuple[str, float, float, tuple[float, float]]]:
    """Return the stretches in which no controller chose: name of the size, begin, end, and the size as it was set."""
    plans = [(event, facts) for event, facts in tables.typed(HybridFacts) if facts is not None]
    begins = [float(event["seconds"] if x == "seconds" else event["step"] or 0) for event, _ in plans]
    ends = [*begins, end_of(tables, x)][1:]
    spans = [
        (facts.size.name, begin, end, facts.size.shares)
        for (_, facts), begin, end in zip(plans, begins, ends, strict=True)
        if not facts.is_controlled
    ]
    return spans[-_HAND_SET:]


def _names(choices: Sequence[Decision], hand_set: Sequence[tuple[str, float, float, tuple[float, float]]]) -> list[str]:
    """Return the names of the sizes in order, those with most snapshots on top; of many those that were used last."""
    pairs = {name: size for name, _, _, size in hand_set}
    for facts in {id(decision.facts): decision.facts for decision in choices}.values():
        pairs |= {size.name: size.shares for size in facts.sizes}
    used = list(
        dict.fromkeys([*(d.size for d in reversed(choices)), *(name for name, *_ in reversed(hand_set)), *pairs])
    )
    return sorted(used[:_NAMES], key=lambda name: pairs.get(name, (0.0, 0.0)))


SIZES = Chart(
    name="batch_sizes",
    title=SIZES_TITLE,
    figure=sizes_figure,
    caption=sizes_caption,
    place="supporting",
    shown=is_hybrid,
    rollups=(CLOCK,),
    help="Squares are sizes that the controller valued most, crosses those it tried to learn their value.",
)
