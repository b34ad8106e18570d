"""GreenDyGNN, DGL, BGL and RapidGNN: mini-batches whose remote features are fetched, through a cache or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class FeatureCacheFamily(SystemFamily):
    """GreenDyGNN, DGL, BGL and RapidGNN: mini-batches whose remote features are fetched, through a cache or not."""

    name = "feature_cache"

    def page(self, context: PageContext) -> RunPage:
        """The page of its caches and links."""
        from dtdg_lab.systems.feature_cache.page import FeaturePage

        return FeaturePage(context)


FAMILY = FeatureCacheFamily()
