"""One plan of four parts on one, two and four processes: the same losses, gradients, work and evaluations.

What "the same losses" means is written in the comparison of each test: float64 and plain SGD for exact equality
(1e-10), float32 for the first step (1e-5), and only curves (1e-3) after epochs of Adam, which divides noise by sqrt(v).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import split
from dtdg_lab.models.base import make_model
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.testing.models import run_model
from dtdg_lab.training.build import RunComponents, build, make_task
from tests import factories
from tests.distributed.groups import in_groups
from tests.thinning import thinned, values_that_run

PARTS, STEPS = 4, 3
BY_HAND = ("round_robin", "longest_first")  # schedules that this file knows; others: test_schedules_on_ranks.py
# 12 training snapshots, 9 groups of 4: three iterations on 4 parts, the last with one group and three idle parts
SMALL = {**factories.SMALL, "system": "psg", "generated_nodes": 23, "hidden": 6, "parts": PARTS, "learning_rate": 0.05}
EXACT = {"dtype": "float64", "optimizer": "sgd"}
LINK = {"task": "link", "link_share": 0.5, "ranking_negatives": 5}
TASKS: tuple[dict[str, Any], ...] = (
    LINK,
    {**LINK, "link_head": "dot", "negatives": 3, "loss_at": "all", "model": "evolvegcn-o"},
    {"task": "classification", "dataset": "sbm", "communities": 2, "generated_edges": 30, "loss_at": "all"},
)


def _plans() -> list[dict[str, Any]]:
    """Every model with two layers, two of them with one as well and under two schedulers, and what else matters."""
    plans: list[dict[str, Any]] = [
        {"model": model, "layers": layers, "scheduler": scheduler}
        for model in catalogue.names("models")
        for layers in (1, 2)
        for scheduler in ("round_robin", "longest_first")  # the others: test_schedules_on_ranks.py
        if (layers == 2 and scheduler == "round_robin") or (model in ("tgcn", "evolvegcn-o") and scheduler in BY_HAND)
    ]
    plans += [
        {"loss_at": "all", "groups_per_rank": 2, "scheduler": "longest_first"},
        {"gc_layers": 2, "group_window": 3, "group_stride": 2},
        {"kernel": "torch"},
        {"groups_per_rank": 3},
        *TASKS,
    ]
    return plans


CASES = _plans()
GATHERED = {"tgcn", "evolvegcn-o"}  # models whose deeper layers pull H columns, once a layer
EVALUATED = [(2, "warm"), (2, "cold"), (1, "warm"), (1, "cold")]
ONE_OF_EACH_MEMORY = ("tgcn", "evolvegcn-o", "evolvegcn-h", "dcrnn", "graphsage")
ids = [" ".join(f"{name}={value}" for name, value in case.items()) for case in CASES]
KEPT = (3, 5, 9, 13, 14, 16, 17, 20, 21, 22)  # one of each memory, and what is not a model; all models: other layouts
each_case = pytest.mark.parametrize("case", thinned(range(len(CASES)), KEPT), ids=ids)
EVALUATIONS = [
    pytest.param((model, layers, protocol), id=f"{model} {layers} {protocol}")
    for model in catalogue.names("models")
    for layers, protocol in (EVALUATED if model in GATHERED else EVALUATED[:1])
]
COMPARED = ("case", "curve", "evaluated", "scored")  # parameters of tests


@cache
def _graph(dataset: str = "growing") -> DynamicGraph:
    return load_for(_config(next((case for case in TASKS if case.get("dataset") == dataset), {})))


def _config(case: dict[str, Any], **more: Any) -> RunConfig:
    return RunConfig(**{**SMALL, **case, **more})


def _built(case: dict[str, Any], group: Group, **more: Any) -> RunComponents:
    config = _config(case, **more, ranks=group.size)
    return build(config, _graph(config.dataset), group)


def _step(built: RunComponents, group: Group, number: int) -> dict[str, Any]:
    works = [work for epoch in range(number + 1) for work in built.strategy.epoch(epoch)]
    built.gradients.zero()
    sent = group.bytes_sent
    computed = built.strategy.compute(works[number], StepMarks())
    exchanged = built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
    loss_sum, groups = exchanged.sums()
    built.optimizer.step()
    return {
        "loss": loss_sum / groups,
        "gradients": {name: p.grad.clone() for name, p in built.model.named_parameters() if p.grad is not None},
        "groups": computed.groups,
        "agreed_groups": groups,
        "vertex_snapshots": computed.vertex_snapshots,
        "bytes": group.bytes_sent - sent,
        "numel": sum(p.numel() for p in built.model.parameters()),
    }


def _curve(case: dict[str, Any], group: Group) -> list[float]:
    built, losses = _built(case, group, optimizer="adam", learning_rate=0.01), []
    for epoch in range(5):
        for number in range(len(built.strategy.epoch(epoch))):
            losses.append(_step(built, group, number)["loss"])
    return losses


def _evaluated(case: dict[str, Any], group: Group, protocol: str) -> dict[str, Any]:
    built = _built(case, group, **EXACT, protocol=protocol)
    sent = group.bytes_sent
    rows = built.evaluator.evaluate(built.model, ("train", "validation", "test"), final=True)
    return {
        "losses": {row.split: row.loss for row in rows},
        "bytes": group.bytes_sent - sent,
        "metrics": {row.split: row.metrics for row in rows},
        "columns": built.task.columns,
        "resampled": built.task.resampled,
        "tested": len(built.split.test),
    }


def everything(group: Group, wanted: dict[str, list[Any]]) -> dict[str, Any]:
    """All that this file compares, on one rank."""
    found: dict[str, Any] = {"exact": {}, "single_precision": {}}
    for case in wanted["case"]:
        built = _built(CASES[case], group, **EXACT)
        found["exact"][case] = [_step(built, group, number) for number in range(STEPS)]
        found["single_precision"][case] = _step(_built(CASES[case], group, optimizer="sgd"), group, 0)
    found["curves"] = {model: _curve({"model": model}, group) for model in wanted["curve"]}
    found["evaluations"] = {
        (model, layers, protocol): _evaluated({"model": model, "layers": layers}, group, protocol)
        for model, layers, protocol in wanted["evaluated"]
    }
    found["tasks"] = {task: _evaluated(TASKS[task], group, "warm") for task in wanted["scored"]}
    return found


@pytest.fixture(scope="module")
def wanted(request: pytest.FixtureRequest) -> dict[str, list[Any]]:
    return {name: [value for (value,) in values_that_run(request, name)] for name in COMPARED}


@pytest.fixture(scope="module")
def solo(wanted: dict[str, list[Any]]) -> dict[str, Any]:
    """No process group at all."""
    return everything(SoloGroup(), wanted)


@pytest.fixture(scope="module", params=thinned([1, 2, 4], [1]), ids=lambda ranks: f"{ranks} processes")
def ranks(request: pytest.FixtureRequest, wanted: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """What each of R gloo processes found."""
    return in_groups(everything, request.param, wanted)


def _assert_close(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    """Each parameter's gradient, relative to its largest entry."""
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        scale = gradient.abs().max()
        assert scale > 0, name
        assert (found[name] - gradient).abs().max() <= tolerance * scale, name


