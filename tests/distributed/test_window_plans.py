"""Windows of four parts on one, two and four processes: losses, gradients and rows, against dense matrices.

The reference keeps every node under its own number, cuts a decayed snapshot out of a dense matrix each time, and runs
the model on it: no order of survival, no prefix, no exchange. From one step to the next it keeps the states of all
nodes after all snapshots of the window.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.models.base import State
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.systems.decayed_windows.shrinking import survival_order
from dtdg_lab.systems.decayed_windows.strategy import DecayedWindowStrategy, WindowStep
from dtdg_lab.systems.decayed_windows.window import Trapezoid, Window, window_at
from dtdg_lab.testing.training import train_in_memory
from dtdg_lab.training.build import RunComponents, build
from tests.distributed.groups import in_groups
from tests.thinning import thinned, values_that_run

PARTS, NODES = 4, 41
SMALL = {
    "dataset": "growing",
    "generated_nodes": NODES,
    "generated_edges": 110,
    "generated_snapshots": 36,
    "hidden": 6,
    "learning_rate": 0.05,
    "device": "cpu",
    "dtype": "float64",
    "optimizer": "sgd",
    "parts": PARTS,
    "window": 5,
    "chunks": 5,
    "chunker": "hash",
    "partitioner": "round_robin",
    "epochs": 1,
}
TEXT = {"decay": "text", "alpha": 0.3}
LINK = {"task": "link", "link_share": 0.5, "ranking_negatives": 5}
CLASSES = {"task": "classification", "dataset": "sbm", "communities": 2, "generated_edges": 30}
_AT_ALL = {model: {"loss_at": "all"} for model in ("evolvegcn-o", "graphsage")}  # else decayed snapshots have no reader
CASES: list[dict[str, Any]] = [
    *({"model": model, "layers": 2, **TEXT, **_AT_ALL.get(model, {})} for model in catalogue.names("models")),
    *({"model": model, **TEXT, "late_state": "zero"} for model in ("tgcn", "mpnn-lstm", "dcrnn")),
    *({"model": model, **TEXT, "loss_at": "all"} for model in ("tgcn", "evolvegcn-h", "dcrnn", "mpnn-lstm")),
    {"model": "gatlstm", "layers": 2, **TEXT, "loss_at": "all", "late_state": "zero"},
    {"window": 8, "full_snapshots": 1, "chunks": 8, "loss_at": "all", "alpha": 0.9},
    *({"model": model, **TEXT} for model in ("tgcn", "evolvegcn-h", "dcrnn", "mpnn-lstm")),
    {"alpha": 0.4},
    {"alpha": 1.0, "decay": "text", "layers": 2},
    {"full_snapshots": 5, "layers": 2},
    {"full_snapshots": 1, **TEXT, "model": "mpnn-lstm"},
    {"layers": 2, "model": "gatlstm", "halo_reuse": True, **TEXT},
    {"model": "mpnn-lstm", "halo_reuse": True, **TEXT},
    {"model": "mpnn-lstm", "layers": 2, "overlap": False, **TEXT},
    {"layers": 2, "norm": "in_out", "self_loops": False, **TEXT},
    {**LINK, "layers": 2, **TEXT},
    {**LINK, "model": "evolvegcn-o", "full_snapshots": 5, "loss_at": "all"},
    {**CLASSES, **TEXT},
    {**CLASSES, **TEXT, "loss_at": "all"},
]
ON_FOUR = range(1, len(CASES), 3)  # four processes take long to be served by two cores
PLACED = [*((case, 2) for case in range(len(CASES))), *((case, 4) for case in ON_FOUR)]
KEPT = (1, 6, 7, 11, 15, 17, 18, 27, 31, 34)
ids = [" ".join(str(value) for value in case.values()) for case in CASES]


@cache
def _graph(dataset: str) -> DynamicGraph:
    case = next(case for case in CASES if case.get("dataset", "growing") == dataset)
    return load_for(RunConfig(system="flaredtdg", **{**SMALL, **case}))


def _config(case: dict[str, Any], ranks: int) -> RunConfig:
    return RunConfig(system="flaredtdg", ranks=ranks, **{**SMALL, **case})


def _epoch(config: RunConfig, group: Group) -> dict[str, Any]:
    """All steps of an epoch: losses, gradients, rows of batches."""
    built = build(config, _graph(config.dataset), group)
    found: dict[str, Any] = {"losses": [], "gradients": [], "rows": [], "links": 0}
    for work in built.strategy.epoch(0):
        built.gradients.zero()
        computed = built.strategy.compute(work, StepMarks())
        agreed = built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
        found["losses"].append(agreed.sums()[0])
        found["gradients"].append([p.grad.clone().numpy() for p in built.model.parameters() if p.grad is not None])
        built.optimizer.step()
        tables = built.strategy.rows()
        found["rows"].append(sum(row[4] for row in tables["batches"]))
        found["links"] += sum(row[-1] for row in tables["links"])
    return found


def _reference(config: RunConfig) -> dict[str, Any]:
    built = build(config, _graph(config.dataset), SoloGroup())
    layout, found = built.strategy, {"losses": [], "gradients": [], "rows": []}
    assert isinstance(layout, DecayedWindowStrategy)
    naive = _Naive(built)
    for work in layout.epoch(0):
        built.gradients.zero()
        loss = naive.loss(work)
        loss.backward()
        found["losses"].append(loss.item())
        found["gradients"].append([p.grad.clone().numpy() for p in built.model.parameters() if p.grad is not None])
        found["rows"].append(naive.rows)
        built.optimizer.step()
    return found


class _Naive:
    """Losses of windows, from dense matrices over the nodes that a snapshot has, by number."""

    def __init__(self, built: RunComponents) -> None:
        assert built.partition is not None and built.strategy.chunking is not None
        self.built, self.owner, self.chunking = built, built.partition.owner, built.strategy.chunking
        self.shape = Trapezoid.of(built.config, chunks=built.strategy.chunking.chunks)
        self.left: dict[int, tuple[np.ndarray, State]] = {}  # snapshot -> its nodes and their states, a step before
        self.rows, self.target = 0, -1

    def loss(self, work: WindowStep) -> Tensor:
        built = self.built
        batch = window_at(work.segment, work.target, self.shape, after=work.after)
        if work.target - 1 != self.target or work.target == work.segment.start:
            self.left = {}
        self.target, inherits = work.target, built.config["late_state"] == "inherit"
        everywhere = built.config["loss_at"] == "all"
        state, after = None, {}
        losses, self.rows = [], 0
        for t in batch.snapshots:
            here = self._vertices(work.epoch, batch, t)
            self.rows += len(here)
            before = self.left.get(t - 1) if inherits or t == batch.snapshots.start else None
            entering = self._entering(state, self._entering(before, None, here), here)
            space = DenseView(self._dense(t, here, whole=t not in batch.decayed))
            inputs = torch.tensor(np.array(built.sequence.graph.features[t][here])).double()
            h, now = built.model.snapshot(space, inputs, entering)
            state = (here, now)
            after[t] = (here, now.detach())
            if t == work.target or everywhere:
                losses.append(self._loss(built.model.readout(h), here, t))
        self.left = after
        return torch.stack(losses).mean()

    def _loss(self, z: Tensor, here: np.ndarray, t: int) -> Tensor:
        """The mean over the nodes of a snapshot."""
        graph, task = self.built.sequence.graph, self.built.task
        if task.name == "regression":
            return (z[:, 0] - torch.tensor(np.array(graph.targets[t][here])).double()).square().mean()
        if task.name == "classification":
            return torch.nn.functional.cross_entropy(z, torch.tensor(np.array(graph.classes[t][here])).long())
        assert len(here) == NODES, "pairs are of all nodes"
        return task.loss(z.unsqueeze(0), range(t, t + 1), slice(0, NODES)).sum()

    def _vertices(self, epoch: int, batch: Window, t: int) -> np.ndarray:
        if t not in batch.decayed:
            return np.arange(len(self.owner))
        parts, seed = range(self.chunking.parts), self.built.config.seed
        order = survival_order(self.owner, self.chunking, parts, seed=seed, epoch=epoch)
        return np.sort(order.vertices[: order.rows[batch.counts[t - batch.snapshots.start]]])

    def _dense(self, t: int, here: np.ndarray, *, whole: bool) -> Tensor:
        snapshot = self.built.sequence.graph.snapshots[t]
        dense = np.zeros((len(self.owner),) * 2)
        weights = 1.0 if snapshot.weights is None else snapshot.weights
        dense[snapshot.rows(), snapshot.indices] = weights
        if not whole:
            dense *= self.owner[:, None] == self.owner[None, :]
        return torch.tensor(dense[np.ix_(here, here)])

    def _entering(self, state: tuple[np.ndarray, State] | None, begin: State | None, here: np.ndarray) -> State:
        """The rows of a state where it has them, else those of another one, or of the start."""
        begin = self.built.model.initial_state(len(here)) if begin is None else begin
        if state is None:
            return begin
        had, old = state
        if not begin.per_vertex:
            return old
        both, at, of = np.intersect1d(here, had, return_indices=True)

        def put(new: Tensor, x: Tensor) -> Tensor:
            return new.index_copy(0, torch.tensor(at), x[torch.tensor(of)]) if len(both) else new

        layers = zip(begin.layers, old.layers, strict=True)
        return State(tuple(tuple(put(n, x) for n, x in zip(new, xs, strict=True)) for new, xs in layers))


def _on_rank(group: Group, numbers: list[int]) -> dict[int, dict[str, Any]]:
    return {number: _epoch(_config(CASES[number], group.size), group) for number in numbers}


@pytest.fixture(scope="module")
def by_ranks(request: pytest.FixtureRequest) -> dict[int, list[dict[int, dict[str, Any]]]]:
    placed = values_that_run(request, "case", "ranks")
    cases = {ranks: [case for case, of in placed if of == ranks] for ranks in (2, 4)}
    return {ranks: in_groups(_on_rank, ranks, of) for ranks, of in cases.items() if of}


@cache
def _alone(case: int) -> dict[str, Any]:
    return _epoch(_config(CASES[case], 1), SoloGroup())


@pytest.mark.parametrize("case", thinned(range(len(CASES)), KEPT), ids=ids)
def test_one_process_computes_what_dense_matrices_say(case: int) -> None:
    config = _config(CASES[case], 1)
    if config["norm"] != "in":
        pytest.skip("dense matrices are normalised by in-degrees")
    _alike(_alone(case), _reference(config))


@pytest.mark.parametrize("model", thinned(["tgcn", "mpnn-lstm"], [1]))
def test_one_part_computes_what_dense_matrices_say(model: str) -> None:
    config = _config({"model": model, "parts": 1, **TEXT}, 1)
    _alike(_epoch(config, SoloGroup()), _reference(config))


@pytest.mark.parametrize(
    ("case", "ranks"),
    thinned(PLACED, KEPT),
    ids=[*(f"{name} on 2" for name in ids), *(f"{ids[case]} on 4" for case in ON_FOUR)],
)
def test_losses_and_gradients_do_not_depend_on_processes(
    case: int, ranks: int, by_ranks: dict[int, list[dict[int, dict[str, Any]]]]
) -> None:
    one = _alone(case)
    several = [of_rank[case] for of_rank in by_ranks[ranks]]
    for found in several:
        _alike({**found, "rows": one["rows"]}, one)
    assert np.array_equal(np.sum([found["rows"] for found in several], axis=0), one["rows"])
    assert sum(found["links"] for found in several) > 0 or CASES[case].get("task") == "link", "halos were exchanged"


def _stopped_and_resumed(group: Group, folder: Path) -> dict[str, list[float]]:
    config = _config({"model": "mpnn-lstm", **TEXT}, group.size)
    graph, found = _graph("growing"), {}
    found["whole"] = train_in_memory(config, graph, folder / "whole.pt", group=group).losses
    first = train_in_memory(config, graph, folder / "last.pt", group=group, script={8: {"stop": True}})
    rest = train_in_memory(config, graph, folder / "last.pt", group=group, resume=True, first_step=9)
    found["in two"] = [*first.losses, *rest.losses]
    assert len(first.losses) == 9 and rest.losses
    return found


def test_two_processes_go_on_within_an_epoch_with_the_states_that_they_left(tmp_path: Path) -> None:
    for found in in_groups(_stopped_and_resumed, 2, tmp_path):
        assert found["in two"] == found["whole"]


def _alike(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert len(found["losses"]) == len(wanted["losses"]) > 10
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=1e-10)
    for ours, theirs in zip(found["gradients"], wanted["gradients"], strict=True):
        scale = max(np.abs(of).max() for of in theirs)
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-10 * scale)
    assert list(found["rows"]) == list(wanted["rows"])
