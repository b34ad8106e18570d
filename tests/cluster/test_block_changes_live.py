"""Blocks, overlap, differences, rows of ranks and the system change while two real engines train."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.stored_run import open_run
from tests.following import applied_at_one_step, change, events, losses_of, refused, stop, until_step

REDISTRIBUTED = {"to_vertices", "to_snapshots"}
# layout, blocks and row_ranks are told with each; halo_vertex tells of its blocks alone, and psg of leaving them
STORY: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"system": "esdg"}, ("snapshot", 1, 1)),
    ({"blocks": 4, "graph_storage": "streamed"}, ("snapshot", 4, 1)),
    ({"overlap": "off"}, ("snapshot", 4, 1)),
    ({"delta_transfer": False}, ("snapshot", 4, 1)),
    ({"row_ranks": 2}, ("snapshot", 4, 2)),
    ({"row_ranks": 1, "blocks": 0, "memory_gib": 1.0}, ("snapshot", 1, 1)),
    ({"system": "hypergraph-vertex", "blocks": 3}, ("halo_vertex", 3, 1)),
    ({"system": "esdg-hybrid", "blocks": 2}, ("snapshot", 2, 2)),
    ({"system": "psg"}, (None, None, None)),
]


@pytest.mark.slow
def test_blocks_and_systems_change_in_a_running_job(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(layers=2, epochs=1_000_000)), 3)
    for live_settings, _ in STORY:
        change(run, **live_settings)
    stop(run)
    _check_that_ranks_agreed(run)
    _check_what_was_told(run)
    _check_what_was_recorded(run)


def _check_that_ranks_agreed(run: Run) -> None:
    for name in {name for live_settings, _ in STORY for name in live_settings}:
        applied_at_one_step(run, name)
    live_settings = events(run, "settings")
    assert len(live_settings) == 2 * len(STORY) and all(0 < knob["duration_s"] < 30 for knob in live_settings)
    assert all(knob["when"] == "epoch" for knob in live_settings)


def _check_what_was_told(run: Run) -> None:
    described = events(run, "blocks")
    assert [(each["layout"], each.get("blocks"), each.get("row_ranks")) for each in described] == [
        now for _, now in STORY
    ]
    assert all(each["rank"] == 0 and each["rebuild_s"] > 0 for each in described)
    assert described[5]["requested"] == 0 and "memory_gib=1" in described[5]["note"]
    probed = events(run, "memory_trace")
    other = [described[place]["step"] for place in (0, 1, 4, 5, 6, 7)]  # where the blocks, or who has them, are others
    assert [each["step"] for each in probed] == [1, *other]
    assert all(len(each["seconds"]) == len(each["bytes"]) > 10 for each in probed)
    assert [len({number for _, number, _ in each["blocks"]}) for each in probed[1:]] == [1, 4, 4, 1, 3, 2]


def _check_what_was_recorded(run: Run) -> None:
    """By the step at which a change was applied: what every step sent, hid and brought, until the next one."""
    opened = open_run(run.path)
    steps, links, exchanges, transfers = (opened.table(name) for name in ("steps", "links", "exchanges", "transfers"))
    since = [*sorted({knob["step"] for knob in events(run, "settings")}), steps.step.max() + 1]
    assert len(since) == len(STORY) + 1
    described = events(run, "blocks")
    legs = []
    for (first, end), now in zip(pairwise(since), described, strict=True):
        of = {
            name: table[(table.step >= first) & (table.step < end)]
            for name, table in (("links", links), ("exchanges", exchanges), ("transfers", transfers))
        }
        legs.append(set(of["exchanges"].collective))
        brought = now["layout"] == "snapshot" and now["blocks"] > 1 and now["row_ranks"] == 1
        assert (len(of["transfers"]) > 0) == brought
        sent = sum(sum(map(sum, layer)) for way in now.get("predicted", {}).values() for layer in way)
        for _, moved in of["links"].groupby("step"):
            assert moved["bytes"].sum() == sent
        assert bool(sent) == (len(of["links"]) > 0)
    assert [each >= REDISTRIBUTED for each in legs] == [True] * 4 + [False, True] + [False] * 3
    assert legs[-1] == set() and len(links[links.step < since[0]]) == 0
    one, whole = (transfers[transfers.step == since[place]] for place in (1, 3))
    assert one["bytes"].sum() < one.whole_bytes.sum() and (whole["bytes"] == whole.whole_bytes).all()
    assert set(links["rank"]) == set(exchanges["rank"]) == set(transfers["rank"]) == {0, 1}


@pytest.mark.slow
def test_what_does_not_fit_leaves_a_run_going_that_learns_as_undisturbed(session: Session, config: RunConfig) -> None:
    plain = config.replace(system="esdg", layers=2, dtype="float64", optimizer="sgd", epochs=60, seed=3)
    wanted = losses_of(session.train(plain.replace(system="single", parts=1, ranks=1)).wait(60), 60)
    run = until_step(session.train(plain.replace(blocks=2, slow_rank=0, slow_ms=60.0)), 3)
    refused(run, "blocks=1000", blocks=1000)
    refused(run, "does not divide ranks=2", row_ranks=3)
    change(run, blocks=3, overlap="off")
    change(run, row_ranks=2)
    refused(run, "memory_gib=1e-06", blocks=0, memory_gib=1e-6)
    described = [each for each in events(run, "refused") if each["rank"] == 0]
    assert len(described) == 3 and described[-1]["changes"] == {"blocks": 0, "memory_gib": 1e-6}
    stop(run)
    again = run.resume(system="esdg-hybrid", blocks=4, slow_ms=0.0).wait(60)
    assert again.config.system == "esdg-hybrid" and again.attempt == 2
    assert [each["blocks"] for each in events(again, "blocks")] == [2, 3, 3, 4]
    assert losses_of(again, 60) == pytest.approx(wanted, rel=1e-9)
