"""Pictures on the cards of its systems: owners of snapshots and nodes, and the bytes of a redistribution."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.catalogue import System
from dtdg_lab.config.model_facts import model_facts
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.core.units import format_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.partition.metrics import Volume
from dtdg_lab.partition.volume import collectives, pulled_by_groups, redistributed, sent
from dtdg_lab.systems.snapshot_blocks.ownership import OwnerMap, owner_maps
from dtdg_lab.systems.snapshot_blocks.picture import block_marks, map_trace
from dtdg_lab.visualization.graphs.partition_maps import SNAPSHOT, matrix_figure
from dtdg_lab.visualization.layout import Figure, chart
from dtdg_lab.visualization.panels import Panel
from dtdg_lab.visualization.traces import Drawn

RANKS, BLOCKS = 4, 2
MODEL, LAYERS, HIDDEN = "cdgcn", 2, 6  # ESDG section 6.1
WITHIN = "Each rank computes whole snapshots of a block; within a block no edge leaves a snapshot."
WITHIN_GROUPS = "Groups of ranks compute whole snapshots of a block; ranks of a group share each by nodes."
OVER_TIME = "Then each rank runs its nodes through time: a cell of another colour is a row that ranks swap."


def snapshot_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Owners before and after a redistribution, and the bytes that a step sends between ranks."""
    split = int(system.defaults.get("row_ranks", 1))
    plan = SnapshotBlocks(range(graph.num_snapshots), BLOCKS, RANKS, graph.num_nodes, split)
    volume = volume_of(plan, graph)
    sent_rows = ((0, "forward", "to_vertices", HIDDEN),)
    facts = BlockFacts.of(plan, "snapshot", requested=plan.blocks, predicted={}, collectives=sent_rows, note="")
    within, over_time = owner_maps(facts, facts.blocks)
    maps = [
        (_map_figure("Within a snapshot: ranks own snapshots", facts, within), WITHIN_GROUPS if split > 1 else WITHIN),
        (_map_figure("Over time: ranks own nodes", facts, over_time), OVER_TIME),
    ]
    bytes_sent = {pass_name: each.sum(axis=0).astype(np.float64) for pass_name, each in volume.bytes().items()}
    top = float(np.sum(list(bytes_sent.values()), axis=0).max())
    whole = sum(float(each.sum()) for each in bytes_sent.values())
    words = (
        f"{MODEL}, {LAYERS} layers, hidden {HIDDEN}, {BLOCKS} blocks: a step sends {format_bytes(whole)} over all "
        "pairs, counted from the plan. "
        + (
            "Neighbour rows are exchanged within a group of ranks, node rows between groups."
            if split > 1
            else "The volume does not depend on edges; pairs differ only if snapshots do not divide evenly."
        )
    )
    return [*maps, (matrix_figure("What a step sends", bytes_sent, who="rank", top=top), words)]


def _map_figure(title: str, facts: BlockFacts, owners: OwnerMap) -> Figure:
    """Draw who owns what, snapshots across and nodes down."""
    lines, names = (
        [{**mark, "yref": "paper"} for mark in marks] for marks in block_marks(facts, facts.blocks, "x", "y")
    )
    axes: Drawn = {"xaxis": {"showgrid": False}, "yaxis": {"showgrid": False, "autorange": "reversed"}}
    return chart(title, SNAPSHOT, "node", [map_trace(owners, "x", "y")], shapes=lines, annotations=names, **axes)


def volume_of(plan: SnapshotBlocks, graph: DynamicGraph) -> Volume:
    """Bytes that a step of the model sends under a plan."""
    of_step = sent(collectives(MODEL, graph.num_features, HIDDEN, LAYERS, blocks=plan.blocks))
    moved = redistributed(plan, of_step, LAYERS)
    pulled = model_facts(MODEL, graph.num_features, HIDDEN, LAYERS).pulls
    return moved + pulled_by_groups(graph.snapshots, plan, pulled, rerun=plan.blocks > 1)
