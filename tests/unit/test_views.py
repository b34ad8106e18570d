"""RunWindow and its views: bounded, honest, and right about who is slow."""

from __future__ import annotations

import itertools
import json
import math

import plotly.graph_objects as go
import pytest
from synthetic_lines import energy_row, evaluation_row, knob_row, line, phase_rows, steady_run, step_row

from dtdg_lab.core.config import RunConfig
from dtdg_lab.visualization.loss import compare_figure
from dtdg_lab.visualization.run_window import CHARTS, RunWindow
from dtdg_lab.visualization.series import Series


def test_what_a_run_prepares_is_known_until_it_trains() -> None:
    shown = window()
    shown.add(line("events", [[0, 0, 1, "preparing", {"what": "metis divides 9 nodes", "left_s": 2.6}]]))
    assert shown.preparing == "metis divides 9 nodes, about 3 s left"
    shown.add(line("events", [[0, 0, 2, "kernel", {"backend": "torch", "device": "cpu", "threads": 1}]]))
    assert shown.preparing == ""


def window(ranks: int = 2, **settings: object) -> RunWindow:
    return RunWindow(RunConfig(ranks=ranks, epochs=20), **settings)  # type: ignore[arg-type]


def filled(steps: int = 60, **settings: object) -> RunWindow:
    shown = window()
    for record in steady_run(steps, **settings):  # type: ignore[arg-type]
        shown.add(record)
    return shown


def trace(figure: dict, name: str) -> dict:
    return next(trace for trace in figure["data"] if trace["name"] == name)


def check_figures(figures: dict) -> None:
    assert tuple(figures) == CHARTS
    for figure in figures.values():
        go.Figure(figure)  # refuses any attribute plotly does not know
        json.dumps(figure, allow_nan=False)
        layout = figure["layout"]
        assert layout["title"]["text"]
        assert layout["uirevision"] in ("dtdg-lab", "waiting")
        assert "(" in layout["xaxis"]["title"]["text"]  # a unit


@pytest.mark.parametrize("x", ["steps", "seconds"])
def test_figures_are_valid_plotly(x):
    check_figures(filled().figures(x))


def test_an_empty_run_has_axes_and_says_that_it_waits():
    figures = window().figures()
    check_figures(figures)
    for name, figure in figures.items():
        assert [note["text"] for note in figure["layout"]["annotations"]] == ["waiting for the first step"], name
    assert all("waiting" not in str(figure["layout"]["annotations"]) for figure in filled().figures().values())


def test_loss_shows_every_step_evaluations_and_baselines():
    figure = filled(60).figures()["loss"]
    assert trace(figure, "each step")["x"] == list(range(60))
    assert trace(figure, "each step")["y"][-1] == pytest.approx(1 / 60)
    assert trace(figure, "validation")["x"] == [10, 20, 30, 40, 50, 60]
    assert trace(figure, "train")["y"][0] == pytest.approx(1 / 11)
    assert trace(figure, "persistence")["y"] == [0.5, 0.5]
    assert trace(figure, "persistence")["line"]["dash"] == "dash"
    assert trace(figure, "mean")["y"] == [0.9, 0.9]
    assert "test" not in [found["name"] for found in figure["data"]]


def test_test_split_appears_once_it_is_known():
    shown = filled(20)
    shown.add(line("evaluations", [evaluation_row(20, "test", 0.3)]))
    assert trace(shown.figures()["loss"], "test")["y"] == [0.3]


def test_seconds_count_from_the_first_record():
    figure = filled(60).figures("seconds")["loss"]
    xs = trace(figure, "each step")["x"]
    assert xs[0] == 0 and xs[-1] == pytest.approx(59 * 0.014)
    assert "(s)" in figure["layout"]["xaxis"]["title"]["text"]


def test_loss_sentence_compares_with_persistence():
    shown = window()
    assert shown.captions()["loss"] == "No loss yet."
    shown.add(line("evaluations", [evaluation_row(10, "validation", 0.4)]))
    assert shown.captions()["loss"] == "Validation loss 0.4 at step 10, 20 % below persistence (0.5)."
    shown.add(line("evaluations", [evaluation_row(20, "validation", 0.6)]))
    assert "20 % above persistence" in shown.captions()["loss"]


