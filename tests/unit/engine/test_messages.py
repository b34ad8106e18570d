"""Any message function over a snapshot's edges, against the same written out for dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dtdg_lab.engine.graph_view import DeviceSequence
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.testing.contracts import DenseView

NODES, FEATURES = 11, 3


def graph_of(adjacency: np.ndarray, weighted: bool) -> DynamicGraph:
    edges = adjacency != 0
    snapshot = Snapshot(
        np.concatenate([[0], np.cumsum(edges.sum(1))]),
        np.nonzero(edges)[1].astype(np.int32),
        adjacency[edges].astype(np.float32) if weighted else None,
    )
    values = np.ones((2, NODES), dtype=np.float32)
    features = np.ones((2, NODES, FEATURES), dtype=np.float32)
    return DynamicGraph("small", (snapshot, snapshot), features, values, values, source="this test", edge_life=1)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax"])
@pytest.mark.parametrize("edges", ["in", "out"])
@pytest.mark.parametrize("weighted", [True, False])
def test_messages_are_those_of_the_edges(weighted: bool, edges: str, reduce: str) -> None:
    draw = np.random.default_rng(0)
    adjacency = (draw.random((NODES, NODES)) < 0.3) * (draw.integers(1, 5, (NODES, NODES)) if weighted else 1)
    adjacency[3] = adjacency[:, 3] = 0  # a node without edges
    view = DeviceSequence(graph_of(adjacency, weighted), device="cpu", dtype=torch.float64, kernel="torch").view(0)
    x = torch.randn(
        NODES, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True
    )

    def message(source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return torch.tanh(source - 2 * target) * (1 if weight is None else weight)

    received = adjacency if edges == "in" else adjacency.T
    expected = torch.zeros(NODES, FEATURES, dtype=torch.float64)
    for node in range(NODES):
        rows = [
            torch.tanh(x[source] - 2 * x[node]) * float(received[node, source])
            for source in np.flatnonzero(received[node])
        ]
        if rows:
            stacked = torch.stack(rows)
            expected[node] = {"sum": stacked.sum(0), "mean": stacked.mean(0), "amax": stacked.amax(0)}[reduce]
    found = view.messages(x, message, edges, reduce)
    torch.testing.assert_close(found, expected)
    dense = DenseView(torch.tensor(adjacency, dtype=torch.float64)).messages(x, message, edges, reduce)
    torch.testing.assert_close(dense, expected)
    gradients = [torch.autograd.grad((y * y).sum(), x, retain_graph=True)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients)
