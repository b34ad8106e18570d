"""GreenDyGNN, DGL, BGL and RapidGNN: mini-batches with remote features, fetched directly or through a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import ConfigError, UnsupportedError
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.config.catalogue import System
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.forecast.rates import Rates
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.stored_run import StoredRun
    from dtdg_lab.systems.feature_cache.calibration.study import CalibrationPlan
    from dtdg_lab.systems.workload import EpochWork, Facts, Row
    from dtdg_lab.visualization.chart import CaptionedFigure, Chart
    from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile


class FeatureCacheFamily(SystemFamily):
    """GreenDyGNN, DGL, BGL and RapidGNN: mini-batches with remote features, fetched directly or through a cache."""

    name = "feature_cache"

    def summary(self, tables: Mapping[str, pd.DataFrame], everything: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
        """Return statistics of feature fetching; all None if nothing was fetched."""
        resolved, windows, fetches = tables["resolved"], tables["windows"], everything["fetches"]
        if not len(resolved):
            return dict.fromkeys(self.summary_meanings)
        probes = fetches["purpose"] == "probe"
        hits, misses = (sum(map(sum, resolved[name])) for name in ("hits", "misses"))
        return {
            "hit_rate": hits / (hits + misses) if hits + misses else None,
            "rpcs": int((~probes).sum()),
            "feature_bytes": int(fetches.loc[~probes, "bytes"].sum()),
            "probe_bytes": int(fetches.loc[probes, "bytes"].sum()),
            "fetch_wait_s": float(resolved["wait_s"].mean()),
            "cache_rebuilds": len(windows),
            "late_steps": int(windows["late_steps"].sum()),
        }

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise if the prioritised part does not exist, or if there is only one part."""
        parts = settings["parts"]
        if settings["cache_bias"] >= parts:
            raise ConfigError(
                f"cache_bias={settings['cache_bias']} is out of range: parts={parts} allows 0 to {parts - 1}, or -1 "
                "for no prioritised part."
            )
        if parts < self.least_parts:
            raise UnsupportedError(
                f"system={settings['system']!r} with parts={parts} has no remote features to fetch. Set parts to 2 or "
                "more (one rank may run all of them), or choose system='single'."
            )

    def charts(self) -> Sequence[Chart]:
        """Return the picture of caches under congestion, and the other charts."""
        from dtdg_lab.systems.feature_cache.charts.batches import HITS
        from dtdg_lab.systems.feature_cache.charts.decisions import ACTION_VALUES, DECISIONS
        from dtdg_lab.systems.feature_cache.charts.picture import PICTURE
        from dtdg_lab.systems.feature_cache.charts.reply_time import REPLIES
        from dtdg_lab.systems.feature_cache.charts.traffic import BYTES_MOVED, LINKS, ROWS_BY_OWNER

        return (PICTURE, HITS, REPLIES, LINKS, ROWS_BY_OWNER, BYTES_MOVED, DECISIONS, ACTION_VALUES)

    def tiles(self, tables: RunTables) -> Sequence[Tile]:
        """Return tiles of validation loss, hits, waiting, window and energy."""
        from dtdg_lab.systems.feature_cache.charts.tiles import cache_tiles

        return cache_tiles(tables)

    def suggestions(self, config: RunConfig) -> Sequence[Suggestion]:
        """Return suggestions: slow links, a long window, the paper's network, a small cache."""
        from dtdg_lab.systems.feature_cache.charts.tiles import cache_suggestions

        return cache_suggestions(config)

    def effect(self, system: str) -> Effect | None:
        """Return the hit rate."""
        from dtdg_lab.systems.feature_cache.charts.tiles import HIT_RATE

        return HIT_RATE

    def sentence(self, system: str) -> str:
        """Return a sentence on the idea of a system."""
        from dtdg_lab.systems.feature_cache.charts.captions import IDEAS

        return IDEAS.get(system) or super().sentence(system)

    def energy_bound(self, run: StoredRun, raced: Sequence[StoredRun]) -> tuple[float, str, bool] | None:
        """Return the clairvoyant's joules per epoch if it takes part, otherwise the joules without feature stalls."""
        from statistics import median

        from dtdg_lab.energy.phases import STALL

        seer = [
            contender.summary["epoch_j"]
            for contender in raced
            if contender.config.flat.get("cache_policy") == "clairvoyant"
            and contender.summary.get("epoch_j") is not None
        ]
        if seer:
            return median(seer), "the clairvoyant's as raced, best in the cost model", True
        phases = run.summary.get("phase_j") or {}
        stall, total_j = phases.get(STALL), sum(value for value in phases.values() if value is not None)
        if stall is None or not total_j:
            return None
        return run.summary["epoch_j"] * (1 - stall / total_j), "no waiting for features", False

    def calibration(self, config: RunConfig, **sizes: Any) -> CalibrationPlan:
        """Return the plan of ``lab.calibration.calibrate_here``."""
        from dtdg_lab.systems.feature_cache.calibration.study import CalibrationPlan

        return CalibrationPlan(config, **sizes)

    def build(self, context: BuildContext) -> Strategy:
        """Return the strategy that trains a run on this rank."""
        from dtdg_lab.systems.feature_cache.strategy import build

        return build(context)

    def pictures(self, system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
        """Return the charts on the card of one of its systems."""
        from dtdg_lab.systems.feature_cache.charts.card_pictures import cache_pictures

        return cache_pictures(system, graph)

    def workload(self, facts: Facts) -> EpochWork:
        """Return the work of each rank in an epoch."""
        from dtdg_lab.systems.feature_cache.workload import remote_work

        return remote_work(facts)

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Return curves over the number of ranks."""
        from dtdg_lab.systems.feature_cache.workload import fetch_rows

        return fetch_rows(facts, ranks)


FAMILY = FeatureCacheFamily()
