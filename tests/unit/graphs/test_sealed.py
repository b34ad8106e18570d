"""The test split is sealed while a run trains: whatever reads it there makes the run fail, and nothing else changes."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import TestPartError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import BuildContext
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.sealed import Seal, SealedArray, SealedGraph, last_read, seal_of, sealed, unsealed
from dtdg_lab.graphs.split import split
from dtdg_lab.systems.hybrid_batches.controller import BatchSizeController
from dtdg_lab.tasks.classification import Classification
from dtdg_lab.tasks.link_prediction import LinkPrediction
from dtdg_lab.tasks.regression import Regression
from dtdg_lab.testing.training import train_in_memory
from dtdg_lab.training import build as built_by
from dtdg_lab.training.build import build
from dtdg_lab.training.evaluation import Evaluator
from tests.factories import small_config
from tests.thinning import thinned

PARTS = {"parts": 2, "partitioner": "round_robin"}
WINDOW = {**PARTS, "window": 3}
FETCHED = {**PARTS, "batch_size": 6, "batch_length": 2, "fanouts": "3", "cache_rows": 10}
HYBRID = {**PARTS, "epoch_batches": 3, "batch_nodes": 0.2, "exchange": "gradients", "reservoir": False}
FAMILIES: dict[str, dict[str, Any]] = {
    "single": {},
    "psg": PARTS | {"partitioner": None},
    "esdg": {"blocks": 2},
    "hypergraph-vertex": {"partitioner": "round_robin", "blocks": 2},
    "flaredtdg": {**WINDOW, "chunker": "hash", "chunks": 3},
    "adgnn-t": PARTS,
    "dbov": HYBRID,
    "dynagraph": WINDOW,
    "bgl": FETCHED,
}


def config_of(system: str, **changes: Any) -> RunConfig:
    usual = {"generated_edges": 96, "generated_snapshots": 26, "dtype": "float64", "epochs": 2, "kernel": "torch"}
    return small_config(system, **{**usual, **FAMILIES.get(system, {}), **changes})


@cache
def graph_of(dataset: str = "growing") -> DynamicGraph:
    return load_for(config_of("single", dataset=dataset, **_of(dataset)))


def _of(dataset: str) -> dict[str, Any]:
    return {"task": "classification", "communities": 2, "generated_edges": 40} if dataset == "sbm" else {}


def first_tested(graph: DynamicGraph) -> int:
    return split(graph.num_snapshots, graph.edge_life, PROTOCOLS["warm"]).test.start


def run(system: str, path: Path, graph: DynamicGraph | None = None, **changes: Any) -> Any:
    return train_in_memory(config_of(system, **changes), graph or graph_of(), path / "last.pt")


def in_compute(monkeypatch: pytest.MonkeyPatch, leak: Callable[[BuildContext, Any], None]) -> None:
    """Have every layout do something more in each step."""

    def made(build: Callable[[BuildContext], Any], of: BuildContext) -> Any:
        layout: Any = build(of)
        compute = layout.compute

        def leaking(*args: Any) -> Any:
            leak(of, layout)
            return compute(*args)

        layout.compute = leaking
        return layout

    for family in catalogue.families():
        monkeypatch.setattr(family, "build", partial(made, family.build))


# planted leaks


@pytest.mark.parametrize("system", FAMILIES)
def test_a_task_that_reads_a_test_label_fails_the_run(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested, loss = first_tested(graph_of()), Regression.loss

    def leaking(self: Regression, z: Any, snapshots: range, rows: Any) -> Any:
        return loss(self, z, snapshots, rows) + 0 * float(self._target(tested).sum())

    monkeypatch.setattr(Regression, "loss", leaking)
    with pytest.raises(TestPartError, match=rf"label of snapshot {tested} cannot be read while a run trains"):
        run(system, tmp_path)


@pytest.mark.parametrize("system", FAMILIES)
def test_a_layout_that_reads_test_edges_or_features_fails_the_run(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = first_tested(graph_of()) + 1  # the one before is the label of the last validation snapshot
    for what, leak in {
        "edges": lambda of, layout: of.sequence.graph.snapshots[tested].num_edges,
        "features": lambda of, layout: of.sequence.graph.features[tested].sum(),
    }.items():
        with monkeypatch.context() as patch:
            in_compute(patch, leak)
            with pytest.raises(TestPartError, match=f"{what} of snapshot {tested}"):
                run(system, tmp_path)


@pytest.mark.parametrize(
    ("task", "dataset", "what"), [(LinkPrediction, "growing", "edges after those"), (Classification, "sbm", "class")]
)
def test_labels_of_every_task_are_sealed(
    task: Any, dataset: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, loss = graph_of(dataset), task.loss
    tested = first_tested(graph)

    def leaking(self: Any, z: Any, snapshots: range, rows: Any) -> Any:
        self.labelled(tested)
        return loss(self, z, snapshots, rows)

    settings = {"dataset": dataset, **_of(dataset)} | ({"task": "link"} if task is LinkPrediction else {})
    done = run("psg", tmp_path, graph, **settings)
    assert {row["split"] for row in done.recorder.tables["evaluations"]} == {"train", "validation", "test"}
    monkeypatch.setattr(task, "loss", leaking)
    with pytest.raises(TestPartError, match=f"{what} of snapshot {tested}"):
        run("psg", tmp_path, graph, **settings)


def test_a_tuner_that_asks_the_test_part_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tunes = {"tune": True, "tune_every": 1}
    decided = run("flaredtdg", tmp_path, **tunes).recorder.tables["decisions"]
    assert len(decided) == 2  # with the seal on
    evaluate = Evaluator.evaluate

    def of_the_test_part(self: Evaluator, model: Any, splits: tuple[str, ...], *, final: bool = False) -> Any:
        return evaluate(self, model, ("test",) if splits == ("validation",) else splits, final=final)

    monkeypatch.setattr(Evaluator, "evaluate", of_the_test_part)
    with pytest.raises(TestPartError, match="evaluated once, when the run is over"):
        run("flaredtdg", tmp_path, **tunes)


def test_an_batch_policy_that_is_rewarded_by_test_labels_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[BuildContext] = []
    in_compute(monkeypatch, lambda of, layout: found.append(of))
    choosing = {"batch_policy": "dqn", "decide_every": 1, "snapshot_sizes": "0.2 0.4", "node_sizes": "0.2 1"}
    assert len(run("dynahb", tmp_path, **HYBRID, **choosing).recorder.tables["decisions"]) > 1
    tested, observe = first_tested(graph_of()), BatchSizeController.observe

    def leaking(self: BatchSizeController, loss: float | None, seconds: float, choice: int) -> None:
        observe(self, float(found[-1].sequence.graph.targets[tested].mean()), seconds, choice)

    monkeypatch.setattr(BatchSizeController, "observe", leaking)
    with pytest.raises(TestPartError, match=f"label of snapshot {tested}"):
        run("dynahb", tmp_path, **HYBRID, **choosing)


def test_a_final_evaluation_in_the_middle_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one door to the test split may not be used twice."""

    evaluate = Evaluator.evaluate

    def peeking(self: Evaluator, model: Any, splits: tuple[str, ...], *, final: bool = False, **more: Any) -> Any:
        if not final:
            evaluate(self, model, ("test",), final=True)
        return evaluate(self, model, splits, final=final, **more)

    monkeypatch.setattr(Evaluator, "evaluate", peeking)
    with pytest.raises(TestPartError, match="training continued after"):
        run("psg", tmp_path)


