"""The picture of decayed windows: small tables in, the figure and its caption out."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.systems.decayed_windows.window_picture import SHARE_TITLE, WINDOW
from dtdg_lab.visualization.chart import ChartOptions
from tests.tables import run_tables
from tests.window_tables import CHUNKS, events, planned_windows, window_rows, window_tables

LADDER = (1, 2, 3, 5, 8, 13)
PERCENTS = [round(100 * count / CHUNKS, 2) for count in LADDER]
WHOLE = next(step for step, window in enumerate(planned_windows(RunConfig(system="flaredtdg"))) if window.counts[5:])


def draw(tables: Any, **options: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any], str]:
    """Return the traces by name, the layout, and the caption; the figure is one that plotly can draw."""
    chosen = ChartOptions(**options)
    figure = WINDOW.figure(tables, chosen)
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    assert len(figure["layout"]["annotations"]) <= 25
    return {trace.get("name", ""): trace for trace in figure["data"]}, figure["layout"], WINDOW.caption(tables, chosen)


def texts(layout: dict[str, Any]) -> list[str]:
    return [note["text"] for note in layout["annotations"]]


def title(layout: dict[str, Any]) -> str:
    return str(layout["meta"]["card"]["title"])


def value_of(handle: dict[str, Any], position: float) -> float:
    """Return the value of its setting that a page takes from a position of a handle."""
    return float(handle["scale"] * (position - handle["origin"]))


def test_a_whole_window_has_decayed_and_full_bars() -> None:
    tables = window_tables(steps=range(WHOLE + 1))
    window = planned_windows(RunConfig(system="flaredtdg"))[WHOLE]
    traces, layout, caption = draw(tables)
    assert traces["decayed"]["x"] == list(window.decayed) and traces["decayed"]["y"] == PERCENTS
    assert traces["full"]["x"] == [window.target - 1, window.target] and traces["full"]["y"] == [100, 100]
    assert traces["left out"]["x"] == traces["decayed"]["x"]
    assert len(traces["other snapshots"]["x"]) == 20 - 8
    assert title(layout) == f"Window of step {WHOLE}"
    assert caption == f"Step {WHOLE} trains on 2 full and 6 decayed snapshots: 1,440 of 5,120 rows."
    assert "<b>6 decayed</b>, not exchanged" in texts(layout)
    assert any(text.startswith("<b>2 full</b>") for text in texts(layout))
    assert traces["shares"]["text"] == ["0.8%", "1.6%", "2.3%", "3.9%", "6.2%", "10%"]


def test_one_rank_exchanges_nothing() -> None:
    _, layout, _ = draw(window_tables({"ranks": 1}, range(WHOLE + 1)))
    assert not [text for text in texts(layout) if "exchanged" in text]


def test_a_window_at_the_start_of_a_segment_shows_what_it_will_be() -> None:
    traces, layout, caption = draw(window_tables(steps=[0]))
    first = traces["full"]["x"][0]
    assert "decayed" not in traces and len(layout["shapes"]) == 8
    assert [shape["x0"] for shape in layout["shapes"]] == pytest.approx([first + at - 0.43 for at in range(8)])
    assert caption == "Step 0 is at the start of a segment, so its window holds 1 of 8 snapshots."
    assert "dotted: the window<br>in 7 steps" in texts(layout)
    assert "<b>1 of 8</b>: the segment starts here" in texts(layout)


def test_a_segment_at_the_end_of_the_training_snapshots_reaches_no_whole_window() -> None:
    tables = window_tables(steps=[0], train=range(planned_windows(RunConfig(system="flaredtdg"))[0].target + 3))
    _, layout, _ = draw(tables)
    assert not layout["shapes"]


def test_before_a_run_its_window_is_planned_from_its_settings() -> None:
    tables = run_tables({"system": "flaredtdg"})
    traces, layout, caption = draw(tables)
    assert title(layout) == "Window that a step will train on"
    assert caption == "With these settings, a window holds 28% of the rows of 8 full snapshots."
    middle = sum(layout["xaxis"]["range"]) / 2
    assert abs((traces["decayed"]["x"][0] + traces["full"]["x"][-1]) / 2 - middle) < 1
    assert "Appears with the first step" in texts(layout)


def test_before_the_first_step_rows_are_known() -> None:
    _, _, caption = draw(window_tables())
    assert caption == "With these settings, a full window holds 1,440 of 5,120 rows."


def test_a_proposal_is_outlined_with_what_it_needs() -> None:
    tables = window_tables(steps=range(WHOLE + 1))
    traces, layout, caption = draw(tables, preview={"alpha": 0.6})
    assert caption.startswith("With alpha 0.6, a full window would hold 1,") and caption.endswith("instead of 1,440.")
    outline = traces["proposed"]
    assert outline["x"][0] == traces["decayed"]["x"][0] - 0.5 and outline["x"][-1] == traces["full"]["x"][-1] + 0.5
    assert max(outline["y"]) == 100 and outline["line"]["dash"] == "dash"
    (note,) = [text for text in texts(layout) if "Release to apply" in text]
    assert note.startswith("<b>Alpha 0.6</b><br>") and "rows (+" in note and "peak (+" in note


def test_a_shorter_window_is_proposed_at_the_same_target() -> None:
    traces, _, caption = draw(window_tables(steps=range(WHOLE + 1)), preview={"window": 6})
    assert traces["proposed"]["x"][0] == traces["decayed"]["x"][2] - 0.5
    assert caption.startswith("With a window of 6, a full window would hold")


def test_settings_that_shape_no_window_propose_none() -> None:
    tables = window_tables(steps=range(WHOLE + 1))
    for preview in ({"learning_rate": 0.1}, {"alpha": 0.1}):
        traces, _, caption = draw(tables, preview=preview)
        assert "proposed" not in traces and caption.startswith("Step ")


def test_handles_stand_where_k_and_alpha_are_seen() -> None:
    traces, layout, _ = draw(window_tables(steps=range(WHOLE + 1)))
    full, alpha = layout["meta"]["handles"]
    assert full["x"] == traces["full"]["x"][0] - 0.5 and alpha["x"] == traces["decayed"]["x"][-1]
    assert alpha["y"] == pytest.approx(10.0)
    assert value_of(full, full["x"]) == 2 and value_of(full, full["x"] - 2) == 4
    assert (value_of(full, full["high"]), value_of(full, full["low"])) == (1, 8)
    assert value_of(alpha, 57.8) == pytest.approx(0.578) and value_of(alpha, alpha["low"]) == pytest.approx(1 / CHUNKS)
    _, layout, _ = draw(window_tables({"decay": "text"}, range(WHOLE + 1)))
    assert layout["meta"]["handles"][1]["x"] == traces["decayed"]["x"][0], "by text the oldest has alpha"


def test_handles_stand_at_the_bars_of_a_segment_that_starts() -> None:
    windows = planned_windows(RunConfig(system="flaredtdg"))
    step = next(step for step, window in enumerate(windows) if len(window.counts) == 1)
    tables = window_tables(steps=range(step + 1))
    traces, layout, _ = draw(tables)
    full, alpha = layout["meta"]["handles"]
    assert full["x"] == traces["full"]["x"][0] - 0.5 and alpha["x"] == traces["decayed"]["x"][-1]
    traces, layout, _ = draw(tables, preview={"alpha": 0.6})
    assert traces["proposed"]["x"][-1] == traces["full"]["x"][-1] + 0.5, "the outline is where the handles are"


def test_handles_stand_on_a_tinted_outline_where_a_segment_starts_at_the_left_end() -> None:
    row = {"target": 1, "first": 0, "full": 2, "chunks": [None, None]}
    rows = window_rows(RunConfig(system="flaredtdg", ranks=2), [0], range(15), **row)
    _, layout, _ = draw(window_tables(steps=[0], train=range(15), tables={"batches": rows}))
    tinted = [shape for shape in layout["shapes"] if shape["fillcolor"] != "rgba(0,0,0,0)"]
    assert [(shape["x0"] + shape["x1"]) / 2 for shape in tinted] == [2, 3, 4, 5, 6, 7]
    full, alpha = layout["meta"]["handles"]
    assert full["x"] == 5.5 and alpha["x"] == 5


def test_no_handle_stands_beside_a_window_that_its_segment_will_not_fill() -> None:
    row = {"target": 14, "first": 14, "full": 1, "chunks": [None]}
    rows = window_rows(RunConfig(system="flaredtdg", ranks=2), [0], range(15), **row)
    tables = window_tables({"full_snapshots": 1}, steps=[0], train=range(15), tables={"batches": rows})
    _, layout, _ = draw(tables)
    assert [handle["name"] for handle in layout["meta"]["handles"]] == ["full_snapshots"], "alpha has no bar at 13"
    assert len(draw(tables, preview={"alpha": 0.6})[1]["meta"]["handles"]) == 2, "on the outline"


def test_a_note_of_a_segment_at_the_right_end_leaves_room_for_the_title() -> None:
    train, short = range(100), {"target": 95, "first": 94, "full": 2, "chunks": [None, None]}
    rows = window_rows(RunConfig(system="flaredtdg", ranks=2), [0], train, **short)
    _, layout, _ = draw(window_tables(steps=[0], train=train, tables={"batches": rows}))
    note = next(note for note in layout["annotations"] if "the segment starts here" in note["text"])
    assert note["xanchor"] == "right" and note["x"] < 90


@pytest.mark.parametrize(("target", "x"), [(40, 1), (99, 0)])
def test_the_title_of_the_bars_stands_where_the_window_is_not(target: int, x: int) -> None:
    train, counts = range(100), [*LADDER, None, None]
    whole = {"target": target, "first": target - 7, "full": 2, "chunks": counts}
    rows = window_rows(RunConfig(system="flaredtdg", ranks=2), [0], train, **whole)
    _, layout, _ = draw(window_tables(steps=[0], train=train, tables={"batches": rows}))
    assert [note["x"] for note in layout["annotations"] if note["text"] == SHARE_TITLE] == [x]


def test_with_a_proposal_the_picture_stays_at_its_step() -> None:
    tables = window_tables(steps=range(WHOLE + 40))
    traces, layout, _ = draw(tables, preview={"alpha": 0.6}, step=WHOLE)
    assert title(layout) == f"Window of step {WHOLE}" and traces["windows"]["y"][-1] == WHOLE
    assert traces["full"]["x"][-1] == planned_windows(RunConfig(system="flaredtdg"))[WHOLE].target


def test_a_window_that_is_all_full_has_no_handle_of_alpha() -> None:
    tables = window_tables(steps=range(WHOLE + 1))
    _, layout, _ = draw(tables, preview={"full_snapshots": 8})
    assert [handle["name"] for handle in layout["meta"]["handles"]] == ["full_snapshots"]


@pytest.mark.parametrize("system", ["full-history", "recent-only"])
def test_whole_windows_are_blue_alone(system: str) -> None:
    tables = window_tables({"system": system}, range(20))
    traces, layout, caption = draw(tables)
    assert "decayed" not in traces and layout["meta"]["handles"] == []
    assert [key[0] for key in layout["meta"]["card"]["keys"]] == ["full"]
    assert "full snapshots" in caption and "decayed" not in caption


def test_windows_of_dynagraph_are_sampled_edges() -> None:
    traces, _, caption = draw(window_tables({"system": "dynagraph"}, range(10)))
    assert traces["sampled edges"]["x"] == list(range(2, 10))
    assert traces["sampled edges"]["y"] == [2 * (10 + snapshot) for snapshot in range(2, 10)]
    assert caption == "Step 9 trains on 8 snapshots with 248 sampled edges."
    assert max(max(filter(None, row)) for row in traces["windows"]["z"]) < 0.9, "none is drawn as full"


def test_dynagraph_before_its_first_step_says_what_it_will_sample() -> None:
    _, _, caption = draw(run_tables({"system": "dynagraph"}))
    assert caption == "With these settings, a step samples up to 10 neighbours of each node in 8 snapshots."


def test_the_history_has_a_row_a_step_the_newest_on_top() -> None:
    tables = window_tables(steps=range(60))
    traces, layout, _ = draw(tables)
    history = traces["windows"]
    assert history["y"] == list(range(20, 60)) and layout["yaxis2"]["range"] == [19.5, 59.5]
    newest = planned_windows(RunConfig(system="flaredtdg"), 2)[19]
    row = dict(zip(history["x"], history["z"][-1], strict=True))
    assert {snapshot for snapshot, level in row.items() if level == 1.0} == set(newest.snapshots[-newest.full :])
    assert {snapshot for snapshot, level in row.items() if level is not None} == set(newest.snapshots)
    assert "Windows of the last 40 steps" in texts(layout)


def test_few_steps_leave_the_rest_of_the_history_empty() -> None:
    traces, layout, _ = draw(window_tables(steps=range(3)))
    assert traces["windows"]["y"] == [0, 1, 2] and layout["yaxis2"]["range"] == [-37.5, 2.5]


def test_a_step_that_one_rank_has_not_recorded_is_not_drawn() -> None:
    config = RunConfig(system="flaredtdg", ranks=2)
    rows = window_rows(config, range(5))[:-1]
    tables = run_tables(config, {"batches": rows}, events=events(config))
    assert title(draw(tables)[1]) == "Window of step 3"


def test_a_resumed_run_draws_the_windows_of_its_newest_attempt() -> None:
    config = RunConfig(system="flaredtdg", ranks=2)
    first = window_rows(config, range(8))
    second = window_rows(config.replace(alpha=0.6), range(4, 6), attempt=2)
    steps = [{"rank": row["rank"], "step": row["step"], "attempt": row.get("attempt", 1)} for row in [*first, *second]]
    tables = run_tables(config, {"steps": steps, "batches": [*first, *second]}, events=events(config))
    traces, layout, _ = draw(tables)
    assert title(layout) == "Window of step 5" and traces["windows"]["y"] == [0, 1, 2, 3, 4, 5]
    assert traces["decayed"]["y"][-1] == pytest.approx(60.16)


def test_the_axis_follows_the_window_over_many_snapshots() -> None:
    train = range(500)
    config = RunConfig(system="flaredtdg", ranks=2)
    step = next(step for step, window in enumerate(planned_windows(config, 0, train)) if window.target == 300)
    traces, layout, _ = draw(window_tables(steps=range(step - 45, step + 1), train=train))
    low, high = layout["xaxis"]["range"]
    assert high - low < 121 and low < traces["decayed"]["x"][0] and traces["full"]["x"][-1] == 300 < high
    assert "shares" not in traces, "no room for a number on every bar"
    assert len(traces["windows"]["z"]) * len(traces["windows"]["z"][0]) <= 24_000


def test_a_window_longer_than_the_axis_shows_its_newest_snapshots() -> None:
    train = range(400)
    tables = window_tables({"window": 200}, range(330, 340), train=train)
    traces, layout, _ = draw(tables)
    assert traces["full"]["x"][-1] in range(*(int(end) + 1 for end in layout["xaxis"]["range"]))
    tables = window_tables({"window": 200, "decay": "text"}, range(330, 340), train=train)
    assert [handle["name"] for handle in draw(tables)[1]["meta"]["handles"]] == ["full_snapshots"], "alpha is older"


def test_windows_of_64_ranks_look_like_those_of_two() -> None:
    few, many = (draw(window_tables({"ranks": ranks}, range(WHOLE + 1)))[0] for ranks in (2, 64))
    assert few["decayed"]["y"] == many["decayed"]["y"] and few["full"]["x"] == many["full"]["x"]


def test_a_changed_alpha_moves_the_planned_window() -> None:
    change = {"kind": "settings", "step": 3, "data": {"version": 1, "changes": {"alpha": 0.5}, "when": "step"}}
    _, layout, _ = draw(window_tables(steps=range(3), more_events=[change]))
    assert layout["meta"]["handles"][1]["y"] == pytest.approx(50.0)


def test_the_picture_is_of_systems_with_windows() -> None:
    shown = {
        system: WINDOW.applies(run_tables({"system": system})) for system in ("flaredtdg", "dynagraph", "dygnex-g")
    }
    assert shown == {"flaredtdg": True, "dynagraph": True, "dygnex-g": False}
