"""Components of a run, built from a config, a graph and a process group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.distributed.gradients import FlatGradients
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.capabilities import ServesFeatures
from dtdg_lab.engine.strategy import BuildContext, StepMarks, Strategy
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.sealed import sealed, unsealed
from dtdg_lab.graphs.split import Split, split
from dtdg_lab.graphs.training_graph import training_graph
from dtdg_lab.kernels.device_memory import device_memory
from dtdg_lab.kernels.optimizers import make_optimizer
from dtdg_lab.models.base import DynamicModel, make_model
from dtdg_lab.network.emulated_network import EmulatedNetwork, RankLinks, SlowableLinks
from dtdg_lab.network.linked_group import LinkedGroup
from dtdg_lab.tasks.base import Task
from dtdg_lab.training.collective import together
from dtdg_lab.training.compute_choice import ComputeChoice, agree, choose_here, earlier_choice
from dtdg_lab.training.evaluation import Evaluator
from dtdg_lab.training.partition import shared_partition

DTYPES = {"float32": torch.float32, "float64": torch.float64}
_NO_PLAN: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RunComponents:
    """Components of a run on one rank.

    Attributes:
        config: the settings for which they were built.
        split: the snapshots of each split.
        task: the training task.
        model: model on this rank's device.
        optimizer: optimizer of its parameters.
        gradients: gradients of its parameters, in one buffer.
        strategy: the training strategy.
        evaluator: evaluator of all ranks together.
        own_evaluator: evaluator of all nodes on this rank, while the others train.
        sequence: all nodes on this rank's device.
        compute: backend and memory limits, the same on all ranks.
        partition: partition of the nodes; None if the system has none.
        network: links that emulated congestion slows; None if the system exchanges nothing.
    """

    config: RunConfig
    split: Split
    task: Task
    model: DynamicModel
    optimizer: torch.optim.Optimizer
    gradients: FlatGradients
    strategy: Strategy
    evaluator: Evaluator
    own_evaluator: Evaluator
    sequence: DeviceSequence
    compute: ComputeChoice
    partition: Partition | None
    network: EmulatedNetwork | None

    def close(self) -> None:
        """Stop background work; a second call does nothing."""
        self.strategy.close()
        if self.network is not None:
            self.network.close()


def rank_rows(num_nodes: int, rank: int, size: int) -> range:
    """Return the nodes of a rank if N nodes are shared evenly."""
    return range(rank * num_nodes // size, (rank + 1) * num_nodes // size)


def build(
    config: RunConfig, graph: DynamicGraph, group: Group, *, device: str = "cpu", plan: Mapping[str, Any] = _NO_PLAN
) -> RunComponents:
    """Build the components of a run on one rank; collective.

    Args:
        config: the run's settings.
        graph: its data.
        group: the ranks.
        device: device of this rank.
        plan: state of an earlier strategy and the choice of backend and memory limits, to restore as far as they fit.

    Raises:
        LabError: the graph is too short for the protocol or the groups, or does not serve the task, or a component is
            not available here.
    """
    system = catalogue.system(config.system)
    dtype, protocol = DTYPES[config["dtype"]], PROTOCOLS[config.protocol]
    splits = split(graph.num_snapshots, graph.edge_life, protocol)
    unsealed_graph, graph = unsealed(graph), sealed(graph, splits)
    partition = None
    if "partition" in system.parts:
        partition = shared_partition(config, unsealed_graph, splits.train, group)
    trained_graph = training_graph(unsealed_graph, splits.train)
    with together(group, device=device):
        task = make_task(config, graph, splits, device=device)
        model = _model(config, graph, task).to(device=device, dtype=dtype)
        optimizer = make_optimizer(
            config["optimizer"], model.parameters(), learning_rate=config.learning_rate, device=device
        )
        earlier = earlier_choice(plan, config, device=device)
        preferred = choose_here(config, trained_graph, model.facts, device=device, dtype=dtype, earlier=earlier)
        memory = device_memory(device)
    compute = agree(config, preferred, memory, group, device=device, earlier=earlier)
    sequence = _sequence(config, graph, compute, device=device)
    has_slow_exchanges = "congestion" in system.parts and "features" not in system.parts
    linked = LinkedGroup(group) if has_slow_exchanges else None
    gradients = FlatGradients(model.parameters(), group)
    context = BuildContext(
        config,
        trained_graph,
        model,
        sequence,
        task,
        splits.train,
        splits.validation,
        linked or group,
        device,
        partition,
        plan,
        gradients,
    )
    strategy = _strategy(context, group)
    with ExitStack() as cleanup:  # on errors
        cleanup.callback(strategy.close)
        network = None
        if "congestion" in system.parts:
            slowed: SlowableLinks | None = None
            if linked is not None and group.size > 1:
                slowed = RankLinks(linked)
            elif isinstance(strategy, ServesFeatures):
                slowed = strategy.slowable_links(group)
            if slowed is not None:
                cleanup.callback(slowed.close)
            network = EmulatedNetwork(config, slowed)
        evaluators = _evaluators(context, compute, splits, group)
        cleanup.pop_all()
    return RunComponents(
        config, splits, task, model, optimizer, gradients, strategy, *evaluators, sequence, compute, partition, network
    )


def _strategy(context: BuildContext, group: Group) -> Strategy:
    """Build the system's strategy on all ranks or, if one fails, on none; collective."""
    strategy: Strategy | None = None
    try:
        with together(group, device=context.device):
            strategy = catalogue.family(catalogue.system(context.config.system).family).build(context)
    except BaseException:
        if strategy is not None:
            strategy.close()
        raise
    return strategy


