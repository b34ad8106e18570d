"""The view of features that are fetched: caches, hits, latencies, bytes, congestion and the controller's decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.systems.feature_cache import charts
from dtdg_lab.systems.feature_cache.events import FeatureFacts
from dtdg_lab.systems.feature_cache.log import FeatureLog, HitSums
from dtdg_lab.systems.feature_cache.policy_charts import actions_panel, values_panel
from dtdg_lab.visualization.charts import Panel
from dtdg_lab.visualization.layout import Figure, grid
from dtdg_lab.visualization.run_view import PlanView
from dtdg_lab.visualization.style import Marks


class FeaturesView(PlanView[FeatureFacts]):
    """The features that the parts of one run ask each other for, and what its newest steps took.

    Args:
        marks: the run's changes.
    """

    name = "features"
    order = 2  # after the energy by phase
    plans_kept = 64
    plan = FeatureFacts
    renewed = True  # a new policy logs it again

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self.log, self.sums, self.congestion = FeatureLog(), HitSums(), charts.CongestionLog(marks)
        self.tables = {"resolved": self.resolved, "fetches": self.log.fetch, "windows": self.log.window}
        self.tables_before = {"cache_decisions": self.log.choice}
        self.events = {**self.events, "congestion": self.congestion.event}
        self._marks = marks

    def _layout(self, facts: FeatureFacts | None) -> object:
        """What numbers of parts are of: the parts and the keys."""
        return facts and (facts.parts, facts.rows, facts.row_bytes)

    def resolved(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``resolved``."""
        self.sums.add(self.log.resolve(row, attempt), attempt)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on; what was logged just before ``step`` stays."""
        self.log.truncate(step, attempt)
        kept = [row for rows in self.log.resolved.all().values() for row in rows]
        self.sums.truncate(step, attempt, kept)
        self.congestion.truncate(step, attempt)
        super().truncate(step, attempt)

    @property
    def title(self) -> str:
        """What the chart is of."""
        return "Links" if self.facts is None else "Features that are fetched"

    @property
    def shown(self) -> bool:
        """Whether there is anything to show: features that are fetched, or links that are slower than they were."""
        return self.facts is not None or any(links.congested for links in self.congestion.changes())

    def named_panels(self) -> dict[str, Panel]:
        """The panels by names that stay theirs: ``windows``, ``hits``, ..., and those of what the run uses.

        Where features are at hand, the links alone; nothing where these are free.
        """
        facts, since, now = self.facts, self.since, self.congestion.now
        if facts is None:
            return {"links": charts.congestion_panel(now, now.parts)} if now is not None and self.shown else {}
        steps, windows = self.log.resolved.steps(since=since), self.log.windows.all(since=since)
        choices = self.log.choices.all(since=since)
        decided = any(choice.delays_ms for each in choices.values() for choice in each)
        cached, newest = facts.cached or bool(windows), max(steps, default=None)
        misses, bulk = (self.log.fetches(purpose, since=since) for purpose in ("miss", "bulk"))
        found = {
            "windows": charts.windows_panel(windows, self.congestion, cached=cached, now=newest),
            "hits": charts.hits_panel(steps, self.sums.epochs(since=since), self.congestion, cached=cached),
            "latency": charts.latency_panel(misses, bulk, self.congestion),
        }
        if decided:
            found["estimates"] = charts.estimates_panel(choices, self.congestion)
        found["links"] = charts.congestion_panel(now, facts.parts)
        if cached:
            found["contents"] = charts.contents_panel(windows, cached=cached)
            found["shares"] = charts.shares_panel(windows, self.congestion, cached=cached)
        found["owners"] = charts.owners_panel(steps)
        every = [window for each in windows.values() for window in each]
        found["traffic"] = charts.traffic_panel(steps, every, facts.row_bytes, self._marks)
        if choices:
            found["actions"] = actions_panel(choices, self.congestion)
        if any(choice.values for each in choices.values() for choice in each):
            found["values"] = values_panel(choices)
        return found

    def figure(self) -> Figure:
        """All panels as one figure."""
        panels = self.panels()
        if not panels:
            raise LookupError("this run fetches no features: ask for `shown` first")
        return grid(panels, title=self.title)

    def caption(self) -> str:
        """The feature path, what its newest steps took, and the links now, in words."""
        facts, since, now = self.facts, self.since, self.congestion.now
        links = "" if now is None else f"Links: {now.words or 'nothing is added'}."
        if facts is None:
            return links if self.shown else ""
        text, steps = facts.words, self.log.resolved.steps(since=since)
        if steps:
            windows = [window for each in self.log.windows.all(since=since).values() for window in each]
            text += f" {charts.traffic_words(steps, windows, facts.row_bytes)}"
        return f"{text} {links}".strip()
