"""Partition and system change in the middle of a run of two processes: together, or on none of them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from dtdg_lab.comm.group import Group, SoloGroup
from dtdg_lab.core.config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition import in_child
from dtdg_lab.testing.in_memory import Trained, train_in_memory
from dtdg_lab.testing.processes import join_group, run_ranks
from dtdg_lab.training import layouts

EPOCHS = 9
SMALL = {"system": "adgnn-t", "partitioner": "hash", "dataset": "growing", "generated_nodes": 24,
         "generated_edges": 80, "generated_snapshots": 40, "hidden": 4, "layers": 2, "learning_rate": 0.02,
         "device": "cpu", "parts": 2, "epochs": EPOCHS, "dtype": "float64", "optimizer": "sgd"}  # fmt: skip
STORY: dict[int, dict[str, Any]] = {
    0: {"set": {"partitioner": "load_aware"}},
    1: {"set": {"partitioner": "metis", "parts": 4}},
    2: {"set": {"system": "pygt-dist", "parts": 2}},
    3: {"set": {"halo_reuse": True, "system": "adgnn-t"}},
    4: {"set": {"partitioner": "round_robin"}},
}
CRASHES = {2: {"set": {"partitioner": "metis"}}}
TOO_LARGE = {2: {"set": {"system": "pygt-dist", "cache_gib": 0.0}}}


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(**SMALL))


def _train(group: Group, folder: Path, **how: Any) -> Trained:
    group.barrier()  # rank 0 may still be writing the checkpoint that another one reads
    config = RunConfig(**SMALL, ranks=group.size)
    return train_in_memory(config, _graph(), folder / "last.pt", group=group, **how)


def _told(done: Trained) -> dict[str, Any]:
    tables = done.recorder.tables
    return {"losses": done.losses, "parameters": done.parameters, "knobs": done.recorder.events("knob"),
            "refused": done.recorder.events("refused"), "partitions": done.recorder.events("partition"),
            "links": tables.get("links", []), "config": done.config.to_json()}  # fmt: skip


def everything(group: Group, folder: Path) -> dict[str, Any]:
    found = {"story": _told(_train(group, folder, script=STORY))}
    found["untouched"] = _told(_train(group, folder))
    halted = _train(group, folder, script={1: {"stop": True}})
    changes = {"partitioner": "metis", "parts": 4}
    found["resumed"] = [*halted.losses, *_train(group, folder, resume=True, changes=changes, first_step=2).losses]
    found["live"] = _told(_train(group, folder, script={1: {"set": changes}}))
    found["too_large"] = _told(_train(group, folder, script=TOO_LARGE))
    with pytest.MonkeyPatch.context() as patch:  # the only partitioner's process dies, on rank 0
        patch.setattr(in_child.sys, "executable", "/bin/false")
        patch.setenv("DTDG_LAB_CACHE", str(folder / f"cache-{os.getpid()}"))
        found["crashes"] = _told(_train(group, folder, script=CRASHES))
    with pytest.MonkeyPatch.context() as patch:  # one rank cannot build what the others can
        if group.rank == 1:
            patch.setattr(layouts, "cached_sequences", _no_memory)
        found["one_fails"] = _told(_train(group, folder, script={2: {"set": {"system": "pygt-dist"}}}))
    return found


def _no_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError("cannot map the part")


def _on_rank(rank: int, ranks: int, address: str, folder: str) -> dict[str, Any]:
    group = join_group(rank, ranks, address)
    found = everything(group, Path(folder))
    group.close()
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    _graph()
    return run_ranks(_on_rank, 2, str(tmp_path_factory.mktemp("changes")), timeout_s=120)


def test_every_change_is_made_on_both_ranks_at_one_step(ranks: list[dict[str, Any]]) -> None:
    one, other = (
        [(event["step"], event["data"]["when"], event["data"]["changes"]) for event in found["story"]["knobs"]]
        for found in ranks
    )
    assert one == other == [(step + 1, "epoch", asked["set"]) for step, asked in STORY.items()]
    assert ranks[0]["story"]["config"] == ranks[1]["story"]["config"]


def test_ranks_hold_the_same_bits_through_all_changes(ranks: list[dict[str, Any]]) -> None:
    one, other = (found["story"] for found in ranks)
    assert one["losses"] == other["losses"]
    assert all(torch.equal(tensor, other["parameters"][name]) for name, tensor in one["parameters"].items())


def test_exact_layouts_learn_on_as_if_nothing_had_changed(ranks: list[dict[str, Any]], tmp_path: Path) -> None:
    alone = _train(SoloGroup(), tmp_path)
    assert len(alone.losses) == EPOCHS
    for found in ranks:
        assert found["story"]["losses"] == pytest.approx(alone.losses, rel=1e-10)


def test_a_change_on_two_ranks_is_resuming_with_it(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["live"]["losses"] == found["resumed"]


def test_rank_0_tells_every_partition_and_both_tell_what_they_send(ranks: list[dict[str, Any]]) -> None:
    told = ranks[0]["story"]["partitions"]
    assert ranks[1]["story"]["partitions"] == []
    assert [event["step"] for event in told] == [0, *(step + 1 for step in STORY)]
    assert [event["data"]["parts"] for event in told] == [2, 2, 4, 2, 2, 2]
    for step in range(EPOCHS):
        now = [event["data"] for event in told if event["step"] <= step][-1]
        for way in ("forward", "backward"):
            sent = [[0, 0], [0, 0]]
            for rank, found in enumerate(ranks):
                for row in found["story"]["links"]:
                    if (row["step"], row["way"]) == (step, way):
                        sent[rank][row["to"]] += row["bytes"]
            wanted = [[sum(layer[q][p] for layer in now["predicted"][way]) for p in (0, 1)] for q in (0, 1)]
            if step in (4, 5) and way == "forward":  # what is kept from then on is fetched once
                assert sum(map(sum, sent)) > sum(map(sum, wanted))
            else:
                assert sent == wanted, (step, way)


@pytest.mark.parametrize(
    ("story", "said"),
    [("crashes", "metis"), ("too_large", "cache_gib=0"), ("one_fails", "another rank could not build it")],
)
def test_a_change_that_fails_anywhere_is_made_nowhere(ranks: list[dict[str, Any]], story: str, said: str) -> None:
    for found in ranks:
        assert found[story]["losses"] == found["untouched"]["losses"]
        assert found[story]["knobs"] == []
    (refused,) = ranks[0][story]["refused"]
    assert said in refused["data"]["reason"]
