"""Choice of where the graphs of a run are stored: on the device, or brought for every block."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs.delta import kept_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph


def is_streamed(config: RunConfig, graph: DynamicGraph, plan: SnapshotBlocks, *, peak_bytes: float = 0.0) -> bool:
    """Return whether graphs are transferred for every block, instead of staying on the device with their operators.

    Args:
        config: the run's settings; ``graph_storage="auto"`` keeps what fits in ``memory_gib``.
        graph: its data.
        plan: the snapshots and nodes of each rank.
        peak_bytes: of a step, where ``memory_gib`` limits it too.
    """
    if plan.blocks == 1 or plan.row_ranks > 1:
        return False
    if config["graph_storage"] != "auto":
        return bool(config["graph_storage"] == "streamed")
    operators = kept_bytes(graph, plan, np.dtype(config["dtype"]).itemsize)
    return operators + peak_bytes > config["memory_gib"] * 2**30
