"""The staleness of averaged models: steps that a rank makes between handing in its model and taking the average."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dtdg_lab.core.units import join_words
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches import captions
from dtdg_lab.systems.hybrid_batches.observations import (
    CLOCK,
    Averaging,
    averaging,
    is_hybrid,
    staleness_text,
)
from dtdg_lab.systems.hybrid_batches.time_cards import begin_of, stretches, time_card
from dtdg_lab.visualization.axes import FROM_ZERO
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, Key
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.traces import Attributes, line

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
    layout: Attributes = {"unit": "steps", "keys": keys, "yaxis": {**FROM_ZERO, "nticks": 4}}
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


def _rank_line(rank: int, rounds: Averaging, begin: float, end: float) -> Attributes:
    seconds, staleness = rounds.seconds, rounds.staleness
    if len(seconds) > _POINTS:
        stretch, middles = stretches(seconds, begin, end, _POINTS)
        count = np.bincount(stretch, minlength=_POINTS)
        seconds = middles[count > 0]
        staleness = np.bincount(stretch, staleness, _POINTS)[count > 0] / count[count > 0]
    style: Attributes = {"mode": "lines+markers", "marker": {"color": series_colour(rank), "size": 4}}
    hover = "%{x:.1f} s: %{y:.3~g} steps"
    values = staleness.round(3).tolist()
    return line(f"rank {rank}", seconds.round(3).tolist(), values, series_colour(rank), hover, width=1.4, **style)


def _spread(rounds: Mapping[int, Averaging], begin: float, end: float) -> list[Attributes]:
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
    edge: Attributes = {"mode": "lines", "width": 0, "hoverinfo": "skip"}
    filled: Attributes = {**edge, "fill": "tonexty", "fillcolor": "rgba(159,195,220,0.5)"}
    colour = series_colour(0)
    return [
        line("least", x, lowest[is_filled].tolist(), colour, **edge),
        line("most", x, highest[is_filled].tolist(), colour, **filled),
        line("mean", x, mean.tolist(), colour, "%{x:.1f} s: %{y:.3~g} steps", mode="lines"),
    ]


def is_averaged(tables: RunTables) -> bool:
    """Return whether ranks average models."""
    return is_hybrid(tables) and tables.config["exchange"] == "models"


STALENESS = Chart(
    name="staleness",
    title=STALENESS_TITLE,
    figure=staleness_figure,
    caption=staleness_caption,
    section="supporting",
    applies=is_averaged,
    rollups=(CLOCK,),
    help="Steps a rank makes between handing in its model and taking over the average. Fewer is better.",
)
