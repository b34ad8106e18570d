"""Every way of running snapshots gives the plain loop's loss and gradients: each model, layers, task and loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import memory
from dtdg_lab.core.plans import SnapshotGroups
from dtdg_lab.engine.backprop import reference as plain
from dtdg_lab.engine.backprop import time_blocks as layer
from dtdg_lab.engine.backprop import time_blocks as stepwise
from dtdg_lab.engine.backprop.gradients import LearnedParameters
from dtdg_lab.engine.backprop.reference import HOW, GroupRunner, plain_loss
from dtdg_lab.engine.backprop.timeline import Timeline
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import Step, StepMarks
from dtdg_lab.engine.views import device_sequence
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.device_memory import USUAL_LIMITS
from dtdg_lab.kernels.parallel_map import parallel_map
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.tasks.base import Task
from dtdg_lab.testing.strategies import RecordingMarks
from dtdg_lab.training.memory import peak_bytes
from tests.factories import random_graph
from tests.gradients import double_model

NODES, SNAPSHOTS, FEATURES, HIDDEN, CLASSES = 19, 6, 3, 4, 3
TRAIN = range(5)
TASKS = ("regression", "classification", "link-concat", "link-dot")
# rows that may be stacked, and numbers in a step of a block: one snapshot and one block; two snapshots and blocks of 7
# nodes, which do not divide 19; all snapshots and blocks of 4 nodes
SIZES = {"whole": (1, 10**6), "some": (2 * NODES, 7 * HIDDEN), "fine": (10**6, 4 * HIDDEN)}
# every task and loss in the general case, what differs for the engine in the others
CASES = [("some", task, loss_at) for task in TASKS for loss_at in ("last", "all")]
CASES += [(size, *rest) for size in ("whole", "fine") for rest in (("regression", "last"), ("link-concat", "all"))]


@cache
def _graph(weighted: bool = False) -> DynamicGraph:
    """Six snapshots, the third without an edge, with self loops and classes that some nodes lack."""
    return random_graph(NODES, SNAPSHOTS, share=0.15, weighted=weighted, classes=CLASSES, empty=(2,), seed=5)


def _task(name: str, graph: DynamicGraph, dtype: torch.dtype = torch.float64) -> Task:
    kind, _, head = name.partition("-")
    options = {"link_head": head, "hidden": HIDDEN} if head else {}
    split = Split(TRAIN, range(5, 6), range(5, 6))
    return catalogue.entry("tasks", kind).load()(graph, split, dtype=dtype, **options)


def _gradients(model: DynamicModel) -> dict[str, Tensor | None]:
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def _run(model: str, layers: int, task: str, loss_at: str, *, weighted: bool = False) -> SequenceSegment:
    graph = _graph(weighted)
    made = _task(task, graph)
    sequence = DeviceSequence(graph, device="cpu", dtype=torch.float64, kernel="torch")
    return SequenceSegment(double_model(model, layers, outputs=made.outputs, seed=2), sequence, made, TRAIN, loss_at)


def _assert_equal_to_plain(run: SequenceSegment, how: Callable[[SequenceSegment], Tensor] | None = None) -> None:
    """Loss to 1e-12, gradients to 1e-10 of the largest; and the same bits again, once all is kept."""
    how = HOW[run.model.memory] if how is None else how
    loss = how(run)
    found = _gradients(run.model)
    run.model.zero_grad()
    again = how(run)
    assert again == loss
    for name, gradient in _gradients(run.model).items():
        assert (gradient is None and found[name] is None) or torch.equal(gradient, found[name]), name
    run.model.zero_grad()
    wanted = plain_loss(run)
    wanted.backward()
    assert float(loss) == pytest.approx(float(wanted.detach()), rel=1e-12)
    largest = max(float(p.grad.abs().max()) for p in run.model.parameters() if p.grad is not None)
    assert largest > 0
    for name, gradient in _gradients(run.model).items():
        mine = found[name]
        if gradient is None or mine is None:
            assert (gradient is None or not gradient.any()) and (mine is None or not mine.any()), name
            continue
        assert (mine - gradient).abs().max() <= 1e-10 * largest, name


def _set_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stacked, step = SIZES[name]
    monkeypatch.setitem(device_sequence.STACKED_ROWS, "cpu", stacked)
    monkeypatch.setitem(layer.STEP_NUMBERS, "cpu", step)


@pytest.mark.parametrize(("sizes", "task", "loss_at"), CASES)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("model", catalogue.names("models"))
def test_a_run_is_the_plain_loop(
    monkeypatch: pytest.MonkeyPatch, model: str, layers: int, sizes: str, task: str, loss_at: str
) -> None:
    _set_sizes(sizes, monkeypatch)
    _assert_equal_to_plain(_run(model, layers, task, loss_at))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("model", catalogue.names("models"))
def test_a_run_over_weighted_edges_is_the_plain_loop(monkeypatch: pytest.MonkeyPatch, model: str, sizes: str) -> None:
    _set_sizes(sizes, monkeypatch)
    _assert_equal_to_plain(_run(model, 2, "regression", "all", weighted=True))


@pytest.mark.parametrize("sizes", SIZES)
def test_the_sizes_of_this_file_make_other_blocks_and_stacks(monkeypatch: pytest.MonkeyPatch, sizes: str) -> None:
    """So that the tests above compare what they say."""
    _set_sizes(sizes, monkeypatch)
    sequence = DeviceSequence(_graph(), device="cpu", dtype=torch.float64, kernel="torch")
    stacks = [view.snapshots for view in sequence.stacks(TRAIN)]
    assert [t for stack in stacks for t in stack] == list(TRAIN)
    assert len(stacks) == {"whole": 5, "some": 3, "fine": 1}[sizes]
    run = _run("tgcn", 1, "regression", "all")
    block = Timeline(run, TRAIN).open(0, "forward")
    (spatial_output,) = run.model.facts.spatial
    inputs = [view.inputs for view in block.stacks[0]]
    crossing = layer.BoundaryState(run.model.initial_state(NODES))
    pieces = layer.Layer(run, 0, block, inputs, crossing, learning=True, spatial_output=spatial_output)._pieces()
    covered = [v for rows in pieces for v in range(rows.start, rows.stop)]
    assert covered == list(range(NODES))
    assert len(pieces) == {"whole": 1, "some": 3, "fine": 5}[sizes]


@pytest.mark.parametrize("loss_at", ["last", "all"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("model", catalogue.names("models"))
def test_a_run_step_by_step_is_the_plain_loop(model: str, layers: int, loss_at: str) -> None:
    _assert_equal_to_plain(_run(model, layers, "regression", loss_at), stepwise.add_gradients_stepwise)


def test_a_run_too_large_to_keep_goes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run("dcrnn", 1, "regression", "all")
    monkeypatch.setattr(plain, "add_gradients_stepwise", lambda run: "step by step")
    # K = 2: x, h and r * h and four walks of each are kept at once, and other things beside them
    least = len(TRAIN) * NODES * 5 * (FEATURES + 2 * HIDDEN) * 8
    for kept, fits in ((least, False), (3 * least, True)):
        limits = replace(USUAL_LIMITS, activation_bytes=kept)
        monkeypatch.setattr(run.sequence, "settings", replace(run.sequence.settings, limits=limits))
        assert (plain.add_gradients_plain(run) != "step by step") == fits


def test_a_memory_without_a_way_to_run_is_not_in_the_catalogue() -> None:
    for name in catalogue.names("models"):
        assert memory(name) in HOW


@pytest.mark.parametrize("model", ["tgcn", "evolvegcn-o", "dcrnn", "graphsage", "evolvegcn-h"])
def test_a_step_adds_its_groups_and_counts_them(model: str) -> None:
    """Two groups of three snapshots: the sum of their losses and gradients, on top of what is there."""
    graph = _graph()
    task = _task("regression", graph)
    sequence = DeviceSequence(graph, device="cpu", dtype=torch.float64, kernel="torch")
    groups = SnapshotGroups(np.array([0, 2]), np.array([3, 5]))
    one = double_model(model, 1, seed=2)
    runner = GroupRunner(one, sequence, task, groups, "last")
    for parameter in one.parameters():
        parameter.grad = torch.ones_like(parameter)
    marks = RecordingMarks()
    computed = runner.compute(Step(0, (0, 1), 2), marks)
    assert marks.phases == ["batch", "transfer"]
    assert (computed.groups, computed.vertex_snapshots) == (2, NODES * 6)
    other = double_model(model, 1, seed=2)
    losses = [plain_loss(SequenceSegment(other, sequence, task, part, "last")) for part in (range(3), range(2, 5))]
    sum(losses).backward()
    assert float(computed.loss_sum) == pytest.approx(sum(float(loss.detach()) for loss in losses), rel=1e-12)
    wanted = _gradients(other)
    for name, gradient in _gradients(one).items():
        added = torch.zeros(()) if wanted[name] is None else wanted[name]
        torch.testing.assert_close(gradient, 1 + added.expand_as(gradient), rtol=1e-10, atol=1e-10)


def test_a_rank_without_groups_computes_nothing() -> None:
    run = _run("tgcn", 1, "regression", "all")
    groups = SnapshotGroups(np.array([0]), np.array([3]))
    computed = GroupRunner(run.model, run.sequence, run.task, groups, "last").compute(Step(0, (), 1), StepMarks())
    assert (computed.loss_sum, computed.groups, computed.vertex_snapshots) == (0.0, 0, 0)


@pytest.mark.parametrize("model", catalogue.names("models"))
def test_single_precision_is_close(model: str) -> None:
    graph = _graph()
    task = _task("regression", graph, torch.float32)
    sequence = DeviceSequence(graph, device="cpu", dtype=torch.float32, kernel="auto")
    narrow = double_model(model, 2, seed=2).float()
    loss = float(HOW[narrow.memory](SequenceSegment(narrow, sequence, task, TRAIN, "all")))
    run = _run(model, 2, "regression", "all")
    assert loss == pytest.approx(float(plain_loss(run).detach()), rel=1e-4)


# threads


@pytest.fixture
def threads() -> Iterator[None]:
    """Three threads of torch, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3  # as it was found
    torch.set_num_threads(before)


