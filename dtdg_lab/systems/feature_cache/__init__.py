"""GreenDyGNN, DGL, BGL and RapidGNN: mini-batches whose remote features are fetched, through a cache or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.engine.strategy import BuildContext, Strategy


class FeatureCacheFamily(SystemFamily):
    """GreenDyGNN, DGL, BGL and RapidGNN: mini-batches whose remote features are fetched, through a cache or not."""

    name = "feature_cache"

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.feature_cache.strategy import build

        return build(context)


FAMILY = FeatureCacheFamily()
