"""Blocks of time in pictures: owners before and after by hand, bytes with reruns, memory, hidden share, transfers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest
from blocks_synthetic import LAYERS, WIDTH, blocks_data, event, exchange_rows, memory_data, plan, step_lines
from runs_synthetic import finished_run
from synthetic_lines import START_NS, knob_row, line, step_row

import dtdg_lab as lab
from dtdg_lab.core.catalogue import PROTOCOLS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.events import MemoryFacts
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs.split import split
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.records import RecordWriter
from dtdg_lab.runs.report import event_rows
from dtdg_lab.runs.run import open_run
from dtdg_lab.systems.snapshot_blocks.charts import (
    BlocksView,
    kept_bytes,
    memory_figure,
    memory_words,
    moved_share,
    owners,
    ownership_panels,
)
from dtdg_lab.training.build import make_task
from dtdg_lab.training.partition import blocks_event
from dtdg_lab.visualization.partition import LinkLog
from dtdg_lab.visualization.run_window import CHARTS, RunWindow
from dtdg_lab.visualization.series import StepSums
from dtdg_lab.visualization.style import Marks


def window(data: dict[str, Any] | None = None, *, ranks: int = 2, steps: int = 0, **more: Any) -> RunWindow:
    shown = RunWindow(RunConfig(system="esdg", dataset="growing", ranks=ranks, epochs=20))
    if data is not None:
        shown.add(event(data))
        shown.add(event(memory_data(data["blocks"]), kind="memory_trace", at=1))
        report(shown, data, range(steps), **more)
    return shown


def report(shown: RunWindow, data: dict[str, Any], steps: Any, **more: Any) -> None:
    for step in steps:
        for each in step_lines(data, step, **more):
            shown.add(each)


def titled(shown: RunWindow) -> dict[str, tuple[dict[str, Any], str]]:
    return {figure["layout"]["title"]["text"]: (figure, words) for figure, words in shown.view("blocks").panels()}


def traces(figure: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure["data"]}


def check(figure: dict[str, Any]) -> None:
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    assert figure["layout"]["title"]["text"]
    axes = {name for name in figure["layout"] if re.fullmatch(r"[xy]axis\d*", name)}
    assert axes and all("title" in figure["layout"][name] for name in axes)


# who owns what


def test_owners_by_hand() -> None:
    """Five snapshots in two blocks (2 and 3) on two ranks, five nodes: rank 0 has one snapshot of each block."""
    facts = BlockFacts.read(blocks_data(plan(5, 2, 2, 5)))
    before, after = owners(facts)
    assert before.tolist() == [[0, 1, 0, 1], [0, 1, 0, 1]], "spans of snapshots 0, 1, 2, 3-4"
    assert after.tolist() == [[0] * 4, [1] * 4], "vertices 0-1 and 2-4"
    # rank 0's snapshots 0 and 2 of three nodes leave; rank 1's 1, 3 and 4 of two
    assert moved_share(facts) == (2 * 3 + 3 * 2) / 25


def test_groups_of_ranks_share_a_snapshot_by_rows_and_keep_their_rows() -> None:
    facts = BlockFacts.read(blocks_data(plan(8, 1, 4, 8, 2)))
    before, after = owners(facts)
    assert before.tolist() == [[0, 2], [0, 2], [1, 3], [1, 3]], "ranks 0 and 1 have the first half of the snapshots"
    assert after.tolist() == [[0, 0], [2, 2], [1, 1], [3, 3]], "columns 0, 2 and 1, 3 keep the rows they had"


def test_pictures_of_owners_say_what_is_where() -> None:
    (before, first), (after, second) = ownership_panels(BlockFacts.read(blocks_data(plan(13, 3, 2, 10)))).values()
    for figure in (before, after):
        check(figure)
        (trace,) = figure["data"]
        assert trace["colorbar"]["title"]["text"] == "rank"
        assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [3.5, 7.5]
        assert [note["text"] for note in figure["layout"]["annotations"]] == ["block 0", "block 1", "block 2"]
    assert before["data"][0]["customdata"][0][0] == "rank 0: nodes 0 to 9, snapshots 0 to 1"
    assert before["data"][0]["z"] == [[0, 1] * 3], "one span where neighbours have one owner"
    assert after["data"][0]["z"] == [[0] * 3, [1] * 3], "blocks stay apart"
    assert "In block 0 rank 0 computes snapshots 0 to 1 for all nodes" in first
    assert "runs nodes 0 to 4 through the block's snapshots" in second and "50 % of the cells" in second


def test_ranks_without_a_snapshot_are_told() -> None:
    (_, words), _ = ownership_panels(BlockFacts.read(blocks_data(plan(3, 3, 2, 10)))).values()
    assert "3 times a rank has none" in words


def test_where_all_ranks_share_every_snapshot_no_row_changes_hands() -> None:
    ((figure, words),) = ownership_panels(BlockFacts.read(blocks_data(plan(8, 2, 2, 8, 2)))).values()
    check(figure)
    assert figure["data"][0]["z"] == [[0, 0], [1, 1]]
    assert "no row changes hands" in words and "sent" not in words


def test_many_blocks_are_drawn_in_part() -> None:
    (figure, words), _ = ownership_panels(BlockFacts.read(blocks_data(plan(4000, 2000, 2, 10)))).values()
    assert len(figure["data"][0]["x"]) - 1 == 512 and "the first 256 of 2,000 blocks" in words
    assert len(json.dumps(figure)) < 300_000


# bytes


def test_bytes_of_reruns_stand_beside_forward_and_backward() -> None:
    data = blocks_data(plan(13, 3, 2, 10))
    shown = window(data, steps=3)
    found = titled(shown)
    measured = traces(found["Bytes measured in step 1, layer 0"][0])["Bytes measured in step 1, layer 0"]
    # snapshots 2+2+2 and 2+2+3 of 5 nodes each, there and back; reruns of the first two blocks: 4 and 4
    forward = 4 * WIDTH * (6 * 5 + 5 * 7)
    rerun = 4 * WIDTH * (4 * 5 + 5 * 4)
    assert (
        measured["customdata"][0][1]
        == f"{forward / 1024:.1f} KiB forward, {rerun} B rerun, {forward / 1024:.1f} KiB backward"
    )
    assert "equal to the byte" in found["Bytes predicted, layer 1"][1]
    total = LAYERS * 2 * (2 * forward + rerun)
    assert f"Step 1 sent {total / 1024:.1f} KiB" in shown.view("blocks").caption()


def test_a_run_without_reruns_does_not_speak_of_them() -> None:
    log = LinkLog()
    for rank in (0, 1):
        log.link(rank, {"step": 0, "layer": 0, "pass_name": "forward", "to": 1 - rank, "bytes": 8}, 1)
        log.step(rank, 0)
    assert set(log.last(2, layers=1, first=0).bytes) == {"forward", "backward"}
    assert set(BlockFacts.read(blocks_data(plan(4, 1))).predicted) == {"forward", "backward"}


def test_models_of_weights_send_no_rows() -> None:
    data = blocks_data(plan(), predicted={"forward": [], "rerun": [], "backward": []}, collectives=[])
    shown = window(data, steps=2)
    assert "gradients of the model, and no rows" in shown.captions()["blocks"]
    assert not [title for title in titled(shown) if "Bytes" in title or "hidden" in title]
    (title, (_, words)), *rest = titled(shown).items()
    assert title == "Who computes which snapshot" and "runs no node through time" in words
    assert not [each for each, _ in rest if "part" in each], "there is no picture of an after"


# memory


def test_memory_is_coloured_by_way_and_marked_where_blocks_begin() -> None:
    facts = MemoryFacts.read(memory_data(3))
    figure = memory_figure(facts, budget_bytes=2048.0)
    check(figure)
    assert list(traces(figure)) == ["forward", "rerun", "backward", "allowed: 2.0 KiB"]
    assert len(figure["layout"]["shapes"]) == len(facts.blocks) == 3 + 3 + 2
    labels = [note["text"] for note in figure["layout"]["annotations"]]
    assert labels[-1] == "peak 1.2 KiB" and labels[:3] == ["forward 0", "forward 1", "forward 2"]
    assert kept_bytes(facts) == 200, "two states where the last block begins"
    drawn = [value for trace in figure["data"][:3] for value in trace["y"] if value is not None]
    assert max(drawn) == pytest.approx(1250 / 1024, abs=1e-3)
    words = memory_words(facts, blocks=3)
    assert "in backward of block 2" in words and "200 B are held where the last block begins" in words


def test_memory_of_one_block_of_another_plan_and_of_none() -> None:
    assert "With one block all activations" in memory_words(MemoryFacts.read(memory_data(1)), blocks=1)
    assert "Probed with 1 block; the run has 4 now" in memory_words(MemoryFacts.read(memory_data(1)), blocks=4)
    check(memory_figure(None))
    assert "probes one" in memory_words(None, blocks=1)
    without = replace(MemoryFacts.read(memory_data(1)), blocks=())
    assert without.words.startswith("The peak is ") and "block" not in without.words


def test_memory_that_does_not_fit_is_refused() -> None:
    data = memory_data()
    with pytest.raises(DataError, match="another version"):
        MemoryFacts.read({**data, "bytes": data["bytes"][:-1]})
    with pytest.raises(DataError, match="'seconds'"):
        MemoryFacts.read({"bytes": [], "blocks": []})


# hidden share and transfers


def test_the_hidden_share_follows_what_the_ranks_tell_and_marks_the_change() -> None:
    data = blocks_data(plan())
    shown = window(data, steps=10, exposed_s=0.001)
    for rank in (0, 1):
        shown.add(line("events", [knob_row(10, 1, when="epoch", overlap="off")], rank=rank))
    report(shown, data, range(10, 15), exposed_s=0.004)
    found = titled(shown)
    figure, words = found["Share of the exchanges that is hidden"]
    check(figure)
    assert list(traces(figure)) == ["to nodes", "to snapshots", "all"]
    assert traces(figure)["all"]["y"] == [75.0] * 10 + [0.0] * 5
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["overlap off"]
    assert "In the last 15 steps 50 % of the time in flight was hidden" in words
    bars, said = found["Time in flight: exposed and hidden"]
    check(bars)
    assert traces(bars)["exposed"]["y"][:2] == ["forward to snapshots", "forward to nodes"]
    assert traces(bars)["exposed"]["x"] == [4.0] * 6, "two layers; 10 steps of 1 ms and 5 of 4 ms"
    assert traces(bars)["hidden"]["x"] == [4.0] * 6, "of 8 ms in flight"
    assert "in flight 48 ms" in said and "idle for 24 ms" in said


def test_transfers_show_what_differences_save() -> None:
    data = blocks_data(plan())
    shown = window(data, steps=4, brought=1000, whole=3000)
    figure, words = titled(shown)["Graphs transferred to the ranks"]
    check(figure)
    assert traces(figure)["transferred"]["y"] == [pytest.approx(2000 / 1024, abs=1e-3)] * 4, "of both ranks"
    assert "Step 3 transferred 14 snapshots in 2.0 KiB; in full they take 5.9 KiB, 3.00 times as much" in words
    report(shown, data, [4], brought=3000, whole=3000)
    assert "each in full" in titled(shown)["Graphs transferred to the ranks"][1]


def test_steps_that_brought_nothing_are_a_gap_in_the_line() -> None:
    shown = window(blocks_data(plan()), steps=2, brought=1000, whole=3000)
    report(shown, blocks_data(plan()), [6, 7], brought=1000, whole=3000)
    figure, _ = titled(shown)["Graphs transferred to the ranks"]
    check(figure)
    brought = traces(figure)["transferred"]
    assert brought["x"] == [0, 1, 2, 6, 7]
    assert [value is None for value in brought["y"]] == [False, False, True, False, False]


def test_predicted_and_measured_bytes_stand_beside_each_other() -> None:
    for row_ranks in (1, 2):
        data = blocks_data(plan(8, 2, 2, 8, row_ranks)) | {"predicted": blocks_data(plan(8, 2, 2, 8))["predicted"]}
        titles = list(titled(window(data, steps=3)))
        places = [place for place, title in enumerate(titles) if title.startswith("Bytes predicted")]
        assert places and all(place % 2 == 0 for place in places), titles


def test_what_was_before_the_last_change_is_called_so() -> None:
    data = blocks_data(plan())
    shown = window(data, steps=4, brought=1000, whole=3000)
    assert "earlier" not in shown.view("blocks").caption() and "before" not in shown.view("blocks").caption()
    shown.add(event(blocks_data(plan(blocks=1), blocks=1, requested=1), at=9, step=4))
    found = shown.view("blocks").named_panels()
    assert list(found)[:6] == ["before", "after", "memory", "transfers", "hidden", "flight"]
    assert "no step has transferred any since step 3" in found["transfers"][1]
    assert "Probed with 3 blocks; the run has 1 now" in found["memory"][1]
    assert "probed before these blocks" in shown.view("blocks").caption()


def test_a_step_counts_when_every_rank_has_told_it() -> None:
    data = blocks_data(plan())
    shown = window(data, steps=2)
    report(shown, data, [2], ranks=[0])
    assert len(shown.view("blocks").transfers.steps(2)) == 2
    shown.add(line("steps", [step_row(2, 1.0, per_epoch=1)], rank=1))
    assert len(shown.view("blocks").transfers.steps(2)) == 2, "its other rows may still come"
    report(shown, data, [2], ranks=[1])
    assert len(shown.view("blocks").transfers.steps(2)) == 3


def test_what_is_told_twice_counts_once_and_a_later_attempt_replaces() -> None:
    data = blocks_data(plan())
    shown = window(data, steps=5)
    once = shown.figures()["blocks"]
    report(shown, data, range(5))
    shown.add(event(data))
    assert shown.figures()["blocks"] == once
    shown.add(event(data, step=3, attempt=2))
    report(shown, data, range(3, 6), attempt=2, brought=500)
    brought = traces(titled(shown)["Graphs transferred to the ranks"][0])["transferred"]
    assert brought["x"] == [0, 1, 2, 3, 4, 5] and brought["y"][2:4] == [1.9531, 0.9766]


def test_sums_stay_bounded_when_a_rank_is_silent() -> None:
    sums = StepSums(("leg",), ("exposed_s",), kept=50)
    for step in range(2_000):
        sums.row(0, {"step": step, "leg": "to_vertices", "exposed_s": 1.0}, 1)
        sums.step(0, step)
    assert sums.steps(2) == [] and len(sums._rows[0]) == len(sums._attempts) == 50
    sums.step(1, 1_999)
    assert len(sums.steps(2)) == 50 == len(sums._done)


# the run


def test_only_a_run_with_blocks_has_their_chart() -> None:
    shown = window()
    assert list(shown.figures()) == list(shown.captions()) == list(CHARTS)
    shown.add(event(memory_data(1), kind="memory_trace"))
    assert list(shown.figures()) == list(CHARTS), "every run is probed"
    data = blocks_data(plan())
    shown.add(event(data))
    assert list(shown.figures()) == list(shown.captions()) == [*CHARTS, "blocks"]
    shown.add(event({"layout": None}, step=3))
    assert list(shown.figures()) == list(CHARTS)


@pytest.mark.parametrize("ranks", [1, 2, 64])
@pytest.mark.parametrize("blocks", [1, 3, 40])
@pytest.mark.parametrize("steps", [0, 1, 30])
def test_every_state_of_a_run_has_a_valid_picture(ranks: int, blocks: int, steps: int) -> None:
    shown = window(blocks_data(plan(80, blocks, ranks, 100)), ranks=ranks, steps=min(steps, 3 if ranks > 2 else steps))
    figure = shown.figures()["blocks"]
    check(figure)
    assert len(json.dumps(figure)) < 2_000_000
    assert figure["layout"]["title"]["text"].startswith(f"Blocks: {blocks} block")
    for one, words in shown.view("blocks").panels():
        check(one)
        assert words


def test_vertex_parts_in_blocks_show_memory_and_transfers_alone() -> None:
    data = blocks_data(plan(), layout="halo_vertex", own=[], rows=[], chunks=[], collectives=[])
    titles = list(titled(window(data, steps=3)))
    assert titles[:2] == ["Memory over a step · 3 blocks", "Graphs transferred to the ranks"]
    assert all(title.startswith("Bytes") for title in titles[2:])


def test_the_budget_is_drawn_where_the_blocks_were_chosen_by_it() -> None:
    data = blocks_data(plan(), requested=0, note="3 blocks: the fewest that fit")
    shown = RunWindow(RunConfig(system="esdg", dataset="growing", ranks=2, memory_gib=0.5))
    shown.add(event(data))
    shown.add(event(memory_data(3), kind="memory_trace", at=1))
    assert "allowed: 512.0 MiB" in traces(titled(shown)["Memory over a step · 3 blocks"][0])
    shown.add(line("events", [knob_row(1, 1, when="epoch", memory_gib=0.25)]))
    assert "allowed: 256.0 MiB" in traces(titled(shown)["Memory over a step · 3 blocks"][0])
    assert "the fewest that fit" in shown.view("blocks").caption()


def test_a_view_without_blocks_has_nothing_to_draw() -> None:
    view = BlocksView(LinkLog(), Marks())
    assert view.panels() == [] and view.caption() == "" and view.sent() is None
    with pytest.raises(LookupError):
        view.figure()


@pytest.mark.parametrize("lost", ["bounds", "nodes", "layout"])
def test_a_damaged_event_is_refused(lost: str) -> None:
    data = blocks_data(plan())
    del data[lost]
    with pytest.raises(DataError, match=f"'{lost}'"):
        BlockFacts.read(data)


@pytest.mark.parametrize(
    "wrong", [{"bounds": [0, 5, 13]}, {"bounds": [0, 5, 5, 13]}, {"chunks": [[0, 5]]}, {"ranks": 3}]
)
def test_facts_that_do_not_fit_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="do not fit"):
        BlockFacts.read(blocks_data(plan(), **wrong))


@pytest.mark.parametrize(("model", "task", "by_rows"), [("cdgcn", "link", 2), ("evolvegcn-h", "regression", 1)])
def test_what_training_tells_is_what_is_drawn(model: str, task: str, by_rows: int) -> None:
    graph = lab.datasets.load("growing", generated_nodes=20, generated_edges=60, generated_snapshots=20)
    config = RunConfig(
        system="esdg", dataset="growing", model=model, task=task, ranks=4, layers=2, row_ranks=by_rows, blocks=2
    )
    parts = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol])
    made = SnapshotBlocks(parts.train, 2, 4, 20, by_rows)
    data = json.loads(json.dumps(blocks_event(config, graph, made, make_task(config, graph, parts)).write()))
    shown = window(data, ranks=4, steps=2)
    check(shown.figures()["blocks"])
    assert "equal to the byte" in shown.captions()["blocks"]
    assert ("After: temporal part, by node" in titled(shown)) == (model == "cdgcn")


def test_events_are_said_in_words() -> None:
    rows = [
        {"rank": 0, "attempt": 1, "step": 0, "time_ns": START_NS, "kind": kind, "data": data}
        for kind, data in (
            ("blocks", blocks_data(plan())), ("memory_trace", memory_data(3)), ("blocks", {"layout": None}),
        )
    ]  # fmt: skip
    said = [what for *_, what in event_rows(rows)]
    assert said[0].startswith("3 blocks of 4 to 5 snapshots on 2 ranks (as set). Collectives of a step, over its")
    assert said[1].startswith("The peak, 1.2 KiB") and said[2] == "no blocks of time from here on"


@pytest.mark.slow
def test_report_and_plot_of_a_run_show_its_blocks(tmp_path: Any) -> None:
    run, data = finished_run(tmp_path), blocks_data(plan())
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 1) as writer:
            if rank == 0:
                writer.row("events", (0, 0, START_NS, "blocks", data))
                writer.row("events", (0, 0, START_NS + 1, "memory_trace", memory_data(3)))
            for row in exchange_rows(14):
                writer.row("exchanges", tuple(row))
            writer.row("transfers", (14, 2, 7, 1000, 3000))
    finish(run, "finished")
    stored = open_run(run.path)
    assert "blocks" in stored.captions()
    titles = lab.plot(stored).to_json()
    assert "Before: spatial part" in titles and "Memory over a step" in titles
    html = stored.report().read_text()
    assert "Blocks of time" in html and "3 blocks of 4 to 5 snapshots" in html
