"""RunView: one chart of a run as the live window, the report and ``lab.plot`` know it, with null behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.visualization.layout import Figure

if TYPE_CHECKING:
    from dtdg_lab.visualization.partition import LinkLog
    from dtdg_lab.visualization.style import Marks

Panel = tuple[Figure, str]
Row = Mapping[str, Any]
RowHandler = Callable[[int, Row, int], None]  # rank, row, attempt
EventHandler = Callable[[Row, int], None]  # event, attempt
NO_TABLES: Mapping[str, RowHandler] = MappingProxyType({})
NO_EVENTS: Mapping[str, EventHandler] = MappingProxyType({})


class RunClock:
    """Seconds of training since the start: time between two attempts does not count.

    An attempt begins with rank 0's event ``started``, whichever rank is read first; without it with the first line.
    """

    def __init__(self) -> None:
        self.newest_s = 0.0
        self._origins: dict[int, tuple[int, float]] = {}

    def started(self, attempt: int, time_ns: int) -> None:
        """Note when rank 0 began an attempt."""
        _, before_s = self._origins.get(attempt, (time_ns, self.newest_s))
        self._origins[attempt] = time_ns, before_s

    def seconds(self, attempt: int, time_ns: int) -> float:
        """Seconds of training until an instant of an attempt."""
        origin_ns, before_s = self._origins.setdefault(attempt, (time_ns, self.newest_s))
        seconds = before_s + max(0.0, (time_ns - origin_ns) / 1e9)
        self.newest_s = max(self.newest_s, seconds)
        return seconds


@dataclass(frozen=True, slots=True)
class SharedViews:
    """What the charts of one run share.

    Attributes:
        points: most points of a series.
        marks: changed settings and resumes.
        links: rows that ranks sent; the view of the partition keeps it.
        clock: seconds of training.
    """

    points: int
    marks: Marks
    links: LinkLog
    clock: RunClock

    def timed(self, take: Callable[[int, Row, float, int], None]) -> RowHandler:
        """A handler that also passes the row's seconds of training: rank, row, seconds, attempt."""
        return lambda rank, row, attempt: take(rank, row, self.clock.seconds(attempt, row["time_ns"]), attempt)


class RunView:
    """One chart of a run, fed row by row. The base class is the null behaviour.

    A row of a step that a later attempt computes again is outdated: it reaches ``tables_kept`` only.

    Attributes:
        name: key of its figure and its caption.
        wide: whether its first panel takes the whole width in ``lab.plot``.
        order: charts are sorted by it; those of the same order stay as they are listed.
        tables: record table -> handler of a row of a step.
        tables_before: likewise of rows that are made before their step, such as evaluations.
        tables_kept: likewise of rows that also count where their step is computed again.
        events: kind of event -> handler; events are made before their step.
    """

    name = ""
    wide = False
    order = 0
    tables = NO_TABLES
    tables_before = NO_TABLES
    tables_kept = NO_TABLES
    events = NO_EVENTS

    @property
    def title(self) -> str:
        """The heading of its section in the report; empty where it has none of its own."""
        return ""

    @property
    def shown(self) -> bool:
        """Whether the run has what it shows."""
        return True

    def setting_changed(self, row: Row, attempt: int) -> None:
        """Take in an event ``knob`` of any rank: live settings have changed."""

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what attempts before ``attempt`` did from ``step`` on."""

    def complete(self, summary: Mapping[str, Any]) -> None:
        """Add what takes too long for a live view, before a report or a plot of a run that was stored."""

    def panels(self) -> list[Panel]:
        """Its panels with their captions, in order; none where it is not shown."""
        return [(self.figure(), self.caption())] if self.shown else []

    def figure(self) -> Figure:
        """All panels as one plotly figure dict."""
        return {"data": [], "layout": {}}

    def caption(self) -> str:
        """What the figure shows, in words."""
        return ""
