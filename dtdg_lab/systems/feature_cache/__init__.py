"""GreenDyGNN, DGL, BGL and RapidGNN: mini-batches whose remote features are fetched, through a cache or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.advisor.rates import Rates
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.systems.workload import EpochWork, Facts, Row
    from dtdg_lab.visualization.run_view import RunView, SharedViews
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class FeatureCacheFamily(SystemFamily):
    """GreenDyGNN, DGL, BGL and RapidGNN: mini-batches whose remote features are fetched, through a cache or not."""

    name = "feature_cache"
    calibrated = MappingProxyType({"dgl-default": {"parts": 2}})

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.feature_cache.workload import remote_work

        return remote_work(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("batch_size", 0.5),)

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Further curves of ``lab.estimate.scaling_forecast``."""
        from dtdg_lab.systems.feature_cache.forecast import fetch_rows
        from dtdg_lab.systems.feature_cache.policies.shipped_costs import products

        return fetch_rows(products, ranks)

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.feature_cache.strategy import build

        return build(context)

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """Its charts, after those of every run."""
        from dtdg_lab.systems.feature_cache.view import FeaturesView

        return [FeaturesView(shared.marks)]

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        """Captions of its events."""
        from dtdg_lab.systems.feature_cache.charts import feature_facts, feature_words, features_left, links_of

        def features(data: dict[str, Any]) -> str:
            return "features are at hand from here on" if features_left(data) else feature_words(feature_facts(data))

        def congestion(data: dict[str, Any]) -> str:
            links = links_of(data, 0)
            return f"{links.pattern}: {links.words or 'nothing is added to any link'}"

        return {"features": features, "congestion": congestion}

    def page(self, context: PageContext) -> RunPage:
        """The page of its caches and links."""
        from dtdg_lab.systems.feature_cache.page import FeaturePage

        return FeaturePage(context)


FAMILY = FeatureCacheFamily()
