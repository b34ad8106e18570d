"""Times to a loss near the best, over runs with different seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median_high

from dtdg_lab.core.units import format_seconds
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.runs.curves import NEAR, finite_losses


def near_by_seed_words(runs: Mapping[str, Sequence[RunTables]]) -> str:
    """Return the shortest, median and longest time to a loss 5% above the lowest of all runs, over the seeds.

    Args:
        runs: label -> the tables of a run for each seed.

    Returns:
        A line for each label, with the number of runs that never reached the loss and count as the slowest. Empty if
        a run was never evaluated.
    """
    losses = {label: [finite_losses(tables) for tables in several] for label, several in runs.items()}
    curves = [curve for several in losses.values() for curve in several]
    if not curves or not all(curves):
        return ""
    near = min(loss for curve in curves for _, loss in curve) * (1 + NEAR)
    lines = [f"seconds to loss {near:.4g}, {NEAR:.0%} above the lowest of all: least, median, most over the seeds"]
    for label, several in losses.items():
        seconds = sorted(next((second for second, loss in curve if loss <= near), math.inf) for curve in several)
        three = (seconds[0], median_high(seconds), seconds[-1])
        texts = "  ".join(format_seconds(quartile) if quartile < math.inf else "never" for quartile in three)
        lines.append(f"  {label}: {texts}  ({seconds.count(math.inf)} of {len(seconds)} never)")
    return "\n".join(lines)
