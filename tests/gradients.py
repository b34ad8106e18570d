"""Losses and gradients on the whole graph, which plans that compute on parts of it must give as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dtdg_lab.config import catalogue
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.replicated_part import CachedPart, Reach, pieces
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.models.base import DynamicModel, make_model

LossOf = Callable[[Tensor, int, Tensor], Tensor | None]  # predictions, snapshot, targets -> loss, None without labels
LossAndGradients = tuple[float, dict[str, Tensor]]


def double_model(name: str, layers: int, *, features: int = 3, hidden: int = 4, seed: int = 1, **more: Any) -> Any:
    """Return a model of the catalogue in float64."""
    return make_model(catalogue.entry("models", name).load(), features, hidden, layers, seed=seed, **more).double()


def part_in_memory(graph: DynamicGraph, own: NDArray[np.int64], reach: Reach) -> CachedPart:
    """Return a cached part without its file."""
    found: dict[str, list[NDArray[Any]]] = {}
    for name, piece in pieces(graph, own, reach):
        found.setdefault(name, []).append(piece)
    return CachedPart({name: np.concatenate(each) for name, each in found.items()}, reach)


def taken_gradients(model: DynamicModel) -> dict[str, Tensor]:
    """Return the gradients and take them from the model; zero where there is none."""
    gradients = {}
    for name, parameter in model.named_parameters():
        gradients[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        parameter.grad = None
    return gradients


def on_the_whole(
    graph: DynamicGraph,
    model: DynamicModel,
    snapshots: range,
    targets: NDArray[Any],
    loss_of: LossOf,
    **scaling: Any,
) -> LossAndGradients:
    """Return the mean loss of some targets as it is written down, over all nodes, from the initial state."""
    sequence = DeviceSequence(graph, device="cpu", dtype=torch.float64, kernel="torch", **scaling)
    state, losses, chosen = model.initial_state(graph.num_nodes), [], torch.tensor(targets)
    for t in snapshots:
        view = sequence.view(t)
        h, state = model.snapshot(view, view.inputs, state)
        loss = loss_of(model.readout(h)[chosen], t, chosen)
        losses += [] if loss is None else [loss]
    total = torch.stack(losses).mean()
    total.backward()
    return float(total.detach()), taken_gradients(model)


def squared_error(graph: DynamicGraph) -> LossOf:
    """Return the loss of regression."""
    wanted = torch.tensor(np.asarray(graph.targets), dtype=torch.float64)
    return lambda z, t, targets: (z.squeeze(-1) - wanted[t, targets]).square().mean()


def cross_entropy(graph: DynamicGraph) -> LossOf:
    """Return the loss of classification; None for a snapshot none of whose targets has a class."""
    classes = torch.tensor(np.asarray(graph.classes), dtype=torch.int64)

    def loss_of(z: Tensor, t: int, targets: Tensor) -> Tensor | None:
        labels = classes[t, targets]
        return functional.cross_entropy(z[labels >= 0], labels[labels >= 0]) if (labels >= 0).any() else None

    return loss_of


def assert_equal_gradients(found: LossAndGradients, wanted: LossAndGradients) -> None:
    """Require an equal loss, and gradients that differ by at most 1e-10 of the largest one."""
    assert found[0] == pytest.approx(wanted[0], rel=1e-10)
    largest = max(float(gradient.abs().max()) for gradient in wanted[1].values())
    assert largest > 1e-6
    for name, gradient in wanted[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-10, atol=1e-10 * largest, msg=name)
