"""Runs on windows of snapshots: identities between systems, live knobs, checkpoints anywhere, tuning, bad input."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, DataError, LabError, PartitionError, UnsupportedError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.loader import Loader
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.checkpoints import read_checkpoint
from dtdg_lab.systems.decayed_windows import shrinking
from dtdg_lab.systems.decayed_windows import strategy as windows
from dtdg_lab.systems.decayed_windows.shrinking import Numbering, survival_order
from dtdg_lab.systems.decayed_windows.strategy import DecayedWindowStrategy
from dtdg_lab.systems.decayed_windows.window import Trapezoid
from dtdg_lab.testing.training import Trained, train_in_memory
from dtdg_lab.training.build import build
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.live_settings import check_changes
from dtdg_lab.training.memory import largest_trace, peak_bytes
from dtdg_lab.training.position import Position
from tests.thinning import thinned

SMALL = {
    "dataset": "growing",
    "generated_nodes": 60,
    "generated_edges": 240,
    "generated_snapshots": 50,
    "hidden": 6,
    "device": "cpu",
    "dtype": "float64",
    "epochs": 2,
    "evaluate_every": 100,
    "learning_rate": 0.02,
    "partitioner": "round_robin",
}
pytestmark = pytest.mark.usefixtures("_measured_once")
HYBRID = {"chunker": "hash", "chunks": 8, "window": 5, "decay": "text", "alpha": 0.3}


@pytest.fixture(scope="module")
def _measured_once() -> Iterator[None]:
    """Runs of equal settings take as much memory: it is measured in the first of them."""
    measure, known = windows.measure_memory, {}

    def once(strategy: DecayedWindowStrategy) -> Any:
        settings = strategy.context.config.short_hash
        if settings not in known:
            known[settings] = measure(strategy)
        return known[settings]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "measure_memory", once)
        yield


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(**{name: value for name, value in SMALL.items() if name != "partitioner"}))


def _config(system: str = "flaredtdg", **settings: Any) -> RunConfig:
    return RunConfig(system=system, **{**SMALL, **(HYBRID if system == "flaredtdg" else {}), **settings})


def _train(config: RunConfig, folder: Path, **more: Any) -> Trained:
    return train_in_memory(config, _graph(), folder / "last.pt", **more)


@pytest.mark.parametrize(
    ("model", "loss_at"),
    thinned([("tgcn", "last"), ("tgcn", "all"), ("mpnn-lstm", "last"), ("dcrnn", "all"), ("evolvegcn-h", "last")], [4]),
)
def test_a_window_that_keeps_all_of_one_part_is_full_history(model: str, loss_at: str, tmp_path: Path) -> None:
    settings = {"model": model, "loss_at": loss_at, "epochs": 1}
    ours = _train(_config(alpha=1.0, **settings), tmp_path).losses
    whole = _train(_config("full-history", window=5, **settings), tmp_path).losses
    np.testing.assert_allclose(ours, whole, rtol=1e-10)


@pytest.mark.slow
def test_a_window_of_full_snapshots_alone_is_recent_only(tmp_path: Path) -> None:
    ours = _train(_config(window=2, full_snapshots=2), tmp_path).losses
    np.testing.assert_allclose(ours, _train(_config("recent-only"), tmp_path).losses, rtol=1e-12)


def test_a_run_repeats_bit_for_bit(tmp_path: Path) -> None:
    first, second = (_train(_config(layers=2, model="mpnn-lstm", epochs=1), tmp_path) for _ in range(2))
    assert first.losses == second.losses


@pytest.mark.slow
def test_alpha_and_full_snapshots_change_at_the_next_step(tmp_path: Path) -> None:
    done = _train(_config(), tmp_path, script={6: {"set": {"full_snapshots": 3, "alpha": 0.8}}})
    batches = done.recorder.tables["batches"]
    steps = len(batches) // 2
    whole = [row for row in batches if len(row["chunks"]) == 5]
    before = [row for row in whole if row["step"] <= 6]
    after = [row for row in whole if row["step"] > 7]
    assert steps > 6 and before and {row["full"] for row in before} == {2} and {row["full"] for row in after} == {3}
    assert {tuple(row["chunks"][:2]) for row in after} == {(6, 7)}, "the oldest keep alpha of 8 chunks"


# Of 15 steps an epoch: within one, at its end, within the last one
INTERRUPTED: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("tgcn", {}, (2, 15, 20)),
    ("tgcn", {"late_state": "zero"}, (11,)),
    ("dcrnn", {}, (20,)),
    ("mpnn-lstm", {"layers": 2, "loss_at": "all"}, (11,)),
    ("evolvegcn-o", {"loss_at": "all"}, (20,)),
    ("evolvegcn-h", {}, (11,)),
    ("graphsage", {"loss_at": "all"}, (20,)),
]


@pytest.mark.parametrize(
    ("model", "more", "steps"),
    thinned([*INTERRUPTED, *((*case, range(2, 30, 3)) for *case, _ in INTERRUPTED)], (4, 6)),
)
def test_a_run_goes_on_after_any_step_as_if_nothing_had_been(
    model: str, more: dict[str, Any], steps: Sequence[int], tmp_path: Path
) -> None:
    settings = {"model": model, **more}
    whole = _train(_config(**settings), tmp_path)
    for step in steps:
        folder = tmp_path / str(step)
        folder.mkdir()
        first = _train(_config(**settings), folder, script={step - 1: {"stop": True}})
        assert len(first.losses) == step
        rest = _train(_config(**settings), folder, resume=True, first_step=step)
        assert [*first.losses, *rest.losses] == whole.losses
        for name, parameter in rest.parameters.items():
            assert torch.equal(parameter, whole.parameters[name])


@pytest.mark.slow
def test_steps_tell_their_batches(tmp_path: Path) -> None:
    done = _train(_config(), tmp_path)
    batches = done.recorder.tables["batches"]
    assert [row["step"] for row in batches] == list(range(len(done.losses)))
    for epoch in (0, 1):
        targets = [row["target"] for row in batches if row["epoch"] == epoch]
        assert sorted(targets) == list(range(len(targets))), "every labelled snapshot is a target once"
        falls = sum(after < before for before, after in pairwise(targets))
        assert falls <= 1, "two segments at most, the later one first"
    rows = {row["step"]: row["rows"] for row in batches}
    assert [row["vertex_snapshots"] for row in done.recorder.tables["steps"]] == [rows[step] for step in sorted(rows)]
    events = {row["kind"]: row["data"] for row in done.recorder.tables["events"]}
    assert events["trapezoid"]["counts"] == [5, 3, 2] and events["chunks"]["made_by"] == "hash (seed 0)"


@pytest.mark.slow
@pytest.mark.parametrize("model", thinned(["tgcn", "mpnn-lstm"]))
def test_memory_is_predicted_for_shapes_that_were_not_measured(model: str) -> None:
    config = _config(model=model, generated_nodes=2000, generated_edges=8000, chunks=32, hidden=16)
    built = build(config, load_for(config), SoloGroup())
    assert isinstance(built.strategy, DecayedWindowStrategy)
    largest_trace(built, device="cpu")
    memory = built.strategy.row_memory
    assert memory is not None and built.strategy.shape == Trapezoid.of(config, chunks=32)
    for full, alpha, rule in ((2, 0.3, "ladder"), (3, 0.5, "text"), (4, 0.8, "text"), (2, 0.1, "text")):
        built.strategy.shape = shape = Trapezoid(5, full, 32, alpha, rule)
        measured = largest_trace(built, device="cpu").peak_bytes
        assert 0.95 < memory.peak_bytes(shape) / measured < 1.4, shape


@pytest.mark.slow
@pytest.mark.parametrize(("model", "decay"), thinned(product(["tgcn", "mpnn-lstm"], ["text", "ladder"])))
def test_the_peak_is_the_worst_step_s_and_short_windows_are_not_it(model: str, decay: str) -> None:
    config = _config(
        model=model,
        generated_nodes=24_000,
        generated_edges=24_000,
        chunks=128,
        hidden=32,
        window=8,
        alpha=0.1,
        decay=decay,
        dtype="float32",
        generated_snapshots=40,
    )
    built = build(config, load_for(config), SoloGroup())
    layout = built.strategy
    assert isinstance(layout, DecayedWindowStrategy)
    described, peaks = [largest_trace(built, device="cpu").peak_bytes for _ in range(2)], []
    for work in layout.by_length():
        layout.forget()
        peaks.append(peak_bytes(partial(layout.try_step, work, StepMarks())))
    assert [work.snapshots for work in layout.by_length()] == [*range(1, 9)]
    assert max(peaks) <= 1.05 * peaks[-1], [peak / peaks[-1] for peak in peaks]
    assert described[-1] == max(peaks), "the first also makes what a run keeps, such as targets"


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"full_snapshots": 6}, ConfigError, "full_snapshots=6 exceeds window=5"),
        ({"window": 500}, DataError, "window=500 exceeds the training split"),
        ({"window": 500, "chunks": 61}, DataError, "window=500"),  # before chunks are cut, which takes long
        ({"chunks": 61}, PartitionError, "60 nodes"),
    ],
)
def test_bad_input_is_refused_in_words(
    settings: dict[str, Any], error: type[LabError], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        _train(_config(**settings), tmp_path)


def _refused(done: Trained) -> list[dict[str, Any]]:
    return [row["data"]["changes"] for row in done.recorder.tables["events"] if row["kind"] == "refused"]


@pytest.mark.parametrize(
    ("asked", "made", "refused"),
    thinned(
        [
            ([{"window": 6}, {"chunks": 100_000}], {"window": 6}, [{"chunks": 100_000}]),
            ([{"chunks": 100_000}, {"window": 6}], {"window": 6}, [{"chunks": 100_000}]),
            ([{"window": 6}, {"window": 400}], {"window": 6}, [{"window": 400}]),
            ([{"window": 400}, {"chunks": 4}, {"chunks": 61}], {"chunks": 4}, [{"window": 400}, {"chunks": 61}]),
            ([{"window": 400}, {"window": 6}], {"window": 6}, []),
            # only what waits makes room for the last one
            (
                [{"window": 8}, {"chunks": 61}, {"full_snapshots": 7}],
                {"window": 8, "full_snapshots": 7},
                [{"chunks": 61}],
            ),
            # 40 chunks are too many for either of two parts, and fit the one that was asked for later
            ([{"chunks": 40}, {"parts": 1}, {"window": 400}], {"chunks": 40, "parts": 1}, [{"window": 400}]),
        ],
        [5],
    ),
    ids=str,
)
def test_changes_that_wait_together_are_refused_one_by_one(
    asked: list[dict[str, Any]], made: dict[str, Any], refused: list[dict[str, Any]], tmp_path: Path
) -> None:
    script = {place: {"set": changes} for place, changes in enumerate(asked, 2)}
    done = _train(_config(parts=2), tmp_path, script=script)
    assert _refused(done) == refused
    assert [row["data"]["changes"] for row in done.recorder.tables["events"] if row["kind"] == "settings"] == [made]
    assert all(done.config[name] == value for name, value in made.items())
    alone = _train(_config(parts=2), tmp_path, script={len(asked) + 1: {"set": made}})
    assert done.losses == alone.losses


def test_changes_of_the_next_step_are_refused_one_by_one(tmp_path: Path) -> None:
    script = {2: {"set": {"alpha": 0.8}}, 3: {"set": {"full_snapshots": 400}}, 4: {"set": {"learning_rate": 0.01}}}
    done = _train(_config(), tmp_path, script=script)
    assert _refused(done) == [{"full_snapshots": 400}]
    assert (done.config["alpha"], done.config["full_snapshots"], done.config.learning_rate) == (0.8, 2, 0.01)


def test_what_waits_is_refused_one_by_one_after_a_stop_as_well(tmp_path: Path) -> None:
    script = {2: {"set": {"window": 6}}, 3: {"set": {"chunks": 100_000}}, 4: {"stop": True}}
    first = _train(_config(), tmp_path, script=script)
    rest = _train(_config(), tmp_path, resume=True, first_step=len(first.losses))
    assert _refused(rest) == [{"chunks": 100_000}] and rest.config["window"] == 6


def test_what_waited_in_an_older_checkpoint_is_one_request(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    Checkpoint({"w": torch.ones(2)}, {}, Position(1, 0, 3), _config().to_json(), []).save(path)
    held = torch.load(path, weights_only=True)
    torch.save({**held, "schema": 1, "waiting": {"window": 6, "chunks": 4}}, path)
    assert Checkpoint.load(path).waiting == [{"window": 6, "chunks": 4}]
    assert read_checkpoint(path).waiting == {"window": 6, "chunks": 4}


def test_a_checkpoint_of_schema_1_within_an_epoch_is_resumed(tmp_path: Path) -> None:
    """It held one snapshot for all nodes that windows carry state of."""
    first = _train(_config(), tmp_path, script={4: {"stop": True}})
    path = tmp_path / "last.pt"
    held = torch.load(path, weights_only=True)
    carried = held["plan"]["carried"]
    assert len(carried["after"]) == len(carried["vertices"]) > 0
    carried["after"] = int(carried["after"][0])
    torch.save({**held, "schema": 1, "waiting": {}}, path)
    rest = _train(_config(), tmp_path, resume=True, first_step=len(first.losses))
    assert rest.outcome.state == "finished"
    carried["after"] = torch.full((len(carried["vertices"]),), carried["after"], dtype=torch.int64)
    torch.save(held, path)
    assert _train(_config(), tmp_path, resume=True, first_step=len(first.losses)).losses == rest.losses


@pytest.mark.slow
def test_tuning_reads_validation_vertices_where_vertices_are_divided(tmp_path: Path) -> None:
    """It is judged as the run is, and so never by labels that were trained on."""
    owner = np.zeros(60, np.int8)
    owner[40:] = 1
    config = _config(dataset="sbm", task="classification", communities=2, tune=True, tune_every=1, epochs=1)
    graph = replace(load_for(config), vertex_split=owner)
    done = train_in_memory(config, graph, tmp_path / "last.pt")
    assert len(done.recorder.tables["decisions"]) == 1


# what decayed snapshots are for


def _gradient(config: RunConfig) -> Tensor:
    """Of the first whole window."""
    built = build(config, _graph(), SoloGroup())
    assert isinstance(built.strategy, DecayedWindowStrategy)
    built.strategy.compute(built.strategy.by_length()[-1], StepMarks())
    return built.gradients.gradients


@pytest.mark.parametrize("model", thinned(["evolvegcn-o", "graphsage"], [1]))
def test_decayed_snapshots_reach_the_loss_of_models_without_vertex_state(model: str) -> None:
    """Gradients of windows of other shapes; with the loss at the last snapshot they would be the same."""
    gradients = [_gradient(_config(model=model, loss_at="all", **shape)) for shape in ({"alpha": 0.2}, {"alpha": 0.9})]
    gradients.append(_gradient(_config(model=model, loss_at="all", full_snapshots=3)))
    for other in gradients[1:]:
        assert (other - gradients[0]).norm() > 1e-3 * gradients[0].norm()


@pytest.mark.parametrize("model", ["evolvegcn-o", "graphsage"])
def test_decayed_snapshots_that_could_not_reach_the_loss_are_refused(model: str) -> None:
    with pytest.raises(UnsupportedError, match=r"alpha and full_snapshots would have no effect.*loss_at='all'"):
        _config(model=model, loss_at="last")
    whole = _config(model=model, loss_at="last", full_snapshots=5)
    assert whole["loss_at"] == "last", "none is decayed"
    with pytest.raises(UnsupportedError, match="loss_at='all'"):
        check_changes(whole, {"full_snapshots": 2})


def test_pairs_of_decayed_snapshots_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="decayed snapshots lack some"):
        _config(task="link", loss_at="all")


def test_a_loss_at_all_snapshots_weighs_what_each_keeps() -> None:
    """Of a model that predicts nothing the loss is the mean over snapshots, of the mean over the nodes kept."""
    built = build(_config(loss_at="all"), _graph(), SoloGroup())
    layout = built.strategy
    assert isinstance(layout, DecayedWindowStrategy)
    for parameter in built.model.parameters():
        parameter.data.zero_()
    work = layout.by_length()[-1]
    built.gradients.zero()
    found = float(layout.compute(work, StepMarks()).loss_sum)
    assert built.strategy.chunking is not None and built.partition is not None
    order = survival_order(built.partition.owner, built.strategy.chunking, range(1), seed=0, epoch=0)
    means = []
    for distance, chunks in enumerate((8, 8, 5, 3, 2)):
        kept = order.vertices[: order.rows[chunks]]
        means.append((np.array(_graph().targets[work.target - distance])[kept] ** 2).mean())
    assert found == pytest.approx(np.mean(means), rel=1e-6)


@pytest.mark.parametrize(("model", "tensors"), thinned([("tgcn", 1), ("mpnn-lstm", 4)]))
def test_inherited_states_count_as_memory(model: str, tensors: int) -> None:
    """The peak holds a row of each node from the step before, whether or not those of this step are there yet."""
    size = {"model": model, "generated_nodes": 2000, "generated_edges": 8000, "chunks": 32, "hidden": 16}
    peaks = {}
    for late_state in ("zero", "inherit"):
        config = _config(late_state=late_state, **size)
        built = build(config, load_for(config), SoloGroup())
        assert isinstance(built.strategy, DecayedWindowStrategy)
        peak = largest_trace(built, device="cpu").peak_bytes
        memory = built.strategy.row_memory
        assert memory is not None
        peaks[late_state] = (peak, memory.peak_bytes(built.strategy.shape))
    late = 2000 * (1 - 10 / 32)  # nodes that the oldest snapshot lacks; 0.3 of 32 chunks are 9 or 10
    states = 0.9 * late * tensors * 16 * 8
    for zero, inherit in zip(peaks["zero"], peaks["inherit"], strict=True):
        assert inherit - zero > states


# windows prepared ahead, as on a GPU


class CountedLoader(Loader):
    """A loader with a thread, which counts the values that were requested in time, and those that were not."""

    def __init__(self, counts: Counter[bool]) -> None:
        super().__init__(ahead=True)
        self._counts = counts

    def take(self, key: Any, prepare: Any) -> Any:
        self._counts[key in self._requested] += 1
        return super().take(key, prepare)


def _loader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("loader")]


@pytest.mark.parametrize("parts", [1, 2])
def test_windows_prepared_in_a_thread_train_alike(parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, counts = _config(parts=parts), Counter[bool]()
    plain = _train(config, tmp_path)
    monkeypatch.setattr(shrinking, "Loader", lambda *, ahead: CountedLoader(counts))
    ahead = _train(config, tmp_path)
    assert ahead.losses == plain.losses
    assert all(torch.equal(ahead.parameters[name], plain.parameters[name]) for name in plain.parameters)
    assert counts[True] > 3 * counts[False], "only probes of memory ask for what nobody prepared"
    assert not _loader_threads()


def test_requests_of_a_window_whose_shape_has_changed_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(ahead=True)
    monkeypatch.setattr(shrinking, "Loader", lambda *, ahead: loader)
    strategy = build(_config(), _graph(), SoloGroup(), device="cpu").strategy
    assert isinstance(strategy, DecayedWindowStrategy)
    *_, before, last = strategy.epoch(0)
    strategy.compute(before, StepMarks())
    assert loader._requested
    strategy.apply_settings(_config(alpha=0.6))
    strategy.compute(last, StepMarks())
    assert not loader._requested, "no step follows, and arrays of the other shape would stay"
    strategy.close()


def test_a_failure_of_the_preparing_thread_ends_the_step_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_out = Numbering.cut_out

    def fail_ahead(self: Numbering, snapshot: Any, rows: int) -> Any:
        if threading.current_thread().name.startswith("loader"):
            raise DataError("the snapshot cannot be read")
        return cut_out(self, snapshot, rows)

    monkeypatch.setattr(Numbering, "cut_out", fail_ahead)
    monkeypatch.setattr(shrinking, "Loader", lambda *, ahead: Loader(ahead=True))
    with pytest.raises(DataError, match="cannot be read"):
        _train(_config(), tmp_path)
    assert not _loader_threads()


def test_the_plan_of_a_million_epochs_takes_no_longer_than_that_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Counter[int]()
    epoch_of = DecayedWindowStrategy.epoch

    def counted(strategy: DecayedWindowStrategy, epoch: int) -> Sequence[Any]:
        planned[epoch] += 1
        return epoch_of(strategy, epoch)

    monkeypatch.setattr(DecayedWindowStrategy, "epoch", counted)
    trainer = build(_config(epochs=1_000_000), _graph(), SoloGroup())
    assert trainer.strategy.plan_events()
    assert planned.total() <= windows.COUNTED_EPOCHS
