"""Systems, their parts and their settings change in the middle of a run, or are refused; one process."""

from __future__ import annotations

import signal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError, PartitionError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.partition import child_process as in_child
from dtdg_lab.partition.base import make_partition, save_partition
from dtdg_lab.testing.training import Trained, train_in_memory
from dtdg_lab.training.block_memory import GIB
from dtdg_lab.training.build import build
from tests.factories import EXACT, SMALL, small_config, small_graph
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("one_thread")
NODES, TRAINED = SMALL["generated_nodes"], 12
# Layouts in blocks of time, by parts and by groups of snapshots
BLOCKS: dict[str, Any] = {"system": "esdg", "layers": 2, "epochs": 4, **EXACT}
PARTS: dict[str, Any] = {"system": "adgnn-t", "partitioner": "round_robin", "parts": 2, "layers": 2, "epochs": 4}
GROUPS: dict[str, Any] = {"system": "psg", "parts": 2, "epochs": 2}
HALO = {"system": "hypergraph-vertex", "partitioner": "round_robin"}
ASKED, RULED = 1, 2  # the change is asked for in the second step, an epoch each, and rules from the third


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is found that an earlier test has made."""
    small_graph()  # loaded from the common cache
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))


def train(path: Path, config: RunConfig, **how: Any) -> Trained:
    return train_in_memory(config, small_graph(), path / "last.pt", **how)


def untouched(config: RunConfig) -> list[float]:
    return _losses(config.to_json())


@cache
def _losses(config: str) -> list[float]:
    with TemporaryDirectory() as folder:
        return train(Path(folder), RunConfig.from_json(config)).losses


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({**BLOCKS, "blocks": 1}, {"blocks": 3}),
    ({**BLOCKS, "blocks": 5}, {"blocks": 1}),
    ({**BLOCKS, "blocks": 4}, {"blocks": 0, "memory_gib": 2.0}),
    ({**BLOCKS, "blocks": 1}, {"overlap": False}),
    ({**BLOCKS, "blocks": 3}, {"delta_transfer": False}),
    ({**BLOCKS, "blocks": 2}, {"halo_reuse": True}),
    ({**BLOCKS, "blocks": 4}, HALO),
    ({**BLOCKS, "blocks": 4, **HALO}, {"system": "esdg"}),
    ({**BLOCKS, "blocks": 2}, {"system": "single"}),
    ({**BLOCKS, "system": "single"}, {"system": "esdg", "blocks": 12}),
    (PARTS, {"partitioner": "load_aware"}),
    (PARTS, {"partitioner": "load_aware", "assignment_order": "plain", "parts": 3}),
    (PARTS, {"parts": 4}),
    (PARTS, {"halo_reuse": True}),
    (PARTS, {"system": "pygt-dist"}),
    ({**PARTS, "system": "pygt-dist"}, {"system": "adgnn-t", "partitioner": "metis"}),
    ({**PARTS, "system": "pygt-dist"}, {"cache_gib": 1.0}),
    (PARTS, {"system": "psg"}),
    ({**PARTS, "parts": 1}, {"system": "single"}),
    (GROUPS, {"scheduler": "longest_first"}),
    (GROUPS, {"epochs": 3}),
    (GROUPS, {"group_window": 6}),
    (GROUPS, {"group_stride": 2, "loss_at": "all"}),
    ({**GROUPS, "parts": 1, "system": "single", "epochs": 3}, {"system": "psg"}),
]


@pytest.mark.parametrize(("start", "changes"), thinned(CHANGES, [0, 13, 23]), ids=str)
def test_a_change_is_resuming_its_checkpoint_with_it_and_is_told(
    tmp_path: Path, start: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Model, optimiser and position go on; the same bits as stopping there and resuming under the new settings."""
    config = small_config(**start)
    asked, ruled = (3, 5) if config.system == "psg" else (ASKED, RULED)
    live = train(tmp_path, config, script={asked: {"set": changes}})
    train(tmp_path, config, script={ruled - 1: {"stop": True}})
    resumed = train(tmp_path, config, resume=True, changes=changes, first_step=ruled)
    assert resumed.losses and live.losses[ruled:] == resumed.losses
    assert live.parameters.keys() == resumed.parameters.keys()
    for name, tensor in live.parameters.items():
        assert torch.equal(tensor, resumed.parameters[name]), name
    assert live.config == resumed.config == config.replace(**changes)
    if config["optimizer"] == "adam":
        assert {int(state["step"]) for state in live.optimizer["state"].values()} == {len(live.losses)}
    if start.get("dtype") == "float64":  # whatever changes, the same is learnt
        assert live.losses == pytest.approx(untouched(small_config(**{**BLOCKS, "system": "single"})), rel=1e-10)
    assert live.recorder.events("refused") == []
    (knob,) = live.recorder.events("settings")
    assert (knob["step"], knob["data"]["when"], knob["data"]["changes"]) == (ruled, "epoch", changes)
    (rebuild,) = [row for row in live.recorder.tables["phases"] if row["phase"] == "rebuild"]
    assert (rebuild["end_ns"] - rebuild["start_ns"]) * 1e-9 == pytest.approx(knob["data"]["duration_s"], rel=1e-6)
    if start["system"] in ("adgnn-t", "pygt-dist"):
        check_partition_told(live, knob)
    elif start.get("dtype") == "float64":
        check_blocks_told(live, knob, [start["blocks"]] if "blocks" in start else [])


