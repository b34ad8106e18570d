"""The picture of ESDG: owners by hand, what is swapped, memory of a step, and its edge cases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_blocks.ownership_chart import (
    PICTURE,
    block_names,
    memory_limit,
    owner_maps,
    predicted_sent,
    swapped_bytes,
)
from dtdg_lab.visualization.chart import NOTHING_YET
from tests.drawing import draw
from tests.plan_events import blocks_data, memory_data, plan
from tests.tables import run_tables

NO_ROWS: dict[str, Any] = {"predicted": {"forward": [], "rerun": [], "backward": []}, "collectives": []}


def esdg(blocks: SnapshotBlocks, *, probed: int = 0, settings: dict[str, Any] | None = None, **more: Any) -> RunTables:
    events: list[dict[str, Any]] = [{"kind": "blocks", "data": blocks_data(blocks, **more)}]
    if probed:
        events.append({"kind": "memory_trace", "step": 1, "data": memory_data(probed)})
    system = "esdg" if blocks.row_ranks == 1 else "esdg-hybrid"
    config = {"system": system, "ranks": blocks.ranks, "blocks": blocks.blocks, "row_ranks": blocks.row_ranks}
    return run_tables({**config, **(settings or {})}, events=events)


def note_texts(run: RunTables) -> list[str]:
    return [note["text"] for note in draw(PICTURE, run)[0]["layout"]["annotations"]]


def test_the_maps_name_ranks_blocks_and_the_swap() -> None:
    run = esdg(plan(13, 3, 2, 10))
    figure = draw(PICTURE, run)[0]
    within, over_time, _ = figure["data"]
    assert within["customdata"][0][0] == "rank 0: nodes 0 to 9, snapshots 0 to 1"
    assert within["z"] == [[0, 1] * 3] and over_time["z"] == [[0] * 3, [1] * 3]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [3.5, 7.5] * 2
    texts = note_texts(run)
    assert texts[:3] == ["block 0", "block 1", "block 2"]
    swap = "swap<br><b>6.09 KiB</b><br>forward<br>◀▶<br>of 15.9 KiB<br>per step"
    assert swap in texts, "rows come back for the next layer, and other passes send as well"
    assert figure["layout"]["meta"]["card"]["keys"] == [["rank 0", "#0072B2", "box"], ["rank 1", "#D55E00", "box"]]


def test_memory_is_drawn_by_pass_with_its_names_and_peak() -> None:
    run = esdg(plan(), probed=3)
    figure = draw(PICTURE, run)[0]
    passes = {trace["name"]: trace for trace in figure["data"] if trace.get("yaxis") == "y3"}
    assert list(passes) == ["forward", "recompute", "backward", "names"]
    assert passes["names"]["text"][:4] == ["forward 0", "forward 1", "forward 2", "backward 2"]
    assert max(passes["backward"]["y"]) == pytest.approx(1250 / 1024, abs=1e-3)
    assert "peak 1.22 KiB" in note_texts(run)
    assert (
        draw(PICTURE, run)[1] == "A step keeps one of 3 blocks in memory, peaks at 1.22 KiB and sends 15.9 KiB of rows."
    )


@pytest.mark.parametrize(
    ("bounds", "names"),
    [
        ([0, 4, 8, 13], ["block 0", "block 1", "block 2"]),
        (range(13), [str(number) for number in range(12)]),
        ([0, 1, 60, 120], ["", "1", "2"]),
    ],
)
def test_blocks_are_named_where_there_is_room(bounds: Sequence[float], names: list[str]) -> None:
    assert block_names(list(bounds)) == names


def test_the_axis_of_the_probed_step_has_no_second_zero() -> None:
    layout = draw(PICTURE, esdg(plan(), probed=3))[0]["layout"]
    assert 0 < layout["xaxis3"]["tickvals"][0] < layout["xaxis3"]["tickvals"][-1] <= layout["xaxis3"]["range"][1]
    assert layout["xaxis3"]["ticktext"][0] == f"{layout['xaxis3']['tickvals'][0]:g} ms"
    assert layout["xaxis"]["tickprefix"] == "snapshot " and layout["xaxis"]["showtickprefix"] == "first"
    assert any("Memory over the probed step" in note["text"] for note in layout["annotations"])


def test_before_the_probe_memory_has_its_place() -> None:
    run = esdg(plan())
    assert "Measured after the first step" in note_texts(run)
    assert draw(PICTURE, run)[1] == "A step keeps one of 3 blocks in memory and sends 15.9 KiB of rows."


def test_a_probe_before_the_last_change_is_called_so_and_gives_no_peak_of_these_blocks() -> None:
    events = [
        {"kind": "blocks", "data": blocks_data(plan(blocks=1))},
        {"kind": "memory_trace", "step": 1, "data": memory_data(1)},
        {"kind": "blocks", "step": 2, "data": blocks_data(plan())},
    ]
    run = run_tables({"system": "esdg"}, events=events)
    assert any(text.endswith("probed before the last change, with 1 block") for text in note_texts(run))
    assert "peaks" not in draw(PICTURE, run)[1]


def test_without_a_plan_the_picture_says_what_is_awaited() -> None:
    run = run_tables({"system": "esdg"})
    assert note_texts(run) == ["Blocks are being planned"] and draw(PICTURE, run)[1] == NOTHING_YET
    assert PICTURE.applies(run) and not PICTURE.applies(run_tables({"system": "adgnn-t"}))


def test_one_rank_has_one_colour_and_nothing_to_swap() -> None:
    run = esdg(plan(13, 1, 1), probed=1)
    assert "nothing<br>to swap" in note_texts(run)
    assert draw(PICTURE, run)[1] == "A step keeps all snapshots in memory, peaks at 1.03 KiB and sends no rows."


def test_models_that_swap_nothing_have_the_left_map_only() -> None:
    figure = draw(PICTURE, esdg(plan(), **NO_ROWS))[0]
    assert "xaxis2" not in figure["layout"] and figure["layout"]["xaxis"]["domain"] == [0.0, 1.0]


def test_the_limit_is_a_line_where_it_is_near_and_blocks_are_automatic() -> None:
    near = esdg(plan(), probed=3, settings={"blocks": 0, "memory_gib": 1.5e-6}, requested=0)
    assert memory_limit(near) == pytest.approx(1610.6, abs=0.1) and "limit 1.57 KiB" in note_texts(near)
    far = esdg(plan(), probed=3, settings={"blocks": 0}, requested=0)
    assert not any("limit" in text for text in note_texts(far))
    assert memory_limit(esdg(plan())) is None, "blocks are set"


@pytest.mark.parametrize("blocks", [plan(200, 40, 2, 100), plan(80, 12, 64, 1000), plan(4000, 2000, 2, 10)])
def test_many_blocks_and_ranks_stay_within_what_a_browser_draws(blocks: SnapshotBlocks) -> None:
    run = esdg(blocks, probed=min(blocks.blocks, 40))
    figure = draw(PICTURE, run)[0]
    assert len(json.dumps(figure, allow_nan=False)) < 100_000
    assert len(figure["layout"]["annotations"]) <= 25
    if blocks.blocks > 12:
        assert any(f"12 of {blocks.blocks} blocks" in text for text in note_texts(run))
        assert "names" not in [trace.get("name") for trace in figure["data"]], "too many passes to name"
    if blocks.ranks > 8:
        assert not any(key[0].startswith("rank") for key in figure["layout"]["meta"]["card"]["keys"])


def test_bytes_sent_are_those_of_all_passes() -> None:
    facts = BlockFacts.read(blocks_data(plan()))
    assert predicted_sent(facts) == sum(matrix.sum() for matrix in facts.predicted.values())


def test_owners_of_two_blocks_on_two_ranks_by_hand() -> None:
    """Five snapshots in blocks of 2 and 3, five nodes: rank 0 has one snapshot of each block."""
    within, over_time = owner_maps(BlockFacts.read(blocks_data(plan(5, 2, 2, 5))), 2)
    assert within.ranks.tolist() == [[0, 1, 0, 1]] and within.snapshots.tolist() == [0, 1, 2, 3, 5]
    assert over_time.ranks.tolist() == [[0, 0], [1, 1]], "blocks stay apart"
    assert over_time.nodes.tolist() == [0, 2, 5] and over_time.snapshots.tolist() == [0, 2, 5]


def test_groups_of_ranks_share_a_snapshot_by_rows() -> None:
    within, over_time = owner_maps(BlockFacts.read(blocks_data(plan(8, 1, 4, 8, 2))), 1)
    assert within.ranks.tolist() == [[0, 2], [1, 3]], "ranks 0 and 1 have the first half of the snapshots"
    assert over_time.ranks.tolist() == [[0], [2], [1], [3]], "each keeps half of the rows it had"


@pytest.mark.parametrize("blocks", [plan(), plan(5, 2, 2, 5), plan(24, 3, 4, 100, 2)])
def test_what_is_swapped_is_what_the_forward_pass_is_predicted_to_send(blocks: SnapshotBlocks) -> None:
    facts = BlockFacts.read(blocks_data(blocks))
    assert swapped_bytes(facts, 4) == facts.predicted["forward"].sum()
