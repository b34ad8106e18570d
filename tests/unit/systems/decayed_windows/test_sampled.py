"""Windows with sampled neighbours: what is drawn, what a part holds, and that parts together train on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import memory
from dtdg_lab.core.errors import DataError, PlanError, UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.engine.minibatch.neighbour_sampling import Drawing, SampledPart, sampled_edges, sampling_key
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.kernels.spmm import ScaledOperator
from dtdg_lab.models.base import DynamicModel, make_model
from dtdg_lab.systems.decayed_windows.sampled import SampledWindows, SampledWindowStrategy
from dtdg_lab.tasks.classification import Classification
from dtdg_lab.tasks.regression import Regression
from dtdg_lab.testing.strategies import RecordingMarks
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("one_thread")
NODES, SNAPSHOTS, FEATURES = 23, 7, 3
TRAIN, WINDOW, SEED = range(1, 6), 3, 4
EVERYBODY = np.arange(NODES)


def _graph(*, seed: int = 3, weighted: bool = False, static: bool = False, share: float = 0.2) -> DynamicGraph:
    """Random directed edges with loops; node 0 is isolated, snapshot 2 is empty, node 1 pulls from most."""
    draw = np.random.default_rng(seed)
    snapshots = []
    for t in range(SNAPSHOTS):
        edges = draw.random((NODES, NODES)) < (0.0 if t == 2 else share)
        edges[1] |= t != 2
        edges[0], edges[:, 0] = False, False
        weights = draw.random(int(edges.sum()), dtype=np.float32) if weighted else None
        indptr = np.concatenate([[0], np.cumsum(edges.sum(1))])
        snapshots.append(Snapshot(indptr, np.nonzero(edges)[1].astype(np.int32), weights))
    shape = (SNAPSHOTS, NODES)
    features = draw.random((*(shape[1:] if static else shape), FEATURES), dtype=np.float32)
    labels = draw.random(shape, dtype=np.float32)
    classes = draw.integers(-1, 3, shape).astype(np.int16)
    return DynamicGraph(
        "small", tuple(snapshots), features, labels, labels, source="this test", edge_life=1, classes=classes
    )


def _row(edges: Any, place: int) -> list[int]:
    return edges.indices[edges.indptr[place] : edges.indptr[place + 1]].tolist()


# what is drawn


@pytest.mark.parametrize("fanout", [1, 3, 8])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_few_different_neighbours_of_each_vertex(fanout: int, weighted: bool) -> None:
    snapshot = _graph(weighted=weighted).snapshots[1]
    drawn = sampled_edges(snapshot, EVERYBODY, fanout=fanout, key=sampling_key(0, 0, 1, 0))
    assert drawn.weights is not None
    for v in range(NODES):
        here = slice(drawn.indptr[v], drawn.indptr[v + 1])
        every = slice(snapshot.indptr[v], snapshot.indptr[v + 1])
        found, all_of_them = drawn.indices[here].tolist(), snapshot.indices[every].tolist()
        assert len(found) == min(fanout, len(all_of_them))
        assert found == sorted(set(found))
        assert set(found) <= set(all_of_them)
        weight = dict(zip(all_of_them, [1.0] * 99 if not weighted else snapshot.weights[every].tolist(), strict=False))
        grown = [weight[u] * len(all_of_them) / len(found) for u in found]
        np.testing.assert_allclose(drawn.weights[here], grown, rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_all_neighbours_where_there_are_few(weighted: bool) -> None:
    snapshot = _graph(weighted=weighted).snapshots[3]
    drawn = sampled_edges(snapshot, EVERYBODY, fanout=NODES, key=1)
    np.testing.assert_array_equal(drawn.indptr, snapshot.indptr)
    np.testing.assert_array_equal(drawn.indices, snapshot.indices)
    if weighted:
        np.testing.assert_array_equal(drawn.weights, snapshot.weights)
    else:
        assert drawn.weights is None
    none = sampled_edges(snapshot, EVERYBODY[:0], fanout=2, key=1)
    assert (none.indptr.tolist(), len(none.indices)) == ([0], 0)


def test_what_a_vertex_draws_is_its_own() -> None:
    snapshot = _graph().snapshots[1]
    drawn_by = sampling_key(0, 5, 1, 0)
    together = sampled_edges(snapshot, EVERYBODY, fanout=3, key=drawn_by)
    some = np.array([20, 1, 7])
    apart = sampled_edges(snapshot, some, fanout=3, key=drawn_by)
    assert [_row(apart, place) for place in range(3)] == [_row(together, v) for v in some]


def test_every_epoch_snapshot_layer_and_seed_draws_anew() -> None:
    snapshot = _graph().snapshots[1]
    keys = [sampling_key(*of) for of in ((0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))]
    drawn = {tuple(sampled_edges(snapshot, EVERYBODY, fanout=3, key=key).indices) for key in keys}
    assert len(drawn) == len(keys)


@pytest.mark.slow
def test_all_choices_are_equally_likely() -> None:
    """Each pair of five neighbours, over 4,000 draws for each of two nodes; standard deviation 0.0034."""
    snapshot = Snapshot(np.array([0, 5, 10, 10, 10, 10, 10]), np.array([1, 2, 3, 4, 5, 0, 2, 3, 4, 5], np.int32))
    pairs = np.zeros((2, 6, 6))
    draws = 4000
    for number in range(draws):
        drawn = sampled_edges(snapshot, np.arange(2), fanout=2, key=sampling_key(1, number, 0, 0))
        for v in range(2):
            pairs[v][tuple(_row(drawn, v))] += 1 / draws
    assert (pairs > 0).sum() == 20
    np.testing.assert_allclose(pairs[pairs > 0], 0.1, atol=5 * np.sqrt(0.1 * 0.9 / draws))


@pytest.mark.parametrize("kind", thinned(["gcn", "mean"], [1]))
def test_pulls_of_features_are_right_on_average(kind: str) -> None:
    graph = _graph(weighted=True)
    settings = OperatorSettings(dtype=torch.float64, norm="in_out")
    whole = DeviceSequence(graph, device="cpu", dtype=torch.float64, kernel="torch", norm="in_out").view(1)
    wanted = whole.pull(whole.inputs, kind)
    draws, total, squares = 300, torch.zeros_like(wanted), torch.zeros_like(wanted)
    task, model = _task(graph), _model("graphsage", 1)
    layout = SampledWindowStrategy(model, graph, task, _windows(1, fanout=3), settings, counts_group=True)
    for epoch in range(draws):
        layout.compute(layout.epoch(epoch)[0], StepMarks())
        space = layout._sequences[0].view(1)
        found = space.pull(space.inputs, kind)[:NODES]
        total, squares = total + found / draws, squares + found.square() / draws
    spread = (squares - total.square()).clamp(min=0).sqrt() / draws**0.5
    assert float(spread.max()) > 0
    assert bool(((total - wanted).abs() <= 5 * spread + 1e-6).all())


# what a part holds


def _drawing(layers: int = 2, layer_hops: int = 1, *, lasting: bool = True, fanout: int = 2) -> Drawing:
    return Drawing(TRAIN, layers, layer_hops, lasting, fanout, SEED, 2)


def _drawn(graph: DynamicGraph, drawing: Drawing, t: int, v: int, layer: int) -> set[int]:
    drawn_by = sampling_key(SEED, 2, t, layer)
    return set(_row(sampled_edges(graph.snapshots[t], np.array([v]), fanout=drawing.fanout, key=drawn_by), 0))


def _levels(graph: DynamicGraph, drawing: Drawing, own: list[int], t: int) -> list[list[int]]:
    """The nodes that each hop adds, by sets."""
    levels, known = [sorted(own)], set(own)
    hops = drawing.layers * drawing.layer_hops
    for hop in range(1, hops + 1):
        layer = drawing.layers - 1 - (hop - 1) // drawing.layer_hops
        lasting = drawing.lasting and hop <= hops - drawing.layer_hops
        times = TRAIN if lasting else [t]
        found = {u for v in known for time in times for u in _drawn(graph, drawing, time, v, layer)} - known
        levels.append(sorted(found))
        known |= found
    return levels


@pytest.mark.parametrize("lasting", [True, False], ids=["lasting", "by snapshot"])
@pytest.mark.parametrize(("layers", "layer_hops"), [(1, 1), (2, 1), (1, 2), (2, 2), (3, 1)])
def test_a_part_holds_what_its_hops_drew(layers: int, layer_hops: int, lasting: bool) -> None:
    graph, own = _graph(share=0.1), [3, 5, 17]
    drawing = _drawing(layers, layer_hops, lasting=lasting)
    part = SampledPart(graph, np.array(own), drawing)
    for t in (*TRAIN, *TRAIN):  # asked again, it is the same
        held, levels = part.snapshot(t), _levels(graph, drawing, own, t)
        assert held.vertices.tolist() == [v for level in levels for v in level]
        assert held.bounds.tolist() == np.cumsum([len(level) for level in levels]).tolist()
        for layer, edges in enumerate(held.edges):
            rows = held.bounds[(layers - layer) * layer_hops - 1]
            assert len(edges.indptr) - 1 == rows
            assert held.rows(layer) == held.bounds[(layers - layer) * layer_hops]
            for row in range(rows):
                assert set(held.vertices[_row(edges, row)]) == _drawn(graph, drawing, t, held.vertices[row], layer)
        assert held.num_edges == sum(len(edges.indices) for edges in held.edges)


def test_only_the_first_layers_rows_change_with_the_snapshot() -> None:
    graph = _graph(share=0.05)
    part = SampledPart(graph, np.array([3, 5]), _drawing(3, fanout=1))
    held = [part.snapshot(t) for t in TRAIN]
    assert len({of.rows(1) for of in held}) == len({of.rows(2) for of in held}) == 1
    assert len({of.rows(0) for of in held}) > 1


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(PlanError, match="fanout=0"):
        _drawing(fanout=0)
    with pytest.raises(PlanError, match="snapshot 0 is not among"):
        SampledPart(_graph(), np.array([2]), _drawing()).snapshot(0)


# windows


def _partition(parts: int) -> Partition:
    owner = np.random.default_rng(5).permutation(np.arange(NODES) % parts)
    return Partition(owner.astype(np.int32), parts)


def _windows(parts: int, *, fanout: int = NODES, length: int = WINDOW, own: range | None = None) -> SampledWindows:
    return SampledWindows(TRAIN, length, fanout, SEED, _partition(parts), range(parts) if own is None else own)


def test_windows_slide_by_one_and_are_shorter_at_the_beginning() -> None:
    windows = _windows(2)
    assert [windows.of(number) for number in range(5)] == [
        range(1, 2),
        range(1, 3),
        range(1, 4),
        range(2, 5),
        range(3, 6),
    ]
    assert _windows(2, length=5).of(4) == TRAIN
    with pytest.raises(DataError, match="window=6 exceeds the training split of 5 snapshots"):
        _windows(2, length=6)


def test_every_epoch_deals_all_vertices_anew() -> None:
    windows, again = _windows(4), _windows(4)
    dealt = [windows.dealt(epoch) for epoch in range(4)]
    assert dealt == [again.dealt(epoch) for epoch in range(4)]
    assert len(set(dealt)) == 4
    assert all(sorted(of.counts) == sorted(windows.partition.counts) for of in dealt)


# training


def _model(name: str, layers: int, *, outputs: int = 1, **more: Any) -> DynamicModel:
    make = catalogue.entry("models", name).load()
    model: DynamicModel = make_model(make, FEATURES, 4, layers, outputs=outputs, seed=1, **more)
    return model.double()


def _task(graph: DynamicGraph, kind: Any = Regression) -> Any:
    return kind(graph, Split(TRAIN, range(0), range(6, 7)), dtype=torch.float64)


def _taken(model: DynamicModel) -> dict[str, Tensor]:
    gradients = {}
    for name, parameter in model.named_parameters():
        gradients[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        parameter.grad = None
    return gradients


Step = tuple[float, dict[str, Tensor]]


def _by_layers(
    graph: DynamicGraph, model: DynamicModel, task: Any, window: range, *, fanout: int, epoch: int, **settings: Any
) -> Step:
    """A window as models are written down: all nodes, and for each layer a graph of what was drawn for it."""
    sequences = []
    for layer in range(model.layers):
        snapshots = []
        for t, snapshot in enumerate(graph.snapshots):
            of = sampled_edges(snapshot, EVERYBODY, fanout=fanout, key=sampling_key(SEED, epoch, t, layer))
            weights = np.ones(len(of.indices), np.float32) if of.weights is None else of.weights
            snapshots.append(Snapshot(of.indptr, of.indices, weights))
        drawn = DynamicGraph(
            "drawn", tuple(snapshots), graph.features, graph.targets, graph.persistence, source="", edge_life=1
        )
        sequences.append(DeviceSequence(drawn, device="cpu", dtype=torch.float64, kernel="torch", **settings))
    state = model.initial_state(NODES)
    for t in window:
        spaces = [sequence.view(t) for sequence in sequences]
        seen = SimpleNamespace(layer=spaces.__getitem__)
        h, state = model.snapshot(seen, spaces[0].inputs, state)  # type: ignore[arg-type]
    loss = task.loss(model.readout(h).unsqueeze(0), window[-1:], slice(0, NODES)).sum()
    loss.backward()
    return float(loss.detach()), _taken(model)


def _layout(graph: DynamicGraph, model: DynamicModel, task: Any, parts: int, **given: Any) -> SampledWindowStrategy:
    settings = OperatorSettings(dtype=torch.float64, **given.pop("settings", {}))
    return SampledWindowStrategy(model, graph, task, _windows(parts, **given), settings, counts_group=True)


def _steps(layout: SampledWindowStrategy, epoch: int = 0) -> list[Step]:
    steps = []
    for work in layout.epoch(epoch):
        computed = layout.compute(work, StepMarks())
        assert (computed.groups, work.total_groups) == (1, 1)
        assert computed.vertex_snapshots == NODES * min(work.iteration + 1, WINDOW)
        steps.append((float(computed.loss_sum), _taken(layout._model)))
    return steps


def _assert_equal(found: Step, wanted: Step) -> None:
    assert found[0] == pytest.approx(wanted[0], rel=1e-10)
    largest = max(float(gradient.abs().max()) for gradient in wanted[1].values())
    assert largest > 0
    for name, gradient in wanted[1].items():
        apart = float((found[1][name] - gradient).abs().max())
        assert apart <= 1e-10 * largest, f"{name}: {apart:.2e} apart"


CARRIED = ("per_vertex", "weights", "none")
MODELS = [name for name in catalogue.names("models") if memory(name) in CARRIED]
CASES = [(name, layers, {}) for name in MODELS for layers in (1, 2)] + [("tgcn", 2, {"gc_layers": 2}), ("tgcn", 3, {})]


@pytest.mark.parametrize(("name", "layers", "more"), thinned(CASES, (0, 2, 6, 10, 12, 14, 15)), ids=str)
def test_parts_together_train_on_what_was_drawn(name: str, layers: int, more: dict[str, Any]) -> None:
    """With two neighbours each, weights are exact in single precision, and degrees of what was drawn the true ones."""
    graph, model = _graph(share=0.1), _model(name, layers, **more)
    task = _task(graph)
    wanted = [_by_layers(graph, model, task, _windows(1).of(number), fanout=2, epoch=3) for number in range(len(TRAIN))]
    for parts in (1, 3):
        for found, step in zip(_steps(_layout(graph, model, task, parts, fanout=2), 3), wanted, strict=True):
            _assert_equal(found, step)


@pytest.mark.parametrize("name", ["tgcn", "gatlstm", "evolvegcn-o", "graphsage"])
@pytest.mark.parametrize("settings", [{}, {"norm": "in_out", "self_loops": False}], ids=str)
def test_with_all_neighbours_it_is_the_window_itself(name: str, settings: dict[str, Any]) -> None:
    graph, model = _graph(weighted=True, static=True), _model(name, 2)
    wanted = [
        _by_layers(graph, model, _task(graph), _windows(1).of(number), fanout=NODES, epoch=0, **settings)
        for number in range(len(TRAIN))
    ]
    for found, step in zip(_steps(_layout(graph, model, _task(graph), 3, settings=settings)), wanted, strict=True):
        _assert_equal(found, step)


def test_classes_where_some_parts_have_no_labels() -> None:
    graph, model = _graph(), _model("wdgcn", 1, outputs=3)
    one, many = (_steps(_layout(graph, model, _task(graph, Classification), parts, fanout=3)) for parts in (1, 7))
    for found, step in zip(many, one, strict=True):
        _assert_equal(found, step)


@pytest.mark.parametrize("name", ["tgcn", "graphsage"])
def test_what_windows_share_is_drawn_and_aggregated_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    pulled: list[int] = []
    take, pull = SampledPart.snapshot, ScaledOperator.apply_once
    monkeypatch.setattr(SampledPart, "snapshot", lambda self, t: drawn.append(t) or take(self, t))
    monkeypatch.setattr(ScaledOperator, "apply_once", lambda self, x: pulled.append(1) or pull(self, x))
    graph = _graph()
    layout = _layout(graph, _model(name, 1), _task(graph), 2, fanout=2)
    for epoch in (0, 0, 1):  # the same epoch asked for again begins before what is kept
        drawn.clear(), pulled.clear()
        for work in layout.epoch(epoch):
            layout.compute(work, StepMarks())
            window = layout._windows.of(work.iteration)
            needed = window if name == "tgcn" else window[-1:]
            assert all([*sequence._views] == [*needed] for sequence in layout._sequences)
        assert sorted(drawn) == sorted([*TRAIN, *TRAIN])
        assert len(pulled) == 2 * len(TRAIN)


def test_batches_are_taken_down() -> None:
    graph = _graph()
    layout = _layout(graph, _model("tgcn", 1), _task(graph), 2, fanout=2)
    marks = RecordingMarks()
    layout.compute(layout.epoch(0)[3], marks)
    assert marks.phases[:2] == ["batch", "transfer"]
    ((target, first, full, chunks, rows, edges, took_s, sampled),) = layout.rows()["batches"]
    assert (target, first, full, chunks) == (4, 2, 3, [None] * 3)
    held = [sequence.part.snapshot(t) for sequence in layout._sequences for t in range(2, 5)]
    assert rows == sum(len(of.vertices) for of in held) > 3 * NODES
    assert edges == sum(sampled) == sum(of.num_edges for of in held) > 0
    assert sampled[0] == sum(sequence.part.snapshot(2).num_edges for sequence in layout._sequences)
    assert took_s > 0
    assert layout.rows() == {"batches": []}


def test_links_and_memories_beyond_the_part_are_refused() -> None:
    graph = _graph()
    link = SimpleNamespace(per_vertex=False, name="link")
    with pytest.raises(UnsupportedError, match=r"task='link'.*full-history"):
        _layout(graph, _model("tgcn", 1), link, 2)
    for name in ("dcrnn", "evolvegcn-h"):
        with pytest.raises(UnsupportedError, match="supports per_vertex, weights, none"):
            _layout(graph, _model(name, 1), _task(graph), 2)
    layout = _layout(graph, _model("tgcn", 1), _task(graph), 2)
    layout.compute(layout.epoch(0)[0], StepMarks())
    sequence = layout._sequences[0]
    with pytest.raises(UnsupportedError, match="full-history"):
        sequence.join(torch.zeros(1, 2, 1))
    assert sequence.any_rank(True)
    assert sequence.has_turn(3)
