"""Partition, split and time blocks of a run, and the events that describe them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import ModelFacts, model_facts
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import PartitionError
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.core.system_errors import error_text
from dtdg_lab.core.units import format_bytes
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.strategy import BuildContext
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.graphs.statistics import runs_of
from dtdg_lab.partition.base import make_partition, partition_settings
from dtdg_lab.partition.events import BlockFacts, PartitionFacts
from dtdg_lab.partition.measures import measures_for
from dtdg_lab.partition.redistribution_volume import AllToAllCost, collectives, pulled_by_groups, redistributed, sent
from dtdg_lab.partition.volume import RERUN_MEMORIES, Volume, between_parts, predicted_bytes
from dtdg_lab.tasks.base import PARTS, Task

T = TypeVar("T")


def facts_of_run(config: RunConfig, graph: DynamicGraph) -> ModelFacts:
    """Return the facts of the model of a run."""
    options = config.options.get("models", {})
    return model_facts(config.model, graph.num_features, config.hidden, config.layers, **options)


def made_by_first(
    group: Group, make: Callable[[], tuple[T, dict[str, Any]]], what: str
) -> tuple[T | None, dict[str, Any]]:
    """Return rank 0's result (None on other ranks), and its description on all ranks; collective.

    Args:
        group: the ranks.
        make: called on rank 0; returns the result and its JSON description.
        what: name of the result, for messages.

    Raises:
        PartitionError: rank 0 failed; raised on every rank with rank 0's reason.
    """
    result: T | None = None
    description: dict[str, Any] = {}
    if group.rank == 0:
        try:
            result, description = make()
        except Exception as error:  # any error, since the other ranks wait for an answer
            description = {"reason": f"{what}: {error_text(error)}"}
    description = json.loads(group.broadcast_text(json.dumps(description)))
    if "reason" in description:
        raise PartitionError(description["reason"])
    return result, description


def shared_partition(config: RunConfig, graph: DynamicGraph, train: range, group: Group) -> Partition:
    """Return the configured partition, the same on every rank; collective.

    Rank 0 makes it or loads it from its cache, since partitioners and caches may differ between machines. It is made
    from the training snapshots ``train`` of the whole graph.

    Raises:
        PartitionError: rank 0 failed; raised on every rank with rank 0's reason.
    """

    def make() -> tuple[Partition, dict[str, Any]]:
        settings = {name: config[name] for name in partition_settings(config["partitioner"])}
        hops = facts_of_run(config, graph).hops
        partition = make_partition(
            config["partitioner"], graph, config.parts, snapshots=train, hops=hops, seed=config.seed, **settings
        )
        has_groups = partition.groups is not None
        return partition, {"made_by": partition.made_by, "seconds": partition.seconds, "groups": has_groups}

    what = f"partitioner {config['partitioner']!r} with parts={config.parts}"
    partition, description = made_by_first(group, make, what)
    owner = group.broadcast_array(None if partition is None else partition.owner)
    groups = group.broadcast_array(None if partition is None else partition.groups) if description["groups"] else None
    return Partition(owner, config.parts, groups, graph.data_hash, description["made_by"], description["seconds"])


def partition_event(
    context: BuildContext,
    *,
    blocks: SnapshotBlocks | None = None,
    sent: Mapping[str, NDArray[np.floating]] | None = None,
) -> PartitionFacts:
    """Return the event of a run's partition, with each rank's nodes and the predicted bytes of a step.

    Args:
        context: inputs of a strategy, with a partition.
        blocks: time blocks of the run, if any: recomputing a block sends its rows again.
        sent: predicted bytes of a step, pass -> (L, R, R), where a step is not a pass over all training snapshots.
    """
    config, graph, partition, train = context.config, context.graph, context.partition, context.train
    ranks = context.group.size
    assert partition is not None
    layout = catalogue.system(config.system).parts["parallel"]
    facts = facts_of_run(config, graph)
    measures = measures_for(graph, partition, facts, snapshots=train)
    between = measures
    if partition.parts != ranks:
        between = measures_for(graph, partition.on_ranks(ranks), facts, snapshots=train)
    itemsize = np.dtype(config["dtype"]).itemsize
    predicted: dict[str, Any] = predicted_bytes(between, facts.pulls, itemsize=itemsize, reuse=config["halo_reuse"])
    if sent is not None:
        predicted = dict(sent)
    elif layout == "halo_vertex" and blocks is not None and blocks.blocks > 1:
        moved_again = halo_volume(config, graph, blocks, partition).bytes(itemsize)
        predicted = {
            pass_name: moved for pass_name, moved in moved_again.items() if pass_name != "rerun" or moved.any()
        }
    elif layout != "halo_vertex":
        predicted = {pass_name: np.zeros_like(moved) for pass_name, moved in predicted.items()}
    return PartitionFacts(
        partitioner=config["partitioner"],
        made_by=partition.made_by,
        parts=partition.parts,
        ranks=ranks,
        layout=layout,
        seconds=partition.seconds,
        measures=measures.to_dict(),
        predicted=predicted,
    )


def halo_volume(config: RunConfig, graph: DynamicGraph, blocks: SnapshotBlocks, partition: Partition) -> Volume:
    """Return the volume of a step in rows of remote neighbours, for ranks that own nodes in all snapshots."""
    train, last, facts = blocks.snapshots, blocks.block(blocks.blocks - 1), facts_of_run(config, graph)
    return between_parts(
        graph.snapshots[train.start : train.stop],
        partition.on_ranks(blocks.ranks),
        facts.pulls,
        rerun_before=len(train) - len(last) if facts.memory in RERUN_MEMORIES else 0,
        reuse=config["halo_reuse"],
    )


def split_event(graph: DynamicGraph, split: Split) -> dict[str, Any]:
    """Return the data of an event of the split, by part; a part without snapshots is left out.

    Each part has its ``first`` and ``last`` snapshot, and ``without_edges``: [first, last] of each run of snapshots
    without edges.
    """
    is_empty, data = np.asarray(graph.num_edges) == 0, {}
    for part in PARTS:
        if snapshots := getattr(split, part):
            runs = [snapshots[run.start : run.stop] for run in runs_of(is_empty[snapshots.start : snapshots.stop])]
            without_edges = [[run[0], run[-1]] for run in runs]
            data[part] = {"first": snapshots[0], "last": snapshots[-1], "without_edges": without_edges}
    return data


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
    """Return the event ``blocks`` of a run with time blocks.

    With a partition, spans and collectives of ranks follow from it and are left out.

    Args:
        config: the run's settings.
        graph: the data.
        blocks: the snapshots and nodes of each rank.
        task: the task.
        partition: partition of the nodes; None unless ranks own nodes in all snapshots.
        peak_bytes: estimated peak of a step, with ``blocks=0``.
        graphs: note on where graphs are stored, and why.
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
    """Return the collectives of a step of a run, including those that send nothing."""
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
    """Return the volume of a step: redistributions, and halo rows if groups of ranks split snapshots by rows.

    With ``halo_reuse``, the memory probe sends the reused rows once more, which is not recorded.
    """
    moved = redistributed(blocks, collectives_of(config, graph, blocks, task), config.layers)
    facts, reuse = facts_of_run(config, graph), config["halo_reuse"]
    rerun = facts.memory in RERUN_MEMORIES
    return moved + pulled_by_groups(graph.snapshots, blocks, facts.pulls, rerun=rerun, reuse=reuse)


def _notes(config: RunConfig, blocks: SnapshotBlocks, peak_bytes: float | None) -> list[str]:
    """Return notes on the number of blocks, and on ranks without own snapshots."""
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
