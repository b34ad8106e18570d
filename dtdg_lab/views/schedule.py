"""The schedule view: who computes which group when, what it costs, and what other schedules would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.scheduling.bounds import lower_bound_s
from dtdg_lab.views.gantt import Epoch, GanttLog, gantt_figure, gantt_words
from dtdg_lab.views.grid import grid
from dtdg_lab.views.group_times import GroupTimes, times_figure, times_words
from dtdg_lab.views.imbalance import (
    BalanceLog,
    imbalance_figure,
    imbalance_words,
    pace_words,
    shares_figure,
    shares_words,
)
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.schedule_facts import ScheduleFacts, is_end, schedule_facts, schedule_words, share
from dtdg_lab.views.what_if import Row, name_of, rows_told, what_if_figure, what_if_words

Panel = tuple[Figure, str]
Known = tuple[int, int, int, ScheduleFacts | None]  # attempt, step, epoch; None where the run went on without
_KEPT = 16


class ScheduleView:
    """The schedules of one run, and how its ranks executed the newest."""

    def __init__(self, ranks: int) -> None:
        self.gantt = GanttLog()
        self.balance = BalanceLog(ranks)
        self.times = GroupTimes()
        self._known: list[Known] = []
        self._seen: set[tuple[int, int]] = set()  # attempt, time_ns
        self._replayed: tuple[Row, ...] = ()
        self._bound: tuple[tuple[int, int], float] | None = None  # of which attempt and epoch

    def event(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``schedule``."""
        told = (attempt, int(row["time_ns"]))
        if told in self._seen:
            return
        self._seen.add(told)
        before, facts = self.facts, None if is_end(row["data"]) else schedule_facts(row["data"])
        if before is not None and (facts is None or before.groups != facts.groups):
            self.times.clear()
        self._known = [*self._known, (attempt, int(row["step"] or 0), int(row["epoch"] or 0), facts)][-_KEPT:]
        self._replayed = ()

    def group(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``groups``."""
        self.gantt.group(rank, row, attempt)
        self.times.group(rank, row, attempt)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on; a schedule made just before ``step`` stays."""
        self.balance.truncate(step, attempt)
        self._known = [known for known in self._known if known[1] <= step or known[0] >= attempt]

    @property
    def facts(self) -> ScheduleFacts | None:
        """The schedule in use; None where the run has none."""
        return self._known[-1][3] if self._known else None

    def times_s(self) -> NDArray[np.float64]:
        """(K,) measured seconds of each group, the predicted where none was measured: for replays."""
        facts = self._facts()
        measured = self.times.seconds(facts.groups)
        return np.where(np.isfinite(measured), measured, (facts.scale(measured) or 1.0) * facts.times_s)

    def replayed(self, rows: Sequence[Row]) -> None:
        """Draw these rows of ``scheduling.replay`` instead of what the run told, until its next schedule."""
        self._replayed = tuple(rows)

    def panels(self) -> list[Panel]:
        """Gantt chart, imbalance, waste, group times and the other schedulers; none where the run has no schedule."""
        facts = self.facts
        if facts is None:
            return []
        last, marks = self.balance.last(facts.iterations), self._marks()
        measured, ranks = self.times.seconds(facts.groups), self.times.ranks(facts.groups)
        found = [self.gantt_panel()]
        if facts.ranks > 1:
            found += [
                (imbalance_figure(self.balance, marks), imbalance_words(last)),
                (shares_figure(self.balance, marks), shares_words(last)),
            ]
        said = times_words(facts, measured, ranks, self.times.processor_share())
        return [*found, (times_figure(facts, measured, ranks), said), self._what_if(facts, measured)]

    def gantt_panel(self) -> Panel:
        """The Gantt chart alone: what changes quickly."""
        facts = self._facts()
        epoch, scale = self.gantt.shown(facts.groups), facts.scale(self.times.seconds(facts.groups))
        bound = None if epoch is None else self._bound_of(epoch, facts)
        predicted = None if scale is None else scale * facts.makespan_s
        label = facts.scheduler if epoch is not None and epoch.number >= self._known[-1][2] else ""
        predicted = predicted if label else None  # the epoch is of the schedule before
        return gantt_figure(epoch, facts.ranks, bound_s=bound, predicted_s=predicted, label=label), gantt_words(epoch)

    def _bound_of(self, epoch: Epoch, facts: ScheduleFacts) -> float | None:
        """Seconds that no schedule of the groups as they were measured in a whole epoch can beat."""
        if epoch.cut or epoch.groups != facts.groups:
            return None
        place = (epoch.attempt, epoch.number)
        if self._bound is None or self._bound[0] != place:
            times = [(block.end_ns - block.start_ns) / 1e9 for block in epoch.of("group")]
            per_rank = max(1, facts.per_rank * facts.parts // facts.ranks)
            self._bound = (place, lower_bound_s(times, facts.ranks, per_rank=per_rank))
        return self._bound[1]

    def _what_if(self, facts: ScheduleFacts, measured: NDArray[np.float64]) -> Panel:
        rows, used = self._replayed or tuple(rows_told(facts)), name_of(facts)
        bound = float(self._replayed[0]["bound_s"]) if self._replayed else facts.bound_s
        scale = 1.0 if self._replayed else facts.scale(measured)
        return what_if_figure(rows, bound_s=bound, used=used, scale=scale), what_if_words(
            rows, bound_s=bound, used=used
        )

    def figure(self) -> Figure:
        """All panels as one figure; the Gantt chart over its whole width."""
        return grid(self.panels(), title=f"Schedule: {self._facts().label}", wide={0})

    def sentence(self) -> str:
        """The schedule, the rank that sets the pace, and the waste, in words."""
        facts = self.facts
        if facts is None:
            return ""
        last = self.balance.last(facts.iterations)
        if last is None or facts.ranks == 1:
            return schedule_words(facts)
        return f"{schedule_words(facts)} {pace_words(last)} {share(last.waste)} of the ranks' time is waste."

    def _facts(self) -> ScheduleFacts:
        if self.facts is None:
            raise LookupError("this run has no schedule: ask for `facts` first")
        return self.facts

    def _marks(self) -> dict[int, str]:
        """Epoch (from 1) -> scheduler, of schedules made in the middle of the run."""
        return {epoch + 1: facts.scheduler for _, step, epoch, facts in self._known if step > 0 and facts is not None}
