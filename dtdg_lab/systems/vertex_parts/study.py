"""The shipped study of partitioners: load balance of the ranks, and its communication cost."""

from __future__ import annotations

from dtdg_lab.systems.base import QUICK_DATA, StudyPreset

PARTITIONERS = StudyPreset(  # needs a session of two engines
    name="partitioners",
    question="Which partitioner balances the ranks' work, and how much communication does it cause?",
    source="DynaHB section 7.4; ESDG section 6.4 (hypergraph)",
    base={"system": "adgnn-t", "ranks": 2},
    full={"epochs": 20, "threads": 1},
    quick={**QUICK_DATA, "epochs": 6},
    over={
        "partitioner": ("hash", "round_robin", "metis", "load_aware", "hypergraph"),
        "model": ("tgcn", "mpnn-lstm"),
    },
    quick_over={"partitioner": ("hash", "metis"), "model": ("tgcn",)},
    needs=("partitioner", "does not partition nodes"),
    objective="imbalance",
    maps={"partitioners": "", "bytes": "bytes_sent", "seconds": "epoch_time_s"},
)
