"""Forward pass of a trained model over its whole graph, to inspect its state of every node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.forward import forward
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.sealed import seal_of
from dtdg_lab.kernels.torch_defaults import torch_defaults
from dtdg_lab.training.build import build
from dtdg_lab.training.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Forward:
    """Outputs of a model for T snapshots of N nodes, with a warm state from the first to the last.

    Attributes:
        hidden: (T, N, H) float32: outputs of the last layer.
        outputs: (T, N, outputs) float32: readout.
        parameters: number of learned numbers.
        remembered: numbers carried from one snapshot to the next, for all N nodes.
        hops: most edges that a change travels within one snapshot.
    """

    hidden: NDArray[np.float32]
    outputs: NDArray[np.float32]
    parameters: int
    remembered: int
    hops: int


@torch_defaults()
@torch.no_grad()
def run_forward(config: RunConfig, graph: DynamicGraph, checkpoint: Path) -> Forward:
    """Run the model of a checkpoint over ``graph``, on the CPU, in this process.

    Args:
        config: the run's settings.
        graph: the run's graph, or one of the same size with other features.
        checkpoint: file of the checkpoint.

    Raises:
        LabError: the config cannot be built on this graph, or the checkpoint cannot be read or does not fit.
    """
    components = build(config, graph, SoloGroup())
    model = components.model
    Checkpoint.load(checkpoint).restore(model)
    state = model.initial_state(graph.num_nodes)
    remembered = sum(tensor.numel() for tensor in state.tensors)
    hidden, outputs = [], []
    with seal_of(components.sequence.graph).opened():  # no training follows
        every = range(graph.num_snapshots)
        for _, h in forward(model, components.sequence.view, every, state, num_nodes=graph.num_nodes):
            hidden.append(h.float().numpy())
            outputs.append(model.readout(h).float().numpy())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Forward(np.stack(hidden), np.stack(outputs), parameters, remembered, model.facts.hops)