@pytest.mark.parametrize("task", ["regression", "link-concat"])
@pytest.mark.parametrize("model", catalogue.names("models"))
def test_threads_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, model: str, task: str
) -> None:
    _set_sizes("some", monkeypatch)
    alone, together = _run(model, 2, task, "all"), _run(model, 2, task, "all")
    loss = HOW[alone.model.memory](alone)
    request.getfixturevalue("threads")
    assert HOW[together.model.memory](together) == loss
    others = _gradients(together.model)
    for name, gradient in _gradients(alone.model).items():
        other = others[name]
        if gradient is None or other is None:
            assert gradient is other, name
        elif model == "dcrnn":  # it runs by torch's own products, which some processors sum differently by threads
            torch.testing.assert_close(gradient, other, rtol=1e-12, atol=1e-14, msg=name)
        else:
            assert torch.equal(gradient, other), name


@pytest.mark.usefixtures("threads")
def test_pieces_run_at_once_with_one_thread_each_and_come_in_order() -> None:
    meeting = threading.Barrier(3, timeout=20)

    def work(item: int) -> tuple[int, int, bool]:
        meeting.wait()
        return item, torch.get_num_threads(), torch.is_grad_enabled()

    with torch.no_grad():
        assert parallel_map(work, [5, 3, 4], device="cpu") == [(5, 1, True), (3, 1, True), (4, 1, True)]


