"""Constants of what steps cost that come with the lab: those of a real cluster of four nodes."""

from __future__ import annotations

from dtdg_lab.control.cache_costs import CacheCosts
from dtdg_lab.control.calibration import SHIPPED
from dtdg_lab.control.shipped_steps import PARTS


def products(parts: int = PARTS) -> CacheCosts:
    """GraphSAGE on ogbn-products, batches of 2000: where the cache holds half of what is asked for."""
    return SHIPPED.costs("ogbn-products", parts=parts)


def reddit(parts: int = PARTS) -> CacheCosts:
    """GraphSAGE on Reddit, batches of 2000: where the cache holds nearly all that is asked for."""
    return SHIPPED.costs("reddit", parts=parts)
