"""K and alpha tuned in a run: what is decided rules from the next epoch on, and never comes from the test split."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.user_data import from_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import split
from dtdg_lab.testing.training import Trained, train_in_memory
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("one_thread")
NODES, EDGES, INTERVALS = 20, 60, 31
EPOCHS, EVERY = 6, 2
DECIDED = [1, 3, 5]  # epochs; after the last one too: a run that is resumed for more of them goes on as one of more


def config_of(**changes: Any) -> RunConfig:
    settings = {
        "system": "flaredtdg",
        "dataset": "growing",
        "hidden": 4,
        "learning_rate": 0.05,
        "device": "cpu",
        "dtype": "float64",
        "epochs": EPOCHS,
        "window": 5,
        "full_snapshots": 2,
        "alpha": 0.3,
        "chunks": 4,
        "chunker": "hash",
        "partitioner": "round_robin",
        "tune": True,
        "tune_every": EVERY,
        "evaluate_every": 1,
    }
    return RunConfig(**{**settings, **changes})


@cache
def graph_of(other_from: int = INTERVALS) -> DynamicGraph:
    """A drifting graph; from an interval on, other edges."""
    rng, other = np.random.default_rng(3), np.random.default_rng(4)
    src, dst, time = [], [], []
    for interval in range(INTERVALS):
        drawn = [(rng.integers(NODES, size=EDGES) + interval // 4) // 2 % NODES, rng.integers(NODES, size=EDGES)]
        new = [other.integers(NODES, size=EDGES), other.integers(3, size=EDGES)]
        src.append(drawn[0] if interval < other_from else new[0])
        dst.append(drawn[1] if interval < other_from else new[1])
        time.append(np.full(EDGES, interval))
    return from_edges(
        np.concatenate(src), np.concatenate(dst), np.concatenate(time), interval=1.0, bipartite=False, name="drifting"
    )


def train(path: Path, config: RunConfig, graph: DynamicGraph | None = None, **how: Any) -> Trained:
    return train_in_memory(config, graph_of() if graph is None else graph, path / "last.pt", **how)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp("tuned"), config_of())


def decisions(done: Trained) -> list[tuple[Any, ...]]:
    return [
        (row["epoch"], row["state"], row["values"], row["action"], row["reward"])
        for row in done.recorder.tables["decisions"]
    ]


@pytest.mark.slow
def test_decisions_rule_from_the_next_epoch_on(tuned: Trained) -> None:
    rows = tuned.recorder.tables["decisions"]
    assert [row["epoch"] for row in rows] == DECIDED
    assert {row["policy"] for row in rows} == {"greedy"}
    moved = [row for row in rows if row["action"] != {name: row["state"][name] for name in row["action"]}]
    assert moved, "on this graph there is something to tune"
    full = {0: 2}
    for row in rows:
        full[row["epoch"] + 1] = row["action"]["full_snapshots"]
    for batch in tuned.recorder.tables["batches"]:
        asked = full[max(epoch for epoch in full if epoch <= batch["epoch"])]
        assert batch["full"] == min(asked, batch["target"] - batch["first"] + 1)
    assert {name: tuned.config[name] for name in ("full_snapshots", "alpha")} == rows[-1]["action"]


@pytest.mark.slow
def test_a_setting_is_judged_as_the_run_is(tuned: Trained) -> None:
    """What a look expected of the setting it chose is what the run scores after its next epoch, to the bit."""
    evaluated = {
        row["epoch"]: row["loss"] for row in tuned.recorder.tables["evaluations"] if row["split"] == "validation"
    }
    compared = 0
    for row in tuned.recorder.tables["decisions"]:
        chosen = next(
            value["loss"] for value in row["values"] if {name: value[name] for name in row["action"]} == row["action"]
        )
        if row["epoch"] + 1 < EPOCHS:
            assert chosen == evaluated[row["epoch"] + 2], "after the epoch that follows"
            compared += 1
    assert compared == len(DECIDED) - 1


def test_every_move_is_told_as_a_knob(tuned: Trained) -> None:
    changed = [
        {name: value for name, value in row["action"].items() if row["state"][name] != value}
        for row in tuned.recorder.tables["decisions"]
    ]
    live_settings = tuned.recorder.events("settings")
    assert [event["data"]["changes"] for event in live_settings] == [changes for changes in changed if changes]
    steps = {row["epoch"]: row["step"] for row in tuned.recorder.tables["decisions"]}
    assert {event["step"] for event in live_settings} <= set(steps.values())


def test_the_test_part_is_never_read(tmp_path: Path, tuned: Trained) -> None:
    """With other edges in it, past the labels of the validation split, everything is as it was but the test loss."""
    graph = graph_of()
    test = split(graph.num_snapshots, graph.edge_life, PROTOCOLS["warm"]).test
    changed = graph_of(other_from=test.start + 1)
    assert changed.data_hash != graph.data_hash
    other = train(tmp_path, config_of(), changed)
    assert decisions(other) == decisions(tuned)
    assert other.losses == tuned.losses
    last = {
        name: [row["loss"] for row in done.recorder.tables["evaluations"] if row["split"] == "test"][-1]
        for name, done in (("changed", other), ("as it was", tuned))
    }
    assert last["changed"] != last["as it was"], "the edges that changed are of the test split"
    validation = graph_of(other_from=test.start - 2)
    assert decisions(train(tmp_path, config_of(), validation)) != decisions(tuned), "those of validation are read"


@pytest.mark.slow
def test_looking_at_neighbours_changes_nothing_that_is_learnt(tmp_path: Path) -> None:
    """With a budget that only the present setting meets, all looks are in vain, and the losses those without."""
    config = config_of(full_snapshots=1, alpha=1e-4, tune_memory_gib=1e-6)
    looked = train(tmp_path, config)
    assert [row["action"] for row in looked.recorder.tables["decisions"]] == [{"full_snapshots": 1, "alpha": 1e-4}] * 3
    assert looked.losses == train(tmp_path, config.replace(tune=False)).losses


@pytest.mark.slow
@pytest.mark.parametrize("stop", thinned([13, 17]))
def test_a_run_that_is_resumed_decides_the_same(tmp_path: Path, tuned: Trained, stop: int) -> None:
    """Stopped within an epoch that ends in a decision; stopped with its last step."""
    assert tuned.recorder.column("steps", "epoch")[13:19] == [1, 1, 1, 1, 1, 2]
    first = train(tmp_path, config_of(), script={stop: {"stop": True}})
    assert len(first.losses) == stop + 1
    second = train(tmp_path, config_of(), resume=True, first_step=stop + 1)
    assert decisions(first) + decisions(second) == decisions(tuned)
    assert first.losses + second.losses == tuned.losses


def test_a_shape_that_the_model_cannot_have_is_no_candidate(tmp_path: Path) -> None:
    """Full snapshots alone, over the budget: decayed ones would be refused with the loss at the last snapshot."""
    config = config_of(
        model="graphsage", loss_at="last", full_snapshots=5, tune_every=1, epochs=2, tune_memory_gib=1e-6
    )
    rows = train(tmp_path, config).recorder.tables["decisions"]
    assert [row["action"]["full_snapshots"] for row in rows] == [5, 5]
    assert all(len(row["values"]) == 1 for row in rows)
