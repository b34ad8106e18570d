"""Mini-batches with sampled neighbours: what they draw and read, and that training on them is training on the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import memory
from dtdg_lab.core.errors import ConfigError, DataError, PlanError
from dtdg_lab.engine.backprop import reference as grouped
from dtdg_lab.engine.minibatch import target_sequence
from dtdg_lab.engine.minibatch.blocks import BlockShape, block_shape
from dtdg_lab.engine.minibatch.sampled_batches import (
    BatchSampler,
    SampledBatch,
    SeedBatches,
    fanouts_of,
    rounds_of,
    stretches_of,
)
from dtdg_lab.engine.minibatch.target_sequence import TargetRun, TargetSequence, add_gradients, target_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.tasks.classification import Classification
from dtdg_lab.tasks.regression import Regression
from tests.factories import random_graph
from tests.gradients import (
    assert_equal_gradients,
    cross_entropy,
    double_model,
    on_the_whole,
    squared_error,
    taken_gradients,
)

NODES, SNAPSHOTS, FEATURES, HIDDEN, LENGTH = 40, 7, 3, 4, 3
TRAIN, ALL = range(1, 6), 10**6
MODELS = [name for name in catalogue.names("models") if memory(name) in ("per_vertex", "weights", "none")]
SEEDS = np.sort(np.random.default_rng(5).permutation(NODES)[:23])
DOUBLE = OperatorSettings(dtype=torch.float64)


def _graph(*, share: float = 0.06, **more: Any) -> DynamicGraph:
    return random_graph(NODES, SNAPSHOTS, share=share, classes=3, empty=(3,), isolated=(0,), **more)


def _batches(size: int = 5, *, seed: int = 0, part: int = 1, length: int = LENGTH, **more: Any) -> SeedBatches:
    given = {"rounds": rounds_of([len(SEEDS)], max(size, 1)), "seeds": SEEDS, **more}
    return SeedBatches(seed, part, size=size, stretches=stretches_of(TRAIN, length), **given)


def _sampler(graph: DynamicGraph, shape: BlockShape, fanout: int = ALL, **more: Any) -> BatchSampler:
    return BatchSampler(graph, _batches(**more), shape, (fanout,) * shape.layers)


def _rows(graph: DynamicGraph, sampled: SampledBatch) -> NDArray[np.float32]:
    """What owners would send."""
    if graph.static_features:
        return np.asarray(graph.features[0])[sampled.keys]
    return np.asarray(graph.features).reshape(-1, FEATURES)[sampled.keys]


# training


def _on_the_batch(
    graph: DynamicGraph, sampled: SampledBatch, model: DynamicModel, task: Any
) -> tuple[float, dict[str, Tensor]]:
    blocks = sampled.with_features(_rows(graph, sampled))
    run = TargetRun(model, TargetSequence(blocks, DOUBLE), task, blocks.batch.snapshots, "all")
    grouped.bring(run)
    return float(add_gradients(run)), taken_gradients(model)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_with_all_neighbours_a_batch_is_trained_as_on_the_whole_graph(name: str, layers: int) -> None:
    for static, weighted in ((False, True), (True, False)):
        graph, model = _graph(static=static, weighted=weighted), double_model(name, layers)
        task = Regression(graph, Split(TRAIN, range(0), range(6, 7)), dtype=torch.float64)
        sampler = _sampler(graph, block_shape(model.facts))
        for number in (0, 7):
            sampled = sampler.sample(number)
            np.testing.assert_array_equal(sampler.keys(number), sampled.keys)
            found = _on_the_batch(graph, sampled, model, task)
            batch = sampled.blocks.batch
            of = on_the_whole(graph, model, batch.snapshots, batch.targets, squared_error(graph))
            assert_equal_gradients(found, of)


@pytest.mark.parametrize("name", ["graphsage", "gatlstm"])
def test_so_is_one_with_classes_of_which_some_are_known(name: str) -> None:
    graph = _graph(static=True)
    classes = np.array(graph.classes)
    classes[4] = -1
    graph = replace(graph, classes=classes)
    task = Classification(graph, Split(TRAIN, range(0), range(6, 7)))
    model = double_model(name, 2, outputs=task.outputs)
    sampler = _sampler(graph, block_shape(model.facts))
    sampled = next(of for of in map(sampler.sample, range(10)) if 4 in of.blocks.batch.snapshots)
    batch = sampled.blocks.batch
    wanted = on_the_whole(graph, model, batch.snapshots, batch.targets, cross_entropy(graph))
    assert_equal_gradients(_on_the_batch(graph, sampled, model, task), wanted)


def test_shares_of_labels_are_copied_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _graph(static=True)
    task = Regression(graph, Split(TRAIN, range(0), range(6, 7)), dtype=torch.float64)
    model = double_model("graphsage", 1)
    blocks = _sampler(graph, block_shape(model.facts)).sample(0)
    blocks = blocks.with_features(_rows(graph, blocks))
    run, uploads = TargetRun(model, TargetSequence(blocks, DOUBLE), task, blocks.batch.snapshots, "all"), list[Any]()
    monkeypatch.setattr(target_sequence, "upload", lambda values, device: uploads.append(values) or values)
    z = torch.zeros(1, 2, task.outputs, dtype=torch.float64)
    losses = [run.loss(z, run.at[at : at + 1], rows) for at in range(2) for rows in (slice(0, 2), slice(2, 4))]
    assert len(set(losses)) == 4
    assert len(uploads) == 1


# what is drawn, and what is read


def _reached(graph: DynamicGraph, sampled: SampledBatch, hops: int, *, shared: bool) -> set[int]:
    """Keys of all rows within some hops of the targets; the same nodes in all snapshots where a state needs it."""
    snapshots, found = sampled.blocks.batch.snapshots, {}
    for t in snapshots:
        found[t] = set(sampled.blocks.batch.targets.tolist())
    for hop in range(hops):
        found = {t: of | {int(u) for v in of for u in _neighbours(graph, t, v)} for t, of in found.items()}
        if shared and hop < hops - 1:
            every = set().union(*found.values())
            found = dict.fromkeys(found, every)
    if graph.static_features:
        return set().union(*found.values())
    return {t * NODES + v for t, of in found.items() for v in of}


def _neighbours(graph: DynamicGraph, t: int, v: int) -> NDArray[np.int32]:
    snapshot = graph.snapshots[t]
    return snapshot.indices[snapshot.indptr[v] : snapshot.indptr[v + 1]]


@pytest.mark.parametrize("static", [False, True], ids=["changing features", "features that stay"])
@pytest.mark.parametrize(("name", "layers"), [("tgcn", 1), ("tgcn", 2), ("graphsage", 2), ("evolvegcn-o", 1)])
def test_keys_are_those_of_the_rows_that_the_first_layer_reads(name: str, layers: int, static: bool) -> None:
    graph, model = _graph(static=static), double_model(name, layers)
    shape = block_shape(model.facts)
    sampler = _sampler(graph, shape)
    for number in range(3):
        sampled = sampler.sample(number)
        assert (np.diff(sampled.keys) > 0).all(), "ascending, each once"
        few = _sampler(graph, shape, 2)
        np.testing.assert_array_equal(few.keys(number), few.sample(number).keys)
        assert set(sampled.keys.tolist()) == _reached(graph, sampled, layers, shared=shape.shared)
        assert sampled.row_of.min() >= 0 and sampled.row_of.max() <= len(sampled.keys)
        with pytest.raises(PlanError, match=f"{len(sampled.keys) - 1} rows of features for {len(sampled.keys)} keys"):
            sampled.with_features(np.zeros((len(sampled.keys) - 1, FEATURES), np.float32))


def _pulled(sampled: SampledBatch, graph: DynamicGraph) -> dict[tuple[int, int], list[tuple[int, float]]]:
    """(snapshot, target) -> nodes that the layer of a one-layer model pulls from, and with which weight."""
    found, batch = {}, sampled.blocks.batch
    assert len(batch.snapshots) == 1
    t = batch.snapshots[0]
    edges = target_edges(sampled.blocks, range(t, t + 1), 0, "in")
    keys = np.append(sampled.keys, -1)[sampled.row_of]
    vertices = keys if graph.static_features else keys - t * NODES
    weights = np.ones(len(edges.indices)) if edges.weights is None else edges.weights
    for place, v in enumerate(batch.targets.tolist()):
        part = slice(edges.indptr[place], edges.indptr[place + 1])
        found[t, v] = [*zip(vertices[edges.indices[part]].tolist(), weights[part].tolist(), strict=True)]
    return found


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_drawn_neighbours_are_in_neighbours_each_once_and_at_most_the_fanout(weighted: bool) -> None:
    graph = _graph(weighted=weighted, share=0.2)
    sampler = _sampler(graph, block_shape(double_model("graphsage", 1).facts), 4, length=1)
    limited = 0
    for number in range(12):
        for (t, v), pulled in _pulled(sampler.sample(number), graph).items():
            neighbours = _neighbours(graph, t, v).tolist()
            drawn = [u for u, _ in pulled]
            assert len(set(drawn)) == len(drawn) == min(len(neighbours), 4) and set(drawn) <= set(neighbours)
            limited += len(neighbours) > 4
            snapshot = graph.snapshots[t]
            own = (
                np.ones(len(neighbours))
                if snapshot.weights is None
                else (snapshot.weights[snapshot.indptr[v] : snapshot.indptr[v + 1]])
            )
            grown = len(neighbours) / max(len(drawn), 1)
            for u, weight in pulled:
                assert weight == pytest.approx(own[neighbours.index(u)] * grown, rel=1e-6)
    assert limited > 20


@pytest.mark.slow
def test_sums_over_drawn_neighbours_are_on_average_those_over_all() -> None:
    graph, fanout, rounds = _graph(share=0.3), 3, 400
    batches = {"size": len(SEEDS), "length": 1}
    sampler = _sampler(graph, block_shape(double_model("graphsage", 1).facts), fanout, **batches)
    sums: dict[tuple[int, int], list[float]] = {}
    value = np.random.default_rng(0).random(NODES)
    for number in range(rounds):
        for at, pulled in _pulled(sampler.sample(number), graph).items():
            sums.setdefault(at, []).append(sum(weight * value[u] for u, weight in pulled))
    off = []
    for (t, v), found in sums.items():
        neighbours = _neighbours(graph, t, v)
        if len(neighbours) > fanout:
            deviation = np.std(found) / np.sqrt(len(found))
            off.append((np.mean(found) - value[neighbours].sum()) / deviation)
    assert len(off) > 80
    assert abs(np.mean(off)) < 6 / np.sqrt(len(off)) and np.max(np.abs(off)) < 6
    assert 0.6 < np.std(off) < 1.5, "off by chance, which is as large as draws that know nothing of each other have it"


def test_a_batch_is_a_function_of_seed_part_and_number() -> None:
    graph, model = _graph(weighted=True, share=0.2), double_model("tgcn", 2)
    shape = block_shape(model.facts)
    ahead, back = _sampler(graph, shape, 3), _sampler(graph, shape, 3)
    first = [_content(ahead.sample(number)) for number in range(6)]
    assert first == [_content(back.sample(number)) for number in reversed(range(6))][::-1]
    assert len({*first}) == 6
    for other in ({"seed": 1}, {"part": 2}):
        assert _content(_sampler(graph, shape, 3, **other).sample(0)) not in first


def _content(sampled: SampledBatch) -> tuple[bytes, ...]:
    blocks = sampled.with_features(np.zeros((len(sampled.keys), 1), np.float32))
    arrays = [blocks.batch.targets, sampled.keys, *(blocks.arrays[name] for name in sorted(blocks.arrays))]
    return tuple(array.tobytes() for array in arrays)


def test_layers_that_need_more_than_in_neighbours_are_refused() -> None:
    graph, model = _graph(), double_model("graphsage", 2)
    dcrnn = block_shape(double_model("dcrnn", 2).facts)
    for shape, fanouts in ((dcrnn, (3, 3)), (block_shape(model.facts), (3,))):
        with pytest.raises(PlanError, match="layers must pull along in-edges alone"):
            BatchSampler(graph, _batches(), shape, fanouts)


# which nodes, when


def test_an_epoch_has_every_trained_vertex_once_in_every_stretch() -> None:
    batches = _batches(5)
    assert batches.stretches == (range(1, 4), range(3, 6)) and batches.per_epoch == 2 * 5
    orders = []
    for epoch in range(3):
        made = [batches.batch(number) for number in range(epoch * 10, epoch * 10 + 10)]
        for stretch in batches.stretches:
            of = [batch.targets for batch in made if batch.snapshots == stretch]
            seen, counts = np.unique(np.concatenate(of), return_counts=True)
            assert np.array_equal(seen, SEEDS) and counts.sum() == 25, "5 batches of 5 for 23 nodes: two again"
            assert all(len(targets) == 5 and (np.diff(targets) > 0).all() for targets in of)
        orders.append([(batch.snapshots.start, *batch.targets.tolist()) for batch in made])
    assert len({*map(tuple, orders)}) == 3, "another order in every epoch"


def test_a_small_part_has_as_many_batches_as_the_largest() -> None:
    batches = _batches(5, seeds=SEEDS[:7], rounds=rounds_of([7, 23], 5))
    assert batches.per_epoch == 10
    targets = np.concatenate([batches.batch(number).targets for number in range(10)])
    counts = np.bincount(targets, minlength=NODES)[SEEDS[:7]]
    assert counts.sum() == 50 and counts.max() - counts.min() <= 2
    few = _batches(50)
    assert few.batch(3).targets.tolist() == SEEDS.tolist(), "a batch larger than the part is the part"


def test_snapshots_that_are_alike_are_gone_through_once() -> None:
    batches = _batches(5, alike=True, length=1)
    assert batches.per_epoch == 5
    made = [batches.batch(number) for number in range(100)]
    assert {batch.snapshots for batch in made} == {range(t, t + 1) for t in TRAIN}
    assert np.array_equal(np.unique(np.concatenate([batch.targets for batch in made[:5]])), SEEDS)


@pytest.mark.parametrize(
    ("text", "layers", "wanted"),
    [
        ("10 25", 2, (10, 25)),
        ("10 25", 1, (10,)),
        ("10 25", 4, (10, 25, 25, 25)),
        ("3", 2, (3, 3)),
        (" 1  2 3 ", 3, (1, 2, 3)),
    ],
)
def test_fanouts_are_of_the_first_layer_first(text: str, layers: int, wanted: tuple[int, ...]) -> None:
    assert fanouts_of(text, layers) == wanted


@pytest.mark.parametrize("text", ["", "0", "-3", "2.5", "10,25", "many", "10 0"])
def test_fanouts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="whole numbers of 1 or more"):
        fanouts_of(text, 2)


def test_more_fanouts_than_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 numbers for 2 layer"):
        fanouts_of("3 4 5", 2)


def test_seeds_that_are_none_are_refused() -> None:
    with pytest.raises(DataError, match="part 1 has no node with a training label"):
        _batches(seeds=np.zeros(0, np.int64))
    with pytest.raises(PlanError, match="mini-batches of 0 nodes"):
        _batches(0)
    with pytest.raises(PlanError, match="mini-batch -1"):
        _batches().batch(-1)
    with pytest.raises(ConfigError, match="batch_length=6 exceeds the training split of 5 snapshots"):
        stretches_of(TRAIN, 6)
