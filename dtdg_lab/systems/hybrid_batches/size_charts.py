"""Supporting charts of hybrid batches: the batch size over time, and the staleness of averaged models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.core.units import join_words
from dtdg_lab.systems.hybrid_batches import captions
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.systems.hybrid_batches.observations import (
    CLOCK,
    Averaging,
    Decision,
    averaging,
    is_hybrid,
    recent_decisions,
    spread_decisions,
    staleness_text,
)
from dtdg_lab.systems.hybrid_batches.time_cards import begin_of, end_of, stretches, time_axis, time_card, time_of
from dtdg_lab.visualization.axes import FROM_ZERO
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
    if facts is not None and not facts.adjusted:
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
        if not facts.adjusted
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

# Steps that a rank makes between handing in its model and taking over the average.


STALENESS_TITLE = "Staleness of averaged models"
_NAMED, _SPOKEN = 4, 3  # ranks with a line of their own, and in the caption
_POINTS = 300  # of a line


def staleness_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the staleness of each round by rank, or least, mean and most where ranks are many."""
    rounds = averaging(tables)
    begin = begin_of([float(rank_rounds.seconds[0]) for rank_rounds in rounds.values()], tables.seconds)
    keys: list[Key] = []
    if len(rounds) <= _NAMED:
        data = [_rank_line(rank, rank_rounds, begin, tables.seconds) for rank, rank_rounds in rounds.items()]
        keys = [(f"rank {rank}", series_colour(rank), "line") for rank in rounds]
    else:
        data = _spread(rounds, begin, tables.seconds)
        keys = [("mean of the ranks", series_colour(0), "line"), ("least to most", "#CFE2F0", "box")]
    layout: Drawn = {"unit": "steps", "keys": keys, "yaxis": {**FROM_ZERO, "nticks": 4}}
    return time_card(
        tables, "seconds", data, STALENESS_TITLE, begin=begin, empty="Appears with the first average", **layout
    )


def staleness_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the mean staleness of the newest rounds, by rank where they are few."""
    recent = {rank: rank_rounds.recent for rank, rank_rounds in averaging(tables).items()}
    if not recent:
        return NOTHING_YET
    if len(recent) > _SPOKEN:
        lowest, highest = staleness_text(min(recent.values())), staleness_text(max(recent.values()))
        return captions.STALE_MANY.format(least=lowest, most=highest, ranks=len(recent))
    (rank, first), *rest = recent.items()
    texts = [captions.STALE_RANK.format(staleness=staleness_text(first), rank=rank)]
    texts += [captions.STALE_NEXT.format(staleness=staleness_text(value), rank=rank) for rank, value in rest]
    return captions.STALE_FEW.format(by_rank=join_words(texts))


def _rank_line(rank: int, rounds: Averaging, begin: float, end: float) -> Drawn:
    seconds, staleness = rounds.seconds, rounds.staleness
    if len(seconds) > _POINTS:
        stretch, middles = stretches(seconds, begin, end, _POINTS)
        count = np.bincount(stretch, minlength=_POINTS)
        seconds = middles[count > 0]
        staleness = np.bincount(stretch, staleness, _POINTS)[count > 0] / count[count > 0]
    style: Drawn = {"mode": "lines+markers", "marker": {"color": series_colour(rank), "size": 4}}
    hover = "%{x:.1f} s: %{y:.3~g} steps"
    values = staleness.round(3).tolist()
    return line(f"rank {rank}", seconds.round(3).tolist(), values, series_colour(rank), hover, width=1.4, **style)


def _spread(rounds: Mapping[int, Averaging], begin: float, end: float) -> list[Drawn]:
    """Return a band from the least to the most stale rank, and their mean."""
    seconds = np.concatenate([rank_rounds.seconds for rank_rounds in rounds.values()])
    staleness = np.concatenate([rank_rounds.staleness for rank_rounds in rounds.values()])
    stretch, middles = stretches(seconds, begin, end, _POINTS)
    count = np.bincount(stretch, minlength=_POINTS)
    lowest, highest = np.full(_POINTS, np.inf), np.full(_POINTS, -np.inf)
    np.minimum.at(lowest, stretch, staleness)
    np.maximum.at(highest, stretch, staleness)
    is_filled = count > 0
    x, mean = (
        middles[is_filled].round(3).tolist(),
        (np.bincount(stretch, staleness, _POINTS)[is_filled] / count[is_filled]).round(3),
    )
    edge: Drawn = {"mode": "lines", "width": 0, "hoverinfo": "skip"}
    filled: Drawn = {**edge, "fill": "tonexty", "fillcolor": "rgba(159,195,220,0.5)"}
    colour = series_colour(0)
    return [
        line("least", x, lowest[is_filled].tolist(), colour, **edge),
        line("most", x, highest[is_filled].tolist(), colour, **filled),
        line("mean", x, mean.tolist(), colour, "%{x:.1f} s: %{y:.3~g} steps", mode="lines"),
    ]


def is_averaged(tables: RunTables) -> bool:
    """Return whether ranks average models."""
    return is_hybrid(tables) and tables.setting("exchange") == "models"


STALENESS = Chart(
    name="staleness",
    title=STALENESS_TITLE,
    figure=staleness_figure,
    caption=staleness_caption,
    place="supporting",
    shown=is_averaged,
    rollups=(CLOCK,),
    help="Steps a rank makes between handing in its model and taking over the average. Fewer is better.",
)
