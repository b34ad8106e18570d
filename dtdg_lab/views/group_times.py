"""Times of snapshot groups: what the scheduler was told against what the ranks measured."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.views.schedule_facts import ScheduleFacts, share, unit_of

_EPOCHS = 5  # newest measurements of a group that are kept
_DRAWN = 1_500
_COLOURED = 8  # ranks up to which each has a colour
_LOG = 30.0  # largest over smallest time from which axes are logarithmic
_SHARED = 0.8  # processor seconds over wall-clock seconds below which the reader is told
_SLOW = 1.1  # a rank's measured over predicted, against that of all, from which it is named

Measured = tuple[int, int, float, float]  # epoch, rank, wall-clock and processor seconds


class GroupTimes:
    """Seconds of every group in the newest epochs; its first is dropped once there is another, as it warms up."""

    def __init__(self) -> None:
        self._times: dict[int, list[Measured]] = {}
        self._warm: set[int] = set()
        self._newest: dict[int, tuple[int, int]] = {}  # group -> attempt, epoch

    def group(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``groups``."""
        group, epoch = int(row["group"]), int(row["epoch"])
        if (attempt, epoch) <= self._newest.get(group, (-1, -1)):
            return
        self._newest[group] = (attempt, epoch)
        known = self._times.setdefault(group, [])
        if known and group not in self._warm:
            self._warm.add(group)
            known.clear()
        seconds = (int(row["end_ns"]) - int(row["start_ns"])) / 1e9
        known.append((epoch, rank, seconds, float(row["cpu_s"] if row["cpu_s"] is not None else "nan")))
        del known[:-_EPOCHS]

    def clear(self) -> None:
        """Forget all: groups are others now."""
        self._times, self._warm, self._newest = {}, set(), {}

    def seconds(self, groups: int) -> NDArray[np.float64]:
        """(K,) median seconds of each group; NaN where none was measured."""
        found = np.full(groups, np.nan)
        for group, known in self._times.items():
            if group < groups:
                found[group] = median(each[2] for each in known)
        return found

    def ranks(self, groups: int) -> NDArray[np.int64]:
        """(K,) the rank that computed each group last; -1 where none did."""
        found = np.full(groups, -1)
        for group, known in self._times.items():
            if group < groups:
                found[group] = known[-1][1]
        return found

    def processor_share(self) -> float | None:
        """Processor seconds over wall-clock seconds of all groups; None where unknown."""
        told = np.array([each[2:] for known in self._times.values() for each in known]).reshape(-1, 2)
        told = told[np.isfinite(told).all(axis=1)]
        wall = float(told[:, 0].sum())
        return float(told[:, 1].sum()) / wall if wall > 0 else None


