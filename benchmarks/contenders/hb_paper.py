"""What the DynaHB paper reports, on five machines with an RTX 2080Ti each; beside our rows in benchmarks/dynahb.py."""

from __future__ import annotations

from collections.abc import Mapping

MEAN_SPEEDUP = 8.06  # section 7: over snapshot batches
SPEEDUPS = (2.47, 93.63)  # section 6.2: over snapshot batches, T-GCN
LOSS_APART = 0.05085  # section 6.2: most that a batch technique's loss is above the full batch's
STEP_S: Mapping[str, float] = {  # Table 2, ST: T-GCN on Flickr
    "pygt-dist": 1.487, "adgnn-t": 9.926, "dbov": 2.784, "dbos": 0.320, "bvr": 0.743, "dynahb": 0.016,
}  # fmt: skip
BREAKDOWN: Mapping[str, tuple[float | None, ...]] = {  # Table 3, T-GCN on Flickr; None: no such step
    "pygt-dist": (None, None, 0.115, 243.3, None, 0.542, None),
    "adgnn-t": (None, None, 0.303, 53.33, 1517.0, 0.522, None),
    "dbov": (None, 443.1, 3.445, 25.29, None, 0.489, None),
    "dbos": (None, 0.003, 0.060, 14.63, None, 0.803, None),
    "bvr": (5.271, 0.000, 1.233, 40.27, None, 0.321, None),
    "dynahb": (8.158, 0.000, 0.115, 3.352, None, 0.554, 0.522),
}  # fmt: skip
PARTS = ("rsv", "gen_bat", "to_gpu", "comp", "comm", "upda", "rl")
LAYERS: Mapping[str, tuple[float, ...]] = {  # Table 4: T-GCN on Flickr, one to three layers
    "pygt-dist": (0.13, 0.46, 0.85), "adgnn-t": (2.59, 10.2, 17.6), "dbov": (1.71, 8.89, 23.42),
    "dbos": (0.03, 0.12, 0.20), "bvr": (0.41, 1.32, 2.64), "dynahb": (0.02, 0.06, 0.13),
}  # fmt: skip
CORA: Mapping[str, tuple[float, float]] = {  # Table 5: accuracy, seconds
    "pygt-dist": (0.7414, 46.6), "adgnn-t": (0.7414, 914), "dbov": (0.7414, 169), "dbos": (0.7355, 28.3),
    "bvr": (0.7219, 33.7), "dynahb": (0.7403, 18.2),
}  # fmt: skip
CORA_LOST = 0.0011  # accuracy below the full batch's
MEMORY: Mapping[str, tuple[float, float]] = {  # Table 7: GB of host and of GPU
    "pygt-dist": (40.88, 9.95), "adgnn-t": (18.58, 5.45), "dbov": (40.63, 0.97), "dbos": (40.04, 3.05),
    "bvr": (40.34, 1.71), "dynahb": (40.25, 0.47),
}  # fmt: skip
SIZES = {"1%": 4.01, "5%": 8.08, "10%": 16.82, "20%": 42.22}  # Table 8: mean speed-up over this size, fixed
FRACTIONS = (2.22, 2.24, 3.25, 3.23, 2.50)  # Table 9: over snapshot batches, 20 to 100 % of Stackexch
ABLATION = {"+lap": 2.82, "+asyn": 1.33, "+rl": 1.70, "+rsv": 10.18}  # Figure 8, Youtube: each alone, +rsv over all
DQN = {"decay .999": 4.57, "decay .75": 4.52, "least 0": 4.99, "least .5": 4.46, "rate .1": 4.49, "rate .001": 4.18,
       "dqn": 3.21, "random": 5.82}  # fmt: skip  # Table 10, seconds
WAIT_SHARE = 0.01  # ours: of a step's time, once reservoirs are warm
