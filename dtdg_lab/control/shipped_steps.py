"""Constants that :func:`dtdg_lab.control.calibrate` fitted to a real cluster's figures, for use without them.

Source: measurements of GreenDyGNN's authors' public artifact, campaign of July 2026: four nodes that ask each other,
METIS in 4 parts, GraphSAGE, batches of 2000, ogbn-products (100 features) and Reddit (602). They are facts about that
cluster and none about another.
"""

from __future__ import annotations

from types import MappingProxyType

from dtdg_lab.control.calibration_files import Watts
from dtdg_lab.control.rpc_model import RpcModel
from dtdg_lab.control.step_model import StepModel

PARTS = 4
ROW_BYTES = MappingProxyType({"ogbn-products": 400.0, "reddit": 2408.0})
STEPS = MappingProxyType(
    {
        "reddit": StepModel(92.6741, 7.80076, 41.0313, 497.845, -0.166815, 11.6198, 5124.05),
        "ogbn-products": StepModel(124.336, 10.8026, 104.684, 185.516, 0.189431, 11.6198, 5124.05),
    }
)
RPC = MappingProxyType(
    {"reddit": RpcModel(1.2572e-3, 2.5569e-9), "ogbn-products": RpcModel(1.3018e-3, 3.0463e-9)}
)  # medians over owners
NOISE = 0.4  # of a fetch's time about that model, as a standard deviation of its logarithm
WATTS = Watts(busy=168.7775, stall=150.715, idle=110.0225)

# of a data set that is none of these, where its fetches were not measured
DEFAULT_ROW_BYTES = 400.0
DEFAULT_RPC = RpcModel(1.3e-3, 3e-9)
