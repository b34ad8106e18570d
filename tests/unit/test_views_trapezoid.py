"""Windows of full and decayed snapshots in pictures: shape and prediction by hand, steps, the tuner, events."""

from __future__ import annotations

import json
import re
from typing import Any

import plotly.graph_objects as go
import pytest
from runs_synthetic import finished_run
from synthetic_lines import START_NS, knob_row, line
from trapezoid_synthetic import (
    CHUNKS,
    LOOKS,
    NODES,
    PER_EPOCH,
    batches,
    decision_row,
    event,
    step_lines,
    trapezoid_data,
)  # fmt: skip

import dtdg_lab as lab
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.records import RecordWriter
from dtdg_lab.runs.report import event_rows
from dtdg_lab.runs.run import open_run
from dtdg_lab.systems.decayed_windows.charts import (
    Batch,
    DecisionLog,
    decision_panels,
    decision_words,
    proposal_words,
    shape_figure,
    shape_words,
    snapped,
)
from dtdg_lab.systems.decayed_windows.events import ChunkFacts, Shape, TrapezoidFacts
from dtdg_lab.systems.decayed_windows.view import TrapezoidView
from dtdg_lab.visualization.layout import percent
from dtdg_lab.visualization.run_window import CHARTS, RunWindow
from dtdg_lab.visualization.style import Marks

LADDER = (1, 2, 3, 5, 8, 13)  # oldest first
CHUNKS_DATA = {
    "chunker": "metis", "made_by": "metis (seed 0)", "chunks": 128, "parts": 2, "nodes": NODES, "sizes": [2, 2.5, 4],
    "cut_edges": 30, "cut_share": 0.3, "edges": 100, "seconds": 0.5, "note": "",
}  # fmt: skip


def window(data: dict[str, Any] | None = None, steps: int = 0, **more: Any) -> RunWindow:
    shown = RunWindow(RunConfig(system="flaredtdg", dataset="growing", ranks=2, epochs=20))
    if data is not None:
        shown.add(event(data))
        report(shown, data, range(steps), **more)
    return shown


def report(shown: RunWindow, data: dict[str, Any], steps: Any, **more: Any) -> None:
    for each in step_lines(data, steps, **more):
        shown.add(each)


def look(shown: RunWindow, *looks: Any, attempt: int = 1) -> None:
    for each in looks:
        shown.add(line("decisions", [decision_row(*each)], attempt=attempt))


def traces(figure: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure["data"]}


def check(figure: dict[str, Any]) -> None:
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    assert figure["layout"]["title"]["text"]
    axes = {name for name in figure["layout"] if re.fullmatch(r"[xy]axis\d*", name)}
    assert axes and all("title" in figure["layout"][name] for name in axes)


# shape and prediction


def test_rows_and_bytes_of_a_shape_by_hand() -> None:
    facts = TrapezoidFacts.read(trapezoid_data())
    assert facts.counts() == (*LADDER, CHUNKS, CHUNKS)
    chunks = 32 + 2 * CHUNKS
    assert facts.rows() == 5 * chunks and facts.whole_rows == 8 * NODES
    assert facts.kept() == chunks / (8 * CHUNKS) and percent(facts.kept()) == "28 %"
    assert facts.peak_bytes() == 1_000_000 + 1000.0 * 3 * chunks, "of the larger rank's rows"
    text = Shape(3, 0.5, "text")
    assert facts.counts(text) == (62, 72, 83, 96, 111, CHUNKS, CHUNKS, CHUNKS), "each floor(0.8706 times the newer)"
    assert percent(TrapezoidFacts.read(trapezoid_data(decay="text")).kept()) == "49 %"


def test_more_full_snapshots_than_the_window_has_are_all_of_it() -> None:
    facts = TrapezoidFacts.read(trapezoid_data(window=2))
    assert facts.counts() == facts.counts(Shape(9, 0.1, "ladder")) == (CHUNKS, CHUNKS)
    assert facts.kept() == 1.0 and facts.words.startswith("Windows of 2 snapshots: the newest 2 full. 100%")


