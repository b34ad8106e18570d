"""What was counted while a graph was cut, and can no longer be counted from its snapshots."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCounts:
    """Sizes of the whole sequence a graph was cut from, the last window included, which is only a label.

    Attributes:
        rows: edges in the source, duplicates counted; None where nobody counted.
        intervals: B, base intervals.
        interval_edges: distinct edges of each base interval, summed over the B intervals (the papers' E).
        windows: S, windows that were kept.
        dropped: windows left out for having too few edges.
        window_edges: distinct edges of each kept window, summed over the S windows (the papers' EL).
    """

    rows: int | None
    intervals: int
    interval_edges: int
    windows: int
    dropped: int
    window_edges: int
