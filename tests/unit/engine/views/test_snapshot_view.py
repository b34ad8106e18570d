"""Any message function over a snapshot's edges, against the same written out for dense matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.config.model_facts import model_facts
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.minibatch.blocks import BlockShape, block_shape
from dtdg_lab.engine.minibatch.neighbour_sampling import Drawing, SampledPart
from dtdg_lab.engine.minibatch.sampled_batches import BatchSampler, SeedBatches
from dtdg_lab.engine.minibatch.target_sequence import TargetSequence
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.systems.decayed_windows.sampled import SampledSequence
from dtdg_lab.training.build import build
from tests.factories import snapshot_of_matrix
from tests.message_models import name_of, register_models
from tests.registrations import registered_apart

NODES, FEATURES = 11, 3


@pytest.fixture(scope="module", autouse=True)
def of_this_module_alone() -> Iterator[None]:
    """Add the models to the catalogue, and take them away again."""
    with registered_apart():
        register_models()
        yield


def graph_of(adjacency: np.ndarray, weighted: bool, nodes: int = NODES) -> DynamicGraph:
    snapshot = snapshot_of_matrix(adjacency, weighted=weighted)
    values = np.ones((2, nodes), dtype=np.float32)
    features = np.ones((2, nodes, FEATURES), dtype=np.float32)
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


# Where a view's rows, columns or edges are not those of a whole snapshot.


def star(leaves: int, weighted: bool) -> DynamicGraph:
    """Node 0 receives from all others, with weights 1, 2, ..."""
    adjacency = np.zeros((leaves + 1, leaves + 1))
    adjacency[0, 1:] = np.arange(1, leaves + 1) if weighted else 1
    return graph_of(adjacency, weighted, nodes=leaves + 1)


def sampled_view(graph: DynamicGraph, fanout: int) -> SnapshotView:
    drawing = Drawing(range(1), layers=1, layer_hops=1, lasting=False, fanout=fanout, seed=0, epoch=0)
    part = SampledPart(graph, np.arange(1), drawing)
    return SampledSequence(graph, part, OperatorSettings(dtype=torch.float64)).view(0)


def batch_view(graph: DynamicGraph, fanout: int) -> SnapshotView:
    shape = BlockShape(1, 1, "none", inputs_once=True, neighbours=True, weighted=graph.weighted)
    batches = SeedBatches(0, 0, np.arange(1), 1, (range(1),), 1, False)
    batch = BatchSampler(graph, batches, shape, (fanout,)).sample(0)
    features = np.ones((len(batch.keys), FEATURES), dtype=np.float32)
    return TargetSequence(batch.with_features(features), OperatorSettings(dtype=torch.float64)).view(0)


@pytest.mark.parametrize("view_of", [sampled_view, batch_view])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("fanout", [3, 8, 20])
def test_sampled_messages_have_the_graph_s_weights(view_of: Any, weighted: bool, fanout: int) -> None:
    """A sum over drawn edges is scaled by found over drawn neighbours, mean and maximum are those of the drawn."""
    leaves = 8
    view, seen = view_of(star(leaves, weighted), fanout), []

    def message(source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        seen.append(weight)
        return source if weight is None else source * weight

    x = view.inputs
    found = {reduce: float(view.messages(x, message, "in", reduce)[0, 0]) for reduce in ("sum", "mean", "amax")}
    drawn = min(leaves, fanout)
    if not weighted:
        assert seen == [None] * 3
        assert found == {"sum": pytest.approx(leaves), "mean": 1.0, "amax": 1.0}
        return
    weights = seen[0].flatten().numpy()
    np.testing.assert_allclose(weights, np.round(weights), rtol=1e-6)  # those of the graph: whole numbers
    assert len(weights) == drawn
    assert len({*np.round(weights)}) == drawn
    assert found["sum"] == pytest.approx(weights.sum() * leaves / drawn, rel=1e-6)
    assert found["mean"] == pytest.approx(weights.mean(), rel=1e-6)
    assert found["amax"] == pytest.approx(weights.max(), rel=1e-6)


def test_columns_of_features_are_those_that_are_here_already() -> None:
    view = batch_view(star(8, False), 20)
    assert len(view.inputs) == 1
    assert len(view.columns(view.inputs, "in")) == 9


@pytest.mark.parametrize("given", [{"edges": "both"}, {"reduce": "max"}])
def test_a_way_or_reduction_that_there_is_not_is_refused(given: dict[str, str]) -> None:
    view = DeviceSequence(star(3, True), device="cpu", dtype=torch.float64, kernel="torch").view(0)
    with pytest.raises(UnsupportedError, match=r"in.*out|sum, mean, amax"):
        view.messages(view.inputs, lambda source, target, weight: source, **given)


# Systems that cannot send messages, or not along out-edges, refuse them before they train.


def build_with(model: str, **settings: Any) -> None:
    small = {"dataset": "growing", "generated_nodes": 30, "generated_edges": 90, "generated_snapshots": 20}
    config = RunConfig(**{**small, **settings}, model=model, device="cpu")
    build(config, load_for(config), SoloGroup()).close()


def test_shared_edges_refuse_messages() -> None:
    with pytest.raises(UnsupportedError, match=r"pipad.*messages.*system='single'"):
        build_with(name_of("inputs", by_messages=True), system="pipad")


@pytest.mark.parametrize("by_messages", [True, False])
@pytest.mark.parametrize("system", ["dynagraph", "dgl-default"])
def test_sampled_neighbours_refuse_out_edges(system: str, by_messages: bool) -> None:
    with pytest.raises(UnsupportedError, match=rf"{system}.*samples in-neighbours.*'single'"):
        build_with(name_of("both-ways", by_messages=by_messages), system=system)


def test_a_batch_has_no_rows_beyond_those_that_receive_messages_of_features() -> None:
    """The farthest nodes' features are columns alone, as where a kind of pull aggregates them."""
    for kind, once in (("inputs", True), ("squashed", False), ("both-ways", False)):
        shapes = [
            block_shape(model_facts(name_of(kind, by_messages=how), features=3, hidden=4, layers=2))
            for how in (False, True)
        ]
        assert shapes[0] == shapes[1]
        assert shapes[0].inputs_once == once