def test_a_loss_that_is_not_finite_is_a_gap_and_not_a_number():
    shown = window()
    shown.add(line("steps", [step_row(0, 1.0), step_row(1, math.nan), step_row(2, None)]))
    assert trace(shown.figures()["loss"], "each step")["y"] == [1.0, None, None]


@pytest.mark.parametrize("slow_rank", [0, 1, 3])
@pytest.mark.parametrize("slow_s", [0.005, 0.02])
def test_the_sentence_names_the_slowed_rank_and_what_it_costs(slow_rank, slow_s):
    shown = filled(60, ranks=4, slow_rank=slow_rank, slow_s=slow_s)
    balance = shown.phases.balance()
    assert balance.slowest == slow_rank
    assert balance.others_wait_share == pytest.approx(slow_s / (0.014 + slow_s), rel=0.1)
    assert balance.ratio == pytest.approx((0.01 + slow_s) / (0.01 + slow_s / 4), rel=0.01)
    caption = shown.captions()["phases"]
    assert caption.startswith(f"Rank {slow_rank} is slowest: it computes {10 + slow_s * 1e3:.1f} ms a step")
    assert f"wait {100 * balance.others_wait_share:.0f} % of each step" in caption
    assert f"imbalance {balance.ratio:.2f}" in shown.figures()["phases"]["layout"]["title"]["text"]


def test_balanced_ranks_and_a_single_rank_are_not_blamed():
    assert "balanced" in filled(30).captions()["phases"]
    alone = filled(30, ranks=1)
    assert "never waits" in alone.captions()["phases"]
    assert "imbalance" not in alone.figures()["phases"]["layout"]["title"]["text"]


def test_phases_are_means_of_the_recent_steps_in_milliseconds():
    shown = window()
    for step in range(100):
        shown.add(line("steps", [step_row(step, 1.0, own_s=0.5 if step < 50 else 0.02)]))
    assert trace(shown.figures()["phases"], "compute")["x"] == [pytest.approx(20.0)]


@pytest.mark.slow
def test_long_runs_stay_bounded_and_keep_the_last_point():
    shown = window(ranks=1, points=500)
    for start in range(0, 20_000, 500):
        shown.add(line("steps", [step_row(step, 1 / (step + 1), per_epoch=50) for step in range(start, start + 500)]))
        epochs = range(start + 50, start + 501, 50)
        shown.add(line("evaluations", [evaluation_row(step, "validation", 1 / step, per_epoch=50) for step in epochs]))
        shown.add(line("energy", [energy_row(start * 0.02, 2.0)]))
        shown.add(line("phases", [row for step in range(start, start + 500) for row in phase_rows(step, per_epoch=50)]))
        shown.add(line("events", [knob_row(start, version=start, learning_rate=0.1)]))
    figures = shown.figures()
    xs = trace(figures["loss"], "each step")["x"]
    assert 250 <= len(xs) <= 501 and xs[0] == 0 and xs[-1] == 19_999
    gaps = {after - before for before, after in itertools.pairwise(xs[:-1])}
    assert gaps == {shown.loss.steps.stride}
    assert trace(figures["loss"], "validation")["x"][-1] == 20_000
    for figure in figures.values():
        assert all(len(found["x"]) <= 501 for found in figure["data"])
        assert len(figure["layout"]["shapes"]) <= 30
    assert len(shown.marks) <= 200
    energy = figures["energy"]["data"][0]
    assert energy["y"][-1] == pytest.approx(80.0)
    assert len(json.dumps(figures)) < 300_000


def test_series_stays_recorded_values_in_order_at_any_length():
    series = Series(10)
    for step in range(1000):
        series.add(step, step / 10, float(step))
        steps = [point.step for point in series.points]
        assert steps == sorted(set(steps)) and steps[-1] == step and steps[0] == 0 and len(steps) <= 11
        assert all(point.value == point.step for point in series.points)


