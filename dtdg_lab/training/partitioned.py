"""The partition of a run: made on rank 0, known to all ranks, and told as an event with what it costs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dtdg_lab.batching.trapezoid import Trapezoid
from dtdg_lab.comm.group import Group
from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError, PartitionError
from dtdg_lab.core.model_pulls import hops, pulls
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.make import make_partition
from dtdg_lab.partition.measured import measures_for
from dtdg_lab.partition.predict import predicted_bytes
from dtdg_lab.training.told_blocks import halo_volume

KNOBS = ("dealing", "imbalance", "partition_file")


def model_hops(config: RunConfig) -> int:
    """D: the hops of all layers of a run's model together."""
    return hops(config.model, config.layers, **config.options.get("models", {}))


def shared_partition(config: RunConfig, graph: DynamicGraph, group: Group) -> Partition:
    """The partition that a config asks for, the same on every rank; collective.

    Rank 0 makes it or finds it in its cache: partitioners may differ between machines, and their caches do.

    Raises:
        PartitionError: it could not be made; every rank raises it with rank 0's reason.
    """
    made: Partition | None = None
    told: dict[str, Any] = {}
    if group.rank == 0:
        try:
            made = make_partition(
                config["partitioner"], graph, config.parts, hops=model_hops(config), seed=config.seed,
                **{knob: config[knob] for knob in KNOBS},
            )  # fmt: skip
            told = {"made_by": made.made_by, "seconds": made.seconds, "groups": made.groups is not None}
        except Exception as error:  # whatever it is, the other ranks wait for an answer
            reason = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
            told = {"reason": f"partitioner {config['partitioner']!r} with parts={config.parts}: {reason}"}
    told = json.loads(group.broadcast_text(json.dumps(told)))
    if "reason" in told:
        raise PartitionError(told["reason"])
    owner = group.broadcast_array(None if made is None else made.owner)
    groups = group.broadcast_array(None if made is None else made.groups) if told["groups"] else None
    return Partition(owner, config.parts, groups, graph.data_hash, told["made_by"], told["seconds"])


def told_partition(
    config: RunConfig,
    graph: DynamicGraph,
    partition: Partition,
    *,
    train: range,
    ranks: int,
    blocks: SnapshotBlocks | None = None,
) -> dict[str, Any]:
    """What an event says of a run's partition: who owns what, and the bytes that a step will send.

    Args:
        config: the run's settings.
        graph: its data.
        partition: into P parts.
        train: the snapshots of the training part.
        ranks: R, which send; the parts of a rank send as one.
        blocks: of time that the run trains in, where it does: rows are sent again where a block is recomputed.

    Returns:
        See :mod:`dtdg_lab.views.partition_facts`.
    """
    layout = catalogue.system(config.system).parts["parallel"]
    model, settings = (config.model, config.layers), config.options.get("models", {})
    measures = measures_for(graph, partition, *model, snapshots=train, **settings)
    between = measures
    if partition.parts != ranks:
        between = measures_for(graph, partition.on_ranks(ranks), *model, snapshots=train, **settings)
    asked = pulls(config.model, graph.num_features, config.hidden, config.layers, **settings)
    itemsize = np.dtype(config["dtype"]).itemsize
    predicted = predicted_bytes(between, asked, itemsize=itemsize, reuse=config["halo_reuse"])
    if layout == "halo_window":  # a snapshot is full in K of an epoch's steps: the mean step
        share = Trapezoid.of(config).full / max(len(train), 1)
        predicted = {way: np.rint(moved * share).astype(moved.dtype) for way, moved in predicted.items()}
    elif layout == "halo_vertex" and blocks is not None and blocks.blocks > 1:
        moved_again = halo_volume(config, graph, blocks, partition).bytes(itemsize)
        predicted = {way: moved for way, moved in moved_again.items() if way != "rerun" or moved.any()}
    elif layout != "halo_vertex":
        predicted = {way: np.zeros_like(moved) for way, moved in predicted.items()}
    return {
        "partitioner": config["partitioner"], "made_by": partition.made_by, "parts": partition.parts, "ranks": ranks,
        "layout": layout, "seconds": partition.seconds, "measures": measures.told(),
        "predicted": {way: moved.tolist() for way, moved in predicted.items()},
    }  # fmt: skip
