"""What to look for in the charts of a graph, in a sentence or two for each, from its statistics."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.describe import GraphStatistics
from dtdg_lab.views.layout import percent

_BURST = 3.0  # a snapshot of so many times the median's edges is called a burst


def size(found: GraphStatistics) -> str:
    """How large the graph is, and how unevenly."""
    edges = found.edges
    median = float(np.median(edges))
    text = f"{len(edges):,} snapshots; the median one has {median:,.0f} edges, the largest {int(edges.max()):,}."
    bursts = int(np.count_nonzero(edges > _BURST * median)) if median else 0
    if bursts:
        count = "1 snapshot has" if bursts == 1 else f"{bursts:,} snapshots have"
        text += (
            f" Look for bursts: {count} over {_BURST:.0f} times the median, and a quiet past does not foretell them."
        )
    elif edges[-1] > 2 * max(int(edges[0]), 1):
        text += " It grows: what is tested is larger than what is trained on."
    empty = sum(map(len, found.empty))
    if empty:
        text += f" {empty:,} without edges (crosses): their labels are all 0."
    return text


def overlap(found: GraphStatistics) -> str:
    """How much neighbours share, and what that means."""
    mean = mean_of(found.kept)
    if np.isnan(mean):
        return "No snapshot with edges has a successor."
    text = f"On average {percent(mean)} of a snapshot's edges are in the next one"
    if found.edge_life > 1:
        text += f"; edges live {found.edge_life} base intervals, so neighbours share all but one of theirs"
    if mean >= 0.5:
        return text + ". The label is largely there already: persistence will be hard to beat."
    return text + ". The less is shared, the more there is to predict."


def degrees(found: GraphStatistics) -> str:
    """How heavy the tail of the in-degrees is."""
    quantiles = found.in_degrees
    if not quantiles:
        return "There are no edges."
    text = f"Half of the in-degrees are at most {quantiles[0.5]:,}, the largest is {quantiles[1.0]:,}."
    if found.tail is None:
        return text + " There are too few large ones to fit a law."
    return (
        f"{text} The straighter the line, the closer to a power law; the smaller its exponent, the more a few vertices "
        "decide squared errors."
    )


def baselines(found: GraphStatistics) -> str:
    """What a model has to beat."""
    persistence, mean = found.persistence_mse, found.mean_mse
    text = f"Persistence scores {persistence:.3g}, the mean {mean:.3g}."
    if persistence < mean:
        share = percent(1 - persistence / mean) if mean else "0 %"
        return f"{text} A model has learned something only below persistence, which explains {share} of the variance."
    return f"{text} Persistence is no better than the mean here: the past says little, or says the opposite."


def mean_of(values: NDArray[np.floating]) -> float:
    """The mean of what is a number; NaN where nothing is."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else float("nan")
