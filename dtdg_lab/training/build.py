"""The only wiring: from a config, a graph and a process group to everything the loop drives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import PROTOCOLS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.plans import Chunking, Partition, SnapshotBlocks
from dtdg_lab.distributed.gradients import FlatGradients
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.graph_view import DeviceSequence, Gather
from dtdg_lab.engine.strategy import Strategy
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.sealed import begin_training, sealed, unsealed
from dtdg_lab.graphs.split import Split, split
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.network.emulated_links import LinkedGroup
from dtdg_lab.network.emulated_network import EmulatedNetwork, KernelLinks, RankLinks, Slowed
from dtdg_lab.systems.feature_cache.rpc import agree_token
from dtdg_lab.systems.feature_cache.strategy import RemoteFeatureStrategy, host_towards
from dtdg_lab.systems.feature_cache.training import Remote
from dtdg_lab.systems.hybrid_batches.strategy import HybridBatchStrategy
from dtdg_lab.systems.hybrid_batches.training import Hybrid
from dtdg_lab.systems.single.strategy import SnapshotGroupStrategy, snapshot_groups
from dtdg_lab.systems.snapshot_groups.group_schedule import GroupScheduling
from dtdg_lab.tasks.base import Task
from dtdg_lab.training.block_memory import BlockMemory, has_blocks, planned_blocks
from dtdg_lab.training.collective import together
from dtdg_lab.training.evaluation import Evaluator, batch_deviation
from dtdg_lab.training.layouts import BuildContext, candidates, make_layout
from dtdg_lab.training.partition import shared_chunks, shared_partition

DTYPES = {"float32": torch.float32, "float64": torch.float64}
_NO_PLAN: Mapping[str, Any] = MappingProxyType({})
OPTIMIZERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


@dataclass(frozen=True, slots=True)
class RunComponents:
    """What a config becomes on one rank."""

    config: RunConfig
    split: Split
    task: Task
    model: DynamicModel
    optimizer: torch.optim.Optimizer
    gradients: FlatGradients
    layout: Strategy
    evaluator: Evaluator
    sequence: DeviceSequence
    partition: Partition | None
    scheduling: GroupScheduling | None
    snapshot_blocks: SnapshotBlocks | None
    block_memory: BlockMemory | None
    chunking: Chunking | None = None
    hybrid: Hybrid | None = None
    alone: Evaluator | None = None  # of all nodes here, for one rank while the others go on
    network: EmulatedNetwork | None = None
    remote: Remote | None = None

    @property
    def plan(self) -> dict[str, Any]:
        """What the system has measured and decided by, for a checkpoint."""
        made = (self.scheduling, self.hybrid, self.remote)
        return {name: value for each in made if each is not None for name, value in each.state_dict().items()}

    @property
    def block_peak(self) -> float | None:
        """Estimated peak bytes of a step, where the number of blocks was left to the memory."""
        if self.block_memory is None or self.snapshot_blocks is None:
            return None
        return self.block_memory.peak_bytes(self.snapshot_blocks.blocks)

    def close(self) -> None:
        """End whatever goes on beside training; a second call does nothing."""
        if self.hybrid is not None:
            self.hybrid.close()
        if self.network is not None:
            self.network.close()
        if self.remote is not None:
            self.remote.close()

    def end_epoch(self) -> bool:
        """Whether the epoch that ended brought another schedule, which then is in use; collective."""
        if self.scheduling is None or not self.scheduling.end_epoch():
            return False
        assert isinstance(self.layout, SnapshotGroupStrategy)
        self.layout.use(self.scheduling.schedule)
        return True


def rank_rows(num_nodes: int, rank: int, size: int) -> range:
    """The nodes of a rank when N are shared evenly."""
    return range(rank * num_nodes // size, (rank + 1) * num_nodes // size)


@contextmanager
def own_defaults() -> Iterator[None]:
    """Let what the caller has made torch's default type and device not reach a run; they hold again afterwards."""
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    torch.set_default_dtype(torch.float32)
    try:
        with nullcontext() if device.type == "cpu" else torch.device("cpu"):  # the latter looks at every call of torch
            yield
    finally:
        torch.set_default_dtype(dtype)


