"""Constants that :func:`dtdg_lab.calibration.calibrate` fitted to a real cluster, for use without measurements.

Source: measurements of GreenDyGNN's authors' public artifact, campaign of July 2026: four nodes that request features
from each other, METIS in 4 parts, GraphSAGE, batches of 2000, ogbn-products (100 features) and Reddit (602). They are
specific to that cluster.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from dtdg_lab.core.errors import UnknownNameError
from dtdg_lab.systems.feature_cache.calibration.measurements import Watts
from dtdg_lab.systems.feature_cache.calibration.step_model import StepTimeModel
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.costs.rpc_model import RpcModel

PARTS = 4
ROW_BYTES = MappingProxyType({"ogbn-products": 400.0, "reddit": 2408.0})
STEP_MODELS = MappingProxyType(
    {
        "reddit": StepTimeModel(92.6741, 7.80076, 41.0313, 497.845, -0.166815, 11.6198, 5124.05),
        "ogbn-products": StepTimeModel(124.336, 10.8026, 104.684, 185.516, 0.189431, 11.6198, 5124.05),
    }
)
RPC = MappingProxyType(
    {"reddit": RpcModel(1.2572e-3, 2.5569e-9), "ogbn-products": RpcModel(1.3018e-3, 3.0463e-9)}
)  # medians over owners
NOISE = 0.4  # of a fetch's time around that model, as a standard deviation of its logarithm
WATTS = Watts(busy=168.7775, stall=150.715, idle=110.0225)

# for other datasets whose fetches were not measured
DEFAULT_ROW_BYTES = 400.0
DEFAULT_RPC = RpcModel(1.3e-3, 3e-9)

# base_ms, miss_mbit, half, rebuild_mbit, exponent, trips, unhindered_mbit
_ADDED = MappingProxyType(
    {
        "ogbn-products": (112.714, 101.584, 10.1607, 187.616, 0.46635, 11.1607, 5126.12),
        "reddit": (84.007, 75.989, 34.217, 504.03, -0.21249, 11.5531, 5126.12),
    }
)


def products(parts: int = PARTS) -> CacheCosts:
    """Return GraphSAGE on ogbn-products, batches of 2000: the cache contains half of the requested rows."""
    return shipped_costs("ogbn-products", parts)


def reddit(parts: int = PARTS) -> CacheCosts:
    """Return GraphSAGE on Reddit, batches of 2000: the cache contains nearly all requested rows."""
    return shipped_costs("reddit", parts)


def shipped_costs(name: str, parts: int = PARTS) -> CacheCosts:
    """Return frozen constants of a data set, seen by one requester of P - 1.

    Raises:
        UnknownNameError: the dataset is unknown.
        ConfigError: fewer than two parts.
    """
    if name not in _ADDED:
        raise UnknownNameError("data set with shipped costs", name, _ADDED)
    base_ms, miss_mbit, half, rebuild_mbit, exponent, trips, unhindered_mbit = _ADDED[name]
    model = StepTimeModel(base_ms, 0.0, miss_mbit, rebuild_mbit, exponent, trips, unhindered_mbit)
    costs = model.costs(name, parts=parts, row_bytes=ROW_BYTES[name], watts=WATTS, rpc=RPC[name], noise=NOISE)
    costs = replace(costs, trips=trips, rebuild_trips=1.0, miss_trips=0.0, hit_half=half)
    return replace(costs, norm=1.5, wait_rows=1.0, overlapped=False)
