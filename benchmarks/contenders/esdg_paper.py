"""What the ESDG paper reports, on up to 128 V100 GPUs, eight a node; beside our rows in benchmarks/esdg.py.

Table 2 is ``PAPER`` of ``dtdg_lab.systems.snapshot_blocks.volume_study``; speed-ups are ``PAPER_SPEEDUPS`` of
``cost_model`` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TRANSFER_RATIO = MappingProxyType({"cdgcn": 2.0, "evolvegcn-o": 4.1, "tmgcn": 4.1})  # section 6.2: at most
EPOCHS_SHORTER = 0.40  # at most

# Table 2, AMLSim: ranks -> milliseconds of an epoch (snapshot, hypergraph); None where it did not run
EPOCH_MS: Mapping[str, Mapping[int, tuple[float, float | None]]] = MappingProxyType(
    {
        "tmgcn": MappingProxyType({4: (3396, 6668), 16: (1384, 5254), 64: (593, 9164)}),
        "cdgcn": MappingProxyType({4: (3867, 6252), 16: (2545, 4653), 64: (1135, 8856)}),
        "evolvegcn-o": MappingProxyType({4: (4185, None), 16: (944, 8431), 64: (308, 12276)}),
    }
)
BLOCKS = "paper (section 6.2): without blocks no model ran on the 8 GPUs of a node, with them all did, on fewer"
OVERLAP = "paper (section 6.5): left open"
CURVES = "paper (Figure 6): curves of tmgcn identical, cdgcn's apart towards the end, evolvegcn's noticeably"
WEAK_NODES, STRONG_NODES = 2**14, 1_000_000  # of one GPU in section 6.3; of AMLSim in Table 1


def time_ratio(model: str, ranks: int) -> float | None:
    """Hypergraph's time over snapshot partition's."""
    snapshot, hypergraph = EPOCH_MS[model].get(ranks, (0.0, None))
    return hypergraph / snapshot if hypergraph is not None else None
