"""GreenDyGNN, DGL, BGL and RapidGNN: mini-batches whose remote features are fetched, through a cache or not."""

from __future__ import annotations

from dtdg_lab.systems.base import SystemFamily


class FeatureCacheFamily(SystemFamily):
    """GreenDyGNN, DGL, BGL and RapidGNN: mini-batches whose remote features are fetched, through a cache or not."""

    name = "feature_cache"


FAMILY = FeatureCacheFamily()
