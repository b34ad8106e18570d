"""The view of hybrid batches: the batch in training, where batches come from, reservoir, batch_policy, averaging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.systems.hybrid_batches import charts, policy_charts
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.visualization.charts import Panel
from dtdg_lab.visualization.layout import Figure, grid
from dtdg_lab.visualization.run_view import PlanView, SharedViews
from dtdg_lab.visualization.series import RankSteps


class HybridView(PlanView[HybridFacts]):
    """The hybrid batches of one run as they are now, and what its newest steps took."""

    name = "hybrid"
    title = "Hybrid batches"
    subject = "hybrid batches"
    wide = True  # its map
    plan = HybridFacts
    renewed = True  # every choice of a size logs it again

    def __init__(self, shared: SharedViews) -> None:
        super().__init__()
        self.targets, self.reservoir, self.rounds = charts.TargetLog(), charts.ReservoirLog(), charts.RoundLog()
        self.decisions, self.steps = policy_charts.BatchPolicyLog(), RankSteps()
        self.tables = {
            "steps": shared.timed(self.step),
            "targets": self.targets.row,
            "rounds": self.rounds.row,
            "reservoir": shared.timed(self.reservoir.row),
        }
        self.tables_before = {"decisions": self.decisions.row}
        self._marks = shared.marks

    def _layout(self, facts: HybridFacts | None) -> object:
        """What a batch's numbers are of: the sizes by action, the snapshots, the parts, and what chooses."""
        return facts and (facts.sizes, facts.snapshots, facts.first, facts.candidates, facts.batch_policy)

    def step(self, rank: int, row: Mapping[str, Any], seconds: float, attempt: int) -> None:
        """Add one row of the table ``steps``; of runs with such batches alone."""
        if self._known:
            self.steps.row(rank, row, seconds, attempt)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on; what was logged just before ``step`` stays."""
        for log in (self.targets, self.reservoir, self.rounds, self.decisions, self.steps):
            log.truncate(step, attempt)
        super().truncate(step, attempt)

    @property
    def unchanged(self) -> bool:
        """Whether the run has had hybrid batches of one plan alone, so that its losses say something of that."""
        return len(self._known) == 1 and self.facts is not None

    def now(self) -> dict[int, charts.PartBatch]:
        """The newest batch of every part that has a map, by part."""
        facts = self.facts
        if facts is None:
            return {}
        found = self.targets.newest(since=self.since)
        return {part: batch for part, batch in found.items() if _fits(batch, facts)}

    def batch_policy(self) -> policy_charts.BatchPolicyFacts | None:
        """What the decisions were and earned; None before the first."""
        choices, facts = self._choices(), self.facts
        return policy_charts.batch_policy_facts(choices, len(facts.sizes)) if facts is not None and choices else None

    def _choices(self) -> list[policy_charts.LoggedChoice]:
        """Decisions of the batch policy in use."""
        facts = self.facts
        found = self.decisions.choices(since=self.since)
        return [] if facts is None else [choice for choice in found if choice.policy == facts.batch_policy]

    def map(self) -> Panel | None:
        """The batch now in training; None where the run has none."""
        return None if self.facts is None else charts.target_map_panel(self.facts, self.now())

    def named_panels(self) -> dict[str, Panel]:
        """The panels by names that stay theirs: ``map``, ``sources``, and those of what the run uses."""
        facts, since = self.facts, self.since
        if facts is None:
            return {}
        waited = self.steps.batch_share(since=since)
        found = {
            "map": charts.target_map_panel(facts, self.now()),
            "sources": charts.target_sources_panel(
                self.targets.steps(since=since), self._marks, waited, reservoir=facts.reservoir
            ),
        }
        if facts.reservoir:
            found |= charts.reservoir_panels(self.reservoir, facts, since=since)
        if facts.adjusted:
            found |= policy_charts.batch_policy_panels(self._choices(), facts, self._marks)
        if facts.exchange == "models":
            found["staleness"] = charts.staleness_panel(self.rounds, self.steps, self._marks, since=since)
        return found

    def figure(self) -> Figure:
        """All panels as one figure."""
        self._in_use()
        panels = self.named_panels()
        last = len(panels) - 1
        return grid(list(panels.values()), title="Hybrid batches", wide=[0] if last % 2 == 0 else [0, last])

    def caption(self) -> str:
        """The batches, what training waits for them, and what the batch policy did, in words."""
        facts, since = self.facts, self.since
        if facts is None:
            return ""
        text = " ".join(filter(None, (facts.words, charts.few_words(facts))))
        steps = self.targets.steps(since=since)
        if steps:
            waited = self.steps.batch_share(since=since)
            text += f" {charts.target_sources_words(steps, waited, reservoir=facts.reservoir)}"
        batch_policy = self.batch_policy()
        if batch_policy is not None:
            text += f" {policy_charts.batch_policy_words(batch_policy, facts, self._choices()[-1].action)}"
        return text


def _fits(batch: charts.PartBatch, facts: HybridFacts) -> bool:
    return batch.part < len(facts.candidates) and facts.first <= batch.snapshots.start