def test_a_later_attempt_replaces_from_its_first_step():
    shown = window(ranks=1)
    shown.add(line("steps", [step_row(step, 1.0) for step in range(30)]))
    shown.add(line("evaluations", [evaluation_row(10, "validation", 0.7), evaluation_row(20, "validation", 0.6)]))
    shown.add(line("evaluations", [evaluation_row(30, "validation", 0.5)]))
    shown.add(line("events", [knob_row(5, 1, learning_rate=0.1), knob_row(25, 2, learning_rate=0.2)]))
    shown.add(line("steps", [step_row(step, 2.0) for step in range(20, 24)], attempt=2))
    figure = shown.figures()["loss"]
    assert trace(figure, "each step")["x"] == list(range(24))
    assert trace(figure, "each step")["y"] == [1.0] * 20 + [2.0] * 4
    assert trace(figure, "validation")["x"] == [10, 20]  # the evaluation at 20 is of steps 0 .. 19, which stand
    assert [mark.label for mark in shown.marks] == ["learning_rate 0.1", "resumed"]
    assert shown.progress.step == 24


def test_rows_of_an_older_attempt_that_come_late_are_passed_over():
    shown = window()
    shown.add(line("steps", [step_row(step, 1.0) for step in range(30)]))
    shown.add(line("steps", [step_row(step, 2.0) for step in range(20, 40)], attempt=2))
    shown.add(line("steps", [step_row(step, 1.0, own_s=9.0) for step in range(30)], rank=1))
    shown.add(line("steps", [step_row(step, 2.0) for step in range(20, 40)], rank=1, attempt=2))
    assert trace(shown.figures()["loss"], "each step")["y"] == [1.0] * 20 + [2.0] * 20
    shown.add(line("events", [knob_row(25, 9, learning_rate=0.5)], rank=1))
    assert [mark.label for mark in shown.marks] == ["resumed"]
    assert shown.phases.means()[1]["compute"] == pytest.approx((20 * 9.0 + 20 * 0.01) / 40)


def test_feeding_a_line_twice_changes_nothing():
    once, twice = window(), window()
    for record in steady_run(40):
        once.add(record)
        twice.add(record)
        twice.add(record)
    assert once.figures() == twice.figures()
    assert once.captions() == twice.captions()
    assert twice.dropped == 0


def test_reading_rank_after_rank_gives_what_live_gave():
    records = list(steady_run(40, slow_rank=1, slow_s=0.01))
    live, file = window(), window()
    for record in records:
        live.add(record)
    for record in sorted(records, key=lambda record: record["rank"]):
        file.add(record)
    assert live.figures() == file.figures()


def test_missing_lines_are_counted():
    shown = window()
    for index, record in enumerate(steady_run(20)):
        if index not in (7, 8, 9):
            shown.add(record)
    assert shown.dropped == 3


def test_knob_changes_are_marked_where_they_were_applied():
    shown = filled(40)
    for rank in range(2):
        shown.add(line("events", [knob_row(12, 1, learning_rate=0.003)], rank=rank))
    layout = shown.figures()["loss"]["layout"]
    assert [(shape["x0"], shape["x1"]) for shape in layout["shapes"]] == [(12, 12)]
    assert [note["text"] for note in layout["annotations"]] == ["learning_rate 0.003"]
    seconds = shown.figures("seconds")["loss"]["layout"]["shapes"][0]["x0"]
    assert seconds == pytest.approx(12 * 0.02)
    assert shown.figures()["energy"]["layout"]["shapes"][0]["x0"] == pytest.approx(12 * 0.02)
    [mark] = shown.marks
    assert mark.together and mark.steps == {0: 12, 1: 12}


def test_ranks_that_applied_a_change_at_different_steps_are_denounced():
    shown = filled(40)
    for rank in range(2):
        shown.add(line("events", [knob_row(12 + rank, 1, slow_ms=5.0)], rank=rank))
    [note] = shown.figures()["loss"]["layout"]["annotations"]
    assert note["text"] == "slow_ms 5 NOT AT ONE STEP: rank 0 at 12, rank 1 at 13"
    assert note["font"]["color"] == "#B3261E"


