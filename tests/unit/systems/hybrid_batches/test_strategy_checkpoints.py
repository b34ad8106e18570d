"""Runs with hybrid batches end anywhere: resumed, repeated from their records, paused, failed; nothing is left."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.hybrid_batches.generators import BatchMaker
from dtdg_lab.systems.hybrid_batches.reservoir import Reservoir
from dtdg_lab.training import loop
from dtdg_lab.training.clock import seconds_by_phase
from tests.following import until
from tests.hybrid_training import (
    PARTS,
    TOGETHER,
    drawn,
    generators_left,
    knobs_of,
    repeated,
    small_config,
    small_graph,
    train,
    train_small,
)
from tests.thinning import thinned


@pytest.fixture
def scripted_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every phase of every step takes a millisecond: what is decided by times is decided again."""
    monkeypatch.setattr(loop, "seconds_by_phase", lambda intervals: dict.fromkeys(seconds_by_phase(intervals), 1e-3))


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first draws from reservoirs find nothing; every later one waits until there is a batch of that size."""
    take, draws = Reservoir.take, count()

    def patient(reservoir: Reservoir[Any], action: int, u: float, v: float) -> tuple[int, Any] | None:
        if next(draws) < 2 * PARTS:
            return None
        until(lambda: reservoir.levels()[action].held > 0, timeout_s=30)
        return take(reservoir, action, u, v)

    monkeypatch.setattr(Reservoir, "take", patient)


# checkpoints and repeated runs


@pytest.mark.usefixtures("scripted_s")
@pytest.mark.parametrize(
    "settings",
    thinned(
        [
            {"system": "dbov"},
            {"system": "dbos", "optimizer": "adam", "model": "evolvegcn-o"},
            {"system": "dynahb", **TOGETHER, "batch_policy": "dqn", "decide_every": 2},
            {"system": "dynahb", **TOGETHER, "batch_policy": "bandit", "decide_every": 3},
            {"system": "dynahb", **TOGETHER, "batch_policy": "none", "batch_state": "cached", "layers": 2},
        ],
        [2, 4],
    ),
    ids=lambda settings: f"{settings['system']} {settings.get('batch_policy', '')} {settings.get('batch_state', '')}",
)
def test_a_run_goes_on_after_any_step_as_if_nothing_had_been(settings: dict[str, Any], tmp_path: Path) -> None:
    config = small_config(**settings)
    script = {7: {"set": {"batch_nodes": 1.0}}}
    whole = train_small(config, tmp_path, script=script)
    for step in (3, 6, 8):  # within an epoch, at its end, with the change
        folder = tmp_path / str(step)
        folder.mkdir()
        halted = {**{at: asked for at, asked in script.items() if at < step - 1}}
        halted[step - 1] = {**script.get(step - 1, {}), "stop": True}
        first = train_small(config, folder, script=halted)
        assert (first.outcome.state, len(first.losses)) == ("stopped", step)
        after = {at: asked for at, asked in script.items() if at > step - 1}
        rest = train_small(config, folder, script=after, resume=True, first_step=step)
        assert [*first.losses, *rest.losses] == whole.losses
        assert [*drawn(first), *drawn(rest)] == drawn(whole)
        described = [
            row[name]
            for done in (first, rest)
            for row in done.recorder.tables["decisions"]
            for name in ("action", "values", "reward")
        ]
        assert described == [
            row[name] for row in whole.recorder.tables["decisions"] for name in ("action", "values", "reward")
        ]
        assert all(torch.equal(of, whole.parameters[name]) for name, of in rest.parameters.items())


@pytest.mark.usefixtures("filled")
def test_a_run_by_clocks_and_races_repeats_from_its_records(tmp_path: Path) -> None:
    config = small_config(
        average_every_s=0.005,
        decide_every=3,
        epochs=4,
        slow_rank=0,
        slow_ms=4.0,
        reservoir_gib=1e-4,
        batch_state="cached",
        fallback_memory_gib=2.0,
    )
    script = {5: {"set": {"batch_snapshots": 0.4}}, 9: {"set": {"average_every_s": 0.002}}, 18: {"stop": True}}
    done = train_small(config, tmp_path, script=script)
    assert done.outcome.state == "stopped" and len(done.losses) >= 19
    assert {"reservoir", "snapshot"} <= {row["source"] for row in done.recorder.tables["targets"]}
    again = train_small(config.replace(slow_ms=0.0), tmp_path, script=script, replay=repeated(done))
    assert again.losses == done.losses and drawn(again) == drawn(done)
    assert again.recorder.tables["rounds"] == done.recorder.tables["rounds"]
    assert knobs_of(again) == knobs_of(done)
    assert all(torch.equal(of, done.parameters[name]) for name, of in again.parameters.items())


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "changes",
    thinned(
        [[{"partitioner": "hash"}], [{"epoch_batches": 4}], [{"exchange": "gradients"}, {"exchange": "models"}]], [2]
    ),
    ids=str,
)
def test_a_repeated_run_is_rebuilt_where_the_first_was(changes: list[dict[str, Any]], tmp_path: Path) -> None:
    config = small_config(
        average_every_s=0.005, batch_policy="random", epochs=3, slow_rank=0, slow_ms=4.0, batch_state="cached"
    )
    script = {3 + 6 * number: {"set": change} for number, change in enumerate(changes)}
    done = train_small(config, tmp_path, script=script)
    sources = {row["source"] for row in done.recorder.tables["targets"] if row["step"] >= 6}
    assert "reservoir" in sources
    again = train_small(config.replace(slow_ms=0.0), tmp_path, script=script, replay=repeated(done))
    assert drawn(again) == drawn(done) and again.losses == done.losses
    words = [
        [(row["joined_step"], row["number"], row["choice"]) for row in of.recorder.tables["rounds"]]
        for of in (again, done)
    ]
    assert words[0] == words[1]


@pytest.mark.slow
@pytest.mark.usefixtures("scripted_s")
def test_an_batch_policy_of_a_checkpoint_of_schema_1_goes_on(tmp_path: Path) -> None:
    config = small_config(**TOGETHER, batch_policy="bandit", decide_every=2)
    whole = train_small(config, tmp_path)
    train_small(config, tmp_path, script={6: {"stop": True}})
    path = tmp_path / "last.pt"
    held = torch.load(path, weights_only=True)
    batch_policy = held["plan"]["hybrid"]["batch_policy"]
    batch_policy["last"] = batch_policy["last"][:3]  # without the best rate of progress
    torch.save({**held, "schema": 1, "waiting": {}}, path)
    rest = train_small(config, tmp_path, resume=True, first_step=7)
    assert rest.losses == whole.losses[7:]


# nothing is left behind


def test_a_generator_that_fails_ends_the_run_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise MemoryError("no room for a batch")

    monkeypatch.setattr(BatchMaker, "make", fails)
    with pytest.raises(RunFailedError, match=r"generator of batches of part \d failed: MemoryError: no room"):
        train_small(small_config("bvr", epochs=500, slow_rank=0, slow_ms=5.0), tmp_path)
    assert generators_left() == []


def test_no_batch_is_drawn_twice_where_epochs_become_shorter(tmp_path: Path) -> None:
    config = small_config(**TOGETHER, batch_policy="none", epochs=6, epoch_batches=6)
    done = train_small(config, tmp_path, script={3: {"set": {"epoch_batches": 3}}})
    drawn = [(row["part"], row["index"]) for row in done.recorder.tables["targets"]]
    assert len(drawn) == len(set(drawn)) and len(done.losses) < 36


def test_batches_without_labels_count_for_nothing(tmp_path: Path) -> None:
    graph = small_graph()
    rng = np.random.default_rng(0)
    classes = np.full((graph.num_snapshots, graph.num_nodes), -1, np.int16)
    classes[15:] = np.arange(graph.num_nodes) % 3
    for vertex in range(graph.num_nodes):  # one label each in the training split
        classes[rng.integers(0, 15), vertex] = vertex % 3
    rare = DynamicGraph(
        "rare",
        graph.snapshots,
        graph.features,
        graph.targets,
        graph.persistence,
        graph.source,
        graph.edge_life,
        classes=classes,
    )
    config = small_config(
        **TOGETHER,
        dataset="sbm",
        communities=3,
        task="classification",
        batch_snapshots=0.1,
        batch_nodes=0.1,
        batch_policy="random",
        snapshot_sizes="0.1 0.2",
        node_sizes="0.1 0.2",
        decide_every=2,
        epochs=4,
    )
    done = train(config, rare, tmp_path / "last.pt")
    steps = done.recorder.tables["steps"]
    empty = [row for row in steps if row["groups"] == 0]
    assert 0 < len(empty) < len(steps) and all(row["global_loss"] is None is row["loss"] for row in empty)
    assert all(row["global_loss"] > 0.1 for row in steps if row["groups"])
    assert all(row["state"]["loss"] is None or row["state"]["loss"] > 0.1 for row in done.recorder.tables["decisions"])