@own_defaults()
def build(
    config: RunConfig, graph: DynamicGraph, group: Group, *, device: str = "cpu", plan: Mapping[str, Any] = _NO_PLAN
) -> RunComponents:
    """Wire a run on one rank; collective where the system has a partition or a schedule.

    Args:
        config: the run's settings.
        graph: its data.
        group: the ranks.
        device: where this rank computes.
        plan: of an earlier :class:`Built`, to be gone on with as far as it fits.

    Raises:
        LabError: the graph is too short for the protocol or the groups, or does not serve the task, or a part is not
            available here.
    """
    # first what ranks agree on: whatever fails on one of them later, none waits here for the others
    partitioned, whole = "partition" in catalogue.system(config.system).parts, unsealed(graph)
    partition = shared_partition(config, whole, group) if partitioned else None
    chunking = None
    if partition is not None and catalogue.system(config.system).parts["parallel"] == "halo_window":
        chunking = shared_chunks(config, whole, partition, group)
    dtype, protocol = DTYPES[config["dtype"]], PROTOCOLS[config.protocol]
    parts = split(graph.num_snapshots, graph.edge_life, protocol)
    graph = sealed(graph, parts)  # nothing that is made from here on reads a label of the test split
    scheduling = _scheduling(config, graph, parts.train, group, device=device, plan=plan)
    with together(group if has_blocks(config) else SoloGroup(), device=device):  # what follows is collective there
        task = make_task(config, graph, parts, device=device)
        model = _model(config, graph, task).to(device=device, dtype=dtype)
        optimizer = OPTIMIZERS[config["optimizer"]](model.parameters(), lr=config.learning_rate)
        sequence = _sequence(config, graph, device=device)
    parts_of = catalogue.system(config.system).parts
    linked = LinkedGroup(group) if "congestion" in parts_of and "features" not in parts_of else None
    slowed = RankLinks(linked) if linked is not None and group.size > 1 else None  # one rank exchanges nothing
    network = EmulatedNetwork(config, slowed) if "congestion" in parts_of else None
    made_of = BuildContext(
        config,
        model,
        sequence,
        task,
        parts.train,
        linked or group,
        partition,
        scheduling,
        None,
        chunking,
        parts.validation,
    )
    blocks, memory = _blocks(made_of)
    if "features" in parts_of:
        made_of = replace(made_of, token=agree_token(group))
    made_of = replace(made_of, blocks=blocks)
    layout = _made_layout(made_of, group, device=device)
    with ExitStack() as undone:  # of what is going on already where the rest fails
        if isinstance(layout, RemoteFeatureStrategy):
            undone.callback(layout.close)
        gradients = FlatGradients(model.parameters(), group)
        remote = None
        if isinstance(layout, RemoteFeatureStrategy):
            remote = _remote(layout, config, gradients, group, device=device, plan=plan)
            shaped = _slowed(layout, config, group, device=device)
            undone.callback(shaped.close)
            network = EmulatedNetwork(config, shaped)
        evaluators = _evaluators(made_of, parts, group, device=device)
        hybrid = _hybrid(made_of, layout, device=device, plan=plan)
        undone.pop_all()
    begin_training(graph)
    return RunComponents(
        config,
        parts,
        task,
        model,
        optimizer,
        gradients,
        layout,
        evaluators[0],
        sequence,
        partition,
        scheduling,
        blocks,
        memory,
        chunking,
        hybrid,
        evaluators[1],
        network,
        remote,
    )


def _evaluators(of: BuildContext, parts: Split, group: Group, *, device: str) -> tuple[Evaluator, Evaluator]:
    """Of the ranks together, and of one alone."""
    evaluated, graph = of.sequence, of.sequence.graph
    gather = _gather(graph.num_nodes, group)
    if gather is not None:
        rows = rank_rows(graph.num_nodes, group.rank, group.size)
        evaluated = _sequence(of.config, graph, device=device, rows=rows, gather=gather)
    protocol = PROTOCOLS[of.config.protocol]
    alone = Evaluator(of.task, parts, protocol, SoloGroup(), sequence=of.sequence)
    return Evaluator(of.task, parts, protocol, group, sequence=evaluated, gather=gather), alone


def _made_layout(of: BuildContext, group: Group, *, device: str) -> Strategy:
    """The layout, on all ranks or none: what each rank keeps may not fit, and what serves may not start."""
    parts_of = catalogue.system(of.config.system).parts
    each_may_fail = "control" in parts_of or "features" in parts_of
    layout: Strategy | None = None
    try:
        with together(group if each_may_fail else SoloGroup(), device=device):
            if "features" in parts_of:
                of = replace(of, host=host_towards(group))
            layout = make_layout(of)
    except BaseException:
        if isinstance(layout, RemoteFeatureStrategy):
            layout.close()
        raise
    return layout