@each_case
def test_three_exact_steps(solo: dict[str, Any], ranks: list[dict[str, Any]], case: int) -> None:
    """float64, plain SGD: 1e-10 relative on the loss and on every gradient, on every rank."""
    for number in range(STEPS):
        wanted = solo["exact"][case][number]
        for found in ranks:
            step = found["exact"][case][number]
            assert step["loss"] == pytest.approx(wanted["loss"], rel=1e-10)
            _assert_close(step["gradients"], wanted["gradients"], 1e-10)


@each_case
def test_the_first_step_in_single_precision(solo: dict[str, Any], ranks: list[dict[str, Any]], case: int) -> None:
    wanted = solo["single_precision"][case]
    for found in ranks:
        step = found["single_precision"][case]
        assert step["gradients"].keys() == wanted["gradients"].keys()
        assert step["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
        largest = max(gradient.abs().max() for gradient in wanted["gradients"].values())
        for name, gradient in wanted["gradients"].items():
            assert (step["gradients"][name] - gradient).abs().max() <= 1e-5 * largest, name


@pytest.mark.parametrize("curve", thinned(ONE_OF_EACH_MEMORY, 2))
def test_curves_of_five_adam_epochs(solo: dict[str, Any], ranks: list[dict[str, Any]], curve: str) -> None:
    wanted = solo["curves"][curve]
    assert len(wanted) == 5 * 3
    for found in ranks:
        assert found["curves"][curve] == pytest.approx(wanted, rel=1e-3)
        assert found["curves"][curve][-1] < found["curves"][curve][0]


@each_case
def test_the_work_is_shared_and_none_is_done_twice(
    solo: dict[str, Any], ranks: list[dict[str, Any]], case: int
) -> None:
    for number in range(STEPS):
        wanted, steps = solo["exact"][case][number], [found["exact"][case][number] for found in ranks]
        for counted in ("groups", "vertex_snapshots"):
            assert sum(step[counted] for step in steps) == wanted[counted]
        assert {step["agreed_groups"] for step in steps} == {wanted["groups"]}
        window = CASES[case].get("group_window", 4)
        assert [step["vertex_snapshots"] for step in steps] == [23 * window * step["groups"] for step in steps]


@each_case
def test_bytes_are_the_ring_s(ranks: list[dict[str, Any]], case: int) -> None:
    """2 b (R - 1) / R with b the gradients and 4 + R slots behind them."""
    size = len(ranks)
    for precision, width in (("exact", 8), ("single_precision", 4)):
        for found in ranks:
            step = found[precision][case]
            step = step[0] if precision == "exact" else step
            assert step["bytes"] == 2 * width * (step["numel"] + 4 + size) * (size - 1) // size


@pytest.mark.parametrize("evaluated", thinned(EVALUATIONS, (0, 3, 10, 14)))
def test_evaluation_is_the_same_on_any_number_of_processes(
    solo: dict[str, Any], ranks: list[dict[str, Any]], evaluated: tuple[str, int, str]
) -> None:
    """1e-10 in float64; deeper layers gather rows, and their bytes are counted."""
    (model, layers, _), size, nodes, snapshots = evaluated, len(ranks), 23, 39
    for found in ranks:
        seen = found["evaluations"][evaluated]
        assert seen["losses"] == pytest.approx(solo["evaluations"][evaluated]["losses"], rel=1e-10)
        if model in GATHERED:
            sums = 2 * 8 * snapshots * seen["columns"] * (size - 1) // size
            widest = -(-nodes // size)  # shares are padded to the largest
            gathers = (layers - 1) * snapshots * 8 * widest * SMALL["hidden"] * (size - 1)
            assert seen["bytes"] == sums + gathers


def test_warm_and_cold_evaluation_differ() -> None:
    warm, cold = (_evaluated({"model": "tgcn", "layers": 1}, SoloGroup(), protocol) for protocol in ("warm", "cold"))
    assert warm["losses"]["test"] != cold["losses"]["test"]


@pytest.mark.parametrize("scored", range(len(TASKS)), ids=[case["task"] for case in TASKS])
def test_scores_of_tasks_are_the_same_on_any_number_of_processes(
    solo: dict[str, Any], ranks: list[dict[str, Any]], scored: int
) -> None:
    """Losses, metrics and those of persistence; every rank knows them all. Links need all nodes' readout."""
    wanted, size = solo["tasks"][scored], len(ranks)
    for found in ranks:
        seen = found["tasks"][scored]
        assert seen["losses"] == pytest.approx(wanted["losses"], rel=1e-10)
        for part, metrics in wanted["metrics"].items():
            defined = {name: value for name, value in metrics.items() if value is not None}
            assert len(defined) >= 6
            assert {name: seen["metrics"][part][name] for name in defined} == pytest.approx(defined, rel=1e-10)
            assert seen["metrics"][part].keys() == metrics.keys()
        sums = 2 * 8 * 39 * seen["columns"] * (size - 1) // size
        sums += 2 * 8 * seen["tested"] * seen["resampled"] * (size - 1) // size
        outputs = {"concat": 2, "dot": SMALL["hidden"]}.get(TASKS[scored].get("link_head", "concat"), 0)
        gathered = outputs if TASKS[scored]["task"] == "link" else 0
        assert seen["bytes"] == sums + 39 * 8 * -(-23 // size) * gathered * (size - 1)


# against plain autograd over the groups of the first iteration, without the layouts' code


def _groups_of_first_iteration(case: dict[str, Any]) -> list[range]:
    """The snapshots of each group, from the definitions: groups start at every stride; longest first sorts by size."""
    window, stride = case.get("group_window", 4), case.get("group_stride", 1)
    groups = [range(start, start + window) for start in range(0, 12 - window + 1, stride)]
    if case.get("scheduler") == "longest_first":
        graph = _graph()
        sizes = [sum(graph.snapshots[t].num_edges + graph.num_nodes for t in group) for group in groups]
        groups = [groups[i] for i in sorted(range(len(groups)), key=lambda i: -sizes[i])]
    return groups[: PARTS * case.get("groups_per_rank", 1)]


@each_case
def test_the_first_step_is_plain_autograd_s(solo: dict[str, Any], case: int) -> None:
    plan = CASES[case]
    config = _config(plan, **EXACT)
    graph = _graph(config.dataset)
    task = make_task(config, graph, split(graph.num_snapshots, 1, PROTOCOLS["warm"]))
    make = catalogue.entry("models", config.model).load()
    model = make_model(
        make,
        graph.num_features,
        config.hidden,
        config.layers,
        outputs=task.outputs,
        seed=config.seed,
        **config.options.get("models", {}),
    ).double()
    losses = []
    for group in _groups_of_first_iteration(plan):
        snapshots = []
        for t in group:
            dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
            dense[graph.snapshots[t].rows(), graph.snapshots[t].indices.astype(np.int64)] = 1.0
            snapshots.append((DenseView(dense), torch.from_numpy(np.array(graph.features[t])).double()))
        predictions = run_model(model, snapshots)[0]
        if config["task"] == "regression":
            labels = torch.from_numpy(np.array(graph.targets[group.start : group.stop])).double()
            errors = (predictions[..., 0] - labels).square().mean(dim=1)
        else:
            errors = task.loss(predictions, group, slice(0, graph.num_nodes))
        losses.append(errors.mean() if plan.get("loss_at") == "all" else errors[-1])
    loss = sum(losses[1:], losses[0]) / len(losses)
    loss.backward()
    step = solo["exact"][case][0]
    assert step["loss"] == pytest.approx(loss.item(), rel=1e-10)
    wanted = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    _assert_close(step["gradients"], wanted, 1e-10)


def test_the_protocol_leaves_the_training_part_this_file_assumes() -> None:
    for dataset in ("growing", "sbm"):
        graph = _graph(dataset)
        assert graph.num_nodes == 23
        assert split(graph.num_snapshots, 1, PROTOCOLS["warm"]).train == range(12)
