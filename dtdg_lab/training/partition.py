"""Partitions, chunks, splits and time blocks of a run, made on rank 0 and described by events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

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

# The event of a run's blocks of time: the rows each rank holds in each, and the bytes that will move.


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
    """The event ``blocks`` of a run whose layout has blocks of time.

    Args:
        config: the run's settings.
        graph: its data.
        blocks: the snapshots and nodes of each rank.
        task: what is predicted.
        partition: of the nodes, where ranks own some of them in all snapshots.
        peak_bytes: of a step, as estimated where the number of blocks was left to the budget.
        graphs: where they are, and why, for its note.

    With a partition no rank has spans or collectives of its own: they follow from the partition.
    """
    if partition is None:
        volume, some = predicted_volume(config, graph, blocks, task), sent(collectives_of(config, graph, blocks, task))
    else:
        volume, some = halo_volume(config, graph, blocks, partition), ()
    return BlockFacts.of(
        blocks,
        catalogue.system(config.system).parts["parallel"],
        requested=config["blocks"],
        predicted=volume.bytes(np.dtype(config["dtype"]).itemsize),
        collectives=tuple((of.layer, of.pass_name, of.collective, of.width) for of in some if blocks.groups > 1),
        note="; ".join([*_notes(config, blocks, peak_bytes), *([graphs] if graphs else [])]),
    )


def collectives_of(
    config: RunConfig, graph: DynamicGraph, blocks: SnapshotBlocks, task: Task
) -> tuple[AllToAllCost, ...]:
    """The collectives of a step of a run, those that are not sent included."""
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
    """What a step of a run sends: redistributions, and halo rows where groups of ranks split snapshots by rows.

    Where ``halo_reuse`` is on, what is kept is sent once more: in the probe of memory, which no record tells of.
    """
    moved = redistributed(blocks, collectives_of(config, graph, blocks, task), config.layers)
    facts, reuse = facts_of_run(config, graph), config["halo_reuse"]
    rerun = facts.memory in RERUN_MEMORIES
    return moved + pulled_by_groups(graph.snapshots, blocks, facts.pulls, rerun=rerun, reuse=reuse)


def halo_volume(config: RunConfig, graph: DynamicGraph, blocks: SnapshotBlocks, partition: Partition) -> Volume:
    """What a step of a run sends whose ranks own nodes in all snapshots: rows of remote neighbours."""
    train, last, facts = blocks.snapshots, blocks.block(blocks.blocks - 1), facts_of_run(config, graph)
    return between_parts(
        graph.snapshots[train.start : train.stop],
        partition.on_ranks(blocks.ranks),
        facts.pulls,
        rerun_before=len(train) - len(last) if facts.memory in RERUN_MEMORIES else 0,
        reuse=config["halo_reuse"],
    )


def facts_of_run(config: RunConfig, graph: DynamicGraph) -> ModelFacts:
    """Return what training must know of a run's model."""
    options = config.options.get("models", {})
    return model_facts(config.model, graph.num_features, config.hidden, config.layers, **options)


def _notes(config: RunConfig, blocks: SnapshotBlocks, peak_bytes: float | None) -> list[str]:
    """What was chosen and why, and which ranks have nothing of their own."""
    said = []
    many = f"{blocks.blocks} block{'s' * (blocks.blocks > 1)}"
    if config["blocks"] == 0:
        said.append(
            f"{many}: the fewest whose step is estimated to fit memory_gib={config['memory_gib']:g} GiB, with a peak "
            f"of {format_bytes(peak_bytes)} on the rank that needs most"
        )
    elif config["blocks"] != blocks.blocks:
        said.append(f"{many} where {config['blocks']} were asked for")
    lengths = {len(blocks.block(b)) for b in range(blocks.blocks)}
    if len(lengths) > 1:
        said.append(f"blocks hold {min(lengths)} or {max(lengths)} snapshots, for they do not share evenly")
    if min(lengths) < blocks.groups:
        said.append(
            f"a block of {min(lengths)} snapshots leaves some of the {blocks.groups} groups of ranks without one of "
            "their own: they compute nodes alone"
        )
    return said


