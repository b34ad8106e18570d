"""A pretend run whose parts ask each other for features: batches, calls, caches, decisions and links are recorded."""

from __future__ import annotations

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.network.links import parse_links
from dtdg_lab.systems.feature_cache.actions import CacheActions
from tests import feature_tables
from tests.pretend_session import PretendRun, PretendSession

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
            settings = {"policy": config["cache_policy"], "window": config["cache_window"]}
            self._event("features", feature_tables.features(parts=config.parts, **settings)["data"])
            self._event("congestion", feature_tables.congestion(parts=config.parts)["data"] | {"pattern": "none"})

    def _one_step(self) -> None:
        parts = self.config.parts
        if "links" in self.config.flat and self.config["links"] != self._links:
            self._links = self.config["links"]
            described = parse_links(self._links, parts).to_dict()
            self._event("congestion", {"pattern": self.config["congestion"], "by": "emulated", **described})
        if self.fetches:
            for part in range(parts):
                self._part(part, parts)
        super()._one_step()

    def _part(self, part: int, parts: int) -> None:
        step, rank, asked = self.step, {"rank": part % self.config.ranks}, [of for of in range(parts) if of != part]
        if step % EVERY == 0:
            chosen = {
                "policy": "double_dqn",
                "values": [-1.0] * (8 * parts),
                "action": CacheActions(parts).action(EVERY),
            }
            self._add("windows", feature_tables.cache(step, part, EVERY, parts=parts) | rank | {"policy": "double_dqn"})
            self._add("cache_decisions", feature_tables.decision(step, part, EVERY, **chosen) | rank)
            self._add("fetches", *(feature_tables.reply(step, part, owner, purpose="bulk") | rank for owner in asked))
        self._add("resolved", feature_tables.batch(step, part, parts=parts) | rank)
        self._add("fetches", *(feature_tables.reply(step, part, owner) | rank for owner in asked))
        if part < self.config.ranks:
            energy = {"source": "modelled", "coverage": 1.0, "seconds": 0.01}
            joules = {"compute": 0.3, "wait": 0.1, "idle": 0.05}
            self._add(
                "phase_energy", *({"phase": phase, "joules": of, **energy, **rank} for phase, of in joules.items())
            )


class FeatureSession(PretendSession):
    """A session whose runs fetch features."""

    def __init__(self, ranks: int = RANKS, *, live: bool = False) -> None:
        super().__init__(ranks, live=live)
        self._make = FeatureRun