def check_partition_told(live: Trained, knob: dict[str, Any]) -> None:
    described = live.recorder.events("partition")
    assert [event["step"] for event in described] == [0, RULED]
    assert "rebuild_s" not in described[0]["data"]
    now, config = described[-1]["data"], live.config
    assert now["rebuild_s"] == knob["data"]["duration_s"] > 0
    if config.system not in ("adgnn-t", "pygt-dist"):
        assert now.keys() == {"layout", "rebuild_s"} and now["layout"] is None
    else:
        assert (now["partitioner"], now["parts"]) == (config["partitioner"], config.parts)
        assert sum(now["measures"]["owned"]) == NODES


def check_blocks_told(live: Trained, knob: dict[str, Any], before: list[int]) -> None:
    """The blocks before the change and after it; that there are none any more is told too."""
    *earlier, now = live.recorder.events("blocks")
    assert [described["data"]["blocks"] for described in earlier] == before
    assert (now["step"], now["data"]["rebuild_s"]) == (RULED, knob["data"]["duration_s"])
    if live.config.system == "single":
        assert now["data"]["layout"] is None
        return
    bounds = now["data"]["bounds"]
    assert now["data"]["requested"] == live.config["blocks"]
    assert (len(bounds) - 1, bounds[-1] - bounds[0]) == (now["data"]["blocks"], TRAINED)
    assert now["data"]["blocks"] == (live.config["blocks"] or 1), "memory for all of it"


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (PARTS, {"parts": 25}, "parts=25 must be from 1 to 24"),
    (PARTS, {"system": "pygt-dist", "cache_gib": 0.0}, "cache_gib=0 allows 0"),
    (PARTS, {"partitioner": "file"}, "partition_file"),
    (PARTS, {"partitioner": "file", "partition_file": "elsewhere.npz"}, "elsewhere.npz"),
    (PARTS, {"system": "psg", "group_window": 20}, "has only 0 groups"),
    ({**PARTS, "system": "pygt-dist"}, {"parts": 30}, "parts=30 must be from 1 to 24"),
    ({**PARTS, "task": "link", "link_share": 0.5}, {"system": "pygt-dist"}, "halo_vertex"),
    (BLOCKS, {"blocks": TRAINED + 1}, "blocks=13 of 12 snapshots"),
    ({**BLOCKS, **HALO}, {"blocks": TRAINED + 1}, "blocks=13 of 12 snapshots"),
    (BLOCKS, {"row_ranks": 2}, "row_ranks=2 does not divide ranks=1"),
    (BLOCKS, {"system": "esdg-hybrid"}, "row_ranks=2 does not divide ranks=1"),
    ({**BLOCKS, "blocks": 2}, {"blocks": 0, "memory_gib": 1e-6}, "memory_gib=1e-06"),
    ({**BLOCKS, "system": "psg", "model": "dcrnn"}, {"system": "esdg"}, "depends on neighbours"),
]