# The partition of a run: made on rank 0, broadcast to all ranks, and logged as an event with its cost.


def made_by_first(
    group: Group, make: Callable[[], tuple[T, dict[str, Any]]], what: str
) -> tuple[T | None, dict[str, Any]]:
    """What rank 0 makes, which is None on the others, and its description, on all ranks; collective.

    Args:
        group: the ranks.
        make: called on rank 0; the description must be JSON.
        what: is made, for messages.

    Raises:
        PartitionError: it could not be made; every rank raises it with rank 0's reason.
    """
    made: T | None = None
    described: dict[str, Any] = {}
    if group.rank == 0:
        try:
            made, described = make()
        except Exception as error:  # whatever it is, the other ranks wait for an answer
            described = {"reason": f"{what}: {error_text(error)}"}
    described = json.loads(group.broadcast_text(json.dumps(described)))
    if "reason" in described:
        raise PartitionError(described["reason"])
    return made, described


def shared_partition(config: RunConfig, graph: DynamicGraph, group: Group) -> Partition:
    """The partition that a config asks for, the same on every rank; collective.

    Rank 0 makes it or finds it in its cache: partitioners may differ between machines, and their caches do.

    Raises:
        PartitionError: it could not be made; every rank raises it with rank 0's reason.
    """

    def make() -> tuple[Partition, dict[str, Any]]:
        settings = {name: config[name] for name in partition_settings(config["partitioner"])}
        hops = facts_of_run(config, graph).hops
        made = make_partition(config["partitioner"], graph, config.parts, hops=hops, seed=config.seed, **settings)
        return made, {"made_by": made.made_by, "seconds": made.seconds, "groups": made.groups is not None}

    made, described = made_by_first(group, make, f"partitioner {config['partitioner']!r} with parts={config.parts}")
    owner = group.broadcast_array(None if made is None else made.owner)
    groups = group.broadcast_array(None if made is None else made.groups) if described["groups"] else None
    return Partition(owner, config.parts, groups, graph.data_hash, described["made_by"], described["seconds"])


def partition_event(
    of: BuildContext, *, blocks: SnapshotBlocks | None = None, full_share: float | None = None
) -> PartitionFacts:
    """What an event says of a run's partition: each rank's nodes, and the bytes that a step will send.

    The parts of a rank send as one.

    Args:
        of: what a strategy was built from, with a partition.
        blocks: of time that the run trains in, where it does: rows are sent again where a block is recomputed.
        full_share: of an epoch's steps, those in which a snapshot exchanges rows, where not all of them do.
    """
    config, graph, partition, train, ranks = of.config, of.graph, of.partition, of.train, of.group.size
    assert partition is not None
    layout = catalogue.system(config.system).parts["parallel"]
    facts = facts_of_run(config, graph)
    measures = measures_for(graph, partition, facts, snapshots=train)
    between = measures
    if partition.parts != ranks:
        between = measures_for(graph, partition.on_ranks(ranks), facts, snapshots=train)
    itemsize = np.dtype(config["dtype"]).itemsize
    predicted: dict[str, Any] = predicted_bytes(between, facts.pulls, itemsize=itemsize, reuse=config["halo_reuse"])
    if full_share is not None:  # the mean step
        predicted = {
            pass_name: np.rint(moved * full_share).astype(moved.dtype) for pass_name, moved in predicted.items()
        }
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


# Which snapshots a run trains, validates and tests on, as an event tells it.


def split_event(graph: DynamicGraph, split: Split) -> dict[str, Any]:
    """Part -> ``first`` and ``last`` snapshot, and ``without_edges``: [first, last] of each run of empty ones.

    A part without snapshots is left out.
    """
    empty, described = np.asarray(graph.num_edges) == 0, {}
    for part in PARTS:
        if where := getattr(split, part):
            runs = [where[run.start : run.stop] for run in runs_of(empty[where.start : where.stop])]
            without = [[run[0], run[-1]] for run in runs]
            described[part] = {"first": where[0], "last": where[-1], "without_edges": without}
    return described
