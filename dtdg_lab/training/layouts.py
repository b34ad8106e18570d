"""The layout of a run on one rank, by the system's choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.message_passing import ways
from dtdg_lab.core.plans import Chunking, Partition, SnapshotBlocks
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.async_overlap import Pace
from dtdg_lab.engine.graph_view import DeviceSequence
from dtdg_lab.engine.halo import HaloSequence, HaloStrategy
from dtdg_lab.engine.halo_exchange import Exchanger
from dtdg_lab.engine.minibatch_blocks import block_shape
from dtdg_lab.engine.replicated import CachedSequence, ReplicatedStrategy, cached_sequences
from dtdg_lab.engine.replicated_part import part_folder
from dtdg_lab.engine.strategy import Strategy
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.systems.decayed_windows.sampled import SampledWindows, SampledWindowStrategy
from dtdg_lab.systems.decayed_windows.strategy import Cuts, DecayedWindowStrategy
from dtdg_lab.systems.decayed_windows.window import Trapezoid
from dtdg_lab.systems.feature_cache.store import check_cache_memory
from dtdg_lab.systems.feature_cache.strategy import FeatureService, RemoteFeatureStrategy
from dtdg_lab.systems.feature_cache.training import MiniBatches, neighbour_sampler, remote_part
from dtdg_lab.systems.hybrid_batches.batches import TargetSampler, load_groups
from dtdg_lab.systems.hybrid_batches.strategy import BatchKeeping, HybridBatchStrategy, PartBatches, Sizing
from dtdg_lab.systems.single.strategy import SingleStrategy, SnapshotGroupStrategy
from dtdg_lab.systems.snapshot_blocks.strategy import SnapshotBlockStrategy
from dtdg_lab.systems.snapshot_groups.group_schedule import GroupScheduling
from dtdg_lab.tasks.base import Task

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What layouts are made of.

    Attributes:
        config: the run's settings.
        model: on this rank's device.
        sequence: all nodes.
        task: what is predicted.
        train: the labelled snapshots of the training split.
        group: the ranks.
        partition: of the nodes into P parts, where the system has one.
        scheduling: of snapshot groups, where the system has one.
        blocks: of time, where the layout has them.
        chunking: of the parts, where the layout takes windows of snapshots.
        validation: the snapshots of the validation split.
        token: of the run, that opens what serves features, where any are served.
        host: address at which other ranks find this machine.
    """

    config: RunConfig
    model: DynamicModel
    sequence: DeviceSequence
    task: Task
    train: range
    group: Group
    partition: Partition | None
    scheduling: GroupScheduling | None
    blocks: SnapshotBlocks | None
    chunking: Chunking | None = None
    validation: range = range(0)
    token: bytes = b""
    host: str = "127.0.0.1"

    @property
    def parts(self) -> range:
        """The P / R consecutive parts of a plan that this rank executes."""
        share = self.config.parts // self.group.size
        return range(self.group.rank * share, (self.group.rank + 1) * share)


def make_layout(of: BuildContext) -> Strategy:
    """The layout that the config's system names.

    Raises:
        LabError: the training split is too short for the groups, or copies of neighbours do not fit their budget.
    """
    return _MAKERS[catalogue.system(of.config.system).parts["parallel"]](of)


def _single(of: BuildContext) -> Strategy:
    return SingleStrategy(of.model, of.sequence, of.task, of.train)


def _snapshot_group(of: BuildContext) -> Strategy:
    assert of.scheduling is not None
    return SnapshotGroupStrategy(
        of.model,
        of.sequence,
        of.task,
        of.scheduling.groups,
        of.scheduling.schedule,
        parts=of.parts,
        loss_at=of.config["loss_at"],
        pipelined=of.config["pipelined"],
    )


def _halo_vertex(of: BuildContext) -> Strategy:
    assert of.partition is not None
    exchanger = Exchanger(of.group)
    sequence = _own_vertices(of, exchanger)
    return HaloStrategy(
        of.model, sequence, of.task, of.train, exchanger, plan=_planned(of), counts_group=of.group.rank == 0
    )


def _snapshot(of: BuildContext) -> Strategy:
    plan, config = _planned(of), of.config
    snapshots: DeviceSequence | HaloSequence = of.sequence
    halo = None
    if plan.row_ranks > 1:
        row_group, _ = of.group.split(plan.row_ranks)
        halo = Exchanger(row_group)
        counts = [len(plan.rows(rank)) for rank in range(plan.row_ranks)]
        owner = np.repeat(np.arange(plan.row_ranks), counts).astype(np.int32)
        snapshots = HaloSequence(
            of.sequence.graph,
            Partition(owner, plan.row_ranks),
            halo,
            row_group,
            of.sequence.settings,
            ways=ways(config.model),
            reuse=config["halo_reuse"],
        )
    elif plan.blocks > 1 and config["graphs"] == "brought":  # those of one block at a time are here
        snapshots = of.sequence.fed(difference=config["difference"])
    return SnapshotBlockStrategy(
        of.model, plan, snapshots, of.task, of.group, halo=halo, overlap=config["overlap"], reuse=config["halo_reuse"]
    )


def _planned(of: BuildContext) -> SnapshotBlocks:
    assert of.blocks is not None
    return of.blocks