def test_energy_names_its_source_and_adds_up():
    shown = filled(100)
    figure = shown.figures()["energy"]
    assert trace(figure, "rank 0 · modelled")["y"] == [5, 10, 15, 20]
    assert trace(figure, "rank 1 · modelled")["y"][-1] == 24
    assert figure["layout"]["title"]["text"] == "Energy by rank · modelled"
    assert shown.captions()["energy"] == "44 J modelled so far, 22 W now."


def test_unknown_energy_is_not_zero():
    shown = window()
    shown.add(line("steps", [step_row(0, 1.0)], rank=0))
    shown.add(line("steps", [step_row(0, 1.0)], rank=1))
    shown.add(line("energy", [energy_row(1.0, None)], rank=0))
    assert shown.figures()["energy"]["data"] == []
    assert "unknown" in shown.figures()["energy"]["layout"]["annotations"][0]["text"]
    assert shown.captions()["energy"].startswith("Energy is unknown")
    shown.add(line("energy", [energy_row(1.5, 3.0, source="counter")], rank=0))
    assert shown.captions()["energy"] == "3 J measured (counter) so far, 6 W now; unknown for the processors of rank 1."
    assert [found["name"] for found in shown.figures()["energy"]["data"]] == ["rank 0 · counter"]


def test_a_node_s_joules_hold_the_shares_of_its_ranks():
    shown = window()
    shown.add(line("steps", [step_row(0, 1.0)], rank=0))
    shown.add(line("energy", [energy_row(1.0, 10.0, source="counter", scope="node", reader="rapl")]))
    assert "of the whole machine" in shown.captions()["energy"]
    shown.add(line("energy", [energy_row(1.1, 4.0)]))
    assert shown.energy.joules() == {"counter": 10.0}
    shown.add(line("energy", [energy_row(1.1, 4.0, node="b")], rank=1))
    assert shown.energy.joules() == {"counter": 10.0, "modelled": 4.0}
    assert len(shown.figures()["energy"]["data"]) == 3


def test_joules_of_steps_are_shown_where_no_reader_reports():
    shown = window(ranks=1)
    shown.add(line("steps", [step_row(step, 1.0, energy_j=0.5, source="modelled") for step in range(10)]))
    assert trace(shown.figures()["energy"], "rank 0 · modelled")["y"][-1] == pytest.approx(5.0)


def test_timeline_holds_the_last_steps_of_the_newest_epoch():
    shown = window()
    for step in range(100):
        for rank in range(2):
            shown.add(line("phases", phase_rows(step, per_epoch=60), rank=rank))
    figure = shown.figures()["timeline"]
    assert figure["layout"]["title"]["text"] == "Timeline of epoch 2 · last 25 steps"
    compute = trace(figure, "compute")
    assert len(compute["x"]) == 50 and set(compute["y"]) == {"rank 0", "rank 1"}
    assert compute["base"][0] == pytest.approx(15 * 0.02)  # steps 75 .. 99; the epoch began at step 60
    assert compute["x"] == pytest.approx([0.01] * 50)


def test_progress_and_time_left():
    shown = filled(50)
    progress = shown.progress
    assert (progress.step, progress.epoch, progress.epochs) == (50, 5, 20)
    assert progress.seconds_left == pytest.approx(150 * 0.014, rel=0.1)
    assert window().progress.seconds_left is None
    assert filled(5).progress.seconds_left is None


def test_compare_overlays_runs():
    figure = compare_figure([("psg", filled(40)), ("single", filled(60))])
    go.Figure(figure)
    assert [found["name"] for found in figure["data"]] == ["psg", "single", "persistence"]
    assert figure["data"][-1]["line"]["dash"] == "dash" and figure["data"][-1]["x"] == [0.0, 60]
    other = filled(20)
    other.add(line("evaluations", [evaluation_row(30, "validation", 0.3, persistence=0.7)]))
    names = [found["name"] for found in compare_figure([("a", filled(40)), ("b", other)], "seconds")["data"]]
    assert names == ["a", "b", "persistence (a)", "persistence (b)"]
    assert "no run" in compare_figure([])["layout"]["annotations"][0]["text"]
