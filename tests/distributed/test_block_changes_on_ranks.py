"""Blocks, overlap, differences, rows of ranks and systems change in a run of two processes: together, or on none."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.exchange.overlap import TRIED
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.records.events import OverlapChosen
from dtdg_lab.testing.training import Trained, train_in_memory
from tests import factories
from tests.distributed.groups import in_groups

EPOCHS, TRAINED = 11, 12
SMALL = {**factories.SMALL, **factories.EXACT, "generated_nodes": 23, "layers": 2, "epochs": EPOCHS}
STORY: dict[int, dict[str, Any]] = {  # step -> changes
    0: {"blocks": 5},
    1: {"overlap": False},
    2: {"row_ranks": 2},
    3: {"row_ranks": 1, "blocks": 3, "delta_transfer": False},
    4: {"blocks": 0, "memory_gib": 1.0},
    5: {"system": "hypergraph-vertex", "blocks": 4},
    6: {"system": "esdg-hybrid"},
    7: {"blocks": 2, "halo_reuse": True},
    8: {"system": "esdg", "graph_storage": "streamed"},
}
REFUSED = {
    "row_ranks=3 does not divide ranks=2": {"set": {"row_ranks": 3}},
    "blocks=13 of 12 snapshots": {"set": {"blocks": 13}},
    "memory_gib=1e-06": {"set": {"blocks": 0, "memory_gib": 1e-6}},
}
RESUMED = [{"system": "esdg", "blocks": 5}, {"system": "esdg-hybrid", "blocks": 3}]


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(**SMALL))


def _train(group: Group, folder: Path, settings: dict[str, Any], **how: Any) -> Trained:
    group.barrier()  # rank 0 may still be writing the checkpoint that another one reads
    config = RunConfig(**{**SMALL, **settings}, ranks=group.size)
    return train_in_memory(config, _graph(), folder / "last.pt", group=group, **how)


def _to_dict(done: Trained) -> dict[str, Any]:
    recorder = done.recorder
    return {
        "losses": done.losses,
        "parameters": done.parameters,
        "config": done.config,
        **{kind: recorder.events(kind) for kind in ("settings", "refused", "blocks", "partition", "overlap")},
        **{table: recorder.tables[table] for table in ("links", "exchanges", "transfers")},
    }


def everything(group: Group, folder: Path) -> dict[str, Any]:
    esdg = {"system": "esdg", "graph_storage": "streamed"}
    found: dict[str, Any] = {
        "story": _to_dict(
            _train(group, folder, esdg, script={step: {"set": changes} for step, changes in STORY.items()})
        )
    }
    short = {**esdg, "blocks": 2, "epochs": 4}
    found["untouched"] = _to_dict(_train(group, folder, short))
    found["refused"] = _to_dict(_train(group, folder, short, script=dict(enumerate(REFUSED.values()))))
    tried = {**esdg, "blocks": 2, "epochs": len(TRIED) + 1}
    for overlap in ("auto", "off"):
        found[overlap] = _to_dict(_train(group, folder, {**tried, "overlap": overlap}))
    for number, settings in enumerate(RESUMED):
        settings = {**settings, "epochs": 5, "optimizer": "adam"}
        whole = _train(group, folder, settings)
        first = _train(group, folder, settings, script={1: {"stop": True}})
        second = _train(group, folder, settings, resume=True, first_step=2)
        found[f"resumed {number}"] = [_to_dict(done) for done in (whole, first, second)]
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    _graph()
    return in_groups(everything, 2, tmp_path_factory.mktemp("changes"))


def test_every_change_is_made_on_both_ranks_at_one_step(ranks: list[dict[str, Any]]) -> None:
    one, other = (
        [(event["step"], event["data"]["when"], event["data"]["changes"]) for event in found["story"]["settings"]]
        for found in ranks
    )
    assert one == other == [(step + 1, "epoch", changes) for step, changes in STORY.items()]
    assert ranks[0]["story"]["config"] == ranks[1]["story"]["config"]
    assert ranks[0]["story"]["config"].system == "esdg"
    assert not any(found["story"]["refused"] for found in ranks)


def test_ranks_hold_the_same_bits_and_learn_on_as_one_process_that_nothing_happened_to(
    ranks: list[dict[str, Any]], tmp_path: Path
) -> None:
    one, other = (found["story"] for found in ranks)
    assert one["losses"] == other["losses"]
    assert all(torch.equal(tensor, other["parameters"][name]) for name, tensor in one["parameters"].items())
    alone = _train(SoloGroup(), tmp_path, {"system": "single"})
    assert len(alone.losses) == EPOCHS
    assert one["losses"] == pytest.approx(alone.losses, rel=1e-10)


def test_blocks_are_told_at_every_change_and_left_with_the_last(ranks: list[dict[str, Any]]) -> None:
    described = [(event["step"], event["data"]) for event in ranks[0]["story"]["blocks"]]
    assert ranks[1]["story"]["blocks"] == []
    assert [(step, data["layout"], data["blocks"], data["row_ranks"]) for step, data in described] == [
        (0, "snapshot", 1, 1),
        (1, "snapshot", 5, 1),
        (2, "snapshot", 5, 1),
        (3, "snapshot", 5, 2),
        (4, "snapshot", 3, 1),
        (5, "snapshot", 1, 1),
        (6, "halo_vertex", 4, 1),
        (7, "snapshot", 4, 2),
        (8, "snapshot", 2, 2),
        (9, "snapshot", 2, 1),
    ]
    assert described[5][1]["requested"] == 0
    left = [(event["step"], event["data"]["layout"]) for event in ranks[0]["story"]["partition"]]
    assert left == [(6, "halo_vertex"), (7, None)]


def test_what_ranks_send_after_every_change_is_what_was_told_with_it(ranks: list[dict[str, Any]]) -> None:
    described = {event["step"]: event["data"]["predicted"] for event in ranks[0]["story"]["blocks"]}
    kept_from = 9  # the first step with halo_reuse sends what is kept from the second on
    for step in range(EPOCHS):
        if step in (kept_from - 1, kept_from):
            continue
        predicted = described[max(since for since in described if since <= step)]
        for way, sent in predicted.items():
            moved = np.zeros_like(np.array(sent, dtype=np.int64))
            for rank, found in enumerate(ranks):
                for row in found["story"]["links"]:
                    if (row["step"], row["pass_name"]) == (step, way):
                        moved[row["layer"], rank, row["to"]] += row["bytes"]
            assert moved.tolist() == sent, (step, way)


def test_records_tell_the_exchanges_and_the_graphs_brought(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        story = found["story"]
        legs = {
            step: {row["collective"] for row in story["exchanges"] if row["step"] == step} for step in range(EPOCHS)
        }
        redistributed = {"to_vertices", "to_snapshots"}
        assert all(legs[step] == redistributed for step in (0, 1, 2, 4, 5, 9, 10))
        assert all(legs[step] and not legs[step] & redistributed for step in (3, 6, 7)), "one column, or node parts"
        counts = {step: {row["exchanges"] for row in story["exchanges"] if row["step"] == step} for step in (2,)}
        assert counts[2] == {4, 5}, "without overlap one a block"
        assert all(0 <= row["exposed_s"] <= row["in_flight_s"] for row in story["exchanges"])
        brought = {row["step"]: row for row in story["transfers"]}
        assert sorted(brought) == [1, 2, 4, 9, 10], "of one block, and where rows are split, graphs stay"
    saved = {
        step: sum(
            found["story"]["transfers"][place]["whole_bytes"] - found["story"]["transfers"][place]["bytes"]
            for found in ranks
        )
        for place, step in enumerate((1, 2, 4, 9, 10))
    }
    assert saved[1] == saved[2] > 0 and saved[9] > 0 and saved[4] == 0


def test_overlap_is_chosen_by_epochs_timed_both_ways(ranks: list[dict[str, Any]]) -> None:
    """The same bits, whatever is chosen; one event tells of both times."""
    for found in ranks:
        assert found["auto"]["losses"] == found["off"]["losses"]
        assert found["off"]["overlap"] == []
    (chosen,) = ranks[0]["auto"]["overlap"]
    assert chosen["step"] == len(TRIED) and ranks[1]["auto"]["overlap"] == []
    told = chosen["data"]
    assert told["off_s"] > 0 < told["on_s"] and (not told["on"] or told["on_s"] < told["off_s"])
    assert OverlapChosen.read(told).words.startswith("Exchanges")


def test_what_does_not_fit_is_refused_by_both_and_the_run_goes_on(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["refused"]["losses"] == found["untouched"]["losses"]
        assert found["refused"]["config"] == found["untouched"]["config"]
        assert found["refused"]["settings"] == []
    assert ranks[1]["refused"]["refused"] == []
    for number, (said, refused) in enumerate(zip(REFUSED, ranks[0]["refused"]["refused"], strict=True)):
        assert said in refused["data"]["reason"]
        assert (refused["step"], refused["data"]["changes"]) == (number + 1, REFUSED[said]["set"])
    assert [event["step"] for event in ranks[0]["refused"]["blocks"]] == [0]


@pytest.mark.parametrize("number", range(len(RESUMED)), ids=[each["system"] for each in RESUMED])
def test_resumed_in_the_middle_is_the_undisturbed_run(ranks: list[dict[str, Any]], number: int) -> None:
    for found in ranks:
        whole, first, second = found[f"resumed {number}"]
        assert first["losses"] + second["losses"] == whole["losses"]
        assert len(second["losses"]) == 3
        assert all(torch.equal(tensor, second["parameters"][name]) for name, tensor in whole["parameters"].items())
