"""A pretend run whose parts ask each other for features: it tells batches, calls, caches, decisions and links."""

from __future__ import annotations

from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.network.links import parse_links
from tests import pretend_session
from tests.feature_records import (
    PER_EPOCH,
    SLOW_OWNER,
    congestion_data,
    decision_row,
    features_data,
    fetch_row,
    resolved_row,
    slow_at,
    window_row,
)
from tests.pretend_session import PretendRun, PretendSession
from tests.synthetic_lines import START_NS

assert pretend_session.PER_EPOCH == PER_EPOCH
RANKS = 2
SYSTEM = {"system": "greendygnn", "dataset": "growing", "epochs": 50, "ranks": RANKS}
EVERY = 8  # steps between two caches


class FeatureRun(PretendRun):
    """A part a rank; links set by hand are told as they are applied."""

    def __init__(self, config: RunConfig, number: int) -> None:
        super().__init__(config, number)
        self._links = ""
        self.fetches = catalogue.system(config.system).parts["parallel"] == "remote_feature"
        if self.fetches:
            data = features_data(parts=config.parts, policy=config["cache_policy"], window=config["cache_window"])
            self._event("features", data)
            self._event("congestion", congestion_data(parts=config.parts, pattern="none"))

    def _event(self, kind: str, data: dict[str, Any]) -> None:
        self._add("events", [[self.step, self.step // PER_EPOCH, START_NS + self.now_ns, kind, data]], 0)

    def _one_step(self) -> None:
        step, parts = self.step, self.config.parts
        if "links" in self.config.flat and self.config["links"] != self._links:
            self._links = self.config["links"]
            described = parse_links(self._links, parts).to_dict()
            self._event("congestion", {"pattern": self.config["congestion"], "by": "emulated", **described})
        if self.fetches:
            for part in range(parts):
                self._part(step, part, parts)
        super()._one_step()

    def _part(self, step: int, part: int, parts: int) -> None:
        rank, asked = part % self.config.ranks, [owner for owner in range(parts) if owner != part]
        if step % EVERY == 0:
            liked = SLOW_OWNER if slow_at(step) and SLOW_OWNER in asked else -1
            number, row = step // EVERY, {"biased": liked, "parts": parts}
            self._add("windows", [window_row(step, part, number, EVERY, **row)], rank)
            self._add("cache_decisions", [decision_row(step, part, EVERY, **row)], rank)
            self._add("fetches", [fetch_row(step, part, each, purpose="bulk") for each in asked], rank)
        self._add("resolved", [resolved_row(step, part, parts=parts, window=step // EVERY)], rank)
        self._add("fetches", [fetch_row(step, part, each) for each in asked], rank)
        energy = [
            [step, step // PER_EPOCH, START_NS + self.now_ns + at, phase, joules, 0.01, "modelled", 1.0]
            for at, (phase, joules) in enumerate((("compute", 0.3), ("wait", 0.1), ("idle", 0.05)))
        ]
        if part < self.config.ranks:
            self._add("phase_energy", energy, rank)


class FeatureSession(PretendSession):
    """A session whose runs fetch features."""

    def __init__(self, ranks: int = RANKS, *, live: bool = False) -> None:
        super().__init__(ranks, live=live)
        self._make = FeatureRun
