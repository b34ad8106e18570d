"""The event of a run's time blocks: the rows each rank holds in each, and the bytes that will move."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.core.units import format_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.partition.redistribution_volume import AllToAllCost, collectives, pulled_by_groups, redistributed, sent
from dtdg_lab.partition.volume import RERUN_MEMORIES, Volume
from dtdg_lab.tasks.base import Task
from dtdg_lab.training.partition import facts_of_run, halo_volume


def blocks_event(
    config: RunConfig,
    graph: DynamicGraph,
    blocks: SnapshotBlocks,
    task: Task,
    *,
    partition: Partition | None = None,
    peak_bytes: float | None = None,
    graphs: str = "",
) -> BlockFacts:
    """Return the event ``blocks`` of a run whose layout has time blocks.

    Args:
        config: the run's settings.
        graph: its data.
        blocks: the snapshots and nodes of each rank.
        task: what is predicted.
        partition: of the nodes, where ranks own some of them in all snapshots.
        peak_bytes: of a step, as estimated where the number of blocks was left to the budget.
        graphs: where they are, and why, for its note.

    With a partition, spans and collectives of ranks follow from the partition and are left out.
    """
    if partition is None:
        volume = predicted_volume(config, graph, blocks, task)
        costs = sent(collectives_of(config, graph, blocks, task)) if blocks.groups > 1 else ()
    else:
        volume, costs = halo_volume(config, graph, blocks, partition), ()
    return BlockFacts.of(
        blocks,
        catalogue.system(config.system).parts["parallel"],
        requested=config["blocks"],
        predicted=volume.bytes(np.dtype(config["dtype"]).itemsize),
        collectives=tuple((cost.layer, cost.pass_name, cost.collective, cost.width) for cost in costs),
        note="; ".join([*_notes(config, blocks, peak_bytes), *([graphs] if graphs else [])]),
    )


def collectives_of(
    config: RunConfig, graph: DynamicGraph, blocks: SnapshotBlocks, task: Task
) -> tuple[AllToAllCost, ...]:
    """Return the collectives of a step of a run, those that are not sent included."""
    return collectives(
        config.model,
        graph.num_features,
        config.hidden,
        config.layers,
        pairs=0 if task.per_vertex else task.outputs,
        blocks=blocks.blocks,
        reuse=config["halo_reuse"],
        **config.options.get("models", {}),
    )


def predicted_volume(config: RunConfig, graph: DynamicGraph, blocks: SnapshotBlocks, task: Task) -> Volume:
    """Return the volume of a step: redistributions, and halo rows where groups of ranks split snapshots by rows.

    With ``halo_reuse``, rows that are kept are sent once more in the probe of memory, which is not recorded.
    """
    moved = redistributed(blocks, collectives_of(config, graph, blocks, task), config.layers)
    facts, reuse = facts_of_run(config, graph), config["halo_reuse"]
    rerun = facts.memory in RERUN_MEMORIES
    return moved + pulled_by_groups(graph.snapshots, blocks, facts.pulls, rerun=rerun, reuse=reuse)


def _notes(config: RunConfig, blocks: SnapshotBlocks, peak_bytes: float | None) -> list[str]:
    """Return notes on the number of blocks, and on ranks without snapshots of their own."""
    notes = []
    count = f"{blocks.blocks} block{'s' * (blocks.blocks > 1)}"
    if config["blocks"] == 0:
        notes.append(
            f"{count}: the fewest whose step is estimated to fit memory_gib={config['memory_gib']:g} GiB, with a peak "
            f"of {format_bytes(peak_bytes)} on the rank that needs most"
        )
    elif config["blocks"] != blocks.blocks:
        notes.append(f"{count} where {config['blocks']} were requested")
    lengths = {len(blocks.block(b)) for b in range(blocks.blocks)}
    if len(lengths) > 1:
        notes.append(f"blocks hold {min(lengths)} or {max(lengths)} snapshots: they cannot be shared evenly")
    if min(lengths) < blocks.groups:
        notes.append(
            f"a block of {min(lengths)} snapshots leaves some of the {blocks.groups} groups of ranks without one of "
            "their own: they compute nodes alone"
        )
    return notes
