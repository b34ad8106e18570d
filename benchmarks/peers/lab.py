"""This lab, as training runs it: one step over the whole sequence."""

from __future__ import annotations

import numpy as np
import torch

from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import Split
from dtdg_lab.systems.single.strategy import SingleStrategy
from dtdg_lab.tasks.regression import Regression
from peers.case import Case, Epoch, adam
from peers.workload import Workload


def as_graph(workload: Workload) -> DynamicGraph:
    """The workload as this lab holds data: numpy, on the host."""
    snapshots = []
    for sources, targets in workload.edges[:-1]:
        indptr = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=workload.nodes))])
        snapshots.append(Snapshot(indptr, sources.astype(np.int32)))
    return DynamicGraph(
        name=workload.name,
        snapshots=tuple(snapshots),
        features=workload.features[:-1],
        targets=workload.targets,
        persistence=workload.features[:-1, :, 0],
        source="benchmarks",
        edge_life=1,
    )


def load(workload: Workload) -> DynamicGraph:
    return as_graph(workload)


def prepare(case: Case, graph: DynamicGraph, *, device: str = "cpu") -> Epoch:
    model = case.make_model().to(device)
    sequence = DeviceSequence(graph, device=device, dtype=torch.float32, kernel="auto")
    everything = range(graph.num_snapshots)
    task = Regression(graph, Split(everything, range(0), range(0)), device=device)
    layout = SingleStrategy(model, sequence, task, everything)
    (work,) = layout.epoch(0)
    return adam(list(model.parameters()), lambda: float(layout.compute(work, StepMarks()).loss_sum))
