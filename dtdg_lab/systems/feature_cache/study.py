"""The shipped study of the cache window under congestion: step and epoch costs for each W on each network."""

from __future__ import annotations

from dtdg_lab.systems.base import QUICK_DATA, StudyPreset

NETWORKS = {  # on the links of partition 0, which the others wait for; each applies from the first step on
    "clean": {"links": ""},
    "20 ms late": {"links": "0 delay=20"},
    "8 Mbit/s": {"links": "0 rate=8"},
}
CACHE_WINDOW = StudyPreset(
    name="cache-window",
    question="How long should a feature cache be kept, and does that depend on the network?",
    source="GreenDyGNN equation 1, measured (the paper's windows, our networks)",
    base={"system": "fixed-window", "model": "tgcn", "parts": 2, "batch_size": 16, "fanouts": "5"},
    full={"epochs": 8},
    quick={**QUICK_DATA, "generated_nodes": 400, "generated_edges": 2400, "epochs": 3, "cache_rows": 300},
    over={"cache_window": (1, 4, 16, 64), "network": NETWORKS},
    quick_over={
        "cache_window": (1, 16),
        "network": {name: NETWORKS[name] for name in ("clean", "20 ms late")},
    },
    quick_seeds=(0,),
    needs=("cache_window", "has no cache window"),
    objective="epoch_time_s",
    maps={"cache-window": "", "joules": "epoch_j", "hits": "hit_rate"},
)
