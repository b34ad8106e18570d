"""What an event says of the blocks of time that a run trains in: who has what when, and the bytes that will move."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.model_pulls import pulls
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.core.units import format_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.snapshot_legs import RERUN_MEMORIES, Leg, legs, sent
from dtdg_lab.partition.snapshot_volume import Volume, between_parts, pulled_by_groups, redistributed
from dtdg_lab.tasks.task import Task


def told_blocks(
    config: RunConfig,
    graph: DynamicGraph,
    blocks: SnapshotBlocks,
    task: Task,
    *,
    partition: Partition | None = None,
    peak_bytes: float | None = None,
) -> dict[str, Any]:
    """The event ``blocks`` of a run whose layout has blocks of time.

    Args:
        config: the run's settings.
        graph: its data.
        blocks: who has which snapshots and vertices.
        task: what is predicted.
        partition: of the vertices, where ranks own some of them in all snapshots.
        peak_bytes: of a step, as estimated where the number of blocks was left to the budget.

    Returns:
        ``layout``, ``ranks`` R, ``row_ranks`` G, ``nodes`` N, ``blocks`` nb, ``asked`` (0 where it was left to the
        budget), ``bounds`` (nb + 1 snapshot numbers), ``own`` (nb x R ranges as [start, stop]), ``rows`` and ``chunks``
        (R ranges each), ``predicted`` {way: (L, R, R) bytes of one step}, ``legs`` ([layer, way, leg, width] in their
        order; width in numbers), ``note`` (in words, what is uneven or was chosen). With a partition ``own``, ``rows``,
        ``chunks`` and ``legs`` are empty: it says who owns what.
    """
    redistributes, many = partition is None, range(blocks.blocks)
    ranks = range(blocks.ranks if redistributes else 0)
    if partition is None:
        volume, some = predicted_volume(config, graph, blocks, task), sent(legs_of(config, graph, blocks, task))
    else:
        volume, some = halo_volume(config, graph, blocks, partition), ()
    predicted = volume.bytes(np.dtype(config["dtype"]).itemsize)
    return {
        "layout": catalogue.system(config.system).parts["parallel"],
        "ranks": blocks.ranks, "row_ranks": blocks.row_ranks if redistributes else 1, "nodes": blocks.nodes,
        "blocks": blocks.blocks, "asked": config["blocks"],
        "bounds": [blocks.snapshots.start, *(blocks.block(b).stop for b in many)],
        "own": [[_told(blocks.own(b, rank)) for rank in ranks] for b in many] if redistributes else [],
        "rows": [_told(blocks.rows(rank)) for rank in ranks],
        "chunks": [_told(blocks.chunk(rank)) for rank in ranks],
        "predicted": {way: moved.tolist() for way, moved in predicted.items()},
        "legs": [[leg.layer, leg.way, leg.leg, leg.width] for leg in some if blocks.groups > 1],
        "note": _note(config, blocks, peak_bytes),
    }  # fmt: skip


def legs_of(config: RunConfig, graph: DynamicGraph, blocks: SnapshotBlocks, task: Task) -> tuple[Leg, ...]:
    """The legs of a step of a run, those that are not sent included."""
    return legs(
        config.model, graph.num_features, config.hidden, config.layers, pairs=0 if task.per_vertex else task.outputs,
        blocks=blocks.blocks, reuse=config["halo_reuse"], **config.options.get("models", {}),
    )  # fmt: skip


def predicted_volume(config: RunConfig, graph: DynamicGraph, blocks: SnapshotBlocks, task: Task) -> Volume:
    """What a step of a run sends: redistributions, and halo rows where groups of ranks split snapshots by rows.

    Where ``halo_reuse`` is on, what is kept is sent once more: in the probe of memory, which no record tells of.
    """
    settings, reuse = config.options.get("models", {}), config["halo_reuse"]
    moved = redistributed(blocks, legs_of(config, graph, blocks, task), config.layers)
    pulled = pulls(config.model, graph.num_features, config.hidden, config.layers, **settings)
    return moved + pulled_by_groups(graph.snapshots, blocks, pulled, rerun=_reruns(config), reuse=reuse)


def halo_volume(config: RunConfig, graph: DynamicGraph, blocks: SnapshotBlocks, partition: Partition) -> Volume:
    """What a step of a run sends whose ranks own vertices in all snapshots: rows of remote neighbours."""
    train, last = blocks.snapshots, blocks.block(blocks.blocks - 1)
    settings = config.options.get("models", {})
    return between_parts(
        graph.snapshots[train.start : train.stop], partition.on_ranks(blocks.ranks),
        pulls(config.model, graph.num_features, config.hidden, config.layers, **settings),
        rerun_before=len(train) - len(last) if _reruns(config) else 0, reuse=config["halo_reuse"],
    )  # fmt: skip


def _reruns(config: RunConfig) -> bool:
    return catalogue.entry("models", config.model).memory in RERUN_MEMORIES


def _told(part: range) -> list[int]:
    return [part.start, part.stop]


def _note(config: RunConfig, blocks: SnapshotBlocks, peak_bytes: float | None) -> str:
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
            "their own: they compute vertices alone"
        )
    return "; ".join(said)
