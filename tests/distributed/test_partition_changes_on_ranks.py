"""Partition and system change in the middle of a run of two processes: together, or on none of them."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Partition
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.exchange import halo
from dtdg_lab.engine.exchange.halo import HaloSequence
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition import child_process as in_child
from dtdg_lab.systems.vertex_parts import strategy
from dtdg_lab.testing.training import Trained, train_in_memory
from dtdg_lab.training import build
from dtdg_lab.training import partition as partitioned
from tests import factories
from tests.distributed.groups import in_groups

EPOCHS = 9
SMALL = {
    **factories.SMALL,
    **factories.EXACT,
    "system": "adgnn-t",
    "partitioner": "hash",
    "layers": 2,
    "parts": 2,
    "epochs": EPOCHS,
}
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


def _to_dict(done: Trained) -> dict[str, Any]:
    tables = done.recorder.tables
    return {
        "losses": done.losses,
        "parameters": done.parameters,
        "knobs": done.recorder.events("settings"),
        "refused": done.recorder.events("refused"),
        "partitions": done.recorder.events("partition"),
        "links": tables.get("links", []),
        "config": done.config.to_json(),
    }


def everything(group: Group, folder: Path) -> dict[str, Any]:
    found = {"story": _to_dict(_train(group, folder, script=STORY))}
    found["untouched"] = _to_dict(_train(group, folder))
    halted = _train(group, folder, script={1: {"stop": True}})
    changes = {"partitioner": "metis", "parts": 4}
    found["resumed"] = [*halted.losses, *_train(group, folder, resume=True, changes=changes, first_step=2).losses]
    found["live"] = _to_dict(_train(group, folder, script={1: {"set": changes}}))
    found["too_large"] = _to_dict(_train(group, folder, script=TOO_LARGE))
    with pytest.MonkeyPatch.context() as patch:  # the only partitioner's process dies, on rank 0
        patch.setattr(in_child.sys, "executable", "/bin/false")
        patch.setenv("DTDG_LAB_CACHE", str(folder / f"cache-{os.getpid()}"))
        found["crashes"] = _to_dict(_train(group, folder, script=CRASHES))
    with pytest.MonkeyPatch.context() as patch:  # one rank cannot build what the others can
        if group.rank == 1:
            patch.setattr(strategy, "cached_sequences", _no_memory)
        found["one_fails"] = _to_dict(_train(group, folder, script={2: {"set": {"system": "pygt-dist"}}}))
    with pytest.MonkeyPatch.context() as patch:  # before the ranks have agreed on anything but the partition
        if group.rank == 1:
            patch.setattr(build, "_model", _full_the_second_time(build._model))
        found["fails_early"] = _to_dict(_train(group, folder, script={2: {"set": {"partitioner": "round_robin"}}}))
    with pytest.MonkeyPatch.context() as patch:  # spaces do not fit, and ranks have very different shares
        patch.setattr(halo, "HaloSequence", _with_little_room)
        patch.setattr(partitioned, "make_partition", _uneven)
        found["reuse"] = _to_dict(_train(group, folder, script={1: {"set": {"halo_reuse": True}}}))
    found["alive"] = _alive()
    return found


def _with_little_room(*given: Any, **more: Any) -> HaloSequence:
    *others, settings = given
    settings = replace(settings, limits=replace(settings.limits, views_bytes=12_000))
    return HaloSequence(*others, settings, **more)


def _uneven(name: str, graph: DynamicGraph, parts: int, **_: Any) -> Partition:
    return Partition((np.arange(graph.num_nodes) >= graph.num_nodes - 2).astype(np.int32), parts)


def _alive() -> int:
    return sum(type(one) is HaloSequence for one in gc.get_objects())


def _full_the_second_time(make: Callable[..., Any]) -> Callable[..., Any]:
    made = []

    def full(*given: Any) -> Any:
        if made:
            raise RuntimeError("the device is full")
        made.append(make(*given))
        return made[0]

    return full


def _no_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError("cannot map the part")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    _graph()
    return in_groups(everything, 2, tmp_path_factory.mktemp("changes"))


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
    described = ranks[0]["story"]["partitions"]
    assert ranks[1]["story"]["partitions"] == []
    assert [event["step"] for event in described] == [0, *(step + 1 for step in STORY)]
    assert [event["data"]["parts"] for event in described] == [2, 2, 4, 2, 2, 2]
    for step in range(EPOCHS):
        now = [event["data"] for event in described if event["step"] <= step][-1]
        for way in ("forward", "backward"):
            sent = [[0, 0], [0, 0]]
            for rank, found in enumerate(ranks):
                for row in found["story"]["links"]:
                    if (row["step"], row["pass_name"]) == (step, way):
                        sent[rank][row["to"]] += row["bytes"]
            wanted = [[sum(layer[q][p] for layer in now["predicted"][way]) for p in (0, 1)] for q in (0, 1)]
            if step in (4, 5) and way == "forward":  # what is kept from then on is fetched once
                assert sum(map(sum, sent)) > sum(map(sum, wanted))
            else:
                assert sent == wanted, (step, way)


def test_what_is_kept_is_the_same_on_ranks_of_unequal_shares(ranks: list[dict[str, Any]]) -> None:
    """Else one rank waits for rows that another has kept."""
    for found in ranks:
        assert found["reuse"]["losses"] == pytest.approx(found["untouched"]["losses"], rel=1e-10)
        first_layer = [
            row["step"] for row in found["reuse"]["links"] if (row["layer"], row["pass_name"]) == (0, "forward")
        ]
        assert sorted(set(first_layer)) == [0, 1, 2]  # fetched once more after the change, then kept


def test_sequences_that_were_replaced_are_let_go(ranks: list[dict[str, Any]]) -> None:
    assert [found["alive"] <= 1 for found in ranks] == [True, True]


@pytest.mark.parametrize(
    ("story", "said"),
    [
        ("crashes", "metis"),
        ("too_large", "cache_gib=0"),
        ("one_fails", "rank 1 could not build it: MemoryError: cannot map the part"),
        ("fails_early", "rank 1 could not build it: RuntimeError: the device is full"),
    ],
)
def test_a_change_that_fails_anywhere_is_made_nowhere(ranks: list[dict[str, Any]], story: str, said: str) -> None:
    for found in ranks:
        assert found[story]["losses"] == found["untouched"]["losses"]
        assert found[story]["knobs"] == []
    (refused,) = ranks[0][story]["refused"]
    assert said in refused["data"]["reason"]
