"""The view of trapezoid-shaped windows: the batch now, windows and phases of steps, exchanges, tasks, and the tuner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.views.batch_log import BatchLog, BatchStep
from dtdg_lab.views.batches import batch_panels, shrinking_words
from dtdg_lab.views.chunk_words import chunks_words
from dtdg_lab.views.decisions import DecisionLog, decision_panels, decision_words
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.overlap import OverlapLog, overlap_panels
from dtdg_lab.views.task_times import TaskLog, task_panels
from dtdg_lab.views.trapezoid_facts import TrapezoidFacts, trapezoid_facts, trapezoid_left, trapezoid_words
from dtdg_lab.views.trapezoid_shape import Batch, shape_figure, shape_words

Panel = tuple[Figure, str]
Known = tuple[int, int, TrapezoidFacts | None]  # attempt, step; None where the run went on with other batches
_KEPT = 16


class TrapezoidView:
    """The windows of one run as they are now, and what its newest steps took.

    Args:
        ranks: R.
        marks: the run's changes.
        overlap: the setting when the run began.
    """

    def __init__(self, ranks: int, marks: Marks, overlap: bool = True) -> None:
        self.ranks = ranks
        self.batches, self.decisions = BatchLog(), DecisionLog()
        self.tasks, self.overlap = TaskLog(), OverlapLog(overlap)
        self._marks = marks
        self._known: list[Known] = []
        self._chunks: list[tuple[int, int, str]] = []  # attempt, step, words
        self._seen: set[tuple[int, int]] = set()  # attempt, time_ns

    def event(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``trapezoid``."""
        told = (attempt, int(row["time_ns"]))
        if told in self._seen:
            return
        self._seen.add(told)
        self._take(None if trapezoid_left(row["data"]) else trapezoid_facts(row["data"]), row, attempt)

    def chunks(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``chunks``."""
        words = "" if trapezoid_left(row["data"]) else chunks_words(row["data"])
        self._chunks = [*self._chunks, (attempt, int(row["step"] or 0), words)][-_KEPT:]

    def knob(self, row: Mapping[str, Any], attempt: int) -> None:
        """Note that live settings have changed, by an event ``knob`` of any rank."""
        facts, changes = self.facts, row["data"]["changes"]
        if "overlap" in changes:
            self.overlap.changed(int(row["step"]), bool(changes["overlap"]), attempt)
        if facts is not None and (attempt, int(row["step"])) >= self._known[-1][:2]:
            self._take(facts.changed(changes), row, attempt)

    def _take(self, facts: TrapezoidFacts | None, row: Mapping[str, Any], attempt: int) -> None:
        before = self.facts
        same = facts is before if facts is None or before is None else facts.same(before)
        if not self._known or not same:  # an attempt that goes on tells it again
            self._known = [*self._known, (attempt, int(row["step"] or 0), facts)][-_KEPT:]

    def batch(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``batches``."""
        self.batches.row(rank, row, attempt)

    def exchange(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``exchanges``; of runs with such windows alone."""
        if self._known:
            self.overlap.row(rank, row, attempt)

    def step(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``steps``; likewise."""
        if self._known:
            self.batches.step(rank, row, attempt)
            self.overlap.step(rank, int(row["step"]))

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on; a plan made just before ``step`` stays."""
        for log in (self.batches, self.decisions, self.tasks, self.overlap):
            log.truncate(step, attempt)
        self._known = [known for known in self._known if known[1] <= step or known[0] >= attempt]
        self._chunks = [known for known in self._chunks if known[1] <= step or known[0] >= attempt]

    @property
    def facts(self) -> TrapezoidFacts | None:
        """The windows in use; None where the run has none."""
        return self._known[-1][2] if self._known else None

    @property
    def now(self) -> Batch | None:
        """The batch of the newest step that every rank has told."""
        steps = self._steps()
        return steps[-1].batch if steps else None

    def _steps(self) -> list[BatchStep]:
        return self.batches.steps(self.ranks)

    def panels(self) -> list[Panel]:
        """The panels in order; none where the run has no windows."""
        return list(self.named_panels().values())

    def named_panels(self) -> dict[str, Panel]:
        """The panels by names that stay theirs: ``shape``, and those of batches, exchanges, tasks and decisions."""
        facts = self.facts
        if facts is None:
            return {}
        steps, looks = self._steps(), self.decisions.looks()
        batch = steps[-1].batch if steps else None
        found = {"shape": (shape_figure(facts, batch), shape_words(facts, batch))}
        found |= batch_panels(steps, facts, self._marks, since=self._known[-1][1])
        if self.overlap.seconds(self.ranks):
            found |= overlap_panels(self.overlap, self.ranks, self._marks)
        if self.tasks:
            found |= task_panels(self.tasks, self._marks)
        return found | decision_panels(looks) if looks else found

    def figure(self) -> Figure:
        """All panels as one figure."""
        facts = self.facts
        if facts is None:
            raise LookupError("this run has no windows of full and decayed snapshots: ask for `facts` first")
        panels = self.named_panels()
        wide = [list(panels).index("shape")] if len(panels) % 2 else []
        return grid(list(panels.values()), title=f"Windows of {facts.window} snapshots: {facts.shape.words}", wide=wide)

    def sentence(self) -> str:
        """The windows, what cutting them out costs, and what the tuner did, in words."""
        facts = self.facts
        if facts is None:
            return ""
        text = trapezoid_words(facts)
        text += f" {self._chunks[-1][2]}" if self._chunks and facts.chunks > 1 else ""
        steps = [each for each in self._steps() if each.batch.step >= self._known[-1][1]]
        text += f" {shrinking_words(steps)}" if steps else ""
        looks = self.decisions.looks()
        return f"{text} {decision_words(looks)}" if looks else text