def _halo_window(of: BuildContext) -> Strategy:
    assert of.partition is not None and of.chunking is not None
    config, shape = of.config, Trapezoid.of(of.config, chunks=of.chunking.chunks)
    if shape.window > len(of.train):
        raise DataError(
            f"window={shape.window} is beyond the training split's {len(of.train)} snapshots. Set a window of "
            f"{len(of.train)} or fewer, or cut the data finer (cut=...)."
        )
    if config["tune"] and not of.validation:
        raise DataError(
            f"tune=True is judged by the validation split, and protocol={config.protocol!r} leaves none. "
            "Choose another "
            "protocol (such as warm), cut the data finer (cut=...), or leave tune out."
        )
    exchanger, asked = Exchanger(of.group), ways(config.model)
    pace = Pace(
        of.model, of.group, overlap=config["overlap"], seed=config.seed, itemsize=np.dtype(config["dtype"]).itemsize
    )
    cuts = Cuts(of.partition.owner, of.chunking, of.parts, config.seed, asked)
    return DecayedWindowStrategy(
        of.model,
        _own_vertices(of, exchanger, awaited=True),
        of.task,
        of.train,
        exchanger,
        group=of.group,
        shape=shape,
        cuts=cuts,
        pace=pace,
        loss_at=config["loss_at"],
        inherits=config["late_state"] == "inherit",
    )


def _own_vertices(of: BuildContext, exchanger: Exchanger, *, awaited: bool = False) -> DeviceSequence | HaloSequence:
    """Snapshots of this rank's nodes: all where it is alone, and has nobody to exchange with."""
    assert of.partition is not None
    if of.group.size == 1:
        return of.sequence
    return HaloSequence(
        of.sequence.graph,
        of.partition.on_ranks(of.group.size),
        exchanger,
        of.group,
        of.sequence.settings,
        ways=ways(of.config.model),
        reuse=of.config["halo_reuse"],
        awaited=awaited,
    )


def _cached_vertex(of: BuildContext) -> Strategy:
    assert of.partition is not None
    sequences = cached_sequences(
        of.sequence.graph,
        of.partition,
        of.parts,
        of.model,
        of.train,
        cache_gib=of.config["cache_gib"],
        settings=of.sequence.settings,
        ways=ways(of.config.model),
    )
    if "batching" in catalogue.system(of.config.system).parts:
        return _target_batches(of, sequences)
    return ReplicatedStrategy(of.model, sequences, of.task, of.train, counts_group=of.group.rank == 0)


def _target_batches(of: BuildContext, sequences: list[CachedSequence]) -> Strategy:
    assert of.partition is not None
    config, graph, settings = of.config, of.sequence.graph, of.sequence.settings
    trained = of.task.trains()
    shape = block_shape(
        config.model,
        of.model.memory,
        config.hidden,
        config.layers,
        norm=config["norm"],
        **config.options.get("models", {}),
    )
    loads = vertex_loads(graph, shape.hops)
    parts = []
    for number, sequence in zip(of.parts, sequences, strict=True):
        own = of.partition.vertices(number)
        groups = load_groups(loads[own], np.flatnonzero(trained[own]), config["load_groups"])
        sampler = TargetSampler(config.seed, number, groups, of.train)
        folder = part_folder(graph, own, sequence.part.reach)
        parts.append(PartBatches(sequence, sampler, folder, shape=shape, settings=settings))
    sizing = Sizing.of(config, snapshots=len(of.train), candidates=candidates(of.partition, of.task))
    return HybridBatchStrategy(
        of.model, parts, of.task, sizing=sizing, keeping=keeping(config), epoch_batches=config["epoch_batches"]
    )


def candidates(partition: Partition, task: Task) -> list[int]:
    """How many nodes of each part may be targets of batches."""
    trained = task.trains()
    return [int(trained[partition.vertices(part)].sum()) for part in range(partition.parts)]


def keeping(config: RunConfig) -> BatchKeeping:
    """What a config has kept of the batches."""
    limit_bytes = int(config["reservoir_gib"] * GIB)
    return BatchKeeping(config["reservoir"], limit_bytes, config["generators"], config["reservoir_uses"])


def _sampled_window(of: BuildContext) -> Strategy:
    assert of.partition is not None
    config = of.config
    windows = SampledWindows(of.train, config["window"], config["fanout"], config.seed, of.partition, of.parts)
    return SampledWindowStrategy(
        of.model, of.sequence.graph, of.task, windows, of.sequence.settings, counts_group=of.group.rank == 0
    )


def _remote_feature(of: BuildContext) -> Strategy:
    assert of.partition is not None
    graph = of.sequence.graph
    mini = MiniBatches.of(of.config, graph, of.train, task=of.task, model=of.model, partition=of.partition)
    draw = neighbour_sampler(of.config, mini.shape)
    service = FeatureService(
        graph,
        of.partition,
        of.parts,
        last=of.train.stop,
        token=of.token,
        timeout_s=of.config["fetch_timeout_s"],
        host=of.host,
    )
    try:
        rows = min(of.config["cache_rows"], service.space.size)
        check_cache_memory(rows, service.row_bytes, caches=len(of.parts))
        parts = [remote_part(mini, part, service, draw) for part in of.parts]
        return RemoteFeatureStrategy(of.model, parts, of.task, graph, service=service, settings=of.sequence.settings)
    except BaseException:
        service.close()
        raise


_MAKERS: dict[str, Callable[[BuildContext], Strategy]] = {
    "single": _single,
    "snapshot_group": _snapshot_group,
    "snapshot": _snapshot,
    "halo_vertex": _halo_vertex,
    "halo_window": _halo_window,
    "cached_vertex": _cached_vertex,
    "sampled_window": _sampled_window,
    "remote_feature": _remote_feature,
}
