"""Runs with hybrid batches on one process: full batches as corners, live knobs, batch policies, bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, UnsupportedError
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.systems.hybrid_batches import strategy
from dtdg_lab.systems.hybrid_batches.reservoir import Reservoir
from dtdg_lab.testing.training import Trained
from dtdg_lab.training.build import build
from tests.hybrid_training import (
    OWN,
    PARTS,
    SIZES,
    SMALL,
    SNAPSHOTS,
    TOGETHER,
    TRAIN,
    VERTICES,
    drawn,
    generators_left,
    knobs_of,
    small_config,
    small_graph,
    targets_of,
    train_small,
)
from tests.thinning import thinned


def _check_followed(done: Trained, *, every: int, initial: int = 0) -> None:
    """On the rank that decides, every step between two decisions has the size that the first of them chose."""
    actions = {step: of[0] for step, of in targets_of(done, "action").items()}
    decisions = done.recorder.tables["decisions"]
    last, chosen = decisions[0]["step"] - every, initial
    for row in decisions:
        window = [step for step in range(last + 1, row["step"] + 1) if actions[step] == chosen]
        assert len(window) == every == row["state"]["steps"] and window[-1] == row["step"]
        assert window[0] == last + 1, "sizes are local: a choice takes effect at the next step"
        assert row["state"]["loss"] == pytest.approx(np.mean([done.losses[step] for step in window]), rel=1e-12)
        last, chosen = row["step"], row["action"]
    for step, of in targets_of(done, "action").items():
        assert len(set(of)) == 1 and targets_of(done, "snapshots")[step] == [SNAPSHOTS[of[0]]] * PARTS
        assert targets_of(done, "targets")[step] == [VERTICES[of[0]]] * PARTS


# identities


@pytest.mark.parametrize(("system", "whole"), [("dbov", {"batch_nodes": 1.0}), ("dbos", {"batch_snapshots": 1.0})])
@pytest.mark.parametrize("model", thinned(["tgcn", "dcrnn"]))
def test_a_batch_of_everything_is_the_full_batch(
    system: str, whole: dict[str, Any], model: str, tmp_path: Path
) -> None:
    """Nodes of parts of one size count alike in both."""
    ours = train_small(small_config(system, model=model, epoch_batches=1, epochs=3, **whole), tmp_path)
    full = {name: value for name, value in SMALL.items() if name not in ("epoch_batches", "batch_nodes", "generators")}
    theirs = train_small(RunConfig(system="pygt-dist", **{**full, "model": model, "epochs": 3}), tmp_path)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-11)
    for name, parameter in theirs.parameters.items():
        torch.testing.assert_close(ours.parameters[name], parameter, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("most_rows", [0, strategy.QUICK_ROWS])
def test_a_step_on_all_nodes_is_measured_before_training_unless_it_has_many_rows(
    most_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategy, "QUICK_ROWS", most_rows)
    monkeypatch.setattr(Reservoir, "take", lambda *_: None)  # no generator is fast enough
    done = train_small(small_config("bvr", epochs=2), tmp_path)
    sources = {row["source"] for row in done.recorder.tables["targets"] if row["epoch"] == 0}
    described = [event["data"]["stands_in"] for event in done.recorder.events("hybrid")]
    assert described == [most_rows > 0, True]
    assert ("new" in sources, "snapshot" in sources) == (not most_rows, most_rows > 0)


@pytest.mark.parametrize("system", thinned(["dbov", "dbos", "dynahb"], [1]))
def test_a_run_repeats_bit_for_bit(system: str, tmp_path: Path) -> None:
    more = TOGETHER | {"batch_policy": "random", "decide_every": 2} if system == "dynahb" else {}
    one, again = (train_small(small_config(system, epochs=1, **more), tmp_path) for _ in range(2))
    other = train_small(small_config(system, epochs=1, seed=1, **more), tmp_path)
    assert one.losses == again.losses and drawn(one) == drawn(again)
    assert drawn(one) != drawn(other)
    assert len(set(one.losses)) == len(one.losses) == 6


def test_what_the_systems_draw(tmp_path: Path) -> None:
    for system, snapshots, targets in (("dbov", TRAIN, 3), ("dbos", 3, OWN)):
        done = train_small(small_config(system, epochs=1), tmp_path)
        for row in done.recorder.tables["targets"]:
            assert (row["snapshots"], row["targets"], row["source"]) == (snapshots, targets, "new")
            assert row["rows"] >= snapshots * targets and row["edges"] > 0
            assert (row["built_s"] is None) == (system == "dbos")
            assert 0 <= row["first"] <= TRAIN - snapshots
        assert sum(row["map"] is not None for row in done.recorder.tables["targets"]) >= PARTS
        assert done.recorder.tables["rounds"] == done.recorder.tables["reservoir"] == []


def test_a_choice_among_other_sizes_is_not_followed() -> None:
    config = small_config(**TOGETHER)
    strategy = build(config, small_graph(), SoloGroup()).strategy
    strategy.size.controller = None  # as on a rank that follows
    strategy.receive_choice(2)
    assert strategy.size.choice == 2
    strategy.apply_settings(config.replace(batch_snapshots=0.4))
    began = strategy.size.choice
    for number, wanted in ((began + 1, began), (1024 + 3, 3)):
        strategy.receive_choice(number)
        assert strategy.size.choice == wanted


# live knobs


@pytest.mark.slow
def test_sizes_change_at_the_next_step(tmp_path: Path) -> None:
    script = {2: {"set": {"batch_snapshots": 7.0}}, 4: {"set": {"batch_nodes": 1.0}}}
    quiet = train_small(small_config("dbov"), tmp_path)
    done = train_small(small_config("dbov"), tmp_path, script=script)
    assert knobs_of(done) == [(3, "step", {"batch_snapshots": 7.0}), (5, "step", {"batch_nodes": 1.0})]
    sizes = {
        step: set(zip(of, targets_of(done, "targets")[step], strict=True))
        for step, of in targets_of(done, "snapshots").items()
    }
    assert sizes == {step: {(TRAIN if step < 3 else 7, 3 if step < 5 else OWN)} for step in range(12)}
    assert done.losses[:3] == quiet.losses[:3] and done.losses[3] != quiet.losses[3]
    described = [event["data"]["sizes"] for event in done.recorder.events("hybrid")]
    assert described[0] == [[TRAIN, 3, 3]]


def test_a_size_that_does_not_fit_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    changes = {"batch_nodes": 2.5}
    quiet = train_small(small_config("dbov", epochs=1), tmp_path)
    done = train_small(small_config("dbov", epochs=1), tmp_path, script={2: {"set": changes}})
    assert done.losses == quiet.losses and drawn(done) == drawn(quiet)
    assert knobs_of(done) == [] and done.config == quiet.config
    (refused,) = done.recorder.events("refused")
    assert refused["data"]["changes"] == changes and "from 2 to 15" in refused["data"]["reason"]


def test_a_reservoir_that_cannot_hold_a_batch_says_so(tmp_path: Path) -> None:
    """Whether it can depends on the part: ranks would have to meet to refuse it, and nobody waits."""
    config = small_config("dbov", reservoir_gib=1e-6, epochs=1)
    done = train_small(config, tmp_path, script={2: {"set": {"reservoir": True}}})
    assert len(done.losses) == 6
    (described,) = done.recorder.events("empty reservoir")
    assert described["step"] == 2 and "reservoir_gib" in described["data"]["reason"]
    assert {row["source"] for row in done.recorder.tables["targets"]} <= {"new", "snapshot"}


def test_an_batch_policy_comes_and_goes_at_a_step(tmp_path: Path) -> None:
    script = {2: {"set": {"batch_policy": "random"}}, 8: {"set": {"batch_policy": "none"}}}
    config = small_config(**TOGETHER, batch_policy="none", decide_every=2, **SIZES)
    done = train_small(config, tmp_path, script=script)
    decisions = done.recorder.tables["decisions"]
    assert len(decisions) >= 2 and decisions[0]["step"] == 4 and all(4 <= row["step"] <= 8 for row in decisions)
    sizes = [of[0] for _, of in sorted(targets_of(done, "targets").items())]
    actions = [of[0] for _, of in sorted(targets_of(done, "action").items())]
    assert sizes[:3] == sizes[9:] == [3] * 3
    assert [actions[step] for step in (0, 1, 2, 9, 10, 11)] == [0] * 6
    assert actions[5] == decisions[0]["action"] and sizes[3:9] == [VERTICES[action] for action in actions[3:9]]


@pytest.mark.slow
def test_a_reservoir_comes_and_goes_at_a_step(tmp_path: Path) -> None:
    script = {20: {"set": {"reservoir": True}}, 60: {"set": {"reservoir": False}}}
    done = train_small(
        small_config("dbov", epoch_batches=80, epochs=1, slow_rank=0, slow_ms=8.0), tmp_path, script=script
    )
    sources = {step: set(of) for step, of in targets_of(done, "source").items()}
    assert all(of == {"new"} for step, of in sources.items() if step <= 20 or step > 60)
    kept = set().union(*(sources[step] for step in range(21, 61)))
    assert "reservoir" in kept and "new" not in kept
    held = done.recorder.tables["reservoir"]
    assert held and all(20 <= row["step"] <= 60 for row in held)
    assert all(0 <= row["held"] <= row["capacity"] and row["made"] >= row["held"] for row in held)
    assert max(row["held"] for row in held) > 0
    assert generators_left() == []


# batch policies


@pytest.mark.parametrize("batch_policy", thinned(["random", "bandit", "dqn"], [2]))
def test_decisions_are_told_and_followed(batch_policy: str, tmp_path: Path) -> None:
    done = train_small(small_config(**TOGETHER, batch_policy=batch_policy, decide_every=2), tmp_path)
    decisions = done.recorder.tables["decisions"]
    assert decisions[0]["step"] == 1 and 3 <= len(decisions) <= 6
    for number, row in enumerate(decisions):
        assert row["policy"] == batch_policy and 0 <= row["action"] < 4 and len(row["values"]) == 4
        assert set(row["state"]) == {"loss_reduction", "epsilon", "greedy", "loss", "step_s", "steps"}
        assert row["state"]["step_s"] > 0 and (row["reward"] is None) == (number == 0)
        assert row["reward"] is None or -2 <= row["reward"] <= 2
    _check_followed(done, every=2)


def test_a_choice_does_not_wait_for_a_round_of_averaging(tmp_path: Path) -> None:
    config = small_config(
        exchange="models", average_every_s=60.0, reservoir=False, batch_policy="random", decide_every=2
    )
    done = train_small(config, tmp_path)
    assert [row["number"] for row in done.recorder.tables["rounds"]] == [0], "ranks met at the end only"
    assert [row["step"] for row in done.recorder.tables["decisions"]] == [1, 3, 5, 7, 9, 11]
    assert len({row["action"] for row in done.recorder.tables["decisions"]}) > 1
    _check_followed(done, every=2)


# bad input


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"batch_snapshots": 16.0}, ConfigError, "batch_snapshots=16.0 .*15 snapshots"),
        ({"batch_nodes": 61.0}, ConfigError, "batch_nodes=61.0 .*15 nodes"),
        ({"system": "bvr", "reservoir_gib": 1e-6}, ConfigError, "reservoir_gib"),
        ({"system": "dynahb", "snapshot_sizes": "0.2", "node_sizes": "0.1"}, ConfigError, "1 sizes"),
        ({"system": "dynahb", "snapshot_sizes": "0.2 99"}, ConfigError, "snapshot_sizes=99.0 .*15"),
        ({"task": "link"}, UnsupportedError, "needs all nodes at once"),
    ],
)
def test_bad_input_is_refused_in_words(
    settings: dict[str, Any], error: type[LabError], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        train_small(small_config(**{"system": "dbov", **settings}), tmp_path)
