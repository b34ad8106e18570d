"""Convert the snapshots of a dynamic graph to PyG Data and DGLGraphs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.graphs.graph_data import GraphData
from dtdg_lab.graphs.snapshot import repeats

if TYPE_CHECKING:
    from torch import Tensor


def pyg_data(graph: GraphData) -> list[Any]:
    """Return the T snapshots as PyG ``Data``; see :meth:`DynamicGraph.to_pyg`.

    Raises:
        NotAvailableError: PyG cannot be imported.
    """
    data = _import("torch_geometric.data", "pip install torch_geometric").Data
    converted = []
    for step in _tensors(graph):
        optional = {"edge_weight": step.weights, "label": step.classes}
        values = {name: tensor for name, tensor in optional.items() if tensor is not None}
        converted.append(
            data(x=step.features, edge_index=step.edge_index, y=step.targets, num_nodes=graph.num_nodes, **values)
        )
    return converted


def dgl_graphs(graph: GraphData) -> list[Any]:
    """Return the T snapshots as DGLGraphs; see :meth:`DynamicGraph.to_dgl`.

    Raises:
        NotAvailableError: DGL cannot be imported.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes a config file into the home folder
    dgl = _import("dgl", "pip install 'dgl==1.1.3' packaging (with Python 3.11)")
    converted = []
    for step in _tensors(graph):
        snapshot = dgl.graph(tuple(step.edge_index), num_nodes=graph.num_nodes)
        snapshot.ndata.update({"feat": step.features, "target": step.targets})
        if step.classes is not None:
            snapshot.ndata["label"] = step.classes
        if step.weights is not None:
            snapshot.edata["weight"] = step.weights
        converted.append(snapshot)
    return converted


def _import(module: str, command: str) -> ModuleType:
    try:
        return import_module(module)
    except (ImportError, OSError) as error:
        raise NotAvailableError(
            f"{module.partition('.')[0]} cannot be imported ({type(error).__name__}: {error}). Install it: {command}"
        ) from error


class _Step(NamedTuple):
    """A snapshot of N nodes and E edges as tensors."""

    edge_index: Tensor  # (2, E), int64: sources, then targets
    weights: Tensor | None  # (E,)
    features: Tensor  # (N, F)
    targets: Tensor  # (N,)
    classes: Tensor | None  # (N,), int64, -1 where unknown


def _tensors(graph: GraphData) -> Iterator[_Step]:
    """Yield copies of the snapshots. All of them share the tensors that never change."""
    import torch

    features = classes = None
    for t, snapshot in enumerate(graph.snapshots):
        if features is None or not repeats(graph.features):
            features = torch.tensor(graph.features[t])
        if graph.classes is not None and (classes is None or not repeats(graph.classes)):
            classes = torch.tensor(graph.classes[t], dtype=torch.int64)
        yield _Step(
            edge_index=torch.tensor(np.stack([snapshot.indices, snapshot.rows()])),
            weights=None if snapshot.weights is None else torch.tensor(snapshot.weights),
            features=features,
            targets=torch.tensor(graph.targets[t]),
            classes=classes,
        )
