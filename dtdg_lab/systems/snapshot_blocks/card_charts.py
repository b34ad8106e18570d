"""Charts on the cards of ESDG: owners of snapshots and nodes, and the bytes of a redistribution."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.catalogue import System
from dtdg_lab.config.model_facts import model_facts
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.core.units import format_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.partition.redistribution_volume import collectives, pulled_by_groups, redistributed, sent
from dtdg_lab.partition.volume import Volume
from dtdg_lab.systems.snapshot_blocks.ownership_chart import OwnerMap, block_marks, map_trace, owner_maps
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card
from dtdg_lab.visualization.graphs.statistics import SNAPSHOT
from dtdg_lab.visualization.runs.transfers import Traffic, traffic_card
from dtdg_lab.visualization.traces import Attributes

RANKS, BLOCKS = 4, 2
MODEL, LAYERS, HIDDEN = "cdgcn", 2, 6  # ESDG section 6.1
WITHIN = "Each rank computes whole snapshots of a block; within a block no edge leaves a snapshot."
WITHIN_GROUPS = "Groups of ranks compute whole snapshots of a block; ranks of a group share each by nodes."
OVER_TIME = "Then each rank runs its nodes through time: a cell of another colour is a row that ranks swap."


def snapshot_pictures(system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
    """Return owners before and after a redistribution, and the bytes that a step sends between ranks."""
    row_ranks = int(system.defaults.get("row_ranks", 1))
    plan = SnapshotBlocks(range(graph.num_snapshots), BLOCKS, RANKS, graph.num_nodes, row_ranks)
    redistribution = ((0, "forward", "to_vertices", HIDDEN),)
    facts = BlockFacts.of(plan, "snapshot", requested=plan.blocks, predicted={}, collectives=redistribution, note="")
    within, over_time = owner_figures(facts)
    bytes_by_pass = {
        pass_name: layers.sum(axis=0).astype(np.float64) for pass_name, layers in _volume(plan, graph).bytes().items()
    }
    bytes_of_step = sum(bytes_by_pass.values(), np.zeros((RANKS, RANKS)))
    caption = (
        f"{MODEL}, {LAYERS} layers, hidden {HIDDEN}, {BLOCKS} blocks: a step sends "
        f"{format_bytes(float(bytes_of_step.sum()))} over all pairs, counted from the plan. "
    )
    caption += (
        "Neighbour rows are exchanged within a group of ranks, node rows between groups."
        if row_ranks > 1
        else "The volume does not depend on edges; pairs differ only if snapshots do not divide evenly."
    )
    return [
        (within, WITHIN_GROUPS if row_ranks > 1 else WITHIN),
        (over_time, OVER_TIME),
        (traffic_card(None, Traffic(bytes_by_pass)), caption),
    ]


def owner_figures(facts: BlockFacts) -> tuple[Figure, Figure]:
    """Return who owns each row within snapshots, and who owns it over time."""
    within, over_time = owner_maps(facts, facts.blocks)
    return (
        _map_figure("Within a snapshot: ranks own snapshots", facts, within),
        _map_figure("Over time: ranks own nodes", facts, over_time),
    )


def _map_figure(title: str, facts: BlockFacts, owners: OwnerMap) -> Figure:
    """Return a map of owners, snapshots across and nodes down."""
    lines, names = (
        [{**mark, "yref": "paper"} for mark in marks] for marks in block_marks(facts, facts.blocks, "x", "y")
    )
    axes: Attributes = {"xaxis": {"showgrid": False}, "yaxis": {"showgrid": False, "autorange": "reversed"}}
    marks: Attributes = {"shapes": lines, "annotations": names}
    return card([map_trace(owners, "x", "y")], title, unit="node", x_title=SNAPSHOT, **axes, **marks)


def _volume(plan: SnapshotBlocks, graph: DynamicGraph) -> Volume:
    """Return the bytes that a step of the model sends under a plan."""
    redistributions = sent(collectives(MODEL, graph.num_features, HIDDEN, LAYERS, blocks=plan.blocks))
    pulls = model_facts(MODEL, graph.num_features, HIDDEN, LAYERS).pulls
    rows_pulled = pulled_by_groups(graph.snapshots, plan, pulls, rerun=plan.blocks > 1)
    return redistributed(plan, redistributions, LAYERS) + rows_pulled