def test_the_picture_of_a_batch_has_a_bar_a_snapshot() -> None:
    facts = TrapezoidFacts.read(trapezoid_data())
    figure = shape_figure(facts, Batch(123, 6, 57, 50, 2, LADDER, 1440, 99))
    check(figure)
    drawn = traces(figure)
    assert drawn["full"]["x"] == [56, 57] and drawn["full"]["y"] == [CHUNKS, CHUNKS]
    assert drawn["decayed"]["x"] == list(range(50, 56)) and drawn["decayed"]["y"] == list(LADDER)
    assert drawn["left out"]["y"] == [CHUNKS - count for count in LADDER]
    assert figure["layout"]["barmode"] == "stack"
    assert drawn["decayed"]["customdata"][-1] == "13 of 128 chunks a part, about 65 of 640 rows"
    words = shape_words(facts, Batch(123, 6, 57, 50, 2, LADDER, 1440, 99))
    assert "1,440 rows of nodes, 28 % of 8 full snapshots; 99 edges in decayed ones" in words


def test_a_batch_at_a_segments_start_lacks_its_decayed_ones_first() -> None:
    facts = TrapezoidFacts.read(trapezoid_data())
    short = Batch(3, 0, 22, 20, 2, (13,), 1345, 0)
    figure = shape_figure(facts, short)
    check(figure)
    assert figure["layout"]["xaxis"]["range"] == [14.4, 22.6], "as wide as a whole window"
    assert figure["layout"]["xaxis"]["tickvals"] == [20, 21, 22]
    assert "before the segment" in [note["text"] for note in figure["layout"]["annotations"]]
    assert "from 3 snapshots: its segment begins there, and decayed ones lack first" in shape_words(facts, short)
    assert "edges" not in shape_words(facts, short)


def test_a_proposed_shape_is_drawn_with_what_it_would_need() -> None:
    facts, proposed = TrapezoidFacts.read(trapezoid_data()), Shape(3, 0.1, "ladder")
    figure = shape_figure(facts, None, proposed)
    check(figure)
    outline = traces(figure)["proposed: K 3, alpha 0.1, ladder"]
    assert max(outline["y"]) == CHUNKS and outline["y"].count(CHUNKS) == 2 * 3
    assert outline["x"][0] == -0.5 and outline["x"][-1] == 7.5
    rows, now = facts.rows(proposed), facts.rows()
    (note,) = [each["text"] for each in figure["layout"]["annotations"] if "proposed" in each["text"]]
    assert f"about {rows:,} rows" in note and "MiB at a step's peak" in note
    words = proposal_words(facts, proposed)
    assert words.startswith("Now K 2, alpha 0.1, ladder: about 1,440 rows (28 % of full), 1.8 MiB")
    assert f"; {rows / now:.2f} times the rows and {facts.peak_bytes(proposed) / facts.peak_bytes():.2f} times" in words
    assert proposal_words(facts, facts.shape) == proposal_words(facts, None), "as it is now is no proposal"


def test_bytes_that_are_not_known_are_not_told() -> None:
    facts = TrapezoidFacts.read(trapezoid_data(base_bytes=None, row_bytes=None))
    assert facts.peak_bytes() is None
    assert "peak" not in facts.words + proposal_words(facts, Shape(3, 0.2, "text"))


@pytest.mark.parametrize("decay", ["ladder", "text"])
def test_handles_stand_where_k_and_alpha_show(decay: str) -> None:
    facts = TrapezoidFacts.read(trapezoid_data(decay=decay))
    batch = Batch(123, 6, 57, 50, 2, LADDER)
    points = shape_figure(facts, batch, handles=("full_snapshots", "alpha"))["layout"]["meta"]["handles"]
    full, alpha = {point["name"]: point for point in points}.values()
    assert full["x"] == 55.5 and full["along"] == "x", "between the decayed and the full ones"
    assert alpha["y"] == pytest.approx(12.8) and alpha["along"] == "y"
    assert round(alpha["x"]) == (55 if decay == "ladder" else 50), "the snapshot of which alpha speaks"
    for point in (full, alpha):  # a handle that is let go where it stands changes nothing
        place = point[point["along"]] - point["origin"]
        assert snapped(facts, facts.shape, point["name"], place) == facts.shape
    assert snapped(facts, facts.shape, "full_snapshots", full["low"] - full["origin"]).full_snapshots == 8
    assert snapped(facts, facts.shape, "full_snapshots", full["high"] - full["origin"]).full_snapshots == 1
    assert snapped(facts, facts.shape, "alpha", 64).alpha == 0.5
    assert snapped(facts, facts.shape, "alpha", -9).alpha == pytest.approx(1 / 128, abs=1e-3)
    assert "meta" not in shape_figure(facts, batch)["layout"]