def _evaluators(
    context: BuildContext, compute: ComputeChoice, splits: Split, group: Group
) -> tuple[Evaluator, Evaluator]:
    """Build the evaluator of all ranks together, and the evaluator of this rank alone."""
    task, sequence, protocol = context.task, context.sequence, PROTOCOLS[context.config.protocol]
    alone = Evaluator(task, splits, protocol, SoloGroup(), sequence=sequence)
    graph = sequence.graph
    gather = _gather(graph.num_nodes, group)
    if gather is not None:
        rows = rank_rows(graph.num_nodes, group.rank, group.size)
        sequence = _sequence(context.config, graph, compute, device=context.device, rows=rows, gather=gather)
    return Evaluator(task, splits, protocol, group, sequence=sequence, gather=gather), alone


def _gather(num_nodes: int, group: Group) -> Callable[..., Tensor] | None:
    """Return a function that gathers the rows of all nodes from the ranks; None for a single rank."""
    if group.size == 1:
        return None
    counts = [len(rank_rows(num_nodes, rank, group.size)) for rank in range(group.size)]

    def gather(rows: Tensor, row_count: int | None = None) -> Tensor:
        return group.gather_rows(rows, counts if row_count is None else [row_count] * group.size)

    return gather


def make_task(config: RunConfig, graph: DynamicGraph, parts: Split, *, device: str = "cpu") -> Task:
    """Make the task of a run, with its labels.

    Raises:
        UnsupportedError: the graph does not serve the task; the message names the tasks that it serves.
    """
    entry = catalogue.entry("tasks", config["task"])
    if config["task"] not in graph.tasks:
        raise UnsupportedError(
            f"task={config['task']!r} on {graph.name!r}, which serves {', '.join(graph.tasks)}. "
            f"Choose one of these, or give the graph what the task needs: {', '.join(entry.needs)}."
        )
    make = entry.load()
    read = {"seed", "hidden"} & inspect.signature(make).parameters.keys()
    settings = {name: config[name] for name in (*entry.options, *read)}
    task: Task = make(graph, parts, device=device, dtype=DTYPES[config["dtype"]], **settings)
    return task


def _sequence(
    config: RunConfig, graph: DynamicGraph, compute: ComputeChoice, *, device: str, **share: Any
) -> DeviceSequence:
    """Make the sequence of the whole graph, or of a share of its nodes (``rows``, ``gather``)."""
    return DeviceSequence(
        graph,
        device=device,
        dtype=DTYPES[config["dtype"]],
        kernel=compute.backend,
        norm=config["norm"],
        self_loops=config["self_loops"],
        limits=compute.limits,
        **share,
    )


def _model(config: RunConfig, graph: DynamicGraph, task: Task) -> DynamicModel:
    settings = config.options.get("models", {})
    make = catalogue.entry("models", config.model).load()
    sizes = (graph.num_features, config.hidden, config.layers)
    return make_model(make, *sizes, outputs=task.outputs, seed=config.seed, **settings)


def rehearse() -> None:
    """Run forward, backward, update and evaluation of two models on a generated graph, as a warm-up."""
    graph = load_dataset("growing", generated_nodes=16, generated_edges=32, generated_snapshots=12)
    for model in ("tgcn", "evolvegcn-o"):
        config = RunConfig(system="single", dataset="growing", model=model, hidden=4)
        components = build(config, graph, SoloGroup())
        components.gradients.zero()
        components.strategy.compute(components.strategy.epoch(0)[0], StepMarks())
        components.optimizer.step()
        components.evaluator.evaluate(components.model, ("train", "validation"))
