"""Partitioner, parts, layout settings and the system change in the middle of a run, or are refused; one process."""

from __future__ import annotations

import signal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import PartitionError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition import child_process as in_child
from dtdg_lab.partition.base import make_partition, save_partition
from dtdg_lab.testing.training import Trained, train_in_memory
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {
    "dataset": "growing",
    "generated_nodes": 24,
    "generated_edges": 80,
    "generated_snapshots": 40,
    "hidden": 4,
    "learning_rate": 0.02,
    "device": "cpu",
    "layers": 2,
    "epochs": 4,
    "parts": 2,
}
ASKED = 1  # the change is asked for in the second step, an epoch each, and rules from the third


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is found that an earlier test has made."""
    graph_of()  # loaded from the common cache
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))


def config_of(**changes: Any) -> RunConfig:
    return RunConfig(**{"system": "adgnn-t", "partitioner": "round_robin", **SMALL, **changes})


@cache
def graph_of() -> DynamicGraph:
    return load_for(config_of())


def train(path: Path, config: RunConfig, **how: Any) -> Trained:
    return train_in_memory(config, graph_of(), path / "last.pt", **how)


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"partitioner": "load_aware"}),
    ({}, {"partitioner": "load_aware", "assignment_order": "plain", "parts": 3}),
    ({}, {"parts": 4}),
    ({}, {"halo_reuse": True}),
    ({}, {"system": "pygt-dist"}),
    ({"system": "pygt-dist"}, {"system": "adgnn-t", "partitioner": "metis"}),
    ({"system": "pygt-dist"}, {"cache_gib": 1.0}),
    ({}, {"system": "psg"}),
    ({"parts": 1}, {"system": "single"}),
]


@pytest.mark.parametrize(("start", "changes"), thinned(CHANGES, [3]), ids=str)
def test_a_change_is_resuming_its_checkpoint_with_it_and_is_told_with_its_seconds(
    tmp_path: Path, start: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Model, optimiser and position go on; the same bits as stopping there and resuming under the new settings."""
    config = config_of(**start)
    live = train(tmp_path, config, script={ASKED: {"set": changes}})
    train(tmp_path, config, script={ASKED: {"stop": True}})
    resumed = train(tmp_path, config, resume=True, changes=changes, first_step=ASKED + 1)
    assert live.losses[ASKED + 1 :] == resumed.losses
    assert len(resumed.losses) >= 2
    assert live.parameters.keys() == resumed.parameters.keys()
    for name, tensor in live.parameters.items():
        assert torch.equal(tensor, resumed.parameters[name]), name
    assert live.config == resumed.config == config.replace(**changes)
    assert {int(state["step"]) for state in live.optimizer["state"].values()} == {len(live.losses)}
    _check_told(live, changes)


def _check_told(done: Trained, changes: dict[str, Any]) -> None:
    (knob,) = done.recorder.events("settings")
    assert (knob["step"], knob["data"]["when"], knob["data"]["changes"]) == (ASKED + 1, "epoch", changes)
    assert 0 < knob["data"]["duration_s"] < 60
    (rebuild,) = [row for row in done.recorder.tables["phases"] if row["phase"] == "rebuild"]
    assert (rebuild["end_ns"] - rebuild["start_ns"]) * 1e-9 == pytest.approx(knob["data"]["duration_s"], rel=1e-6)
    described = done.recorder.events("partition")
    config = done.config
    assert [event["step"] for event in described] == [0, ASKED + 1]
    assert "rebuild_s" not in described[0]["data"]
    now = described[-1]["data"]
    if config.system not in ("adgnn-t", "pygt-dist"):
        assert now == {"layout": None, "rebuild_s": knob["data"]["duration_s"]}
    else:
        assert (now["partitioner"], now["parts"]) == (config["partitioner"], config.parts)
        assert now["rebuild_s"] == knob["data"]["duration_s"]
        assert sum(now["measures"]["owned"]) == SMALL["generated_nodes"]


def test_a_system_s_settings_are_asked_for_with_it_or_after_it_and_forgotten_without_it(tmp_path: Path) -> None:
    """Requests in one epoch, one after another, end as the last one would have them."""
    there = train(
        tmp_path,
        config_of(epochs=4).replace(system="psg", epochs=1),
        script={
            0: {"set": {"system": "adgnn-t"}},
            1: {"set": {"partitioner": "load_aware"}},
        },
    )
    assert (there.config.system, there.config["partitioner"]) == ("adgnn-t", "load_aware")
    back = train(
        tmp_path,
        config_of(epochs=4).replace(system="psg", epochs=1),
        script={
            0: {"set": {"system": "adgnn-t", "partitioner": "hash"}},
            1: {"set": {"system": "psg"}},
            2: {"set": {"loss_at": "all"}},
        },
    )
    assert (back.config.system, back.config["loss_at"]) == ("psg", "all")
    for done in (there, back):
        assert done.recorder.events("refused") == []


