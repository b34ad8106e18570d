"""The blocks of hybrid batches: no neighbour is left out, and training on them is training on the whole graph."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import memory
from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.plans import TargetBatch
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.backprop import reference as grouped
from dtdg_lab.engine.minibatch import block_growth, target_sequence
from dtdg_lab.engine.minibatch import blocks as blocks_module
from dtdg_lab.engine.minibatch.blocks import BlockShape, TargetBlocks, block_shape, target_blocks
from dtdg_lab.engine.minibatch.state_cache import StateCache
from dtdg_lab.engine.minibatch.target_sequence import TargetRun, TargetSequence, add_gradients, target_edges
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.views import device_sequence
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.replicated_part import CachedPart, reach_of
from dtdg_lab.engine.views.replicated_sequence import CachedSequence
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.device_memory import MemoryLimits
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.kernels.spmm import Adjacency
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.partition.neighbourhoods import hop_distance
from dtdg_lab.tasks.classification import Classification
from dtdg_lab.tasks.link_prediction import LinkPrediction
from dtdg_lab.tasks.regression import Regression
from tests.factories import random_graph
from tests.gradients import (
    assert_equal_gradients,
    cross_entropy,
    double_model,
    on_the_whole,
    part_in_memory,
    squared_error,
    taken_gradients,
)

NODES, SNAPSHOTS, FEATURES, HIDDEN = 40, 7, 3, 4
TRAIN, BATCH = range(1, 6), range(2, 5)
EXACT = ("per_vertex", "weights", "none")
MODELS = catalogue.names("models")
OWN = np.sort(np.random.default_rng(5).permutation(NODES)[:23])


def _graph(*, share: float = 0.03, **more: Any) -> DynamicGraph:
    return random_graph(NODES, SNAPSHOTS, share=share, classes=3, empty=(3,), isolated=(0,), **more)


def _part(graph: DynamicGraph, model: DynamicModel, own: NDArray[np.int64] = OWN, train: range = TRAIN) -> CachedPart:
    ways = ("in", "out") if model.memory == "neighbourhood" else ("in",)
    reach = reach_of(model.memory, model.facts.hops, train, directions=ways)
    return part_in_memory(graph, own, reach)


def _batch(targets: list[int], snapshots: range = BATCH) -> TargetBatch:
    return TargetBatch(0, 0, 0, snapshots, np.array(targets))


FEW = _batch([0, 3, 7, 8, 20])


def _task(graph: DynamicGraph, kind: Any = Regression) -> Any:
    return kind(graph, Split(TRAIN, range(0), range(6, 7)), dtype=torch.float64)


def _on_blocks(blocks: TargetBlocks, model: DynamicModel, task: Any, **scaling: Any) -> tuple[float, dict[str, Tensor]]:
    sequence = TargetSequence(blocks, OperatorSettings(dtype=torch.float64, **scaling))
    return _of(TargetRun(model, sequence, task, blocks.batch.snapshots, "all"))


def _of(run: SequenceSegment) -> tuple[float, dict[str, Tensor]]:
    grouped.bring(run)
    return float(add_gradients(run)), taken_gradients(run.model)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", [name for name in MODELS if memory(name) in EXACT])
def test_a_batch_is_trained_as_on_the_whole_graph(name: str, layers: int) -> None:
    for static, weighted in ((False, True), (True, False)):
        graph, model = _graph(static=static, weighted=weighted), double_model(name, layers)
        blocks = target_blocks(_part(graph, model), FEW, block_shape(model.facts))
        wanted = on_the_whole(graph, model, FEW.snapshots, OWN[FEW.targets], squared_error(graph))
        assert_equal_gradients(_on_blocks(blocks, model, _task(graph)), wanted)


@pytest.mark.parametrize("name", ["tgcn", "gatlstm", "evolvegcn-o", "graphsage"])
@pytest.mark.parametrize(
    "batch",
    [_batch([5]), _batch(list(range(len(OWN))), TRAIN), _batch([1, 2], range(5, 6))],
    ids=["one target", "everything", "one snapshot"],
)
def test_so_are_the_corners(name: str, batch: TargetBatch) -> None:
    graph, model = _graph(), double_model(name, 2)
    blocks = target_blocks(_part(graph, model), batch, block_shape(model.facts))
    wanted = on_the_whole(graph, model, batch.snapshots, OWN[batch.targets], squared_error(graph))
    assert_equal_gradients(_on_blocks(blocks, model, _task(graph)), wanted)


@pytest.mark.parametrize(
    ("name", "options", "scaling"),
    [
        ("tgcn", {"gc_layers": 2}, {}),
        ("wdgcn", {}, {"norm": "in_out", "self_loops": False}),
        ("evolvegcn-o", {}, {"norm": "in_out"}),
        ("gatlstm", {"heads": 4}, {}),
        ("tmgcn", {"transform_window": 2}, {}),
    ],
)
def test_so_are_options(name: str, options: dict[str, Any], scaling: dict[str, Any]) -> None:
    graph, model = _graph(weighted=True), double_model(name, 2, **options)
    shape = block_shape(model.facts, norm=scaling.get("norm", "in"))
    blocks = target_blocks(_part(graph, model), FEW, shape)
    wanted = on_the_whole(graph, model, FEW.snapshots, OWN[FEW.targets], squared_error(graph), **scaling)
    assert_equal_gradients(_on_blocks(blocks, model, _task(graph), **scaling), wanted)


@pytest.mark.parametrize("name", ["tgcn", "evolvegcn-o"])
def test_so_are_classes_of_which_some_are_known(name: str) -> None:
    """Snapshot 4 has no labelled node, snapshot 3 no labelled target, and each other one other labelled targets."""
    graph, batch = _graph(static=True), replace(FEW, snapshots=range(1, 5))
    classes = np.array(graph.classes)
    classes[4] = classes[3, OWN[FEW.targets]] = -1
    graph = replace(graph, classes=classes)
    task = _task(graph, Classification)
    model = double_model(name, 1, outputs=task.outputs)
    blocks = target_blocks(_part(graph, model), batch, block_shape(model.facts))
    assert_equal_gradients(
        _on_blocks(blocks, model, task),
        on_the_whole(graph, model, batch.snapshots, OWN[batch.targets], cross_entropy(graph)),
    )


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", [name for name in MODELS if memory(name) not in EXACT])
def test_what_cannot_be_exact_is_what_a_part_of_the_targets_alone_computes(name: str, layers: int) -> None:
    """DCRNN's state is cut off beyond the layers' hops; EvolveGCN-H takes the best of the targets."""
    graph, model = _graph(weighted=True), double_model(name, layers)
    blocks = target_blocks(_part(graph, model), FEW, block_shape(model.facts))
    alone = CachedSequence(
        _part(graph, model, OWN[FEW.targets], BATCH), model.facts.hops_per_layer, OperatorSettings(dtype=torch.float64)
    )
    wanted = _of(TargetRun(model, alone, _task(graph), BATCH, "all"))
    assert_equal_gradients(_on_blocks(blocks, model, _task(graph)), wanted)


@pytest.mark.parametrize("name", ["dcrnn", "evolvegcn-h"])
def test_with_one_snapshot_or_all_targets_they_are_exact_too(name: str) -> None:
    graph, model = _graph(), double_model(name, 2)
    everyone = np.arange(NODES)
    batch = _batch([0, 9, 30], range(3, 4)) if name == "dcrnn" else _batch(everyone.tolist())
    blocks = target_blocks(_part(graph, model, everyone), batch, block_shape(model.facts))
    assert_equal_gradients(
        _on_blocks(blocks, model, _task(graph)),
        on_the_whole(graph, model, batch.snapshots, everyone[batch.targets], squared_error(graph)),
    )


# other ways to the same gradients


@pytest.mark.parametrize("name", ["tgcn", "gatlstm", "evolvegcn-o", "graphsage"])
def test_it_does_not_matter_how_a_batch_is_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, model = _graph(), double_model(name, 2)
    shape = block_shape(model.facts)
    part, task = _part(graph, model), _task(graph)
    wanted = _on_blocks(target_blocks(part, FEW, shape), model, task)
    monkeypatch.setattr(block_growth, "_SCRATCH", 1)
    assert_equal_gradients(_on_blocks(target_blocks(part, FEW, replace(shape, inputs_once=False)), model, task), wanted)
    blocks = target_blocks(part, FEW, shape)
    monkeypatch.setitem(device_sequence.STACKED_ROWS, "cpu", 2 * blocks.heights[0])
    sequence = TargetSequence(blocks, OperatorSettings(dtype=torch.float64))
    assert [len(space.snapshots) for space in sequence.stacks(BATCH, 1)] == [1, 2]
    run = TargetRun(model, sequence, task, BATCH, "all")
    assert_equal_gradients(_of(run), wanted)
    monkeypatch.setitem(target_sequence.STEP_NUMBERS, "cpu", 1)
    assert_equal_gradients(_of(run), wanted)


def test_a_batch_that_is_used_again_pulls_no_features_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, model = _graph(), double_model("tgcn", 1)
    blocks = target_blocks(_part(graph, model), FEW, block_shape(model.facts))
    sequence = TargetSequence(blocks, OperatorSettings(dtype=torch.float64))
    wanted = _of(TargetRun(model, sequence, _task(graph), BATCH, "all"))
    monkeypatch.setattr(Adjacency, "product", None)
    assert_equal_gradients(_of(TargetRun(model, sequence, _task(graph), BATCH, "all")), wanted)


@pytest.mark.parametrize("name", ["tgcn", "evolvegcn-o", "dcrnn"])
def test_a_snapshot_batch_needs_no_blocks(name: str) -> None:
    """Where all own nodes are targets the part's own sequence serves; only DCRNN is cut off elsewhere then."""
    graph, model = _graph(), double_model(name, 1)
    part, double = _part(graph, model), OperatorSettings(dtype=torch.float64)
    once = range(2, 3) if name == "dcrnn" else BATCH
    whole = TargetRun(model, CachedSequence(part, model.facts.hops_per_layer, double), _task(graph), once, "all")
    blocks = target_blocks(part, _batch(list(range(len(OWN))), once), block_shape(model.facts))
    assert_equal_gradients(_of(whole), _on_blocks(blocks, model, _task(graph)))


