"""Losses and scores of evaluations, against dense matrices; the test part is scored once, at the end."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import TestPartError, UnsupportedError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.sealed import seal_of
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.testing.models import run_model
from dtdg_lab.testing.training import train_in_memory
from dtdg_lab.training import work_reports
from dtdg_lab.training.build import build
from tests.factories import small_graph
from tests.small_training import CLASSES, LINK, config_of, train

pytestmark = pytest.mark.usefixtures("one_thread")
# 39 labelled snapshots: 12 train, 3 validate, 24 test. Groups of 4 start at 9 of the 12: 5 steps an epoch on 2 parts.
STEPS = 5


def _dense(graph: DynamicGraph) -> list[tuple[DenseView, torch.Tensor]]:
    snapshots = []
    for t in range(graph.num_snapshots):
        dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
        snapshot = graph.snapshots[t]
        dense[snapshot.rows(), snapshot.indices.astype(np.int64)] = 1.0
        snapshots.append((DenseView(dense), torch.from_numpy(np.array(graph.features[t])).double()))
    return snapshots


def _by_hand(config: RunConfig, graph: DynamicGraph, trained: Any) -> dict[str, float]:
    """Mean squared errors of each split, from dense matrices, starting at zero at 0 or at each split's start."""
    snapshots = _dense(graph)
    targets = torch.from_numpy(np.array(graph.targets)).double()
    built = build(config, graph, SoloGroup())
    built.model.load_state_dict(trained.parameters)
    model = built.model.double()
    splits = {"train": range(12), "validation": range(12, 15), "test": range(15, 39)}
    with torch.no_grad():
        if config.protocol == "warm":
            errors = (run_model(model, snapshots)[0][..., 0] - targets).square().mean(dim=1)
            return {name: errors[list(part)].mean().item() for name, part in splits.items()}
        cold = {name: run_model(model, snapshots[part.start : part.stop])[0][..., 0] for name, part in splits.items()}
        return {
            name: (cold[name] - targets[part.start : part.stop]).square().mean().item() for name, part in splits.items()
        }


@pytest.mark.parametrize("protocol", ["warm", "cold"])
@pytest.mark.parametrize("model", ["tgcn", "evolvegcn-o"])
def test_losses_are_those_computed_by_hand(tmp_path: Path, protocol: str, model: str) -> None:
    config = config_of(model=model, layers=2, protocol=protocol, dtype="float64")
    done = train(tmp_path, config)
    found = {row["split"]: row["loss"] for row in done.recorder.tables["evaluations"] if row["step"] == 2 * STEPS}
    wanted = _by_hand(config, small_graph(), done)
    assert found == pytest.approx(wanted, rel=1e-10)


def test_baselines_are_those_computed_by_hand(tmp_path: Path) -> None:
    graph, splits = small_graph(), {"train": range(12), "validation": range(12, 15), "test": range(15, 39)}
    targets, persistence = (np.array(a, np.float64) for a in (graph.targets, graph.persistence))
    mean = sum(targets[t].sum() for t in range(12)) / (12 * graph.num_nodes)
    for row in train(tmp_path).recorder.tables["evaluations"]:
        part = splits[row["split"]]
        today = np.mean([((persistence[t] - targets[t]) ** 2).mean() for t in part])
        constant = np.mean([((mean - targets[t]) ** 2).mean() for t in part])
        assert row["persistence_loss"] == pytest.approx(today, rel=1e-12)
        assert row["mean_loss"] == pytest.approx(constant, rel=1e-12)
        assert row["snapshots"] == len(part)


def test_the_test_part_is_refused_before_the_end() -> None:
    built = build(config_of(), small_graph(), SoloGroup())
    for splits in (("test",), ("train", "test")):
        with pytest.raises(TestPartError, match="when the run is over"):
            built.evaluator.evaluate(built.model, splits)
    assert built.evaluator.evaluate(built.model, ("test",), final=True)[0].snapshots == 24


@pytest.mark.parametrize("protocol", ["dynahb-2024", "flare-2026"])
def test_a_protocol_without_validation_trains_and_ends(tmp_path: Path, protocol: str) -> None:
    done = train(tmp_path, config_of(protocol=protocol))
    assert [row["split"] for row in done.recorder.tables["evaluations"]] == ["train", "train", "test"]
    (parts,) = done.recorder.events("parts")
    assert parts["data"].keys() == {"train", "test"}