def test_a_run_that_leaks_ends_failed_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dtdg_lab as lab

    in_compute(monkeypatch, lambda of, layout: np.mean(of.sequence.graph.targets))
    with pytest.raises(TestPartError):
        lab.train(config_of("psg"), runs_dir=tmp_path, progress=False)
    (folder,) = tmp_path.iterdir()
    left = lab.runs.open(folder)
    assert left.status == "failed"
    assert "belongs to the test split" in left.reason and "tune by the validation loss" in left.reason
    assert left.summary["test_loss"] is None


# where nothing leaks


@pytest.mark.parametrize("system", thinned(FAMILIES, (0, 1, 2, 3, 5)))
def test_runs_are_bit_for_bit_what_they_are_without_a_seal(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = run(system, tmp_path)
    monkeypatch.setattr(built_by, "sealed", lambda graph, parts: graph)
    plain = run(system, tmp_path)
    assert guarded.losses and guarded.losses == plain.losses
    scored = [done.recorder.tables["evaluations"] for done in (guarded, plain)]
    assert [{**row, "time_ns": 0} for row in scored[0]] == [{**row, "time_ns": 0} for row in scored[1]]
    assert {row["split"] for row in scored[0]} == {"train", "validation", "test"}
    assert all((guarded.parameters[name] == plain.parameters[name]).all() for name in plain.parameters)


def test_steps_do_not_ask_the_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and snapshots are on the device after the first epoch: later ones cost nothing more."""
    from dtdg_lab.engine.strategy import StepMarks

    asked: list[str] = []
    for name in ("check_label", "check_input"):
        check = getattr(Seal, name)
        monkeypatch.setattr(
            Seal, name, lambda self, what, last, check=check: (asked.append(what), check(self, what, last))
        )
    layout = build(config_of("psg"), graph_of(), SoloGroup()).strategy
    counts = []
    for epoch in range(2):
        before = len(asked)
        for work in layout.epoch(epoch):
            layout.compute(work, StepMarks())
        counts.append(asked[before:].count("label") + asked[before:].count("features"))
    assert counts[0] > 0 and counts[1] == 0


# the seal itself


def guarded_graph(dataset: str = "growing") -> tuple[SealedGraph, DynamicGraph, int]:
    graph = graph_of(dataset)
    found = sealed(graph, split(graph.num_snapshots, graph.edge_life, PROTOCOLS["warm"]))
    return found, graph, found.seal.readable


READS: dict[str, Callable[[Any, int], Any]] = {
    "one": lambda array, at: array[at],
    "negative": lambda array, at: array[-1],
    "slice": lambda array, at: array[at - 2 : at + 1],
    "backwards": lambda array, at: array[::-1],
    "column": lambda array, at: array[:, 3],
    "pair": lambda array, at: array[at, 3],
    "list": lambda array, at: array[[0, at]],
    "mask": lambda array, at: array[np.arange(len(array)) >= at],
    "ellipsis": lambda array, at: array[...],
    "new axis": lambda array, at: array[None],
    "method": lambda array, at: array.mean(),
    "function": lambda array, at: np.sum(array),
    "asarray": lambda array, at: np.asarray(array),
    "iteration": lambda array, at: list(array),
}


@pytest.mark.parametrize("way", READS)
def test_no_way_of_indexing_passes_the_seal(way: str) -> None:
    guarded, graph, readable = guarded_graph()
    for name in ("targets", "persistence"):
        with pytest.raises(TestPartError, match="cannot be read"):
            READS[way](getattr(guarded, name), readable)
        with guarded.seal.opened():
            read, wanted = (READS[way](getattr(of, name), readable) for of in (guarded, graph))
        assert np.array_equal(np.asarray(read), np.asarray(wanted))
    with pytest.raises(TestPartError):
        READS[way](guarded.targets, readable)  # closed again


def test_training_and_validation_labels_read_as_they_are() -> None:
    guarded, graph, readable = guarded_graph()
    assert np.array_equal(guarded.targets[:readable], graph.targets[:readable])
    assert np.array_equal(guarded.targets[readable - 1, [2, 5]], graph.targets[readable - 1, [2, 5]])
    assert guarded.following[readable - 1] is graph.following[readable - 1]
    with pytest.raises(TestPartError, match="edges after those"):
        list(guarded.following)
    assert guarded.data_hash == graph.data_hash and guarded.tasks == graph.tasks
    assert unsealed(guarded) is graph and unsealed(graph) is graph


def test_edges_and_features_are_sealed_but_for_those_that_the_last_label_counts() -> None:
    guarded, graph, readable = guarded_graph()
    assert guarded.snapshots[readable] is graph.snapshots[readable]  # the last validation label
    assert np.array_equal(guarded.features[: readable + 1], graph.features[: readable + 1])
    for read in (
        lambda: guarded.snapshots[readable + 1],
        lambda: guarded.features[readable + 1],
        lambda: guarded.snapshots[1:],
    ):
        with pytest.raises(TestPartError, match=r"edges|features"):
            read()
    with guarded.seal.opened():
        assert guarded.snapshots[-1] is graph.snapshots[-1]


def test_what_is_sealed_is_calculated_with_as_an_array_is() -> None:
    array = np.arange(12.0).reshape(4, 3)
    seen: list[int] = []
    guarded: Any = SealedArray(array, lambda what, last: seen.append(last), "label")
    np.testing.assert_array_equal(guarded > 3, array > 3)
    np.testing.assert_array_equal(2 * guarded + array, 3 * array)
    np.testing.assert_array_equal(np.maximum(guarded, 5), np.maximum(array, 5))
    np.testing.assert_array_equal(guarded[np.array([[True, False, True]] * 2 + [[False] * 3] * 2)], [0, 2, 3, 5])
    assert seen == [3, 3, 3, 1]  # the last index reads snapshots 0 and 1 only
    seen.clear()
    assert guarded[True].shape == (1, 4, 3)
    assert seen == [3]


def test_a_block_that_raises_leaves_the_seal_closed() -> None:
    guarded, _, readable = guarded_graph()
    with pytest.raises(ZeroDivisionError), guarded.seal.opened():
        1 / 0  # noqa: B018
    with pytest.raises(TestPartError):
        guarded.targets[readable]


def test_labels_of_test_vertices_read_as_unknown_in_every_snapshot() -> None:
    graph = graph_of("sbm")
    assert graph.classes is not None
    parts = np.arange(graph.num_nodes, dtype=np.int8) % 3
    whole = dataclasses.replace(graph, vertex_split=parts)
    guarded = sealed(whole, split(graph.num_snapshots, graph.edge_life, PROTOCOLS["warm"]))
    for read in (lambda of: of[0], lambda of: of[0:3], lambda of: of[[0, 1], :]):
        seen, wanted = np.asarray(read(guarded.classes)), np.asarray(read(whole.classes))
        assert (seen[..., parts == 2] == -1).all()
        assert (wanted[..., parts == 2] >= 0).any()
        assert np.array_equal(seen[..., parts < 2], wanted[..., parts < 2])
    assert guarded.classes[1, 2] == -1 and whole.classes[1, 2] >= 0
    with guarded.seal.opened():
        assert np.array_equal(guarded.classes[0], whole.classes[0])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_a_copy_is_sealed_too(copied: Callable[[Any], Any]) -> None:
    guarded, graph, readable = guarded_graph()
    with guarded.seal.opened():
        other = copied(guarded)
    assert isinstance(other, SealedGraph) and not other.seal.is_open
    assert np.array_equal(other.targets[:readable], graph.targets[:readable])
    with pytest.raises(TestPartError):
        other.targets[readable]
    with pytest.raises(TestPartError, match="edges of snapshot"):
        other.snapshots[:]


def test_a_graph_without_a_seal_has_one_that_seals_nothing() -> None:
    seal = seal_of(graph_of())
    seal.check_label("label", graph_of().num_snapshots - 1)
    seal.check_input("edges", graph_of().num_snapshots - 1)


@pytest.mark.parametrize(
    ("index", "last"),
    [
        (3, 3),
        (-1, 9),
        (slice(2, 5), 4),
        (slice(None, None, -1), 9),
        (slice(5, 2), -1),
        ([1, 4], 4),
        ([-1], 9),
        (np.zeros(10, bool), -1),
        (Ellipsis, 9),
        (None, 9),
        (np.int64(7), 7),
        ([], -1),
    ],
    ids=str,
)
def test_the_last_entry_that_an_index_reads(index: Any, last: int) -> None:
    assert last_read(index, 10) == last


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_leaves_its_validation_part_readable_and_its_test_part_sealed(name: str) -> None:
    graph = graph_of()
    parts = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[name])
    guarded = sealed(graph, parts)
    for t in (*parts.train, *parts.validation):
        assert len(guarded.targets[t]) == graph.num_nodes
    for t in parts.test:
        with pytest.raises(TestPartError):
            guarded.targets[t]


def test_the_doors_to_the_test_part_are_few_and_known() -> None:
    """Whoever opens the seal, or goes round it, is named here: look twice before you add a name."""
    package = Path(built_by.__file__).parents[1]
    found: dict[str, set[str]] = {}
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for door in ("seal_of(", "unsealed(", "final=True"):
            if re.search(rf"\b{re.escape(door)}", text) and file.name != "sealed.py":
                found.setdefault(door, set()).add(str(file.relative_to(package)))
    assert found == {
        # the evaluation after the last step, and pictures of a model that is not trained any more
        "seal_of(": {"training/evaluation.py", "training/forward.py"},
        "unsealed(": {"training/build.py"},  # the training split, of which plans are made
        "final=True": {"training/epoch_end.py", "training/evaluation.py"},
    }
