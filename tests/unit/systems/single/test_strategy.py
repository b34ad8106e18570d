"""One process: products that snapshots share, and what is measured of them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from dtdg_lab.core.errors import (
    UnsupportedError,
)
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.systems.single.events import OverlapProfile, SnapshotTimes
from dtdg_lab.systems.single.strategy import measured
from dtdg_lab.testing.training import Trained, train_in_memory
from tests.factories import small_graph
from tests.small_training import config_of

pytestmark = pytest.mark.usefixtures("one_thread")
# 39 labelled snapshots: 12 train, 3 validate, 24 test. Groups of 4 start at 9 of the 12: 5 steps an epoch on 2 parts.
STEPS = 5


OVERLAP = {"system": "pipad", "parts": 1, "edge_life": 3, "dtype": "float64", "protocol": "leaky"}


def overlapping(path: Path, **changes: Any) -> Trained:
    return train_in_memory(config_of(**{**OVERLAP, **changes}), small_graph(edge_life=3), path)


@pytest.mark.parametrize(
    ("model", "layers"), [("tgcn", 2), ("mpnn-lstm", 1), ("tmgcn", 2), ("graphsage", 2), ("evolvegcn-o", 2)]
)
def test_shared_products_change_no_loss(tmp_path: Path, model: str, layers: int) -> None:
    how = {"model": model, "layers": layers}
    found = overlapping(tmp_path / "shared.pt", **how, shared_snapshots=4).losses
    assert found == pytest.approx(overlapping(tmp_path / "own.pt", **how, system="single").losses, rel=1e-10, abs=0)


def test_the_size_of_groups_is_measured_and_recorded(tmp_path: Path) -> None:
    done = overlapping(tmp_path / "last.pt", model="tgcn", layers=2)
    (data,) = [row["data"] for row in done.recorder.tables["events"] if row["kind"] == "shared_edges"]
    facts = OverlapProfile.read(data)
    assert facts.sizes == (1, 2, 4, 8) and facts.chosen in facts.sizes and min(facts.seconds) > 0
    assert facts.shares[0] == 1 and 1 > facts.shares[1] >= facts.shares[2] >= facts.shares[3] >= 0
    best = facts.sizes[facts.seconds.index(min(facts.seconds))]
    assert facts.chosen in {1, best} and "forward and backward" in facts.words


def test_the_profile_holds_the_operators_of_one_size_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a size are freed before the next ones are made, without waiting for the garbage collector."""
    make, made, alive = DeviceSequence._make, [], []

    def noted(self: DeviceSequence, snapshots: range) -> SnapshotView:
        view = make(self, snapshots)
        made.append((self, weakref.ref(view._operators)))
        alive.append(len({id(owner) for owner, operators in made if operators() is not None}))
        return view

    monkeypatch.setattr(DeviceSequence, "_make", noted)
    sequence = DeviceSequence(small_graph(edge_life=3), device="cpu", dtype=torch.float64, kernel="torch")
    gc.disable()
    try:
        found = measured(sequence, range(12), [("gcn", 4), ("mean", 4)], seed=0)
    finally:
        gc.enable()
    assert found.sizes == (1, 2, 4, 8) and len({id(owner) for owner, _ in made}) == 4
    assert max(alive) == 1


def test_a_resumed_run_keeps_the_measured_size(tmp_path: Path) -> None:
    config, path = config_of(**OVERLAP, model="tgcn", layers=2, epochs=3), tmp_path / "last.pt"
    first = train_in_memory(config, small_graph(edge_life=3), path, script={0: {"stop": True}})
    second = train_in_memory(config, small_graph(edge_life=3), path, first_step=1, resume=True)
    one, other = (
        next(row["data"] for row in done.recorder.tables["events"] if row["kind"] == "shared_edges")
        for done in (first, second)
    )
    assert one == other and one["sizes"]


def test_nothing_is_measured_where_no_pull_is_learned(tmp_path: Path) -> None:
    done = overlapping(tmp_path / "last.pt", model="tgcn")
    (data,) = [row["data"] for row in done.recorder.tables["events"] if row["kind"] == "shared_edges"]
    assert data["chosen"] == 1 and "no aggregation of the model depends on parameters" in OverlapProfile.text(data)


def test_one_process_times_the_forward_pass_of_each_snapshot(tmp_path: Path) -> None:
    done = overlapping(tmp_path / "last.pt", system="single", model="tgcn")
    (data,) = [row["data"] for row in done.recorder.tables["events"] if row["kind"] == "snapshot_times"]
    (parts,) = [row["data"] for row in done.recorder.tables["events"] if row["kind"] == "parts"]
    times = SnapshotTimes.read(data)
    assert [times.first, times.first + len(times.seconds) - 1] == [parts["train"]["first"], parts["train"]["last"]]
    assert min(times.seconds) > 0 and times.words.startswith(f"Snapshot {times.longest} takes longest: ")


def test_models_whose_pulls_cannot_be_shared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="the model aggregates by attention"):
        overlapping(tmp_path / "last.pt", model="gatlstm")
    for model in ("dcrnn", "evolvegcn-h"):
        with pytest.raises(UnsupportedError, match="does not work with system 'pipad'"):
            config_of(**OVERLAP, model=model)
