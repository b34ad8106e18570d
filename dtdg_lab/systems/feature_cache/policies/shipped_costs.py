"""Shipped constants of step costs: those of a real cluster of four nodes, frozen.

The simulator, the shipped policies and the tables of policies use them. They belong to the cost model in which stages
add up, with which shipped policies were trained. :data:`dtdg_lab.systems.feature_cache.policies.calibration.SHIPPED`
describes the same cluster by the model in which stages overlap; use that to predict step times.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from dtdg_lab.core.errors import UnknownNameError
from dtdg_lab.systems.feature_cache.policies.calibration import NOISE, PARTS, ROW_BYTES, RPC, WATTS, StepModel
from dtdg_lab.systems.feature_cache.policies.costs import CacheCosts

# base_ms, miss_mbit, half, rebuild_mbit, exponent, trips, unhindered_mbit
_ADDED = MappingProxyType(
    {
        "ogbn-products": (112.714, 101.584, 10.1607, 187.616, 0.46635, 11.1607, 5126.12),
        "reddit": (84.007, 75.989, 34.217, 504.03, -0.21249, 11.5531, 5126.12),
    }
)


def products(parts: int = PARTS) -> CacheCosts:
    """GraphSAGE on ogbn-products, batches of 2000: the cache contains half of the requested rows."""
    return shipped_costs("ogbn-products", parts)


def reddit(parts: int = PARTS) -> CacheCosts:
    """GraphSAGE on Reddit, batches of 2000: the cache contains nearly all requested rows."""
    return shipped_costs("reddit", parts)


def shipped_costs(name: str, parts: int = PARTS) -> CacheCosts:
    """Frozen constants of a data set, seen by one requester of P - 1.

    Raises:
        UnknownNameError: the dataset is unknown.
        ConfigError: fewer than two parts.
    """
    if name not in _ADDED:
        raise UnknownNameError("data set with shipped costs", name, _ADDED)
    base_ms, miss_mbit, half, rebuild_mbit, exponent, trips, unhindered_mbit = _ADDED[name]
    model = StepModel(base_ms, 0.0, miss_mbit, rebuild_mbit, exponent, trips, unhindered_mbit)
    costs = model.costs(name, parts=parts, row_bytes=ROW_BYTES[name], watts=WATTS, rpc=RPC[name], noise=NOISE)
    return replace(
        costs,
        trips=trips,
        rebuild_trips=1.0,
        miss_trips=0.0,
        hit_half=half,
        norm=1.5,
        wait_rows=1.0,
        overlapped=False,
    )