def test_norm_and_self_loops_reach_the_convolution() -> None:
    losses = set()
    for norm, self_loops in itertools.product(("in", "in_out"), (True, False)):
        built = build(config_of(norm=norm, self_loops=self_loops), small_graph(), SoloGroup())
        (row,) = built.evaluator.evaluate(built.model, ("train",))
        built.gradients.zero()
        losses |= {row.loss, float(built.strategy.compute(built.strategy.epoch(0)[0], StepMarks()).loss_sum)}
    assert len(losses) == 8  # training and evaluation, each in four ways


@pytest.mark.slow
def test_evaluation_leaves_gradients_and_parameters_alone(tmp_path: Path) -> None:
    often, seldom = train(tmp_path, config_of(epochs=4)), train(tmp_path, config_of(epochs=4, evaluate_every=100))
    assert often.losses == seldom.losses
    assert all(torch.equal(tensor, seldom.parameters[name]) for name, tensor in often.parameters.items())


# tasks


TASKS = [LINK, {**LINK, "link_head": "dot", "negatives": 2}, CLASSES]


def _defined(metrics: dict[str, float | None]) -> dict[str, float]:
    return {name: -1.0 if value is None else value for name, value in metrics.items()}


@pytest.mark.parametrize("protocol", ["warm", "cold"])
@pytest.mark.parametrize("settings", TASKS, ids=str)
def test_scores_of_tasks_are_those_of_dense_matrices(tmp_path: Path, settings: dict[str, Any], protocol: str) -> None:
    """What the task says of predictions is tested by itself; here, that it is asked about the right ones."""
    config = config_of(**settings, protocol=protocol, dtype="float64", epochs=1)
    graph = load_for(config)
    done = train_in_memory(config, graph, tmp_path / "last.pt")
    built, snapshots = build(config, graph, SoloGroup()), _dense(graph)
    built.model.load_state_dict(done.parameters)
    rows = {row["split"]: row for row in done.recorder.tables["evaluations"][-3:]}
    assert rows.keys() == {"train", "validation", "test"}
    for part, row in rows.items():
        where = getattr(built.split, part)
        start = 0 if protocol == "warm" else where.start
        with torch.no_grad():
            z = run_model(built.model, snapshots[start : where.stop])[0][where.start - start :]
        every = slice(0, graph.num_nodes)
        with seal_of(built.sequence.graph).opened():
            sums = [built.task.measure(one, t, every, part).numpy() for t, one in zip(where, z, strict=True)]
            wanted = built.task.scores(part, np.array(sums))
        assert row["loss"] == pytest.approx(wanted.loss, rel=1e-10)
        found = {name: row["metrics"][name] for name in wanted.metrics}  # evaluations add intervals
        assert _defined(found) == pytest.approx(_defined(wanted.metrics), rel=1e-10)
        assert (row["persistence_loss"], row["mean_loss"]) == (wanted.persistence_loss, wanted.mean_loss)


@pytest.mark.parametrize("settings", TASKS, ids=str)
def test_the_first_loss_of_a_task_is_plain_autograd_s(settings: dict[str, Any]) -> None:
    config = config_of(system="single", parts=1, dtype="float64", **settings)
    graph = load_for(config)
    built, other = (build(config, graph, SoloGroup()) for _ in "ab")
    built.gradients.zero()
    computed = built.strategy.compute(built.strategy.epoch(0)[0], StepMarks())
    train = other.split.train
    z = run_model(other.model, _dense(graph)[: train.stop])[0]
    loss = other.task.loss(z, train, slice(0, graph.num_nodes)).mean()
    wanted = torch.autograd.grad(loss, list(other.model.parameters()))
    assert float(computed.loss_sum) == pytest.approx(loss.item(), rel=1e-10)
    for (name, parameter), gradient in zip(built.model.named_parameters(), wanted, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-8, atol=1e-12), name


def _with_holes(settings: dict[str, Any], holes: tuple[int, ...]) -> DynamicGraph:
    """The task's graph, without labelled items at some snapshots."""
    graph = load_for(config_of(**settings))
    if settings["task"] == "link":
        nothing = type(graph.following[0])(np.zeros(graph.num_nodes + 1, np.int64), np.zeros(0, np.int32))
        following = tuple(nothing if t in holes else snapshot for t, snapshot in enumerate(graph.following))
        return dataclasses.replace(graph, following=following)
    classes = np.array(graph.classes)
    classes[list(holes)] = -1
    return dataclasses.replace(graph, classes=classes)


