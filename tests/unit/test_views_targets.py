"""Hybrid batches in pictures: the map, where batches come from, the reservoir, and the run as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hybrid_windows import BEST, ROOM, check, described, traces, window
from runs_synthetic import finished_run
from synthetic_lines import START_NS, line, step_row
from targets_synthetic import (
    CANDIDATES,
    FIRST,
    GRID,
    SNAPSHOTS,
    decision_row,
    dynahb_data,
    event,
    hybrid_data,
    step_lines,
    target_row,
)  # fmt: skip

import dtdg_lab as lab
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.records import STEPS, TABLES
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.records import RecordWriter
from dtdg_lab.runs.report import event_rows
from dtdg_lab.runs.run import open_run
from dtdg_lab.systems.hybrid_batches.charts import (
    PartBatch,
    ReservoirLog,
    TargetLog,
    target_counts,
)
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.visualization.run_window import CHARTS

# facts


def test_the_batches_in_words() -> None:
    assert HybridFacts.read(hybrid_data()).words == (
        "Batches of 4 of 20 snapshots and 10 to 12 of 200 to 240 nodes in each of 2 parts; built in the step. "
        "Gradients are summed in every step. Parts with their copies of neighbours take 3.0 MiB."
    )
    words = HybridFacts.read(dynahb_data(choice=BEST, cache_bytes=None)).words
    assert ", chosen by dqn among 9 sizes; from a reservoir, and where it gives none they are built in the" in words
    words = HybridFacts.read(dynahb_data(stands_in=True)).words
    assert "gives none all nodes of the same snapshots are used instead. Models are averaged every 0.5 s." in words


def test_a_size_is_named_as_it_was_given() -> None:
    data = hybrid_data(shares=[[3, 0.005]], sizes=[[3, 1, 2]])
    assert HybridFacts.read(data).size.label == "3 x 0.5 %"
    assert HybridFacts.read(hybrid_data(shares=[[1.0, 0.05]], sizes=[[20, 10, 12]])).size.label == "100 % x 5 %"


@pytest.mark.parametrize("lost", ["sizes", "candidates", "choice", "exchange"])
def test_a_damaged_event_is_refused(lost: str) -> None:
    data = hybrid_data()
    del data[lost]
    with pytest.raises(DataError, match=f"'{lost}'"):
        HybridFacts.read(data)


@pytest.mark.parametrize(
    "wrong", [{"choice": 1}, {"snapshots": 3}, {"candidates": [5, 4]}, {"sizes": [[0, 1, 1]]}, {"candidates": []}]
)
def test_facts_that_do_not_fit_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="do not fit"):
        HybridFacts.read({**hybrid_data(), **wrong})


# the map


def test_targets_of_the_example_of_the_paper() -> None:
    """Figure 2: four nodes in four snapshots; a round of three snapshots of a node, one of two of two."""
    facts = HybridFacts.read(
        hybrid_data(snapshots=4, first=1, candidates=[4], nodes=4, sizes=[[2, 2, 2]], shares=[[0.5, 0.5]])
    )
    rounds = [
        PartBatch(step, 0, 0, step, "new", range(first, 4 + step), targets, 0, 0, 0.0, None)
        for step, first, targets in ((0, 1, 1), (1, 3, 2))
    ]
    assert sum(target_counts(facts, {0: batch})[0] for batch in rounds) == 3 + 4, "as the paper has it"
    assert target_counts(facts, {0: rounds[1]}) == (4, 2 * 4, 4 * 2)


def test_the_map_shows_the_batch_beside_those_it_replaces() -> None:
    data = hybrid_data()
    figure, words = window(data, steps=5).view("hybrid").named_panels()["map"]
    check(figure)
    assert figure["layout"]["title"]["text"] == "Batch of step 4"
    assert len(figure["data"]) == len(figure["layout"]["shapes"]) == 3 * 2, "three fields of two parts"
    hybrid, vertex, snapshot = figure["data"][:3]
    row = target_row(4, 0, data)
    start = row[6] - FIRST
    assert hybrid["x"] == [start - 0.5, start + 3.5], "the snapshots it takes"
    assert vertex["x"][1] - vertex["x"][0] == SNAPSHOTS and vertex["z"] == hybrid["z"], "the same nodes, always"
    assert snapshot["x"][1] - snapshot["x"][0] == 4 and {cell for (cell,) in snapshot["z"]} == {1.0}, "all nodes"
    assert sum(round(cell * 4) for (cell,) in hybrid["z"]) == row[8], "four candidates in each sixtieth of 240"
    assert figure["layout"]["yaxis"]["range"][0] > figure["layout"]["yaxis"]["range"][1], "heaviest on top"
    counts = (4 * 22, SNAPSHOTS * 22, 4 * sum(CANDIDATES))
    under = figure["layout"]["xaxis"]["ticktext"]
    assert [f"{count:,} targets" in under[1 + 3 * at] for at, count in enumerate(counts)] == [True] * 3
    assert words.startswith(f"4 of 20 snapshots x 10 to 12 nodes a part: {counts[0]} targets, in blocks of 264 rows")


def test_every_part_shows_its_own_newest_batch_with_a_map() -> None:
    data = hybrid_data()
    shown = window(data, steps=3)
    for each in step_lines(data, [3, 4], ranks=[0]):
        shown.add(each)
    for each in step_lines(data, [5], ranks=[0], drawn=False):
        shown.add(each)
    assert {part: batch.step for part, batch in shown.view("hybrid").now().items()} == {0: 4, 1: 2}, "ranks do not wait"
    assert shown.view("hybrid").map()[0]["layout"]["title"]["text"] == "Batch of step 2 to 4"


def test_a_batch_that_stands_in_is_called_one() -> None:
    data = dynahb_data(choice=BEST)
    shown = window(data, steps=3)
    shown.add(line("targets", [target_row(3, 1, data, source="snapshot")], rank=1))
    figure, words = shown.view("hybrid").map()
    check(figure)
    assert words.endswith("The reservoir had no batch for part 1: all its nodes are used instead.")
    assert {cell for (cell,) in figure["data"][3]["z"]} == {1.0}


def test_a_part_of_few_vertices_fills_its_field() -> None:
    data = hybrid_data(candidates=[240, 7], sizes=[[4, 1, 12]])
    figure, _ = window(data, steps=1).view("hybrid").named_panels()["map"]
    check(figure)
    field, small = figure["layout"]["shapes"][3], figure["data"][5]
    assert len(small["z"]) == 7 and [small["y"][0], small["y"][-1]] == [field["y0"], field["y1"]]


def test_a_change_of_size_leaves_old_batches_behind() -> None:
    shown = window(hybrid_data(), steps=5)
    shown.add(event(hybrid_data(sizes=[[10, 20, 24]], shares=[[0.5, 0.1]]), step=5))
    assert shown.view("hybrid").now() == {} and shown.view("hybrid").since == 5
    assert "no batch recorded" in json.dumps(shown.view("hybrid").map()[0])


def test_another_choice_of_the_same_sizes_keeps_them() -> None:
    shown = described(window(dynahb_data(), steps=30), dynahb_data())
    for step in range(40):
        shown.add(event(dynahb_data(choice=step % 9), step=step))
    assert shown.view("hybrid").since == 0 and len(shown.view("hybrid").now()) == 2 and shown.view("hybrid").unchanged
    assert shown.view("hybrid").facts.choice == 39 % 9
    assert shown.view("hybrid").batch_policy().decisions == 60


# where batches come from


def test_sources_and_waiting_are_told() -> None:
    data = dynahb_data(choice=BEST)
    shown = window(data, steps=10)
    shown.add(line("targets", [target_row(10, 0, data, source="snapshot"), target_row(10, 1, data, source="snapshot")]))
    row = step_row(10, 1.0)
    row[STEPS.index("batch_s")] = 0.0014
    shown.add(line("steps", [row]))
    figure, words = shown.view("hybrid").named_panels()["sources"]
    check(figure)
    drawn = traces(figure)
    assert drawn["from the reservoir"]["y"] == [0, 100] * 5 + [0]
    assert drawn["all nodes of its snapshots"]["y"] == [0] * 10 + [100]
    assert words.startswith("Of the last 22 batches 45 % came from the reservoir, 9 % took all nodes of their")
    assert f"Ranks recently spent {100 * 0.1 / 21:.1f} % of their time on batches" in words, "a tenth of one step of 21"


def test_bars_are_of_several_steps_where_there_are_many() -> None:
    figure, _ = window(hybrid_data(), steps=400).view("hybrid").named_panels()["sources"]
    (trace,) = figure["data"]
    assert len(trace["x"]) == 80 and trace["width"] == 5 and trace["x"][0] == 2


# the reservoir


def test_levels_are_sums_over_the_parts() -> None:
    data = dynahb_data(choice=8)
    shown = described(window(data), data, levels=8)
    panels = shown.view("hybrid").named_panels()
    figure, words = panels["reservoir"]
    check(figure)
    drawn = traces(figure)
    assert len(drawn) == len(GRID)
    most = data["capacities"][8]
    assert most == [4, 3], "of n = 240 and 200, all snapshots and a ninth of them"
    assert drawn["30 % x 10 %"]["y"] == [round(100 * (min(at, 4) + min(at, 3)) / 7, 2) for at in range(8)]
    assert drawn["30 % x 10 %"]["line"]["width"] > drawn["30 % x 5 %"]["line"]["width"], "the one in use"
    made, _ = panels["made"]
    check(made)
    assert traces(made)["10 % x 1 %"]["y"] == [2 * at for at in range(8)]
    held = sum(min(7, capacity) for capacities in data["capacities"] for capacity in capacities)
    said = f"7 of 7 are held (100 %), 7 of them distinct; all sizes take {held * 1000 / 1024:.1f} KiB."
    assert f"{said} {held} were made in 1.3 s" in words
    assert words.endswith("now 36 % of a processor."), "18 generators, 0.01 s each in half a second"


def test_a_reservoir_of_few_distinct_batches_warns() -> None:
    data = dynahb_data()
    words = described(window(data), data, levels=8).view("hybrid").caption()
    assert data["capacities"][8][1] == 3
    assert "Warning: a part's reservoir holds at most" in words and "and 3 of 30 % x 10 %" in words
    assert "9 sizes share it" in words and "reservoir_uses" in words
    plenty = {**data, "capacities": [[10, 11]] * 9}
    assert "Warning" not in described(window(plenty), plenty, levels=8).view("hybrid").caption()
    assert "Warning" not in window(dynahb_data(reservoir=False), steps=2).view("hybrid").caption()


def test_levels_begin_when_every_part_has_told_its_own() -> None:
    data = dynahb_data()
    shown = window(data)
    for at, part, held in ((0, 0, 5), (1, 0, 6), (2, 1, 7), (3, 0, 8)):
        time_ns = START_NS + at * 500_000_000
        shown.add(line("reservoir", [[at, 0, time_ns, part, 0, held, 10, 100, held, 0.0, held]], rank=part))
    (trace,) = shown.view("hybrid").named_panels()["made"][0]["data"]
    assert trace["x"] == [1.0, 1.5] and trace["y"] == [6 + 7, 8 + 7]


def test_sizes_have_a_colour_for_snapshots_and_dashes_for_vertices() -> None:
    data = dynahb_data()
    drawn = traces(described(window(data), data).view("hybrid").named_panels()["reservoir"][0])
    colours = {name: trace["line"]["color"] for name, trace in drawn.items()}
    dashes = {name: trace["line"]["dash"] for name, trace in drawn.items()}
    assert len(set(colours.values())) == len(set(dashes.values())) == 3
    assert colours["10 % x 1 %"] == colours["10 % x 10 %"] != colours["20 % x 1 %"]
    assert dashes["10 % x 5 %"] == dashes["30 % x 5 %"] == "dash"
    (key,) = described(window(data), data).view("hybrid").named_panels()["made"][0]["layout"]["annotations"]
    assert key["text"].endswith("of snapshots; solid 1 %, dashed 5 %, dotted 10 % of nodes")


@pytest.mark.slow
def test_a_run_without_a_reservoir_an_batch_policy_or_averaging_has_no_panels_of_them() -> None:
    assert list(window(hybrid_data(), steps=2).view("hybrid").named_panels()) == ["map", "sources"]
    assert list(window(dynahb_data(), steps=2).view("hybrid").named_panels()) == [
        "map", "sources", "reservoir", "made", "values", "choices", "rewards", "regret", "staleness",
    ]  # fmt: skip


# the run


def test_what_is_told_twice_counts_once_and_a_later_attempt_replaces() -> None:
    data = dynahb_data(choice=BEST)
    shown = described(window(data, steps=60), data, looks=30)
    once = shown.figures()["hybrid"]
    shown.add(event(data))
    for each in step_lines(data, range(60)):
        shown.add(each)
    assert described(shown, data, looks=30).figures()["hybrid"] == once
    other = dynahb_data(choice=0)
    shown.add(event(other, step=20, attempt=2))
    for each in step_lines(other, range(20, 22), attempt=2):
        shown.add(each)
    view = shown.view("hybrid")
    assert {batch.step for batch in view.now().values()} == {21} and view.now()[0].action == 0
    assert max(choice.step for choice in view.decisions.choices()) == 20, "made of the steps before"
    assert all(each.applied < 20 for found in view.rounds.rounds().values() for each in found)


def test_logs_stay_bounded() -> None:
    targets, levels = TargetLog(kept=50), ReservoirLog(kept=20)
    names = TABLES["targets"]
    for step in range(200):
        targets.row(0, dict(zip(names, target_row(step, 0, hybrid_data()), strict=True)), 1)
        row = {"step": step, "time_ns": step, "part": 0, "action": 0, "held": 1, "capacity": 2, "bytes": 3, "made": 4,
               "busy_s": 0.1}  # fmt: skip
        levels.row(0, row, step / 2, 1)
    assert len(targets.steps()) == 50 and targets.steps()[-1][0] == 199
    assert [level.step for level in levels.all()[0, 0]] == list(range(180, 200))


@pytest.mark.parametrize(
    "data", [hybrid_data(), dynahb_data(), dynahb_data(batch_policy="bandit", exchange="gradients")]
)
@pytest.mark.parametrize("steps", [0, 1, 90])
@pytest.mark.parametrize("more", [0, 1, 60])
def test_every_state_of_a_run_has_valid_pictures(data: dict[str, Any], steps: int, more: int) -> None:
    shown = described(window(data, steps=steps), data, looks=more, rounds=more, levels=more)
    check(shown.figures()["hybrid"])
    assert len(json.dumps(shown.figures()["hybrid"])) < 200_000
    for name, (figure, words) in shown.view("hybrid").named_panels().items():
        check(figure)
        assert words and len(words) <= (2 if name == "map" else 1) * ROOM, name
    assert "nan" not in shown.captions()["hybrid"]


def test_only_a_run_with_hybrid_batches_has_their_chart() -> None:
    shown = window()
    assert list(shown.figures()) == list(shown.captions()) == list(CHARTS)
    assert (
        shown.view("hybrid").panels() == []
        and shown.view("hybrid").map() is None
        and shown.view("hybrid").caption() == ""
    )
    with pytest.raises(LookupError):
        shown.view("hybrid").figure()
    shown.add(event(hybrid_data()))
    assert list(shown.figures()) == list(shown.captions()) == [*CHARTS, "hybrid"]
    shown.add(event({"layout": None}, step=3))
    assert list(shown.figures()) == list(CHARTS)


def test_an_empty_panel_of_a_grid_has_its_axes_and_note() -> None:
    figure = window(dynahb_data()).view("hybrid").figure()
    used = {trace["xaxis"] for trace in figure["data"]}
    notes = [
        note["xref"] for note in figure["layout"]["annotations"] if "yet" in note["text"] and note["xref"] != "paper"
    ]
    assert len(notes) >= 5 and {note.removesuffix(" domain") for note in notes} <= used


def test_events_are_said_in_words() -> None:
    rows = [
        {"rank": 0, "attempt": 1, "step": at, "time_ns": START_NS + at, "kind": "hybrid", "data": data}
        for at, data in enumerate((hybrid_data(), {"layout": None}))
    ]
    said = [what for *_, what in event_rows(rows)]
    assert said[0].startswith("Batches of 4 of 20 snapshots") and said[1] == "no hybrid batches from here on"


@pytest.mark.slow
def test_report_and_plot_of_a_run_show_its_batches(tmp_path) -> None:
    run = finished_run(tmp_path)
    data = dynahb_data(choice=BEST)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        writer.row("events", (0, 0, START_NS, "hybrid", data))
        for part in (0, 1):
            writer.row("targets", tuple(target_row(3, part, data)))
        writer.row("decisions", tuple(decision_row(1, 3, None)))
    finish(run, "finished")
    stored = open_run(run.path)
    report = stored.report().read_text(encoding="utf-8")
    assert "<h2>Hybrid batches</h2>" in report and "plot-hybrid" in report and "chosen by dqn among 9 sizes" in report
    drawn = lab.plot(stored)
    titles = [note.text for note in drawn.layout.annotations]
    assert "<b>Batch of step 3</b>" in titles and "<b>Regret, estimated</b>" in titles


def test_a_change_that_each_rank_hears_at_a_step_of_its_own_is_no_alarm() -> None:
    shown = window(hybrid_data(), 20)
    data = {"version": 1, "changes": {"average_every_s": 1.0}, "when": "step", "own_steps": True}
    rows = [{"step": 12 + rank, "epoch": 0, "time_ns": START_NS, "kind": "settings", "data": data} for rank in (0, 1)]
    for rank, row in enumerate(rows):
        shown.add(line("events", [list(row.values())], rank=rank))
    [mark] = shown.marks
    assert mark.together and mark.text == "average_every_s 1 (rank 0 at 12, rank 1 at 13)"
    described = event_rows([{**row, "rank": rank, "attempt": 1} for rank, row in enumerate(rows)])
    assert [each[1] for each in described] == ["rank 0 at 12, rank 1 at 13"]
    waited = {"step": 20, "epoch": 1, "time_ns": START_NS, "kind": "gathered", "rank": 1, "attempt": 1,
              "data": {"wait_s": 1.5, "bytes_sent": 9, "bytes_received": 9}}  # fmt: skip
    assert "waited 1.5 s for the other ranks" in event_rows([waited])[0][4]
