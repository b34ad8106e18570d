"""Cached parts: what they hold, where it lies, what it takes, and that training on them is training on the whole."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import memory
from dtdg_lab.core.errors import DataError, PlanError, UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.engine.views import replicated_part
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.replicated_part import (
    CachedPart,
    Reach,
    cache_size,
    cached_part,
    forget_unused,
    local_edges,
    part_folder,
    pieces,
    reach_of,
)
from dtdg_lab.engine.views.replicated_sequence import CachedSequence, cached_sequences, stacked_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.device_memory import MemoryLimits
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.partition.measures import measure
from dtdg_lab.systems.single.strategy import SingleStrategy
from dtdg_lab.systems.vertex_parts.strategy import ReplicatedStrategy
from dtdg_lab.tasks.classification import Classification
from dtdg_lab.tasks.regression import Regression
from tests.factories import random_graph, random_partition
from tests.gradients import assert_equal_gradients, double_model, part_in_memory, taken_gradients
from tests.thinning import thinned

NODES, SNAPSHOTS, FEATURES = 23, 6, 3
TRAIN = range(1, 5)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the products are too small to be shared
    yield
    torch.set_num_threads(threads)


def _graph(**more: Any) -> DynamicGraph:
    return random_graph(NODES, SNAPSHOTS, **{"share": 0.06, "classes": 3, "empty": (2,), "isolated": (0,), **more})


def _partition(parts: int) -> Partition:
    return random_partition(NODES, parts)


def _pulled_by(snapshot: Snapshot, way: str) -> list[set[int]]:
    """What each node pulls from, by sets."""
    lists: list[set[int]] = [set() for _ in range(NODES)]
    for v in range(NODES):
        for u in snapshot.indices[snapshot.indptr[v] : snapshot.indptr[v + 1]].tolist():
            lists[v if way == "in" else u].add(u if way == "in" else v)
    return lists


def _distances(graph: DynamicGraph, times: range, own: NDArray[np.int64], reach: Reach) -> dict[int, int]:
    """Nodes within reach and their distances, by sets."""
    distance = dict.fromkeys(own.tolist(), 0)
    lists = [_pulled_by(graph.snapshots[t], way) for t in times for way in reach.directions]
    for hop in range(1, reach.hops + 1):
        edge = [v for v, d in distance.items() if d == hop - 1]
        for u in {u for of in lists for v in edge for u in of[v]}:
            distance.setdefault(u, hop)
    return distance


# what a part holds

REACHES = [
    Reach(TRAIN, 2),
    Reach(TRAIN, 1, static=False),
    Reach(TRAIN, 2, static=False),
    Reach(TRAIN, 3, ("in", "out")),
    Reach(TRAIN, 1, ("in", "out"), truncated=True),
    Reach(TRAIN, 2, ("out",), static=False),
]


@pytest.mark.parametrize("reach", REACHES, ids=str)
@pytest.mark.parametrize("static", [False, True], ids=["changing", "constant"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_a_part_holds_what_its_hops_reach(reach: Reach, static: bool, weighted: bool) -> None:
    graph, own = _graph(static=static, weighted=weighted), _partition(3).vertices(1)
    part = part_in_memory(graph, own, reach)
    assert part.own == len(own)
    for t in TRAIN:
        snapshot, vertices = graph.snapshots[t], part.vertices(t)
        distance = _distances(graph, TRAIN if reach.static else range(t, t + 1), own, reach)
        wanted = sorted(distance, key=lambda v: (distance[v], v))
        assert vertices.tolist() == wanted
        held = [sum(d <= hop for d in distance.values()) for hop in range(reach.hops + 1)]
        assert [part.prefix(t, hop) for hop in range(reach.hops + 1)] == held
        np.testing.assert_array_equal(part.features(t), graph.features[t][vertices])
        np.testing.assert_allclose(part.degrees(t, "in"), snapshot.in_degrees()[vertices])
        np.testing.assert_allclose(part.degrees(t, "out"), snapshot.out_degrees()[vertices])
        for way in reach.directions:
            lists, edges = _pulled_by(snapshot, way), part.edges(t, way)
            assert len(edges.indptr) - 1 == held[-1 if reach.truncated else -2]
            for row in range(len(edges.indptr) - 1):
                here = vertices[edges.indices[edges.indptr[row] : edges.indptr[row + 1]]].tolist()
                assert len(set(here)) == len(here)
                assert set(here) == lists[vertices[row]] & set(wanted)
                if distance[vertices[row]] < reach.hops:
                    assert set(here) == lists[vertices[row]]


def test_weights_stay_with_their_edges() -> None:
    graph, own = _graph(weighted=True), _partition(2).vertices(0)
    part = part_in_memory(graph, own, Reach(TRAIN, 2, ("in", "out")))
    for t in TRAIN:
        dense = np.zeros((NODES, NODES), np.float32)
        snapshot, vertices = graph.snapshots[t], part.vertices(t)
        dense[snapshot.rows(), snapshot.indices] = snapshot.weights
        for way, matrix in (("in", dense), ("out", dense.T)):
            edges = part.edges(t, way)
            rows = np.repeat(np.arange(len(edges.indptr) - 1), np.diff(edges.indptr))
            np.testing.assert_array_equal(edges.weights, matrix[vertices[rows], vertices[edges.indices]])


def test_local_edges_drop_what_has_no_place() -> None:
    snapshot = Snapshot(np.array([0, 2, 4, 4]), np.array([1, 2, 0, 2], np.int32))
    kept = local_edges(snapshot, np.array([1, 0], np.int32), np.array([1, 0, -1], np.int32))
    assert kept.indptr.tolist() == [0, 1, 2]
    assert kept.indices.tolist() == [1, 0]
    none = local_edges(snapshot, np.array([], np.int32), np.array([1, 0, -1], np.int32))
    assert none.indptr.tolist() == [0]


@pytest.mark.parametrize("hops", [1, 2])
def test_stacked_edges_are_block_diagonal(hops: int) -> None:
    graph, own = _graph(weighted=True), _partition(3).vertices(2)
    part = part_in_memory(graph, own, Reach(TRAIN, 2))
    rows = part.prefix(1, hops)
    whole = stacked_edges(part, range(1, 4), hops, "in")
    assert (whole.rows, whole.columns) == (3 * rows, 3 * rows)
    dense = np.zeros((3 * rows, 3 * rows))
    dense[np.repeat(np.arange(whole.rows), np.diff(whole.indptr)), whole.indices] = whole.weights
    for place, t in enumerate(range(1, 4)):
        one = stacked_edges(part, range(t, t + 1), hops, "in")
        block = np.zeros((rows, rows))
        block[np.repeat(np.arange(one.rows), np.diff(one.indptr)), one.indices] = one.weights
        here = slice(place * rows, (place + 1) * rows)
        np.testing.assert_array_equal(dense[here, here], block)
        dense[here, here] = 0
        np.testing.assert_array_equal(whole.degrees[here], one.degrees)
        assert not block[part.edge_rows(t, hops) :].any()
    assert not dense.any()


def test_what_models_need() -> None:
    per_vertex, none, dcrnn = (reach_of(memory, 4, TRAIN) for memory in ("per_vertex", "none", "neighbourhood"))
    assert (per_vertex.static, per_vertex.truncated) == (True, False)
    assert (none.static, none.truncated) == (False, False)
    assert (dcrnn.static, dcrnn.truncated) == (True, True)
    assert reach_of("none", 1, TRAIN, directions=("out", "in", "in")).directions == ("in", "out")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"hops": 0}, "0 hops"),
        ({"snapshots": range(0)}, "0 snapshots"),
        ({"directions": ("up",)}, "'in', 'out' or both"),
        ({"directions": ()}, "'in', 'out' or both"),
        ({"truncated": True, "static": False}, "static=True"),
    ],
)
def test_a_reach_that_cannot_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Reach(**{"snapshots": TRAIN, "hops": 1, **wrong})


def test_what_is_not_held_is_refused() -> None:
    part = part_in_memory(_graph(), _partition(2).vertices(0), Reach(TRAIN, 2))
    with pytest.raises(PlanError, match="snapshot 0 is not among"):
        part.features(0)
    with pytest.raises(PlanError, match="along 'out'"):
        part.edges(2, "out")
    with pytest.raises(PlanError, match="whole number of layers"):
        CachedSequence(part, 3, OperatorSettings())
    with pytest.raises(PlanError, match="layer 2"):
        CachedSequence(part, 1, OperatorSettings()).stacks(TRAIN, 2)


# files


def test_a_part_is_made_once_and_mapped_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, own, reach = _graph(), _partition(2).vertices(0), Reach(TRAIN, 2)
    made = cached_part(graph, own, reach)
    assert [path.name for path in part_folder(graph, own, reach).parent.iterdir()] == [
        part_folder(graph, own, reach).name
    ]
    monkeypatch.setattr(replicated_part, "pieces", None)
    again = cached_part(graph, own, reach)
    np.testing.assert_array_equal(made.vertices(1), again.vertices(1))
    for array in (again.features(1), again.edges(1, "in").indices):
        base = array
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap)
        assert not array.flags.writeable


def test_other_vertices_hops_or_data_have_another_folder() -> None:
    graph, own, reach = _graph(), _partition(2).vertices(0), Reach(TRAIN, 2)
    folders = {
        part_folder(graph, own, reach),
        part_folder(graph, own[1:], reach),
        part_folder(graph, own, Reach(TRAIN, 1)),
        part_folder(graph, own, Reach(TRAIN, 2, ("in", "out"))),
        part_folder(graph, own, Reach(TRAIN, 2, static=False)),
        part_folder(graph, own, Reach(range(1, 4), 2)),
        part_folder(_graph(seed=4), own, reach),
    }
    assert len(folders) == 7


@pytest.mark.parametrize("name", ["indices_in", "vertices", "features", "bounds", "meta"])
def test_a_damaged_part_is_made_anew(name: str) -> None:
    graph, own, reach = _graph(), _partition(2).vertices(1), Reach(TRAIN, 2)
    wanted = part_in_memory(graph, own, reach)
    cached_part(graph, own, reach)
    path = part_folder(graph, own, reach) / (f"{name}.npy" if name != "meta" else "meta.json")
    path.write_bytes(path.read_bytes()[:-8])
    found = cached_part(graph, own, reach)
    for t in TRAIN:
        np.testing.assert_array_equal(found.features(t), wanted.features(t))
        np.testing.assert_array_equal(found.edges(t, "in").indices, wanted.edges(t, "in").indices)


def test_arrays_that_do_not_fit_are_refused() -> None:
    graph, own, reach = _graph(), _partition(2).vertices(1), Reach(TRAIN, 2)
    arrays = dict(part_in_memory(graph, own, reach)._arrays)
    with pytest.raises(DataError, match="lacks indices_in"):
        CachedPart({name: array for name, array in arrays.items() if name != "indices_in"}, reach)
    for name in ("indices_in", "degrees_out", "features", "edges_in", "vertices"):
        with pytest.raises(DataError, match="instead of"):
            CachedPart(arrays | {name: arrays[name][:-1]}, reach)


def test_several_who_ask_at_once_make_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, own, reach = _graph(), _partition(2).vertices(1), Reach(TRAIN, 2)
    graph.data_hash  # noqa: B018 - computed once, before the threads
    makers: list[str] = []

    def slowly(*given: Any) -> Iterator[tuple[str, NDArray[Any]]]:
        makers.append(threading.current_thread().name)
        time.sleep(0.05)
        yield from pieces(*given)

    monkeypatch.setattr(replicated_part, "pieces", slowly)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: cached_part(graph, own, reach).vertices(1).tolist(), range(4)))
    assert len(makers) == 1
    assert all(vertices == found[0] for vertices in found)


def test_the_longest_unused_parts_are_removed_first() -> None:
    graph, partition, reach = _graph(), _partition(4), Reach(TRAIN, 1)
    folders = [part_folder(graph, partition.vertices(part), reach) for part in range(4)]
    parts = [cached_part(graph, partition.vertices(part), reach) for part in range(4)]
    wanted = parts[1].features(1).copy()
    for part, age in enumerate((10, 9000, 8000, 7000)):
        os.utime(folders[part] / "meta.json", (time.time() - age,) * 2)
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in folders]
    forget_unused(folders[0].parent, kept_bytes=sum(sizes))
    assert all(folder.exists() for folder in folders)
    forget_unused(folders[0].parent, kept_bytes=sum(sizes) - sizes[1] - 1)
    assert [folder.exists() for folder in folders] == [True, False, False, True]
    forget_unused(folders[0].parent, kept_bytes=0)
    assert [folder.exists() for folder in folders] == [True, False, False, False]  # used a moment ago
    np.testing.assert_array_equal(parts[1].features(1), wanted)  # who has mapped it keeps it


def test_opening_a_part_counts_as_using_it() -> None:
    graph, own, reach = _graph(), _partition(4).vertices(0), Reach(TRAIN, 1)
    cached_part(graph, own, reach)
    meta = part_folder(graph, own, reach) / "meta.json"
    os.utime(meta, (1.0, 1.0))
    cached_part(graph, own, reach)
    assert meta.stat().st_mtime > 2.0


def test_where_no_folder_can_be_made_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="DTDG_LAB_CACHE"):
        cached_part(_graph(), _partition(2).vertices(1), Reach(TRAIN, 1))


# size


@pytest.mark.parametrize("reach", REACHES, ids=str)
@pytest.mark.parametrize("static", [False, True], ids=["changing", "constant"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_the_size_is_predicted_exactly(reach: Reach, static: bool, weighted: bool) -> None:
    graph, partition = _graph(static=static, weighted=weighted), _partition(3)
    size = cache_size(graph, partition, reach)
    for number in range(3):
        part = part_in_memory(graph, partition.vertices(number), reach)
        assert size.rows[number] == sum(part.prefix(t, reach.hops) for t in TRAIN)
        assert size.edges[number] == sum(part.num_edges(t, reach.hops) for t in TRAIN)
        assert size.bytes[number] == part.nbytes


def test_measures_count_the_same_rows() -> None:
    graph, partition = _graph(), _partition(3)
    for reach in (Reach(TRAIN, 2), Reach(TRAIN, 2, ("in", "out"), static=False)):
        described = measure(
            graph, partition, snapshots=TRAIN, hops=reach.hops, directions=reach.directions, static=reach.static
        )
        size = cache_size(graph, partition, reach)
        np.testing.assert_array_equal(size.rows, described.replicated.sum(axis=0) + described.owned * len(TRAIN))


def _sequences(graph: DynamicGraph, partition: Partition, model: DynamicModel, **given: Any) -> list[CachedSequence]:
    settings = OperatorSettings(dtype=torch.float64, **given.pop("settings", {}))
    given = {"cache_gib": 1.0} | given
    return cached_sequences(graph, partition, range(partition.parts), model, TRAIN, settings=settings, **given)


def test_parts_above_the_budget_are_refused_with_the_numbers(tmp_path: Path) -> None:
    graph, partition, model = _graph(), _partition(3), double_model("tgcn", 2)
    size = cache_size(graph, partition, reach_of("per_vertex", 2, TRAIN))
    total = int(size.bytes.sum())
    with pytest.raises(UnsupportedError, match=f"{int(size.rows.sum())} rows.* in 3 parts.*cache_gib") as caught:
        _sequences(graph, partition, model, cache_gib=(total - 1) / 2**30)
    assert f"{int(size.edges.sum())} edges" in str(caught.value)
    assert not (tmp_path / "cache" / "parts").exists()
    assert len(_sequences(graph, partition, model, cache_gib=total / 2**30)) == 3


# training

EXACT = ("per_vertex", "weights", "none")
MODELS = catalogue.names("models")


def _task(graph: DynamicGraph, kind: Any = Regression) -> Any:
    return kind(graph, Split(TRAIN, range(0), range(5, 6)), dtype=torch.float64)


def _whole(graph: DynamicGraph, model: DynamicModel, task: Any, **settings: Any) -> tuple[float, dict[str, Tensor]]:
    sequence = DeviceSequence(graph, device="cpu", dtype=torch.float64, kernel="torch", **settings)
    layout = SingleStrategy(model, sequence, task, TRAIN)
    loss = float(layout.compute(layout.epoch(0)[0], StepMarks()).loss_sum)
    return loss, taken_gradients(model)


def _by_parts(graph: DynamicGraph, model: DynamicModel, task: Any, parts: int, **given: Any) -> tuple[float, Any]:
    sequences = _sequences(graph, _partition(parts), model, **given)
    layout = ReplicatedStrategy(model, sequences, task, TRAIN, counts_group=True)
    computed = layout.compute(layout.epoch(0)[0], StepMarks())
    assert (computed.groups, computed.vertex_snapshots) == (1, NODES * len(TRAIN))
    assert layout.rows() == {}
    return float(computed.loss_sum), taken_gradients(model)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", [name for name in MODELS if memory(name) in EXACT])
def test_shares_of_parts_add_up_to_the_whole(name: str, layers: int) -> None:
    graph, model = _graph(weighted=layers == 2, static=layers == 1), double_model(name, layers)
    wanted = _whole(graph, model, _task(graph))
    for parts in (1, 2, 4):
        assert_equal_gradients(_by_parts(graph, model, _task(graph), parts), wanted)


@pytest.mark.parametrize("name", thinned(["tgcn", "evolvegcn-o", "graphsage"], [2]))
def test_scalings_are_those_of_the_whole_graph(name: str) -> None:
    graph, model = _graph(weighted=True), double_model(name, 2)
    for norm, loops in (("in_out", False), ("in_out", True), ("in", False)):
        wanted = _whole(graph, model, _task(graph), norm=norm, self_loops=loops)
        settings = {"norm": norm, "self_loops": loops}
        assert_equal_gradients(_by_parts(graph, model, _task(graph), 3, settings=settings), wanted)


def test_two_hops_a_layer() -> None:
    graph, model = _graph(), double_model("tgcn", 2, gc_layers=2)
    assert_equal_gradients(_by_parts(graph, model, _task(graph), 4), _whole(graph, model, _task(graph)))


@pytest.mark.parametrize("name", ["tgcn", "graphsage"])
def test_classes_where_some_parts_have_no_labels(name: str) -> None:
    graph, model = _graph(), double_model(name, 1, outputs=3)
    wanted = _whole(graph, model, _task(graph, Classification))
    assert_equal_gradients(_by_parts(graph, model, _task(graph, Classification), 4), wanted)


@pytest.mark.parametrize("name", ["tgcn", "evolvegcn-o"])
def test_spaces_that_are_not_kept_give_the_same(name: str) -> None:
    graph, model, task = _graph(), double_model(name, 2), _task(_graph())
    wanted = _whole(graph, model, task)
    kept = _sequences(graph, _partition(2), model)
    sequences = [CachedSequence(of.part, 1, replace(of.settings, limits=MemoryLimits(0, 0, 0))) for of in kept]
    layout = ReplicatedStrategy(model, sequences, task, TRAIN, counts_group=True)
    for _ in range(2):
        computed = layout.compute(layout.epoch(0)[0], StepMarks())
        assert_equal_gradients((float(computed.loss_sum), taken_gradients(model)), wanted)


@pytest.mark.parametrize("name", [name for name in MODELS if memory(name) not in EXACT])
@pytest.mark.parametrize("layers", [1, 2])
def test_named_deviations_are_none_where_one_part_has_all(name: str, layers: int) -> None:
    graph, model = _graph(weighted=True), double_model(name, layers)
    assert_equal_gradients(_by_parts(graph, model, _task(graph), 1), _whole(graph, model, _task(graph)))


def test_the_best_vertices_are_the_parts_own() -> None:
    graph, model = _graph(), double_model("evolvegcn-h", 1)
    for sequence in _sequences(graph, _partition(2), model):
        space = sequence.view(1)
        scores = torch.arange(space.num_rows, dtype=torch.float64)  # the farther away, the better
        rows, best = space.top(space.inputs, scores, 3)
        assert best.tolist() == [sequence.own - 1.0, sequence.own - 2.0, sequence.own - 3.0]
        torch.testing.assert_close(rows, space.inputs[best.long()])
        assert space.top(space.inputs, scores, 99)[1].shape == (sequence.own,)


def _chain(length: int) -> DynamicGraph:
    """A path 0 -> 1 -> .. in every snapshot."""
    indptr = np.concatenate([[0, 0], np.arange(1, length)])
    snapshots = tuple(Snapshot(indptr, np.arange(length - 1, dtype=np.int32)) for _ in range(SNAPSHOTS))
    draw = np.random.default_rng(2)
    features, labels = (
        draw.random((SNAPSHOTS, length, FEATURES), np.float32),
        draw.random((SNAPSHOTS, length), np.float32),
    )
    return DynamicGraph("chain", snapshots, features, labels, labels, source="this test", edge_life=1)


def test_dcrnn_is_cut_off_beyond_its_hops_and_only_there() -> None:
    graph, model = _chain(40), double_model("dcrnn", 1, diffusion_steps=1)  # 2 hops
    own = np.arange(10)
    reach = reach_of("neighbourhood", 2, TRAIN, directions=("in", "out"))
    sequence = CachedSequence(cached_part(graph, own, reach), 2, OperatorSettings(dtype=torch.float64))
    assert sequence.view(1).num_rows == 12
    whole = DeviceSequence(graph, device="cpu", dtype=torch.float64, kernel="torch")
    apart = []
    here, there = model.initial_state(12), model.initial_state(40)
    with torch.no_grad():
        for t in TRAIN:
            cut, full = sequence.view(t), whole.view(t)
            h, here = model.snapshot(cut, cut.inputs, here)
            exact, there = model.snapshot(full, full.inputs, there)
            apart.append(float((h[:10] - exact[:10]).abs().max()))
    assert apart[0] < 1e-12  # state zero: two hops are enough
    assert apart[1] > 1e-9
    assert max(apart) < 0.1


def test_layers_see_ever_fewer_rows_and_only_the_first_has_features() -> None:
    graph, model = _graph(share=0.03), double_model("tgcn", 2)
    for sequence in _sequences(graph, _partition(3), model):
        first, second = (sequence.stacks(TRAIN, layer) for layer in (0, 1))
        assert [space.snapshots for space in first] == [space.snapshots for space in second]
        stacked = len(first[0].snapshots)
        rows = [sequence.part.prefix(1, hops) for hops in (2, 1)]
        assert [first[0].num_rows, second[0].num_rows] == [stacked * of for of in rows]
        assert rows[0] > rows[1] > sequence.own
        assert second[0].inputs.shape[1] == 0
        assert sequence.stacks(TRAIN, 0)[0] is first[0]
        assert not sequence.any_rank(False)
        assert sequence.has_turn(3)


def test_links_are_refused() -> None:
    class _Joint:
        per_vertex, name = False, "link"

    with pytest.raises(UnsupportedError, match=r"task='link'.*halo_vertex"):
        ReplicatedStrategy(double_model("tgcn", 1), [], _Joint(), TRAIN, counts_group=True)
    sequence = _sequences(_graph(), _partition(2), double_model("tgcn", 1))[0]
    with pytest.raises(UnsupportedError, match="halo_vertex"):
        sequence.join(torch.zeros(1, 2, 1))