@pytest.mark.parametrize("model", ["tgcn", "evolvegcn-o", "graphsage", "dcrnn"])
@pytest.mark.parametrize("settings", [LINK, CLASSES], ids=str)
def test_the_step_s_loss_is_that_of_evaluations(settings: dict[str, Any], model: str) -> None:
    """Snapshots without labelled items count in neither mean."""
    config = config_of(system="single", parts=1, dtype="float64", model=model, **settings)
    built = build(config, _with_holes(settings, (1, 4, 5, 11)), SoloGroup())
    (row,) = built.evaluator.evaluate(built.model, ("train",))
    assert (row.snapshots, len(built.split.train)) == (8, 12)
    built.gradients.zero()
    computed = built.strategy.compute(built.strategy.epoch(0)[0], StepMarks())
    assert float(computed.loss_sum) == pytest.approx(row.loss, rel=1e-10)


@pytest.mark.parametrize("loss_at", ["last", "all"])
@pytest.mark.parametrize("settings", [LINK, CLASSES], ids=str)
def test_a_group_without_labelled_items_has_loss_zero(settings: dict[str, Any], loss_at: str) -> None:
    config = config_of(parts=1, dtype="float64", loss_at=loss_at, **settings)
    built = build(config, _with_holes(settings, (0, 1, 2, 3)), SoloGroup())
    built.gradients.zero()
    losses = [float(built.strategy.compute(work, StepMarks()).loss_sum) for work in built.strategy.epoch(0)[:2]]
    assert losses[0] == 0
    assert losses[1] > 0


@pytest.mark.slow
def test_communities_are_learned_better_than_guessed(tmp_path: Path) -> None:
    config = config_of(**CLASSES, epochs=15, learning_rate=0.05).replace(generated_nodes=60, generated_edges=250)
    done = train_in_memory(config, load_for(config), tmp_path / "last.pt")
    first, last = (done.recorder.tables["evaluations"][place] for place in (0, -3))
    assert first["split"] == last["split"] == "train"
    assert last["loss"] < 0.8 * first["loss"]
    assert last["metrics"]["accuracy"] > last["metrics"]["majority_accuracy"] + 0.1


@pytest.mark.slow
def test_links_are_learned_better_than_guessed(tmp_path: Path) -> None:
    done = train(tmp_path, config_of(**LINK, epochs=15, learning_rate=0.05))
    train_row, *others = done.recorder.tables["evaluations"][-3:]
    assert train_row["loss"] < 0.95 * train_row["mean_loss"]
    assert all(row["metrics"]["auc"] > 0.6 for row in (train_row, *others))


def test_a_graph_that_cannot_serve_the_task_is_refused() -> None:
    bare = dataclasses.replace(small_graph(), following=None)
    with pytest.raises(UnsupportedError, match=r"task='link'.*serves regression\."):
        build(config_of(**LINK), bare, SoloGroup())
    with pytest.raises(UnsupportedError, match=r"task='classification'.*serves regression, link\."):
        build(config_of(**CLASSES), small_graph(), SoloGroup())
    with pytest.raises(UnsupportedError, match="classification"):
        config_of(task="classification")  # the catalogue knows before any data is loaded


@pytest.mark.parametrize("protocol", ["warm", "cold"])
def test_progress_counts_every_snapshot_that_is_run(protocol: str) -> None:
    calls: list[tuple[int, int]] = []
    built = build(config_of(protocol=protocol), small_graph(), SoloGroup())
    built.evaluator.evaluate(built.model, ("train", "validation"), progress=lambda *call: calls.append(call))
    assert calls == [(done, 15) for done in range(1, 16)]


def test_a_long_evaluation_is_reported_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_reports, "QUIET_S", 0.0)
    monkeypatch.setattr(work_reports, "REPORT_EVERY_S", 0.0)
    events = train(tmp_path).recorder.events("between_steps")
    works = [(event["step"], event["data"]["what"]) for event in events]
    assert {(STEPS, "Evaluating"), (STEPS, "Measuring the memory of a step"), (2 * STEPS, "Evaluating")} <= {*works}
    for step in (STEPS, 2 * STEPS):
        assert [what for at, what in works if at == step][-1] == ""