@pytest.mark.usefixtures("threads")
def test_a_piece_that_fails_is_told_and_threads_are_given_back() -> None:
    def work(item: int) -> int:
        if item == 1:
            raise ValueError("no")
        return item

    with pytest.raises(ValueError, match="no"):
        parallel_map(work, range(6), device="cpu")


@pytest.mark.usefixtures("threads")
def test_the_probe_of_peak_memory_sees_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_sizes("some", monkeypatch)
    run = _run("wdgcn", 1, "regression", "all")
    HOW["per_vertex"](run)
    block = len(TRAIN) * 7 * 4 * HIDDEN * 8  # the gates of the LSTM, kept for backward
    assert peak_bytes(lambda: HOW["per_vertex"](run) and None) > block


def test_a_parameter_that_nothing_reaches_keeps_no_gradient() -> None:
    one, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    learned = LearnedParameters(torch.nn.ParameterList([one, other]))
    x = torch.ones(2, requires_grad=True)
    for _ in range(2):
        gradients, (of_x, of_nothing) = learned.gradients([(3 * one * x).sum()], [None], [x, torch.ones(2)])
        learned.add(gradients)
    assert other.grad is None
    assert of_nothing is None
    assert of_x.tolist() == [3, 3]
    assert one.grad.tolist() == [6, 6]
