"""GreenDyGNN, DGL, BGL and RapidGNN: mini-batches whose remote features are fetched, through a cache or not."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.advisor.rates import Rates
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.systems.workload import EpochWork, Facts, Row


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
        """Further curves of ``lab.what_if``."""
        from dtdg_lab.systems.feature_cache.forecast import fetch_rows
        from dtdg_lab.systems.feature_cache.policies.shipped_costs import products

        return fetch_rows(products, ranks)


FAMILY = FeatureCacheFamily()