def times_figure(facts: ScheduleFacts, measured_s: NDArray[np.float64], ranks: NDArray[np.int64]) -> Figure:
    """A dot a group, predicted across and measured up; on the diagonal both are equal.

    Args:
        facts: of the schedule.
        measured_s: (K,) seconds, NaN where unknown.
        ranks: (K,) that measured them.
    """
    title = "Group times: predicted against measured"
    scale = facts.scale(measured_s)
    known = np.flatnonzero(np.isfinite(measured_s) & (measured_s > 0) & (facts.times_s > 0))
    if scale is None or not len(known):
        layout = frame(title, "predicted (s)", "measured (s)")
        nothing = {"type": "scatter", "x": [], "y": [], "showlegend": False}  # else a grid would not draw the axes
        return {"data": [nothing], "layout": with_note(layout, "no group measured yet")}
    if len(known) > _DRAWN:  # evenly over the sizes
        known = known[np.argsort(facts.times_s[known], kind="stable")][:: -(-len(known) // _DRAWN)]
        title += f" · {len(known):,} of {facts.groups:,}"
    predicted, measured = scale * facts.times_s[known], measured_s[known]
    low, high = min(predicted.min(), measured.min()), max(predicted.max(), measured.max())
    unit, factor = unit_of(float(high))
    equal: dict[str, Any] = {
        "type": "scatter", "mode": "lines", "name": "equal", "x": [low * factor, high * factor],
        "y": [low * factor, high * factor], "hoverinfo": "skip",
        "line": {"color": BASELINE_COLOUR, "width": 1, "dash": "dot"},
    }  # fmt: skip
    data = [equal]
    there = sorted({int(rank) for rank in ranks[known]})
    for rank in there if len(there) <= _COLOURED else [-1]:
        mine = (ranks[known] == rank) if rank >= 0 else np.ones(len(known), bool)
        data.append({
            "type": "scatter", "mode": "markers", "name": f"rank {rank}" if rank >= 0 else "group", "showlegend": True,
            "x": np.round(predicted[mine] * factor, 5).tolist(), "y": np.round(measured[mine] * factor, 5).tolist(),
            "customdata": known[mine].tolist(), "marker": {"color": series_colour(max(rank, 0)), "size": 6,
            "opacity": 0.75}, "hovertemplate": f"group %{{customdata}}: predicted %{{x:.4g}} {unit}, "
            f"measured %{{y:.4g}} {unit}",
        })  # fmt: skip
    kind = {"type": "log"} if high > _LOG * low else {"rangemode": "tozero"}
    return {"data": data, "layout": frame(title, _said(facts, unit), f"measured ({unit})", xaxis=kind, yaxis=kind)}


def _said(facts: ScheduleFacts, unit: str) -> str:
    source = {"size": "by size, scaled to the mean", "profile": "by profile", "linear": "by vertices and edges"}
    return f"predicted {source.get(facts.source, facts.source)} ({unit})"


def errors_of(facts: ScheduleFacts, measured_s: NDArray[np.float64]) -> tuple[float, float] | None:
    """Mean and largest relative error of the predicted times; None where no group was measured."""
    scale = facts.scale(measured_s)
    known = np.isfinite(measured_s) & (measured_s > 0)
    if scale is None or not known.any():
        return None
    errors = np.abs(scale * facts.times_s[known] / measured_s[known] - 1)
    return float(errors.mean()), float(errors.max())


def times_words(
    facts: ScheduleFacts, measured_s: NDArray[np.float64], ranks: NDArray[np.int64], processor: float | None
) -> str:
    """The error in words, a rank that stands out, and whether ranks shared processors."""
    errors = errors_of(facts, measured_s)
    if errors is None:
        return "No group measured yet."
    words = [f"Predicted times are off by {share(errors[0])} on average, {share(errors[1])} at most."]
    if facts.fit and "mean_error" in facts.fit:
        words.append(f"On groups held out of the fit it was {share(facts.fit['mean_error'])}.")
    ratios = _by_rank(facts, measured_s, ranks)
    slow = max(ratios, key=lambda rank: ratios[rank])
    if len(ratios) > 1 and ratios[slow] >= _SLOW:
        words.append(f"Rank {slow}'s dots are high: it needs {ratios[slow]:.2f} times as long as all do for the same.")
    if processor is not None and processor < _SHARED:
        words.append(f"Processors worked {share(processor)} of it: shared by ranks, or waiting for a GPU.")
    if len(words) == 1:
        words.append(f"A schedule is as good as these times; the longest group takes {_longest(measured_s)}.")
    return " ".join(words)


def _longest(measured_s: NDArray[np.float64]) -> str:
    return format_seconds(float(np.nanmax(measured_s)))


def _by_rank(facts: ScheduleFacts, measured_s: NDArray[np.float64], ranks: NDArray[np.int64]) -> dict[int, float]:
    """Rank -> measured over predicted of its groups, over the same of all."""
    known = np.isfinite(measured_s) & (facts.times_s > 0)
    whole = measured_s[known].sum() / facts.times_s[known].sum()
    found = {}
    for rank in {int(rank) for rank in ranks[known]}:
        mine = known & (ranks == rank)
        found[rank] = float(measured_s[mine].sum() / facts.times_s[mine].sum() / whole)
    return found
