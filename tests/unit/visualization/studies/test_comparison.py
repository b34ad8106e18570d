"""Several runs against one target: who was first, what it cost, in what they differ, and what is drawn of it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.studies.comparison import (
    ComparedRuns,
    Spending,
    arrivals,
    compare_runs,
    difference_of_data,
    differing_settings,
    first_at,
    headline,
    notice,
    settings_table,
)
from dtdg_lab.visualization.studies.comparison_charts import (
    OVER,
    apart,
    energy_caption,
    energy_card,
    loss_caption,
    loss_card,
    target_of,
    trade_caption,
    trade_card,
)
from tests.tables import START_NS, record_lines, run_tables

PERSISTENCE = 0.05
LOW, HIGH = 0.03, 0.06
ROLLUPS = all_rollups()


def a_run(losses: list[float | None], *, trained: float | None = 0.04, events: Any = (), **config: Any) -> RunTables:
    """Return a run with an evaluation after each ten steps of 10 ms, 2 J and 1 KiB a step."""
    rows = [
        {"step": 10 * place, "split": split, "loss": loss, "persistence_loss": PERSISTENCE}
        for place, value in enumerate(losses, start=1)
        for split, loss in (("train", trained), ("validation", value))
        if split == "validation" or trained is not None
    ]
    ranks, steps = (0, 1), range(10 * len(losses) + 1)
    step_rows = [{"rank": rank, "step": step, "bytes_sent": 512} for rank in ranks for step in steps]
    second = 1_000_000_000
    reading = {"interval_s": 0.1, "source": "modelled", "scope": "rank", "reader": "model", "node": "a", "watts": 100.0}
    energy = [
        {"rank": rank, "joules": 10.0, "device": f"cpu{rank}", "time_ns": START_NS + place * second // 10, **reading}
        for rank in ranks
        for place in range(1, len(losses) + 1)
    ]
    shares = [("compute", 6.0), ("communicate", 2.0 + len(losses)), ("idle", 1.0)]
    phases = [
        {"rank": 0, "time_ns": START_NS, "phase": phase, "joules": joules, "source": "modelled"}
        for phase, joules in shares
    ]
    begins = {"kind": "attempt", "data": {}}
    ends = [{"kind": "epoch", "step": 10, "rank": rank, "data": {"epoch": 0}} for rank in ranks]
    tables = {"steps": step_rows, "evaluations": rows, "energy": energy, "phase_energy": phases}
    settings = {"dataset": "collegemsg", "system": "esdg", **config}
    return run_tables(settings, tables, events=[begins, *ends, *events], rollups=ROLLUPS)


def compared(*losses: list[float | None], target: float | None = None) -> ComparedRuns:
    return compare_runs([(f"run {place}", a_run(each)) for place, each in enumerate(losses)], target)


def check(figure: Figure) -> Figure:
    go.Figure(figure)
    json.dumps(figure, allow_nan=False)
    assert figure["layout"]["meta"]["card"]["title"]
    return figure


# the target


def test_the_target_starts_a_fifth_below_persistence() -> None:
    assert compared([LOW] * 3).target == pytest.approx(0.8 * PERSISTENCE)
    assert compare_runs([]).target is None and compared([]).target is None


def test_without_persistence_the_target_is_just_above_the_lowest_loss() -> None:
    rows = [{"step": 10, "split": "validation", "loss": loss, "persistence_loss": None} for loss in (0.4, 0.2)]
    run = run_tables({}, {"evaluations": rows}, rollups=ROLLUPS)
    assert compare_runs([("run", run)]).target == pytest.approx(1.05 * 0.2)


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        ([LOW, LOW, LOW], 10),
        ([LOW, HIGH, LOW, LOW, LOW], 30),
        ([LOW, LOW, HIGH, LOW, LOW], None),
        ([LOW, None, LOW, LOW], None),
        ([LOW, LOW], None),
    ],
)
def test_a_target_is_reached_by_three_evaluations_in_a_row(losses: list[float | None], step: int | None) -> None:
    reached = first_at(a_run(losses), 0.04)
    assert (None if reached is None else reached.step) == step


def test_a_model_that_has_learned_nothing_has_not_reached_the_target() -> None:
    assert first_at(a_run([LOW] * 3, trained=0.06), 0.04) is None
    assert first_at(a_run([LOW] * 3, trained=None), 0.04) is not None, "training was never evaluated"


# words


def test_the_headline_says_who_was_first() -> None:
    quick, slow, never = [LOW] * 4, [HIGH, HIGH, LOW, LOW, LOW], [HIGH] * 5
    assert headline(compared(quick, slow)) == (
        "run 0 was first to reach a loss of 0.0400: after 110 ms, 2.8 times as fast as run 1."
    )
    assert headline(compared(never, slow)) == "Only run 1 has reached a loss of 0.0400: after 310 ms."
    assert headline(compared(never)) == "No run has reached a loss of 0.0400 yet."
    over = compare_runs([("run 0", a_run(never, events=[{"kind": "ended", "step": 50}]))])
    assert headline(over) == "No run reached a loss of 0.0400."
    assert headline(compared(quick)) == "run 0 reached a loss of 0.0400 after 110 ms."
    assert headline(compared(quick, quick)).startswith("run 0 and run 1 reached a loss of 0.0400 at about the same")
    assert headline(compare_runs([])) == "No run has been evaluated yet."


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ("joules", "with the least energy: 22.0 J; run 0 needed 2.8 times as much."),
        ("bytes", "with the fewest bytes sent: 11.0 KiB; run 0 needed 2.8 times as many."),
        ("steps", "with the fewest steps: 10; run 0 needed 3 times as many."),
    ],
)
def test_the_headline_says_what_the_axis_counts(over: Spending, words: str) -> None:
    quick, slow = [LOW] * 4, [HIGH, HIGH, LOW, LOW, LOW]
    assert headline(compared(slow, quick), over) == f"run 1 reached a loss of 0.0400 {words}"
    assert headline(compared(quick, [HIGH] * 4), over).startswith("Only run 0 has reached a loss of 0.0400: ")
    assert "about" in headline(compared(quick, quick), over)


def test_the_headline_is_about_time_where_the_axis_is_unknown() -> None:
    rows = [{"step": 10 * at, "split": "validation", "loss": LOW, "persistence_loss": PERSISTENCE} for at in (1, 2, 3)]
    silent = run_tables({}, {"evaluations": rows}, rollups=ROLLUPS)
    both = compare_runs([("a", silent), ("b", silent)], 0.04)
    assert headline(both, "joules") == headline(both) and "time" in headline(both)


def test_a_run_alone_is_not_called_the_best() -> None:
    alone = compared([LOW] * 3)
    assert loss_caption(alone) == "run 0 reached 0.0400, 20% below persistence, three evaluations in a row."
    assert loss_caption(compared([HIGH] * 3)).startswith("run 0 has not reached 0.0400")
    assert trade_caption(alone) == "run 0 has a lowest loss of 0.0300 and uses 20.0 J per epoch."
    assert energy_caption(alone) == "Communication takes 42% of the energy, the largest share beside computing."


def test_a_dragged_target_changes_who_is_first() -> None:
    early, deep = [0.03] * 6, [0.06, 0.06, 0.02, 0.02, 0.02]
    assert headline(compared(early, deep)).startswith("run 0 was first")
    assert headline(compared(early, deep, target=0.025)).startswith("Only run 1")


def test_the_caption_counts_the_runs_that_arrived() -> None:
    assert loss_caption(compared([LOW] * 3, [HIGH] * 3)) == (
        "1 of 2 runs reached 0.0400, 20% below persistence, three evaluations in a row."
    )
    assert "0.0600, 20% above persistence" in loss_caption(compared([LOW] * 3, target=0.06))
    assert loss_caption(compare_runs([])) == "Nothing measured yet."


# what differs


def test_runs_of_other_data_tasks_or_protocols_are_told_apart() -> None:
    runs = [
        ("first", a_run([LOW] * 3)),
        ("cut", a_run([LOW] * 3, cut=20)),
        ("links", a_run([LOW] * 3, task="link")),
        ("cold", a_run([LOW] * 3, protocol="cold")),
    ]
    found = compare_runs(runs)
    assert [run.name for run in found.runs] == ["first"]
    assert {run.name: run.reason for run in found.excluded} == {
        "cut": "other data",
        "links": "another task",
        "cold": "another protocol",
    }
    figure = check(loss_card(found))
    assert "first" in headline(found) and figure["data"][1]["line"]["color"] == found.excluded[0].colour == "#8A9099"
    assert "cut, other data" in figure["layout"]["annotations"][1]["text"]


def test_another_seed_is_other_data_where_data_are_generated() -> None:
    generated, stored = RunConfig(dataset="growing"), RunConfig(dataset="collegemsg")
    assert difference_of_data(generated.replace(seed=1), generated) == "other data"
    assert difference_of_data(stored.replace(seed=1), stored) == ""


def test_settings_that_follow_from_the_system_are_no_difference() -> None:
    esdg = RunConfig(system="esdg", dataset="collegemsg", ranks=2)
    flare = RunConfig(system="flaredtdg", dataset="collegemsg", ranks=2)
    assert differing_settings([esdg, flare]) == []
    assert differing_settings([esdg, flare.replace(learning_rate=0.003, epochs=9)]) == ["learning_rate"]


def test_the_notice_names_what_differs_beside_the_system() -> None:
    change = {"kind": "settings", "step": 5, "data": {"version": 1, "changes": {"learning_rate": 0.01}, "when": "step"}}
    esdg, flare = a_run([LOW] * 3), a_run([LOW] * 3, system="flaredtdg", learning_rate=0.003)
    changed = a_run([LOW] * 3, events=[change])
    assert notice(compare_runs([("a", esdg), ("b", flare)])) == (
        "These runs differ in more than the system: learning rate."
    )
    assert notice(compare_runs([("a", flare), ("b", changed)])).endswith(
        "the system: learning rate and changes while training."
    )
    assert notice(compare_runs([("a", esdg), ("b", a_run([LOW], learning_rate=0.01, seed=1))])) == "", "one setting"
    assert "more than one setting" in notice(compare_runs([("a", changed), ("b", a_run([LOW], hidden=8))]))
    assert notice(compare_runs([("a", esdg)])) == ""
    table = settings_table(compare_runs([("a", flare), ("b", changed)]))
    assert table == [
        ["Setting", "a", "b"],
        ["System", "FlareDTDG", "ESDG"],
        ["Learning rate", "0.003", "0.001"],
        ["Changes while training", "0", "1"],
    ]


# table


def test_the_table_has_the_first_run_on_top_and_those_that_did_not_arrive_last() -> None:
    lines = arrivals(compared([HIGH] * 5, [HIGH, HIGH, LOW, LOW, LOW], [LOW] * 5))
    assert [(line.name, line.has_arrived) for line in lines] == [("run 2", True), ("run 1", True), ("run 0", False)]
    first, last = lines[0].cells, lines[-1].cells
    assert first[0].text == "110 ms" and first[0].share == pytest.approx(110 / 310)
    assert first[1].text == "22.0 J" and first[1].share is not None
    assert [cell.text for cell in last[:3]] == ["not reached", "not reached", "0.0600"]
    assert first[3].text == "100" and first[4].text == "20.0 J" and first[5].text == "1.00 KiB"


def test_the_best_of_each_column_is_marked() -> None:
    low_late, early = [HIGH, 0.02, 0.02, 0.02], [LOW] * 4
    lines = arrivals(compared(low_late, early))
    best = [[cell.is_best for cell in line.cells] for line in lines]
    assert best == [[True, True, False, True, True, True], [False, False, True, True, True, True]], (
        "equal ones are both"
    )
    assert not any(cell.is_best for line in arrivals(compared(early)) for cell in line.cells), "of one run nothing is"
    (_, never) = arrivals(compared(early, [HIGH] * 4))
    assert [cell.is_best for cell in never.cells[:2]] == [False, False]


def test_what_is_not_recorded_is_a_dash() -> None:
    rows = [{"step": 10 * at, "split": "validation", "loss": LOW, "persistence_loss": PERSISTENCE} for at in (1, 2, 3)]
    found = compare_runs([("run", run_tables({}, {"evaluations": rows}, rollups=ROLLUPS))])
    (line,) = arrivals(found)
    assert [cell.text for cell in line.cells[1:]] == ["–", "0.0300", "–", "–", "–"]
    for over in ("joules", "bytes"):
        assert "didn't record" in check(loss_card(found, over))["layout"]["annotations"][-1]["text"]
    for figure in (energy_card(found), trade_card(found)):
        assert not check(figure)["data"]
    assert energy_caption(found) == trade_caption(found) == "Nothing measured yet."


# charts


@pytest.mark.parametrize(
    ("over", "star", "x_title"),
    [
        ("seconds", 0.31, "seconds of training"),
        ("joules", 62.0, "J of all ranks"),
        ("bytes", 31.0, "KiB sent by all ranks"),
        ("steps", 30.0, "step"),
    ],
)
def test_a_line_has_a_star_where_its_run_reached_the_target(over: Spending, star: float, x_title: str) -> None:
    figure = check(loss_card(compared([HIGH, HIGH, LOW, LOW, LOW], [HIGH] * 5), over, is_smooth=False))
    *lines, drawn = figure["data"]
    assert [line["name"] for line in lines] == ["run 0", "run 1"] and lines[0]["y"] == [HIGH, HIGH, LOW, LOW, LOW]
    assert drawn["y"] == [pytest.approx(0.04)] and drawn["x"] == [pytest.approx(star)]
    assert figure["layout"]["xaxis"]["title"]["text"] == x_title
    assert figure["layout"]["meta"]["card"]["title"] == f"Validation loss over {OVER[over]}"


def test_smoothed_losses_are_medians_of_five() -> None:
    figure = loss_card(compared([0.05, 0.09, 0.04, 0.03, 0.03, 0.02, 0.08]))
    assert figure["data"][0]["y"] == [0.05, 0.045, 0.04, 0.03, 0.03, 0.03, 0.03]


def test_the_target_can_be_dragged_within_the_axis() -> None:
    found = compared([LOW] * 3, [HIGH] * 3)
    figure = loss_card(found)
    (handle,) = figure["layout"]["meta"]["handles"]
    assert (
        target_of(handle["y"], figure) == pytest.approx(found.target) and handle["low"] < handle["y"] < handle["high"]
    )


def test_names_stand_at_the_ends_of_lines_and_apart() -> None:
    assert apart([10.0, 12.0, 100.0], 16, 200) == [10.0, 26.0, 100.0]
    assert apart([195.0, 10.0, 190.0], 16, 200) == [200.0, 10.0, 184.0]
    found = compare_runs([(f"run {place}", a_run([LOW] * 3)) for place in range(30)])
    figure = check(loss_card(found))
    notes = figure["layout"]["annotations"]
    assert figure["layout"]["margin"]["r"] >= 21 + 8 * len("run 29")  # gap, dot and letters of a wide font
    assert "● </span>" not in notes[0]["text"] and "run 0" in notes[0]["text"]
    places = sorted(note["y"] * (figure["layout"]["height"] - 52) for note in notes[:30])
    assert min(after - before for before, after in pairwise(places)) > 15.9


def test_the_unit_says_that_losses_are_smoothed() -> None:
    units = [
        loss_card(compared([HIGH] * 5), is_smooth=smooth)["layout"]["meta"]["card"]["unit"] for smooth in (True, False)
    ]
    assert units == ["mean squared error, smoothed (median of 5 evaluations)", "mean squared error"]


def test_a_spike_at_the_start_does_not_stretch_the_axis() -> None:
    figure = loss_card(compared([90.0, *[HIGH] * 40]), is_smooth=False)
    assert figure["layout"]["yaxis"]["range"][1] < 0


def test_a_run_without_evaluations_has_no_line() -> None:
    figure = check(loss_card(compared([], [LOW] * 3)))
    assert [trace["name"] for trace in figure["data"]] == ["run 1", "run 1"]
    assert "first evaluation" in check(loss_card(compared([])))["layout"]["annotations"][-1]["text"]


def test_where_the_energy_went_is_shares_of_each_run() -> None:
    found = compared([LOW] * 3, [LOW] * 8)
    figure = check(energy_card(found))
    bars = {trace["name"]: trace["x"] for trace in figure["data"]}
    assert sum(values[0] for values in bars.values()) == pytest.approx(100, abs=0.05)
    assert energy_caption(found) == "Communication takes its largest share in run 1: 59%."


def test_loss_stands_against_energy_per_epoch() -> None:
    found = compared([LOW] * 3, [0.02] * 8)
    figure = check(trade_card(found))
    assert [trace["y"] for trace in figure["data"]] == [[LOW], [0.02]]
    assert trade_caption(found) == "run 1 has the lowest loss; run 0 uses the least energy per epoch."
    assert trade_caption(compared([0.02] * 3, [LOW] * 8)) == (
        "run 0 has the lowest loss and uses the least energy per epoch."
    )


def test_bytes_of_a_step_are_those_of_a_run_that_was_not_resumed() -> None:
    run = a_run([0.06, 0.05])
    again = [{"rank": rank, "attempt": 2, "step": step, "bytes_sent": 512} for rank in (0, 1) for step in range(5, 8)]
    run.add_lines(record_lines("steps", again))
    assert compare_runs([("resumed", run)]).runs[0].bytes_per_step == 1024


def test_steps_per_second_are_of_all_ranks_where_each_has_its_own() -> None:
    together, apart = a_run([LOW] * 3), a_run([LOW] * 3, system="dynahb", exchange="models")
    (first, second) = compare_runs([("together", together), ("apart", apart)]).runs
    assert first.steps_per_second is not None and second.steps_per_second == pytest.approx(2 * first.steps_per_second)