# states that earlier batches have left


class _DenseStates:
    """States of all N nodes after every snapshot, zero until they are computed: the cache as it is written down."""

    def __init__(self, graph: DynamicGraph, model: DynamicModel) -> None:
        self.graph, self.model = graph, model
        self.of = {
            t: [[torch.zeros_like(x) for x in layer] for layer in model.initial_state(NODES).layers]
            for t in range(TRAIN.start - 1, TRAIN.stop)
        }
        self._sequence = DeviceSequence(graph, device="cpu", dtype=torch.float64, kernel="torch")

    def trained(self, batch: TargetBatch, own: NDArray[np.int64]) -> tuple[float, dict[str, Tensor]]:
        """A batch's loss and gradients, in the whole graph; the states of the nodes that it reaches are replaced."""
        graph, model, vertices = self.graph, self.model, own[batch.targets]
        targets, hops = torch.tensor(vertices), model.facts.hops
        ways = ("in", "out") if model.memory == "neighbourhood" else ("in",)
        met = TRAIN if len(vertices) == len(own) else batch.snapshots  # the part's own sequence holds those of all
        far = hop_distance([graph.snapshots[t] for t in met], vertices, hops, ways)
        reads = [hops * (model.layers - 1 - layer) // model.layers for layer in range(model.layers)]
        if model.memory == "neighbourhood":
            reads = [hops] * model.layers
        state = State(tuple(tuple(x.clone() for x in layer) for layer in self.of[batch.snapshots[0] - 1]))
        losses = []
        for t in batch.snapshots:
            space = self._sequence.view(t)
            h, state = model.snapshot(space, space.inputs, state)
            loss = squared_error(graph)(model.readout(h)[targets], t, targets)
            losses += [] if loss is None else [loss]
            for layer, (within, tensors) in enumerate(zip(reads, state.layers, strict=True)):
                rows = torch.tensor(np.flatnonzero(far <= within))
                for held, found in zip(self.of[t][layer], tensors, strict=True):
                    held[rows] = found.detach()[rows]
        total = torch.stack(losses).mean()
        total.backward()
        return float(total.detach()), taken_gradients(model)


STATEFUL = [name for name in MODELS if memory(name) in ("per_vertex", "neighbourhood")]


@pytest.mark.parametrize(("name", "layers"), [*((name, 1) for name in STATEFUL), ("tgcn", 2), ("cdgcn", 2)])
def test_batches_start_from_the_states_that_were_computed_last(
    name: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches overlap in nodes and snapshots; DCRNN is exact here, where every batch reaches all but node 0."""
    graph, model = _graph(share=0.12 if name == "dcrnn" else 0.03), double_model(name, layers)
    own = np.arange(NODES) if name == "dcrnn" else OWN
    part, task, double = _part(graph, model, own), _task(graph), OperatorSettings(dtype=torch.float64)
    shape, states = replace(block_shape(model.facts), places=True), StateCache(model, part, 1 << 20)
    dense = _DenseStates(graph, model)
    draw, everyone = np.random.default_rng(2), _batch(list(range(len(own))), range(1, 4))
    drawn = [
        _batch(sorted(draw.choice(len(own), 9, replace=False)), of)
        for of in (range(1, 3), range(3, 5), range(2, 5), range(4, 6), range(5, 6))
    ]
    for number, batch in enumerate([*drawn, everyone, *drawn, everyone]):
        if number == 8:
            monkeypatch.setitem(target_sequence.STEP_NUMBERS, "cpu", 8)  # and in several pieces
            double = replace(double, limits=MemoryLimits(0, 0, 0))  # nor with what all snapshots keep for backward
        blocks = target_blocks(part, batch, shape)
        sequence: Any = TargetSequence(blocks, double)
        places: Tensor | None = torch.tensor(blocks.arrays["places"])
        if batch is everyone:
            sequence, places = CachedSequence(part, model.facts.hops_per_layer, double), None
        run = TargetRun(model, sequence, task, batch.snapshots, "all", states=states, places=places)
        wanted = dense.trained(batch, own)
        assert_equal_gradients(_of(run), wanted)
        if number in (3, 7):  # a state had been computed before: starting from zero gives another loss
            assert _of(replace(run, states=None))[0] != pytest.approx(wanted[0], rel=1e-4)
        with torch.no_grad():  # as an update does
            for parameter in model.parameters():
                parameter.mul_(0.98)
    again = StateCache(model, part, 1 << 20)
    again.load_state_dict(states.gathered(SoloGroup())[0])
    for layer, (found, restored) in enumerate(zip(states.layers, again.layers, strict=True)):
        wanted_states = zip(*(dense.of[t - 1][layer] for t in TRAIN), strict=True)
        for held, copied, of in zip(found, restored, wanted_states, strict=True):
            rows = states.vertices[: held.shape[1]]
            torch.testing.assert_close(held, torch.stack(of)[:, rows], rtol=1e-10, atol=1e-12)
            assert torch.equal(held, copied)


def test_a_cache_of_states_has_a_limit_and_a_node_for_each_row() -> None:
    graph, model = _graph(), double_model("tgcn", 1)
    part = _part(graph, model)
    states = StateCache(model, part, len(TRAIN) * len(OWN) * HIDDEN * 8)
    assert states.nbytes == len(TRAIN) * len(OWN) * HIDDEN * 8
    with pytest.raises(UnsupportedError, match="batch_state_gib"):
        StateCache(model, part, states.nbytes - 1)
    with pytest.raises(UnsupportedError, match="batch_state='zero'"):
        StateCache(double_model("evolvegcn-o", 1), part, states.nbytes)
    states.write(1, 0, slice(0, 2), [torch.ones(2, 2, HIDDEN, dtype=torch.float64)])
    other = StateCache(model, _part(graph, model, np.sort((OWN + 1) % NODES)), states.nbytes)
    other.load_state_dict(states.state_dict())  # of other nodes: left out
    assert not other.layers[0][0].any() and states.layers[0][0].sum() == 2 * 2 * HIDDEN


# what blocks hold


@pytest.mark.parametrize("memory", ["per_vertex", "none"])
@given(data=strategies.data())
def test_blocks_hold_every_neighbour_and_no_vertex_more(memory: str, data: strategies.DataObject) -> None:
    layers, seed = data.draw(strategies.integers(1, 3)), data.draw(strategies.integers(0, 9))
    first = data.draw(strategies.integers(1, 5))
    snapshots = range(first, data.draw(strategies.integers(first + 1, 6)))
    targets = data.draw(strategies.sets(strategies.integers(0, len(OWN) - 1), min_size=1))
    graph = _graph(seed=seed, weighted=seed % 2 == 1)
    model = double_model("tgcn" if memory == "per_vertex" else "graphsage", layers)
    shape = block_shape(model.facts)
    assert shape.inputs_once
    blocks = target_blocks(_part(graph, model), _batch(sorted(targets), snapshots), shape)
    pulls = [_sources(graph.snapshots[t]) for t in snapshots]
    reached = [set(OWN[sorted(targets)].tolist()) for _ in snapshots]
    for hop in range(1, layers + 1):
        layer = layers - hop
        rows = [len(of) for of in reached]
        met = [of | {u for v in of for u in pull[v]} for of, pull in zip(reached, pulls, strict=True)]
        if memory == "per_vertex":
            met = [set().union(*met)] * len(met) if layer else met
        wanted = max(len(of) for of in (met if layer else reached))
        assert blocks.heights[layer] == wanted
        for place, t in enumerate(snapshots):
            edges = target_edges(blocks, range(t, t + 1), layer, "in")
            lengths = np.diff(edges.indptr)
            assert lengths[rows[place] :].sum() == 0
            assert sorted(lengths[: rows[place]]) == sorted(len(pulls[place][v]) for v in reached[place])
            if not layer:
                assert edges.columns - wanted == len(met[place]) - len(reached[place])
        reached = met
    assert blocks.rows == len(snapshots) * blocks.heights[0] + sum(blocks.arrays["further"])
    assert blocks.edges == sum(len(blocks.arrays[f"indices_in_{layer}"]) for layer in range(layers))


def _sources(snapshot: Snapshot) -> list[set[int]]:
    """What each node pulls from."""
    ends = zip(snapshot.indptr, snapshot.indptr[1:], strict=False)
    return [set(snapshot.indices[begin:end].tolist()) for begin, end in ends]


def test_where_nothing_is_pulled_there_are_no_edges() -> None:
    graph, model = _graph(share=0.0), double_model("tgcn", 2)
    batch = _batch([0, 1], range(5, 6))
    blocks = target_blocks(_part(graph, model), batch, block_shape(model.facts))
    assert (blocks.rows, blocks.edges, blocks.heights) == (2, 0, (2, 2))
    assert_equal_gradients(
        _on_blocks(blocks, model, _task(graph)),
        on_the_whole(graph, model, batch.snapshots, OWN[batch.targets], squared_error(graph)),
    )


def test_features_that_never_change_are_held_once() -> None:
    model = double_model("tgcn", 1)
    changing, constant = (
        target_blocks(_part(_graph(static=static), model), FEW, block_shape(model.facts)) for static in (False, True)
    )
    assert len(changing.arrays["features"]) == changing.rows
    assert len(constant.arrays["features"]) == len(set(constant.arrays["feature_of"].tolist())) <= NODES


def test_building_needs_no_torch() -> None:
    code = "import sys, dtdg_lab.engine.minibatch.blocks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# what is refused


def test_what_cannot_be_built_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, model = _graph(), double_model("tgcn", 2)
    part, shape = _part(graph, model), block_shape(model.facts)
    for wrong in (replace(shape, layers=3), replace(shape, directions=("in", "out"), inputs_once=False)):
        with pytest.raises(PlanError, match="cache what the model's layers reach"):
            target_blocks(part, FEW, wrong)
    with pytest.raises(PlanError, match="truncated=True"):
        target_blocks(part, FEW, BlockShape(1, 2, "neighbourhood"))
    with pytest.raises(PlanError, match=f"target {len(OWN)} of a part with {len(OWN)} own nodes"):
        target_blocks(part, _batch([0, len(OWN)]), shape)
    with pytest.raises(PlanError, match="snapshot 6 is not among"):
        target_blocks(part, _batch([0], range(5, 7)), shape)
    own = _part(graph, double_model("graphsage", 2))
    with pytest.raises(PlanError, match="cache what the model's layers reach"):
        target_blocks(own, FEW, shape)
    monkeypatch.setattr(blocks_module, "_MOST_ROWS", 3 * 5 - 1)
    with pytest.raises(PlanError, match=r"3 snapshots with .* rows each exceed the limit of 14"):
        target_blocks(part, FEW, shape)
    with pytest.raises(PlanError, match="0 layers"):
        BlockShape(0, 1, "none")
    with pytest.raises(PlanError, match="inputs_once"):
        BlockShape(1, 2, "per_vertex", inputs_once=True)


def test_what_a_batch_does_not_have_is_refused() -> None:
    graph, model = _graph(), double_model("tgcn", 1)
    blocks = target_blocks(_part(graph, model), FEW, block_shape(model.facts))
    sequence = TargetSequence(blocks, OperatorSettings())
    with pytest.raises(PlanError, match="snapshots range"):
        sequence.view(5)
    with pytest.raises(PlanError, match="layer 1 is not in"):
        sequence.stacks(BATCH, 1)
    with pytest.raises(PlanError, match="in direction 'out'"):
        target_edges(blocks, BATCH, 0, "out")
    with pytest.raises(UnsupportedError, match="all nodes at once"):
        sequence.join(torch.zeros(1))
    link = object.__new__(LinkPrediction)
    with pytest.raises(UnsupportedError, match="task='link' on batches of target nodes"):
        TargetRun(model, sequence, link, BATCH, "all")