@pytest.mark.parametrize(("start", "changes", "said"), thinned(REFUSED, [1, 8]), ids=str)
def test_a_change_that_does_not_fit_leaves_the_run_as_it_was(
    tmp_path: Path, start: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    config = small_config(**start)
    done = train(tmp_path, config, script={ASKED: {"set": changes}})
    assert done.losses == untouched(config)
    assert done.config == config
    (refused,) = done.recorder.events("refused")
    assert refused["data"]["changes"] == changes
    assert said in refused["data"]["reason"]
    assert done.recorder.events("settings") == []
    assert len(done.recorder.events("blocks")) == (config.system == "esdg")


@pytest.mark.parametrize(
    "start",
    thinned(
        [
            *({**BLOCKS, "model": model, "blocks": 5, "optimizer": "adam"} for model in ("tgcn", "evolvegcn-h")),
            {**BLOCKS, "model": "evolvegcn-o", "blocks": 2, "optimizer": "adam"},
            *(
                {**PARTS, "system": system, "model": model, "partitioner": "load_aware"}
                for system in ("adgnn-t", "pygt-dist")
                for model in ("tgcn", "evolvegcn-h")
            ),
        ],
        [2, 3, 4, 5, 6],
    ),
    ids=str,
)
def test_interrupted_and_resumed_is_the_same_run(tmp_path: Path, start: dict[str, Any]) -> None:
    config = small_config(**start)
    whole = train(tmp_path, config)
    for step in range(2):
        first = train(tmp_path, config, script={step: {"stop": True}})
        second = train(tmp_path, config, resume=True, first_step=step + 1)
        assert first.losses + second.losses == whole.losses
        assert all(torch.equal(tensor, whole.parameters[name]) for name, tensor in second.parameters.items())
        blocks = [event["data"]["blocks"] for event in second.recorder.events("blocks")]
        assert blocks == ([start["blocks"]] if "blocks" in start else [])


def test_a_system_s_settings_are_asked_for_with_it_or_after_it_and_forgotten_without_it(tmp_path: Path) -> None:
    """Requests in one epoch, one after another, end as the last one would have them."""
    config = small_config(**{**PARTS, "epochs": 1}).replace(system="psg")
    there = [{"system": "adgnn-t"}, {"partitioner": "load_aware"}]
    back = [{"system": "adgnn-t", "partitioner": "hash"}, {"system": "psg"}, {"loss_at": "all"}]
    for requests, system, option, value in (
        (there, "adgnn-t", "partitioner", "load_aware"),
        (back, "psg", "loss_at", "all"),
    ):
        done = train(tmp_path, config, script={step: {"set": changes} for step, changes in enumerate(requests)})
        assert (done.config.system, done.config[option]) == (system, value)
        assert done.recorder.events("refused") == []


@pytest.mark.slow
def test_exact_layouts_learn_the_same_whatever_changes(tmp_path: Path) -> None:
    """One process: neither the partition nor the exact node layout is seen in the losses."""
    requests = [{"partitioner": "hash"}, {"system": "pygt-dist", "parts": 3}, {"system": "adgnn-t"}]
    script = {step: {"set": changes} for step, changes in enumerate(requests)}
    changing = train(tmp_path, small_config(**PARTS, **EXACT), script=script)
    assert changing.losses == pytest.approx(untouched(small_config(**{**BLOCKS, "system": "single"})), rel=1e-10)


# partitioners


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
    config = small_config(**PARTS)
    wanted = untouched(config)
    _crashing(monkeypatch, tmp_path)
    done = train(tmp_path, config, script={ASKED: {"set": {"partitioner": partitioner}}})
    assert done.losses == wanted
    (refused,) = done.recorder.events("refused")
    for words in (partitioner, signal.SIGSEGV.name, "another partitioner"):
        assert words in refused["data"]["reason"]


def test_a_run_whose_first_partition_crashes_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _crashing(monkeypatch, tmp_path)
    with pytest.raises(PartitionError, match="SIGSEGV"):
        train(tmp_path, small_config(**{**PARTS, "partitioner": "metis"}))


def test_a_partition_of_one_s_own_is_trained_with_and_one_of_another_graph_refused(tmp_path: Path) -> None:
    made, other = make_partition("load_aware", small_graph(), 2), load_for(small_config(generated_edges=90))
    assert other.data_hash != small_graph().data_hash
    mine, theirs = tmp_path / "mine.npz", tmp_path / "other.npz"
    save_partition(made, mine)
    save_partition(make_partition("hash", other, 2), theirs)
    config = small_config(**{**PARTS, "partitioner": "file", "partition_file": str(mine)})
    done = train(tmp_path, config, script={ASKED: {"set": {"partition_file": str(theirs)}}})
    (described,) = done.recorder.events("partition")
    assert described["data"]["measures"]["owned"] == made.counts.tolist()
    (refused,) = done.recorder.events("refused")
    assert other.data_hash[:8] in refused["data"]["reason"]
    assert small_graph().data_hash[:8] in refused["data"]["reason"]


# blocks


@pytest.mark.slow
def test_graphs_are_brought_by_the_blocks_in_use(tmp_path: Path) -> None:
    """Those of one block stay, and kept ones; of several all but the last's are brought twice."""
    done = train(
        tmp_path,
        small_config(**{**BLOCKS, "epochs": 8}),
        script={
            1: {"set": {"blocks": 3, "graph_storage": "streamed"}},
            3: {"set": {"delta_transfer": False}},
            5: {"set": {"graph_storage": "resident"}},
            6: {"set": {"blocks": 1, "graph_storage": "streamed"}},
        },
    )
    brought = {row["step"]: row for row in done.recorder.tables["transfers"]}
    assert sorted(brought) == [2, 3, 4, 5]
    twice = TRAINED + TRAINED * 2 // 3
    assert {row["snapshots"] for row in brought.values()} == {twice}
    for step, row in brought.items():
        assert (row["bytes"] == row["whole_bytes"]) == (step >= 4)
        assert row["bytes"] <= row["whole_bytes"]


def test_graphs_stay_where_their_operators_fit_in_the_memory(tmp_path: Path) -> None:
    """Else they are brought for every block; either way the same bits are learnt."""
    stay, come = (
        train(tmp_path, small_config(**BLOCKS, blocks=3, memory_gib=memory_gib)) for memory_gib in (1e-3, 1e-5)
    )
    assert stay.losses == come.losses
    assert (stay.recorder.tables["transfers"] == [], len(come.recorder.tables["transfers"])) == (True, 4)
    kept, brought = (done.recorder.events("blocks")[0]["data"]["note"] for done in (stay, come))
    assert "stay on the device (memory_gib=0.001)" in kept and "transferred for every block" in brought


@pytest.mark.slow
def test_memory_chooses_the_blocks_and_less_of_it_chooses_more(tmp_path: Path) -> None:
    config = small_config(**BLOCKS, blocks=0)
    memory = build(config, small_graph(), SoloGroup()).strategy.block_memory
    gib = {blocks: 1.001 * memory.peak_bytes(blocks) / GIB for blocks in (3, 6)}  # just enough for so many
    script = {step: {"set": {"memory_gib": enough}} for step, enough in enumerate((gib[3], gib[6], 1.0))}
    done = train(tmp_path, config, script=script)
    described = [event["data"] for event in done.recorder.events("blocks")]
    assert [data["blocks"] for data in described] == [1, 3, 6, 1]
    assert all(data["requested"] == 0 and "memory_gib" in data["note"] for data in described)


# groups


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"group_window": 12}, "12 snapshots has only 1 groups of group_window=12"),
        ({"group_window": 20}, "12 snapshots has only 0 groups of group_window=20"),
        ({"group_window": 7, "group_stride": 6}, "has only 1 groups of group_window=7.*13 snapshots. are needed"),
    ],
    ids=str,
)
def test_fewer_than_two_groups_are_refused_with_the_numbers(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        build(small_config(**GROUPS, **settings), small_graph(), SoloGroup())
    assert len(build(small_config(group_window=11), small_graph(), SoloGroup()).strategy.epoch(0)) == 2
