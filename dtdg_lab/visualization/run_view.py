"""RunView: one chart of a run as the live window, the report and ``lab.plot`` know it, with null behaviour."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from dtdg_lab.core.events import Event
from dtdg_lab.visualization.charts import Panel
from dtdg_lab.visualization.layout import Figure

if TYPE_CHECKING:
    from dtdg_lab.visualization.partition import LinkLog
    from dtdg_lab.visualization.style import Marks

Row = Mapping[str, Any]
F = TypeVar("F", bound=Event)
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
        """Take in an event ``settings`` of any rank: live settings have changed."""

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


class Plan(NamedTuple, Generic[F]):
    """What an event says that steps do from here on; None where the run went on without."""

    attempt: int
    step: int
    epoch: int
    facts: F | None


class PlanView(RunView, Generic[F]):
    """A chart of what the newest plan makes steps do. An attempt that resumes the run logs its plan again.

    Attributes:
        plan: the event that describes it.
        plans_kept: the newest are known.
        subject: what the plan is of, in words.
        renewed: whether a plan that is logged again replaces the one in use.
    """

    plan: type[F]
    plans_kept = 16
    subject = "plan"
    renewed = False

    def __init__(self) -> None:
        self.events = {self.name: self.event}
        self._known: list[Plan[F]] = []
        self._seen: set[tuple[str, int, int]] = set()  # kind of event, attempt, time_ns

    def _is_new(self, row: Row, attempt: int, kind: str = "") -> bool:
        """Whether no rank has sent this event before."""
        described = (kind, attempt, int(row["time_ns"]))
        new = described not in self._seen
        self._seen.add(described)
        return new

    def event(self, row: Row, attempt: int) -> None:
        """Add one event of the plan, which an attempt that resumes logs again."""
        if self.renewed or self._is_new(row, attempt):
            self._take_plan(self.plan.read_plan(row["data"]), row, attempt)

    def _add_plan(self, facts: F | None, row: Row, attempt: int) -> None:
        plan = Plan(attempt, int(row["step"] or 0), int(row.get("epoch") or 0), facts)
        self._known = [*self._known, plan][-self.plans_kept :]

    def _take_plan(self, facts: F | None, row: Row, attempt: int) -> None:
        """Add a plan unless it is the one in use."""
        if not self._known or self._layout(facts) != self._layout(self.facts):
            self._add_plan(facts, row, attempt)
        elif self.renewed:
            self._known[-1] = self._known[-1]._replace(facts=facts)

    def _layout(self, facts: F | None) -> object:
        """What tells one plan from another: all but the ``note`` on how it was made."""
        return json.dumps(
            facts and {**asdict(facts), "note": ""},
            default=lambda value: value.tolist() if hasattr(value, "tolist") else list(value),
        )

    def named_panels(self) -> dict[str, Panel]:
        """The panels by names that stay theirs where others come and go; none where the run has no plan."""
        return {}

    def panels(self) -> list[Panel]:
        """The panels in order."""
        return list(self.named_panels().values())

    def _in_use(self) -> F:
        """The plan in use, which must be there."""
        if self.facts is None:
            raise LookupError(f"this run has no {self.subject}: ask for `facts` first")
        return self.facts

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt planned after ``step``; a plan made just before ``step`` stays."""
        self._known = [plan for plan in self._known if plan.step <= step or plan.attempt >= attempt]

    @property
    def facts(self) -> F | None:
        """The plan in use; None where the run has none."""
        return self._known[-1].facts if self._known else None

    @property
    def since(self) -> int:
        """The step from which on the plan is in use; parts of it that only choose among sizes may have changed."""
        return self._known[-1].step if self._known else 0

    @property
    def shown(self) -> bool:
        """Whether a plan is in use."""
        return self.facts is not None