def _slowed(layout: RemoteFeatureStrategy, config: RunConfig, group: Group, *, device: str) -> Slowed:
    """What makes the links to features slow; collective where the kernel does."""
    if config["congestion_by"] == "emulated":
        return layout.service
    links: KernelLinks | None = None
    try:
        with together(group, device=device):
            links = KernelLinks(layout.service.addresses, leads=group.rank == 0)
    except BaseException:
        if links is not None:
            links.close()
        raise
    return links


def _remote(
    layout: RemoteFeatureStrategy,
    config: RunConfig,
    gradients: FlatGradients,
    group: Group,
    *,
    device: str,
    plan: Mapping[str, Any],
) -> Remote:
    """What steers the features, once all ranks know where they are served; collective."""
    layout.service.connect(group, device=device)
    with together(group, device=device):
        return Remote(layout, config, gradients.zero, plan)


def _hybrid(of: BuildContext, layout: Strategy, *, device: str, plan: Mapping[str, Any]) -> Hybrid | None:
    if not isinstance(layout, HybridBatchStrategy):
        return None
    assert of.partition is not None
    return Hybrid(
        layout,
        of.config,
        candidates=candidates(of.partition, of.task),
        snapshots=of.train,
        validation=of.validation,
        leads=of.group.rank == 0,
        nodes=len(of.partition.owner),
        device=device,
        state=plan,
        deviation=partial(batch_deviation, layout, of.model, of.task, of.sequence),
    )


def _scheduling(
    config: RunConfig, graph: DynamicGraph, train: range, group: Group, *, device: str, plan: Mapping[str, Any]
) -> GroupScheduling | None:
    if "scheduling" not in catalogue.system(config.system).parts:
        return None
    groups = snapshot_groups(train, window=config["group_window"], stride=config["group_stride"])
    return GroupScheduling(config, graph, groups, group, device=device, state=plan)


def _blocks(of: BuildContext) -> tuple[SnapshotBlocks | None, BlockMemory | None]:
    if not has_blocks(of.config):
        return None, None

    def make(plan: SnapshotBlocks) -> Strategy:
        return make_layout(replace(of, train=plan.snapshots, blocks=plan))

    nodes = of.sequence.graph.num_nodes
    return planned_blocks(of.config, of.model, of.train, of.group, nodes=nodes, make=make)


def _gather(num_nodes: int, group: Group) -> Gather | None:
    """What joins the ranks' rows to those of all nodes; None where one rank has them all."""
    if group.size == 1:
        return None
    counts = [len(rank_rows(num_nodes, rank, group.size)) for rank in range(group.size)]

    def gather(rows: Tensor, each: int | None = None) -> Tensor:
        return group.gather_rows(rows, counts if each is None else [each] * group.size)

    return gather


def make_task(config: RunConfig, graph: DynamicGraph, parts: Split, *, device: str = "cpu") -> Task:
    """The task of a run, with its labels.

    Raises:
        UnsupportedError: the graph does not serve it; the message names what it serves.
    """
    if config["task"] not in graph.tasks:
        raise UnsupportedError(
            f"task={config['task']!r} on {graph.name!r}, which serves {', '.join(graph.tasks)}. "
            "Choose one of these, or give the graph what the task needs (classes, following)."
        )
    entry = catalogue.entry("tasks", config["task"])
    settings = {name: config[name] for name in entry.options}
    if settings.get("link_head") == "dot":
        settings["hidden"] = config.hidden
    if config["task"] == "link":
        settings["seed"] = config.seed  # of the bootstrap; pairs follow the edges alone
    task: Task = entry.load()(graph, parts, device=device, dtype=DTYPES[config["dtype"]], **settings)
    return task


def _sequence(config: RunConfig, graph: DynamicGraph, *, device: str, **share: Any) -> DeviceSequence:
    """The snapshots of the whole graph, or of a share of its nodes (``rows``, ``gather``)."""
    return DeviceSequence(
        graph,
        device=device,
        dtype=DTYPES[config["dtype"]],
        kernel=config["kernel"],
        norm=config["norm"],
        self_loops=config["self_loops"],
        **share,
    )


def _model(config: RunConfig, graph: DynamicGraph, task: Task) -> DynamicModel:
    settings = config.options.get("models", {})
    make = catalogue.entry("models", config.model).load()
    model: DynamicModel = make(
        graph.num_features, config.hidden, config.layers, outputs=task.outputs, seed=config.seed, **settings
    )
    return model