def test_windows_without_decayed_ones_have_no_handle_for_alpha() -> None:
    facts = TrapezoidFacts.read(trapezoid_data(full_snapshots=8))
    points = shape_figure(facts, None, handles=("full_snapshots", "alpha"))["layout"]["meta"]["handles"]
    assert [point["name"] for point in points] == ["full_snapshots"]


@pytest.mark.parametrize("lost", ["window", "full_snapshots", "nodes"])
def test_a_damaged_event_is_refused(lost: str) -> None:
    data = trapezoid_data()
    del data[lost]
    with pytest.raises(DataError, match=f"'{lost}'"):
        TrapezoidFacts.read(data)


@pytest.mark.parametrize(
    "wrong",
    [{"row_counts": [0, 640]}, {"nodes": 3}, {"rank_row_counts": [0, 1]}, {"window": 0}, {"chunks": 5}],
)
def test_facts_that_do_not_fit_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="do not fit"):
        TrapezoidFacts.read({**trapezoid_data(), **wrong})


# steps


def test_the_newest_batch_is_shown_when_every_rank_has_told_it() -> None:
    data = trapezoid_data()
    shown = window(data, steps=5)
    report(shown, data, [5], ranks=[0])
    assert shown.view("trapezoid").now is not None and shown.view("trapezoid").now.step == 4
    report(shown, data, [5], ranks=[1])
    now, made = shown.view("trapezoid").now, batches(data)[5]
    assert (now.step, now.target, now.counts) == (5, made.target, made.counts)
    assert now.rows == 2 * (5 * (sum(made.counts) + made.full * CHUNKS) // 2), "of both ranks"


def test_windows_of_the_last_steps_are_a_row_each() -> None:
    data = trapezoid_data()
    shown = window(data, steps=60)
    figure, words = shown.view("trapezoid").named_panels()["windows"]
    check(figure)
    (trace,) = figure["data"]
    assert trace["y"] == list(range(20, 60)) and len(trace["z"]) == 40
    last = batches(data, 2)[-1]
    found = dict(zip(trace["x"], trace["z"][-1], strict=True))
    assert [at for at, level in found.items() if level == 1.0] == [last.target - 1, last.target], "full ones"
    assert [at for at, level in found.items() if level is not None] == list(last.snapshots)
    jumps = sum(batch.snapshots.start == batch.target for epoch in (1, 2) for batch in batches(data, epoch))
    assert f"It jumped {jumps - 1} times" in words


def test_rows_are_told_against_the_same_snapshots_all_full() -> None:
    data = trapezoid_data()
    shown = window(data, steps=PER_EPOCH)
    figure, words = shown.view("trapezoid").named_panels()["rows"]
    check(figure)
    drawn = traces(figure)
    longest = max(range(PER_EPOCH), key=lambda step: len(batches(data)[step].snapshots))
    assert len(batches(data)[longest].snapshots) == 8
    assert drawn["in the batch"]["y"][longest] == 1440
    assert drawn["the same snapshots, all full"]["y"][longest] == 8 * NODES
    assert words.startswith(
        "A whole window keeps 28 % of the rows of 8 full snapshots. In the last 20 steps batches had"
    )


def test_phases_and_cutting_out_are_shares_of_a_ranks_step() -> None:
    shown = window(trapezoid_data(), steps=10, shrink_s=0.0007)
    panels = shown.view("trapezoid").named_panels()
    phases, words = panels["phases"]
    check(phases)
    assert traces(phases)["compute"]["y"] == [10.0] * 10 and "transfer" not in traces(phases)
    assert "a step took 14 ms, the mean of the ranks: compute 71 %" in words
    cut, described = panels["shrinking"]
    check(cut)
    assert cut["data"][0]["y"] == [5.0] * 10, "0.7 ms of 14 ms"
    assert "took a rank 0.7 ms, 5.0 % of the step" in described
    assert "5.0 % of the step" in shown.view("trapezoid").caption()


def test_a_change_shows_from_its_step_on() -> None:
    data = trapezoid_data()
    shown = window(data, steps=30)
    for rank in (0, 1):
        shown.add(line("events", [knob_row(30, 1, full_snapshots=3, alpha=0.5)], rank=rank))
    assert shown.view("trapezoid").facts.shape == Shape(3, 0.5, "ladder")
    other = trapezoid_data(full_snapshots=3, alpha=0.5)
    report(shown, other, range(30, 40))
    for name in ("rows", "phases", "shrinking"):
        figure, words = shown.view("trapezoid").named_panels()[name]
        assert [note["text"] for note in figure["layout"]["annotations"]] == ["full_snapshots 3, alpha 0.5"]
        assert "last 10 steps" in words, "of the shape in use"
    shown.add(event(other, step=40))
    assert len(shown.view("trapezoid")._known) == 2, "what is told again changes nothing"


def test_other_settings_leave_the_shape() -> None:
    shown = window(trapezoid_data(), steps=3)
    shown.add(line("events", [knob_row(3, 1, learning_rate=0.1)]))
    assert len(shown.view("trapezoid")._known) == 1


def test_what_is_told_twice_counts_once_and_a_later_attempt_replaces() -> None:
    data = trapezoid_data()
    shown = window(data, steps=8)
    look(shown, LOOKS[0])
    once = shown.figures()["trapezoid"]
    report(shown, data, range(8))
    shown.add(event(data))
    look(shown, LOOKS[0])
    assert shown.figures()["trapezoid"] == once
    other = trapezoid_data(full_snapshots=4)
    shown.add(event(other, step=5, attempt=2))
    report(shown, other, range(5, 7), attempt=2)
    now = shown.view("trapezoid").now
    assert now.step == 6 and now.full == min(4, len(batches(other)[6].snapshots))
    assert not shown.view("trapezoid").decisions.looks(), "decided after step 5"


def test_logs_stay_bounded() -> None:
    data = trapezoid_data()
    view = TrapezoidView(2, Marks())
    view.event({"step": 0, "time_ns": 1, "data": data}, 1)
    for each in step_lines(data, range(900), ranks=[0]):
        for row in each["rows"]:
            named = dict(zip(each["columns"], row, strict=True))
            (view.batches.row if each["table"] == "batches" else view.step)(0, named, 1)
    assert view.now is None, "rank 1 is silent"
    assert len(view.batches.steps(1)) <= 400


@pytest.mark.parametrize("steps", [0, 1, 70])
@pytest.mark.parametrize("shape", [{}, {"full_snapshots": 8}, {"window": 1, "full_snapshots": 1}, {"decay": "text"}])
@pytest.mark.parametrize("looks", [0, 3])
def test_every_state_of_a_run_has_valid_pictures(steps: int, shape: dict[str, Any], looks: int) -> None:
    shown = window(trapezoid_data(**shape), steps=steps)
    look(shown, *LOOKS[:looks])
    check(shown.figures()["trapezoid"])
    assert len(json.dumps(shown.figures()["trapezoid"])) < 500_000
    for figure, words in shown.view("trapezoid").panels():
        check(figure)
        assert words


def test_exchanges_and_tasks_of_the_windows_are_on_the_page() -> None:
    data = trapezoid_data()
    shown = window(data, steps=4)
    assert not {"exposed", "predicted"} & set(shown.view("trapezoid").named_panels())
    for rank in (0, 1):
        shown.add(line("exchanges", [[4, 0, 0, "forward", "halo", 2, 0.004, 0.001]], rank=rank))
        shown.add(line("tasks", [[4, 0, 0, 7, "compute", 0.002, 0.001]], rank=rank))
    report(shown, data, [4])
    panels = shown.view("trapezoid").named_panels()
    assert {"exposed", "change", "predicted", "error"} <= set(panels)
    check(shown.figures()["trapezoid"])


# the tuner


def test_the_path_of_the_tuner_and_what_it_saw() -> None:
    shown = window(trapezoid_data(), steps=3)
    look(shown, *LOOKS)
    assert shown.view("trapezoid").decisions.path() == [(2, 0.1), (2, 0.2), (3, 0.2)]
    panels = shown.view("trapezoid").named_panels()
    figure, words = panels["tuner-losses"]
    check(figure)
    drawn = traces(figure)
    assert drawn["stay"]["y"] == [0.5, 0.39, 0.34] and drawn["K + 1"]["y"] == [0.45, 0.35]
    assert drawn["alpha up"]["x"] == [2, 4, 6], "after epochs 2, 4 and 6"
    assert drawn["chosen"]["y"] == [0.4, 0.35, 0.34]
    assert words == (
        "After epoch 6 the tuner stayed at K 3, alpha 0.2: no neighbour it asked about was better; 1 neighbour would "
        "need more than 1.0 GiB. 2 moves in 3 looks."
    )
    assert "2 moves in 3 looks" in shown.view("trapezoid").caption()
    figure, _ = panels["tuner-path"]
    check(figure)
    cells, line_, _ = figure["data"]
    by_cell = {
        (k, alpha): cells["z"][row][column]
        for row, alpha in enumerate(figure["layout"]["yaxis"]["ticktext"])
        for column, k in enumerate(figure["layout"]["xaxis"]["ticktext"])
    }
    assert by_cell["2", "0.2"] == 0.37, "the newest of its three"
    assert by_cell["1", "0.3"] is None and len(line_["x"]) == 3


def test_a_move_names_both_losses() -> None:
    log = DecisionLog()
    columns = ("step", "epoch", "policy", "state", "values", "action", "reward")
    log.row(0, dict(zip(columns, decision_row(*LOOKS[0]), strict=True)), 1)
    assert "went from K 2, alpha 0.1 to K 2, alpha 0.2, validation loss 0.5 to 0.4" in decision_words(log.looks())
    log.row(0, {**dict(zip(columns, decision_row(*LOOKS[1]), strict=True)), "policy": "another"}, 1)
    assert len(log.looks()) == 1, "what other policies decide is not about K and alpha"


def test_losses_that_are_not_finite_and_no_looks_are_drawn_too() -> None:
    log = DecisionLog()
    columns = ("step", "epoch", "policy", "state", "values", "action", "reward")
    wild = (40, (2, 0.1), (2, 0.1), {(2, 0.1): float("nan"), (1, 0.1): float("inf")})
    log.row(0, dict(zip(columns, decision_row(*wild), strict=True)), 1)
    for looks in (log.looks(), []):
        for figure, words in decision_panels(looks).values():
            check(figure)
            assert words


# the run


def test_only_a_run_with_windows_has_their_chart() -> None:
    shown = window()
    assert list(shown.figures()) == list(shown.captions()) == list(CHARTS)
    shown.add(event(trapezoid_data()))
    assert list(shown.figures()) == list(shown.captions()) == [*CHARTS, "trapezoid"]
    shown.add(event({"layout": None}, step=3))
    assert list(shown.figures()) == list(CHARTS) and shown.view("trapezoid").named_panels() == {}


def test_a_view_without_windows_has_nothing_to_draw() -> None:
    view = TrapezoidView(2, Marks())
    assert view.panels() == [] and view.caption() == "" and view.now is None
    with pytest.raises(LookupError):
        view.figure()


def test_chunks_are_told_with_their_cut_time_and_note() -> None:
    words = ChunkFacts.read(CHUNKS_DATA).words
    assert words == (
        "128 chunks in each of 2 parts by metis (seed 0), 2 to 4 nodes each, made in 500 ms; 30% of the edges "
        "within parts join two chunks."
    )
    assert ChunkFacts.read({**CHUNKS_DATA, "note": "METIS is missing."}).words.endswith("NOTE: METIS is missing.")
    with pytest.raises(DataError, match="'sizes'"):
        ChunkFacts.read({name: value for name, value in CHUNKS_DATA.items() if name != "sizes"})
    shown = window(trapezoid_data())
    shown.add(line("events", [[0, 0, START_NS, "chunks", CHUNKS_DATA]]))
    assert "made in 500 ms" in shown.captions()["trapezoid"]


def test_events_are_said_in_words() -> None:
    rows = [
        {"rank": 0, "attempt": 1, "step": 0, "time_ns": START_NS + at, "kind": kind, "data": data}
        for at, (kind, data) in enumerate((
            ("chunks", CHUNKS_DATA), ("trapezoid", trapezoid_data()), ("trapezoid", {"layout": None}),
            ("chunks", {"layout": None}),
        ))
    ]  # fmt: skip
    said = [what for *_, what in event_rows(rows)]
    assert said[0].startswith("128 chunks") and said[2:] == ["no windows from here on", "no chunks from here on"]
    assert said[1] == (
        "Windows of 8 snapshots: the newest 2 full, those before in 13, 8, 5, 3, 2, 1 of 128 chunks (ladder, alpha "
        "0.1). 28.1% of the rows of 8 full ones, 1.8 MiB at a step's peak by prediction."
    )


@pytest.mark.slow
def test_report_and_plot_of_a_run_show_its_windows(tmp_path: Any) -> None:
    run, data = finished_run(tmp_path), trapezoid_data()
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        writer.row("events", (0, 0, START_NS, "trapezoid", data))
        writer.row("decisions", tuple(decision_row(*LOOKS[0])))
    finish(run, "finished")
    stored = open_run(run.path)
    assert "trapezoid" in stored.captions()
    titles = lab.plot(stored).to_json()
    assert "A whole window" in titles and "What the tuner saw" in titles
    html = stored.report().read_text()
    assert "Windows that decay" in html and "the newest 2 full" in html
