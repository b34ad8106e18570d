"""One step over a window of snapshots: which epoch's, and where its target lies."""

from __future__ import annotations

from dataclasses import dataclass

from dtdg_lab.parallel.layout import Work


@dataclass(frozen=True, slots=True)
class WindowWork(Work):
    """A step whose batch is known when it is made: the window's shape may change before.

    Attributes:
        epoch: whose shuffle of chunks rules.
        segment: of the training part, which the window does not reach out of.
        target: newest snapshot of the window.
        after: the target before it in this segment, or the snapshot before the segment.
        ends_segment: whether no later target of the segment follows.
    """

    epoch: int = 0
    segment: range = range(0)
    target: int = 0
    after: int = -1
    ends_segment: bool = False