@pytest.mark.slow
def test_exact_layouts_learn_the_same_whatever_changes(tmp_path: Path) -> None:
    """One process: neither the partition nor the exact node layout is seen in the losses."""
    plain = train(tmp_path, config_of(dtype="float64", optimizer="sgd").replace(system="single", parts=1))
    changing = train(
        tmp_path,
        config_of(dtype="float64", optimizer="sgd"),
        script={
            0: {"set": {"partitioner": "hash"}},
            1: {"set": {"system": "pygt-dist", "parts": 3}},
            2: {"set": {"system": "adgnn-t"}},
        },
    )
    assert changing.losses == pytest.approx(plain.losses, rel=1e-10)


@cache
def untouched(system: str) -> list[float]:
    with TemporaryDirectory() as folder:
        return train(Path(folder), config_of(system=system)).losses


@pytest.mark.parametrize(
    ("start", "changes", "said"),
    thinned(
        [
            ({}, {"parts": 25}, "parts=25 must be from 1 to 24"),
            ({}, {"system": "pygt-dist", "cache_gib": 0.0}, "cache_gib=0 allows 0"),
            ({}, {"partitioner": "file"}, "partition_file"),
            ({}, {"partitioner": "file", "partition_file": "elsewhere.npz"}, "elsewhere.npz"),
            ({}, {"system": "psg", "group_window": 20}, "room for 0 groups"),
            ({"system": "pygt-dist"}, {"parts": 30}, "parts=30 must be from 1 to 24"),
        ],
        [1],
    ),
    ids=str,
)
def test_a_change_that_does_not_fit_leaves_the_run_as_it_was(
    tmp_path: Path, start: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    config = config_of(**start)
    done = train(tmp_path, config, script={ASKED: {"set": changes}})
    assert done.losses == untouched(config.system)
    assert done.config == config
    (refused,) = done.recorder.events("refused")
    assert (refused["step"], refused["data"]["changes"]) == (ASKED + 1, changes)
    assert said in refused["data"]["reason"]
    assert done.recorder.events("settings") == []


def _crashing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every child process ends as METIS does on a graph it cannot bear: by a signal."""
    crash = tmp_path / "crash"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    monkeypatch.setattr(in_child.sys, "executable", str(crash))


@pytest.mark.parametrize("partitioner", thinned(["metis", "hypergraph"], [1]))
def test_a_partitioner_that_crashes_leaves_the_run_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitioner: str
) -> None:
    wanted = untouched("adgnn-t")
    _crashing(monkeypatch, tmp_path)
    done = train(tmp_path, config_of(), script={ASKED: {"set": {"partitioner": partitioner}}})
    assert done.losses == wanted
    (refused,) = done.recorder.events("refused")
    for words in (partitioner, signal.SIGSEGV.name, "another partitioner"):
        assert words in refused["data"]["reason"]


def test_a_run_whose_first_partition_crashes_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _crashing(monkeypatch, tmp_path)
    with pytest.raises(PartitionError, match="SIGSEGV"):
        train(tmp_path, config_of(partitioner="metis"))


def test_a_partition_of_one_s_own_is_trained_with(tmp_path: Path) -> None:
    graph = graph_of()
    made = make_partition("load_aware", graph, 2)
    file = tmp_path / "mine.npz"
    save_partition(made, file)
    done = train(tmp_path, config_of(partitioner="file", partition_file=str(file)))
    (described,) = done.recorder.events("partition")
    assert described["data"]["measures"]["owned"] == made.counts.tolist()


@pytest.mark.slow
def test_a_partition_file_of_another_graph_is_refused_with_both(tmp_path: Path) -> None:
    other = load_for(config_of(generated_edges=90))
    assert other.data_hash != graph_of().data_hash
    file = tmp_path / "other.npz"
    save_partition(make_partition("hash", other, 2), file)
    done = train(tmp_path, config_of(), script={ASKED: {"set": {"partitioner": "file", "partition_file": str(file)}}})
    (refused,) = done.recorder.events("refused")
    assert other.data_hash[:8] in refused["data"]["reason"]
    assert graph_of().data_hash[:8] in refused["data"]["reason"]


@pytest.mark.parametrize("system", ["adgnn-t", "pygt-dist"])
@pytest.mark.parametrize("model", ["tgcn", "evolvegcn-h"])
def test_interrupted_and_resumed_is_the_same_run(tmp_path: Path, system: str, model: str) -> None:
    config = config_of(system=system, model=model, partitioner="load_aware", epochs=3)
    whole = train(tmp_path, config)
    for step in range(2):
        first = train(tmp_path, config, script={step: {"stop": True}})
        second = train(tmp_path, config, resume=True, first_step=step + 1)
        assert first.losses + second.losses == whole.losses
        assert all(torch.equal(tensor, whole.parameters[name]) for name, tensor in second.parameters.items())


@pytest.mark.slow
def test_link_prediction_needs_the_layout_that_exchanges(tmp_path: Path) -> None:
    link = {"task": "link", "link_share": 0.5, "ranking_negatives": 6}
    done = train(tmp_path, config_of(**link), script={ASKED: {"set": {"system": "pygt-dist"}}})
    (refused,) = done.recorder.events("refused")
    assert "halo_vertex" in refused["data"]["reason"]
    assert len(done.losses) == SMALL["epochs"]
