"""The only wiring: from a config, a graph and a process group to everything the loop drives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dtdg_lab.comm.gradients import FlatGradients
from dtdg_lab.comm.group import Group
from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import split
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.device_sequence import DeviceSequence
from dtdg_lab.parallel.layout import Layout
from dtdg_lab.parallel.single import SingleLayout
from dtdg_lab.parallel.snapshot_group import SnapshotGroupLayout, predicted_times_s, snapshot_groups
from dtdg_lab.training.evaluate import Evaluator

DTYPES = {"float32": torch.float32, "float64": torch.float64}
OPTIMIZERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


@dataclass(frozen=True, slots=True)
class Built:
    """What a config becomes on one rank."""

    config: RunConfig
    model: DynamicModel
    optimizer: torch.optim.Optimizer
    gradients: FlatGradients
    layout: Layout
    evaluator: Evaluator
    sequence: DeviceSequence


def rank_rows(num_nodes: int, rank: int, size: int) -> range:
    """The vertices of a rank when N are shared evenly."""
    return range(rank * num_nodes // size, (rank + 1) * num_nodes // size)


def rank_parts(parts: int, rank: int, size: int) -> range:
    """The P / R consecutive parts of a plan that a rank executes."""
    share = parts // size
    return range(rank * share, (rank + 1) * share)


def build(config: RunConfig, graph: DynamicGraph, group: Group, *, device: str = "cpu") -> Built:
    """Wire a run on one rank.

    Raises:
        LabError: the graph is too short for the protocol or the groups, or a part is not available here.
    """
    dtype, protocol = DTYPES[config["dtype"]], PROTOCOLS[config.protocol]
    parts_of_sequence = split(graph.num_snapshots, graph.edge_life, protocol)
    model = _model(config, graph).to(device=device, dtype=dtype)
    optimizer = OPTIMIZERS[config["optimizer"]](model.parameters(), lr=config.learning_rate)
    sequence = DeviceSequence(graph, device=device, dtype=dtype, kernel=config["kernel"])
    layout = _layout(config, model, sequence, parts_of_sequence.train, group)
    evaluated = sequence
    if group.size > 1:
        counts = [len(rank_rows(graph.num_nodes, rank, group.size)) for rank in range(group.size)]

        def gather(rows: Tensor) -> Tensor:
            return group.gather_rows(rows, counts)

        evaluated = DeviceSequence(
            graph, device=device, dtype=dtype, kernel=config["kernel"],
            rows=rank_rows(graph.num_nodes, group.rank, group.size), gather=gather,
        )  # fmt: skip
    evaluator = Evaluator(graph, parts_of_sequence, protocol, group, evaluated)
    gradients = FlatGradients(model.parameters(), group)
    return Built(config, model, optimizer, gradients, layout, evaluator, sequence)


def _model(config: RunConfig, graph: DynamicGraph) -> DynamicModel:
    settings = config.options.get("models", {})
    make = catalogue.entry("models", config.model).load()
    model: DynamicModel = make(graph.num_features, config.hidden, config.layers, seed=config.seed, **settings)
    return model


def _layout(config: RunConfig, model: DynamicModel, sequence: DeviceSequence, train: range, group: Group) -> Layout:
    if catalogue.system(config.system).parts["parallel"] == "single":
        return SingleLayout(model, sequence, train)
    groups = snapshot_groups(train, window=config["group_window"], stride=config["group_stride"])
    schedule = catalogue.entry("scheduling", config["scheduler"]).load()
    plan = schedule(predicted_times_s(sequence.graph, groups), config.parts, per_rank=config["groups_per_rank"])
    parts = rank_parts(config.parts, group.rank, group.size)
    return SnapshotGroupLayout(model, sequence, groups, plan, parts=parts, loss_at=config["loss_at"])
