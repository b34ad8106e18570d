"""Any message function on several ranks: dense matrices' numbers, and the losses and bytes of the same mean by a pull.

Losses, gradients and bytes of whole runs are compared between a model that averages by ``graph.mean`` and one that
averages by ``graph.messages``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Partition
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.exchange.exchanger import Exchanger
from dtdg_lab.engine.exchange.halo import HaloSequence
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.models.base import GraphView
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.training.build import build
from dtdg_lab.training.partition import blocks_event
from tests.distributed.groups import in_groups, take_step
from tests.message_models import name_of, register_models
from tests.registrations import registered_apart
from tests.thinning import thinned, values_that_run

NODES, FEATURES, WIDTH, SNAPSHOTS = 13, 3, 4, 3
WAYS = list(product(["in", "out"], ["sum", "mean", "amax"], [True, False]))  # edges, reduce, weighted
FOUND = ("y", "of_x", "of_gate")


@pytest.fixture(scope="module", autouse=True)
def of_this_module_alone() -> Iterator[None]:
    """Add the models to the catalogue, and take them away again."""
    with registered_apart():
        register_models()
        yield


# Two layers of messages with parameters on all snapshots, beside dense matrices.


def _adjacencies(weighted: bool) -> np.ndarray:
    draw = np.random.default_rng(7)
    adjacency = (draw.random((SNAPSHOTS, NODES, NODES)) < 0.25) * (
        draw.integers(1, 5, (NODES, NODES)) if weighted else 1
    )
    adjacency[:, 3] = adjacency[:, :, 3] = 0  # a node without edges
    return adjacency


def _small_graph(weighted: bool) -> DynamicGraph:
    snapshots = []
    for adjacency in _adjacencies(weighted):
        edges = adjacency != 0
        offsets = np.concatenate([[0], np.cumsum(edges.sum(1))])
        weights = adjacency[edges].astype(np.float32) if weighted else None
        snapshots.append(Snapshot(offsets, np.nonzero(edges)[1].astype(np.int32), weights))
    values = np.ones((SNAPSHOTS, NODES), dtype=np.float32)
    features = np.random.default_rng(8).normal(size=(SNAPSHOTS, NODES, FEATURES)).astype(np.float32)
    return DynamicGraph("small", tuple(snapshots), features, values, values, source="this test", edge_life=1)


def _gates() -> list[Tensor]:
    draw = torch.Generator().manual_seed(2)
    return [torch.randn(2 * FEATURES, FEATURES, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(2)]


def _two_layers(view: GraphView, x: Tensor, gates: list[Tensor], edges: str, reduce: str) -> Tensor:
    for number, gate in enumerate(gates):

        def message(source: Tensor, target: Tensor, weight: Tensor | None, gate: Tensor = gate) -> Tensor:
            sent = source * torch.sigmoid(torch.cat([source, target], dim=1) @ gate)
            return sent if weight is None else sent * weight

        x = torch.tanh(view.layer(number).messages(x, message, edges, reduce))
    return x


def _backward(y: Tensor, x: Tensor, gates: list[Tensor], scale: Tensor) -> dict[str, Any]:
    (y * scale).sum().backward()
    return {"y": y.detach().numpy(), "of_x": x.grad.numpy(), "of_gate": [gate.grad.numpy() for gate in gates]}


def _scale() -> Tensor:
    draw = torch.Generator().manual_seed(3)
    return torch.randn(SNAPSHOTS, NODES, FEATURES, generator=draw, dtype=torch.float64)


def _owner() -> np.ndarray:
    return np.random.default_rng(5).permutation(np.arange(NODES) % 2).astype(np.int32)


def _layers_on_rank(group: Group) -> dict[Any, dict[str, Any]]:
    found = {}
    partition = Partition(_owner(), 2).on_ranks(group.size)
    own = torch.from_numpy(partition.vertices(group.rank))
    for way in WAYS:
        edges, reduce, weighted = way
        exchanger = Exchanger(group)
        sequence = HaloSequence(
            _small_graph(weighted),
            partition,
            exchanger,
            group,
            OperatorSettings(dtype=torch.float64),
            directions=(edges,),
        )
        view = sequence.stack(range(SNAPSHOTS))
        x, gates = view.inputs.clone().requires_grad_(), _gates()
        y = _two_layers(view, x, gates, edges, reduce)
        found[way] = _backward(y, x, gates, _scale()[:, own].flatten(0, 1)) | {"links": exchanger.drain()}
        found[way]["own"] = own.numpy()
    return found


@pytest.fixture(scope="module")
def on_ranks() -> dict[int, list[dict[Any, dict[str, Any]]]]:
    return {ranks: in_groups(_layers_on_rank, ranks) for ranks in (1, 2)}


def _dense(edges: str, reduce: str, weighted: bool) -> dict[str, Any]:
    graph = _small_graph(weighted)
    blocks = torch.block_diag(*torch.from_numpy(_adjacencies(weighted)).double())
    x = torch.from_numpy(np.array(graph.features)).double().flatten(0, 1).requires_grad_()
    gates = _gates()

    class Weightless(DenseView):
        def edges(self, direction: str) -> tuple[Tensor, Tensor, Tensor | None]:
            source, target, _ = super().edges(direction)
            return source, target, None

    y = _two_layers((DenseView if weighted else Weightless)(blocks), x, gates, edges, reduce)
    return _backward(y, x, gates, _scale().flatten(0, 1))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("edges", "reduce", "weighted"), WAYS)
def test_messages_over_a_halo_are_those_of_dense_matrices(
    on_ranks: dict[int, list[dict[Any, dict[str, Any]]]], ranks: int, edges: str, reduce: str, weighted: bool
) -> None:
    dense, found = _dense(edges, reduce, weighted), [rank[edges, reduce, weighted] for rank in on_ranks[ranks]]
    for name in ("y", "of_x"):
        expected = dense[name].reshape(SNAPSHOTS, NODES, -1)
        for rank in found:
            actual = rank[name].reshape(SNAPSHOTS, len(rank["own"]), -1)
            np.testing.assert_allclose(actual, expected[:, rank["own"]], rtol=1e-12, atol=1e-12)
    for layer in range(2):
        summed = sum(rank["of_gate"][layer] for rank in found)
        np.testing.assert_allclose(summed, dense["of_gate"][layer], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("edges", "reduce", "weighted"), WAYS)
def test_rows_of_messages_are_counted_by_layer_and_pass(
    on_ranks: dict[int, list[dict[Any, dict[str, Any]]]], edges: str, reduce: str, weighted: bool
) -> None:
    adjacency, owner = _adjacencies(weighted), _owner()
    received = adjacency if edges == "in" else adjacency.transpose(0, 2, 1)
    for rank in range(2):
        other = 1 - rank
        rows = int((received[:, owner == other][:, :, owner == rank] != 0).any(axis=1).sum())
        back = int((received[:, owner == rank][:, :, owner == other] != 0).any(axis=1).sum())
        found = on_ranks[2][rank][edges, reduce, weighted]["links"]
        expected = [(0, "forward", rows), (1, "forward", rows), (1, "backward", back), (0, "backward", back)]
        assert [(layer, way, of) for layer, way, _, of, _ in found] == expected
        assert all(to == other and moved == of * FEATURES * 8 for _, _, to, of, moved in found)


# Whole runs: the same mean by a pull and by messages.


SMALL = {
    "dataset": "growing",
    "generated_nodes": 40,
    "generated_edges": 160,
    "generated_snapshots": 30,
    "hidden": 4,
    "learning_rate": 0.05,
    "device": "cpu",
    "dtype": "float64",
    "optimizer": "sgd",
    "layers": 2,
}
STEPS = 3
Case = tuple[str, str, dict[str, Any], int]  # model, system, options, ranks
CASES: list[Case] = [
    *((kind, system, {}, 2) for kind in ("inputs", "both-ways") for system in ("esdg", "adgnn-t", "pygt-dist", "psg")),
    ("inputs", "adgnn-t", {"halo_reuse": True}, 2),
    ("both-ways", "adgnn-t", {"parts": 4}, 2),
    ("inputs", "hypergraph-vertex", {"partitioner": "hash", "blocks": 3}, 2),
    ("forgetful", "adgnn-t", {}, 2),
    ("means", "esdg", {"blocks": 9, "graph_storage": "streamed", "delta_transfer": True}, 2),
    ("inputs", "esdg", {"blocks": 2, "halo_reuse": True, "overlap": True}, 2),
    ("both-ways", "esdg-hybrid", {"blocks": 3}, 2),
    ("both-ways", "flaredtdg", {"window": 4, "full_snapshots": 2, "overlap": True}, 2),
    ("both-ways", "flaredtdg", {"window": 4, "full_snapshots": 2, "overlap": False}, 2),
    ("means", "full-history", {"window": 3}, 2),
    ("inputs", "flaredtdg", {"window": 4, "full_snapshots": 1, "loss_at": "all", "chunker": "hash"}, 1),
    ("forgetful", "dynagraph", {"window": 3, "fanout": 1}, 2),
    ("means", "dynagraph", {"window": 3, "fanout": 2}, 1),
    *(
        (kind, "dbov", {"batch_snapshots": 4, "batch_nodes": 7}, 1)
        for kind in ("squashed", "inputs", "both-ways", "forgetful")
    ),
    ("both-ways", "dbos", {}, 2),
    *((kind, "dgl-default", {"fanouts": "2 1", "batch_size": 7}, 1) for kind in ("squashed", "inputs", "means")),
    ("means", "greendygnn", {"fanouts": "2"}, 2),
    ("top", "pygt-dist", {}, 2),
    ("top", "dbov", {}, 1),
    ("top", "flaredtdg", {"window": 4, "full_snapshots": 2}, 2),
]
KEPT = (0, 5, 8, 12, 14, 17, 20, 22, 26, 28, 29)  # each layout, and halo_reuse, streamed snapshots and overlap
ids = [
    " ".join([kind, system, *(f"{name}={value}" for name, value in more.items()), f"on {ranks}"])
    for kind, system, more, ranks in CASES
]


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(**{**SMALL, "system": "single"}))


def _trained(group: Group, model: str, system: str, more: dict[str, Any]) -> dict[str, Any]:
    register_models()
    parts = {} if system in ("single", "esdg", "esdg-hybrid", "psg") else {"parts": 2}
    config = RunConfig(**{**SMALL, **parts, **more}, system=system, model=model, ranks=group.size)
    built, sent = build(config, _graph(), group), group.bytes_sent
    steps = [take_step(built, group, work) for work in list(built.strategy.epoch(0))[:STEPS]]
    found: dict[str, Any] = {"losses": [step.loss for step in steps], "gradients": [step.gradient for step in steps]}
    found["losses"] += [row.loss for row in built.evaluator.evaluate(built.model, ("validation",), final=False)]
    found["bytes"] = group.bytes_sent - sent
    rows = [step.rows for step in steps]
    found["links"] = [link for tables in rows for link in tables.get("links", [])]
    found["collectives"] = {row[2] for tables in rows for row in tables.get("exchanges", [])}
    if system == "esdg":
        told = blocks_event(config, _graph(), built.strategy.plan, built.task).write()
        found["told"] = {way: np.array(sent) for way, sent in told["predicted"].items()}
    built.close()
    return found


def _trainings_on_rank(group: Group, trainings: list[Any]) -> list[dict[str, Any]]:
    return [_trained(group, *training) for training in trainings]


def _assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    scale = max(float(np.abs(of).max()) for of in expected["gradients"])
    for one, other in zip(found["gradients"], expected["gradients"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11 * scale)


def _trainings(case: int) -> list[tuple[str, str, dict[str, Any]]]:
    kind, system, more, _ = CASES[case]
    return [(name_of(kind, by_messages=how), system, more) for how in (False, True)]


@pytest.fixture(scope="module")
def on_two(request: pytest.FixtureRequest) -> list[dict[int, list[dict[str, Any]]]]:
    """What each of two ranks found, by case: with the pull, and with messages."""
    cases = [case for (case,) in values_that_run(request, "case") if CASES[case][3] == 2]
    found = in_groups(_trainings_on_rank, 2, [training for case in cases for training in _trainings(case)])
    return [dict(zip(cases, zip(of[::2], of[1::2], strict=True), strict=True)) for of in found]


@pytest.mark.parametrize("case", thinned(range(len(CASES)), KEPT), ids=ids)
def test_messages_train_as_the_same_pull_does(request: pytest.FixtureRequest, case: int) -> None:
    if CASES[case][3] == 1:
        found = [tuple(_trained(SoloGroup(), *training) for training in _trainings(case))]
    else:
        found = [rank[case] for rank in request.getfixturevalue("on_two")]
    for pulled, sent in found:
        _assert_same(sent, pulled)
        assert sent["bytes"] == pulled["bytes"]
        assert sorted(sent["links"]) == sorted(pulled["links"])


# Weights that a user's model evolves from data, by ``evolve`` alone.


TOP: list[tuple[str, dict[str, Any], int]] = [
    ("esdg", {"blocks": 3}, 1),
    ("esdg", {"blocks": 1}, 2),
    ("esdg", {"blocks": 2}, 2),
    ("esdg", {"blocks": 9, "graph_storage": "streamed"}, 2),  # one snapshot a block: one rank has none
    ("esdg-hybrid", {"blocks": 3}, 2),
    ("esdg-hybrid", {"blocks": 2}, 4),
    ("adgnn-t", {}, 2),
    ("full-history", {"window": 4}, 2),
    ("flaredtdg", {"window": 4, "full_snapshots": 2, "chunker": "hash", "chunks": 4, "alpha": 0.6}, 2),
]


@pytest.mark.parametrize(
    ("system", "more", "ranks"),
    thinned(TOP, (0, 2, 5, 6)),
    ids=[" ".join([system, *map(str, more.items()), f"on {ranks}"]) for system, more, ranks in TOP],
)
def test_weights_from_data_train_as_on_one_process(system: str, more: dict[str, Any], ranks: int) -> None:
    model = name_of("top", by_messages=True)
    windows = system in ("full-history", "flaredtdg")  # whose loss is that of the last snapshot
    expected = _trained(SoloGroup(), model, *((system, more) if windows else ("single", {})))
    by_rank = [found for (found,) in in_groups(_trainings_on_rank, ranks, [(model, system, more)])]
    for found in by_rank:
        _assert_same(found, expected)
    if system != "esdg":
        return
    counted = {way: np.zeros_like(sent) for way, sent in by_rank[0]["told"].items()}
    for sender, found in enumerate(by_rank):
        assert found["collectives"] == ({"weights"} if ranks > 1 else set())
        for layer, way, to, _, moved in found["links"]:
            counted[way][layer, sender, to] += moved
    for way, sent in by_rank[0]["told"].items():
        np.testing.assert_array_equal(counted[way], sent)
