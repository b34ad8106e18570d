"""The charts that every run has, and its two common tiles: small tables in, figures and captions out."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.runs.tables import RunTables
from dtdg_lab.visualization.chart import Chart, ChartOptions
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.runs.overview import common_charts, common_tiles
from dtdg_lab.visualization.runs.timeline import ORDER
from dtdg_lab.visualization.sheet import run_sheet
from tests.tables import START_NS, run_tables

OPTIONS = ChartOptions()
CHARTS = {chart.name: chart for chart in common_charts()}
ROLLUPS = [rollup for chart in CHARTS.values() for rollup in chart.rollups]
OWN_STEPS = {"system": "dynahb", "exchange": "models"}


def run_of(config: dict[str, Any] | None = None, events: Any = (), **tables: list[dict[str, Any]]) -> RunTables:
    return run_tables(config or {}, tables, events=events, rollups=ROLLUPS)


def drawn(name: str, run: RunTables, options: ChartOptions = OPTIONS) -> tuple[Figure, str]:
    chart: Chart = CHARTS[name]
    return chart.figure(run, options), chart.caption(run, options)


def card_of(figure: Figure) -> dict[str, Any]:
    words: dict[str, Any] = figure["layout"]["meta"]["card"]
    return words


def traces(figure: Figure) -> dict[str, Any]:
    return {trace["name"]: trace for trace in figure["data"]}


def steps(count: int, ranks: int = 2, *, first: int = 0, **columns: Any) -> list[dict[str, Any]]:
    usual = {"time_s": 0.1, "compute_s": 0.06, "wait_s": 0.02, "communicate_s": 0.02, "global_loss": 0.5}
    return [
        {"rank": rank, "step": step, **usual, **columns}
        for step in range(first, first + count)
        for rank in range(ranks)
    ]


def evaluation(step: int, loss: float | None, split: str = "validation", **columns: Any) -> dict[str, Any]:
    return {"step": step, "split": split, "loss": loss, "persistence_loss": 0.045, "mean_loss": 0.1, **columns}


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_chart_without_data_says_when_it_appears(name: str, ranks: int) -> None:
    figure, caption = drawn(name, run_of({"ranks": ranks}))
    assert not figure["data"] and figure["layout"]["annotations"][0]["text"].startswith("Appears")
    assert caption == "Nothing measured yet." and card_of(figure)["title"]


# Loss


def test_loss_has_steps_splits_and_persistence() -> None:
    rows = [evaluation(5, 0.06, "train"), evaluation(5, 0.05), evaluation(9, 0.0311)]
    figure, caption = drawn("loss", run_of(steps=steps(10), evaluations=rows))
    lines = traces(figure)
    assert lines["validation"]["y"] == [0.05, 0.0311] and lines["training"]["y"] == [0.06]
    assert lines["each step"]["y"] == [0.5] * 10 and lines["persistence"]["y"] == [0.045, 0.045]
    assert [key[0] for key in card_of(figure)["keys"]] == ["validation 0.0311", "training 0.0600"]
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert caption == "Validation loss is 0.0311, 31% below persistence."


def test_loss_above_persistence_and_not_finite() -> None:
    assert drawn("loss", run_of(evaluations=[evaluation(1, 0.09)]))[1].endswith("100% above persistence.")
    assert drawn("loss", run_of(evaluations=[evaluation(1, None)]))[1] == "Validation loss is not finite."


def test_losses_that_were_never_finite_have_a_linear_axis() -> None:
    figure, caption = drawn("loss", run_of(steps=steps(3, global_loss=None)))
    assert figure["layout"]["yaxis"]["range"] == [0, 1] and caption == "Nothing measured yet."


def test_loss_before_the_first_evaluation_is_that_of_training() -> None:
    assert drawn("loss", run_of(steps=steps(3)))[1] == "The newest training loss is 0.500."


def test_loss_without_a_validation_split() -> None:
    _, caption = drawn("loss", run_of(evaluations=[evaluation(1, 0.2, "train")]))
    assert caption == "Training loss is 0.200; this protocol has no validation split."


def test_loss_of_link_prediction_has_its_rank_beside_it() -> None:
    row = evaluation(1, 0.5, metrics={"mrr": 0.412, "persistence_mrr": 0.3})
    _, caption = drawn("loss", run_of({"task": "link"}, evaluations=[row]))
    assert caption == "Validation loss is 0.500 and MRR 0.412, against 0.300 for persistence."


@pytest.mark.parametrize(
    ("task", "metrics", "words"),
    [
        ("link", {"accuracy": 0.7}, "0.500 and accuracy 0.700."),
        ("link", {"mrr": 0.4, "persistence_mrr": None}, "0.500 and MRR 0.400."),
        ("link", None, "0.500, 1011% above persistence."),
        ("classification", {"macro_f1": 0.5, "accuracy": 0.9}, "0.500 and accuracy 0.900."),
        ("regression", {"mae": 0.1}, "0.500, 1011% above persistence."),
    ],
)
def test_loss_has_the_main_metric_of_its_task_beside_it(task: str, metrics: Any, words: str) -> None:
    _, caption = drawn(
        "loss", run_of({"dataset": "sbm", "task": task}, evaluations=[evaluation(1, 0.5, metrics=metrics)])
    )
    assert caption == f"Validation loss is {words}"


def test_a_resume_takes_evaluations_back() -> None:
    rows = [evaluation(10, 0.05), evaluation(30, 0.01)]
    again = [{**row, "attempt": 2} for row in steps(1, first=25)]
    figure, caption = drawn("loss", run_of(steps=[*steps(30), *again], evaluations=rows))
    assert traces(figure)["validation"]["x"] == [10] and caption.startswith("Validation loss is 0.0500,")


def test_metrics_of_evaluations_can_be_drawn_in_place_of_the_loss() -> None:
    metrics = {"mrr": 0.4, "persistence_mrr": 0.3, "auc": 0.9, "persistence_auc": 0.8, "auc_low": 0.7, "pairs": 9}
    later = {**metrics, "auc": 0.95}
    run = run_of({"task": "link"}, evaluations=[evaluation(1, 0.5, metrics=metrics), evaluation(2, 0.4, metrics=later)])
    assert CHARTS["loss"].metrics(run) == {"": "Loss", "mrr": "MRR", "auc": "AUC"}
    figure, caption = drawn("loss", run, ChartOptions(metric="auc"))
    lines = traces(figure)
    assert lines["validation"]["y"] == [0.9, 0.95] and lines["persistence"]["y"] == [0.8, 0.8]
    assert (card_of(figure)["title"], card_of(figure)["unit"]) == ("AUC", "larger is better")
    assert caption == "Validation AUC is 0.950, against 0.800 for persistence."


def test_a_metric_that_was_not_recorded_says_so() -> None:
    run = run_of(evaluations=[evaluation(1, 0.5)])
    assert CHARTS["loss"].metrics(run) == {"": "Loss"}
    assert drawn("loss", run, ChartOptions(metric="mae"))[1] == "Nothing measured yet."


def test_loss_axis_fits_most_steps_and_not_the_first_spike() -> None:
    rows = [*steps(1, global_loss=1000.0), *steps(99, first=1, global_loss=0.5)]
    figure, _ = drawn("loss", run_of(steps=rows))
    assert 10 ** figure["layout"]["yaxis"]["range"][1] < 1
    assert drawn("loss", run_of(steps=rows), ChartOptions(linear=True))[0]["layout"]["yaxis"]["type"] == "linear"


def test_loss_of_a_long_run_has_few_points_and_ends_at_its_newest_step() -> None:
    figure, _ = drawn("loss", run_of({"ranks": 1}, steps=steps(6000, 1)))
    lines = traces(figure)
    x = lines["each step"]["x"]
    assert 150 <= len(x) <= 300 and x[-1] == 5999 and x == sorted(x)
    assert lines["least"]["y"] == lines["most"]["y"] == lines["each step"]["y"] == pytest.approx([0.5] * len(x))


def test_loss_is_over_seconds_where_ranks_have_steps_of_their_own() -> None:
    figure, _ = drawn("loss", run_of(OWN_STEPS, steps=steps(10)))
    assert figure["layout"]["xaxis"]["title"]["text"] == "seconds of training"


@pytest.mark.parametrize(
    ("losses", "place"),
    [
        ([0.06, 0.03, 0.02, 0.01], ("right", "bottom")),
        ([0.2, 0.1, 0.05, 0.046], ("right", "top")),
        ([0.02, 0.02, 0.046, 0.044], ("left", "bottom")),
    ],
)
def test_the_name_of_persistence_stands_where_no_curve_is(losses: list[float], place: tuple[str, str]) -> None:
    rows = [evaluation(step, loss) for step, loss in zip((0, 6, 15, 20), losses, strict=True)]
    (name,) = drawn("loss", run_of(evaluations=rows))[0]["layout"]["annotations"]
    assert (name["xanchor"], name["yanchor"]) == place and name["x"] == (place[0] == "right")


# Time per step


def test_step_time_stacks_phases_of_each_rank() -> None:
    rows = [*steps(4, 1), *[{**row, "rank": 1, "compute_s": 0.08, "wait_s": 0.0} for row in steps(4, 1)]]
    figure, caption = drawn("step_time", run_of(steps=rows))
    compute = traces(figure)["compute"]
    assert compute["x"] == [60.0, 80.0] and compute["y"] == ["rank 0", "rank 1"]
    assert compute["text"] == ["compute 60.0", "compute 80.0"]
    assert [key[0] for key in card_of(figure)["keys"]] == ["compute", "communicate", "wait"]
    assert caption == "Rank 1 is slowest: it works 80.0 ms per step, 14% above average."


@pytest.mark.parametrize(
    ("config", "caption"),
    [
        ({}, "All ranks work about 60.0 ms per step, and wait 20% of each step."),
        ({"ranks": 1}, "The only rank works 60.0 ms per step."),
        (OWN_STEPS, "Rank 0 is slowest: it works 60.0 ms per step, but no rank waits for it."),
    ],
)
def test_step_time_of_even_single_and_independent_ranks(config: dict[str, Any], caption: str) -> None:
    assert drawn("step_time", run_of(config, steps=steps(4, config.get("ranks", 2))))[1] == caption


def test_fetching_is_told_apart_from_working() -> None:
    rows = [{**row, "compute_s": 0.003, "transfer_s": 0.046 if row["rank"] == 0 else 0.0} for row in steps(4)]
    caption = drawn("step_time", run_of(steps=rows))[1]
    assert caption == "Rank 0 is slowest: it fetches 46.0 ms and works 3.00 ms per step, 88% above average."


def test_bars_are_as_long_as_the_step_time_of_the_tile() -> None:
    run = run_of(steps=steps(80, time_s=0.125))
    bars = drawn("step_time", run)[0]["data"]
    assert sum(bar["x"][0] for bar in bars) == pytest.approx(125) and common_tiles(run)[1].value == "125 ms"


def test_steps_without_phases_take_no_time() -> None:
    rows = [{"rank": rank, "step": 0, "time_s": 0.1} for rank in range(2)]
    assert drawn("step_time", run_of(steps=rows))[1] == "All ranks work about 0 ms per step, and wait 0% of each step."


@pytest.mark.parametrize(("ranks", "bars", "has_text"), [(12, 12, True), (13, 13, False), (64, 11, False)])
def test_step_time_of_many_ranks(ranks: int, bars: int, has_text: bool) -> None:
    rows = [{**row, "compute_s": 0.001 * (row["rank"] + 1)} for row in steps(1, ranks)]
    figure, _ = drawn("step_time", run_of({"ranks": ranks, "parts": ranks}, steps=rows))
    compute = traces(figure)["compute"]
    assert len(compute["y"]) == bars and ("text" in compute) is has_text
    if ranks == 64:
        assert compute["y"][:2] == ["mean of 64", "rank 63"] and compute["y"][-1] == "rank 0"


def test_every_colour_of_a_step_is_named_and_small_phases_are_other() -> None:
    rows = [{**row, "batch_s": 0.0005, "checkpoint_s": 0.0} for row in steps(4)]
    figure, _ = drawn("step_time", run_of(steps=rows))
    assert (
        {key[0] for key in card_of(figure)["keys"]} == {*traces(figure)} == {"compute", "wait", "communicate", "other"}
    )
    assert traces(figure)["other"]["x"] == [0.5, 0.5]


# Timeline


def phases(ranks: int, count: int = 12, *, late: float = 0.0) -> list[dict[str, Any]]:
    """Steps of 100 ms: 60 computing, then 40 waiting on even ranks; rank r is r * ``late`` seconds behind."""
    rows = []
    for rank in range(ranks):
        for step in range(count):
            begin = START_NS + int(1e8 * step - 1e9 * rank * late)
            between = begin + 60_000_000
            last = "communicate" if rank % 2 else "wait"
            common = {"rank": rank, "step": step, "epoch": step // 4}
            rows.append({**common, "phase": "compute", "start_ns": begin, "end_ns": between})
            rows.append({**common, "phase": last, "start_ns": between, "end_ns": begin + 100_000_000})
    return rows


def test_timeline_has_the_last_seconds_of_every_rank() -> None:
    figure, caption = drawn("timeline", run_of(steps=steps(12), phases=phases(2)))
    assert card_of(figure)["unit"] == "the last second of every rank"
    assert figure["layout"]["yaxis"]["categoryarray"] == ["rank 0, epoch 3", "rank 1, epoch 3"]
    bars = traces(figure)
    assert min(bars["compute"]["base"]) >= -1 and set(bars["compute"]["y"]) == {"rank 0, epoch 3", "rank 1, epoch 3"}
    assert caption == "Rank 0 waited for 40% of the last second."


def test_every_colour_of_the_timeline_is_named() -> None:
    short = {"rank": 0, "step": 11, "epoch": 2, "phase": "checkpoint", "start_ns": START_NS + 1_150_000_000}
    rows = [*phases(2), {**short, "end_ns": short["start_ns"] + 5_000_000}]
    figure, _ = drawn("timeline", run_of(steps=steps(12), phases=rows))
    assert [key[0] for key in card_of(figure)["keys"]] == ["compute", "wait", "communicate", "checkpoint"]


def test_timeline_ends_where_all_ranks_have_reported() -> None:
    figure, _ = drawn("timeline", run_of(steps=steps(12), phases=phases(2, late=0.1)))
    bars = traces(figure)["compute"]
    assert sum(name.startswith("rank 0") for name in bars["y"]) == sum(name.startswith("rank 1") for name in bars["y"])


def test_timeline_does_not_wait_for_a_silent_rank() -> None:
    figure, _ = drawn("timeline", run_of(steps=steps(12), phases=phases(2, late=60.0)))
    assert {name[:6] for trace in figure["data"] for name in trace["y"]} == {"rank 0"}
    assert len(figure["layout"]["yaxis"]["categoryarray"]) == 2


def test_timeline_has_blocks_after_a_pause_of_which_one_rank_has_not_reported_the_end() -> None:
    pause_ns = 12_000_000_000
    resumed = [
        {**row, "step": 12, "start_ns": row["start_ns"] + pause_ns, "end_ns": row["end_ns"] + pause_ns}
        for row in phases(1, 1)
    ]
    figure, caption = drawn("timeline", run_of(steps=steps(12), phases=phases(2) + resumed))
    assert {name[:6] for trace in figure["data"] for name in trace["y"]} == {"rank 0"}
    assert figure["layout"]["yaxis"]["range"] == [1.5, -0.5] and caption == "Rank 0 waited for 4% of the last second."


@pytest.mark.parametrize("late", [0.6, 3.0])
def test_timeline_waits_for_a_rank_that_reports_late(late: float) -> None:
    figure, _ = drawn("timeline", run_of(steps=steps(12), phases=phases(2, 60, late=late)))
    assert {name[:6] for trace in figure["data"] for name in trace["y"]} == {"rank 0", "rank 1"}


def test_timeline_has_rounded_ticks() -> None:
    figure, _ = drawn("timeline", run_of(steps=steps(12, time_s=0.075), phases=phases(2)))
    assert card_of(figure)["unit"] == "the last 0.8 seconds of every rank"
    assert figure["layout"]["xaxis"]["ticktext"] == ["−0.8 s", "−0.6 s", "−0.4 s", "−0.2 s", "now"]


@pytest.mark.parametrize(
    ("config", "caption"),
    [
        ({"ranks": 1}, "The only rank computed for 60% of the last second."),
        (OWN_STEPS, "Each rank made 10 steps in the last second."),
    ],
)
def test_timeline_of_a_single_and_of_independent_ranks(config: dict[str, Any], caption: str) -> None:
    ranks = config.get("ranks", 2)
    assert drawn("timeline", run_of(config, steps=steps(12, ranks), phases=phases(ranks)))[1] == caption


def test_timeline_of_many_ranks_is_a_heat_map_of_the_longest_phases() -> None:
    figure, _ = drawn("timeline", run_of({"ranks": 64, "parts": 64}, steps=steps(12, 64), phases=phases(64)))
    (heat,) = figure["data"]
    assert len(heat["z"]) == 64 and len(heat["z"][0]) == 300 and len(heat["z"]) * 300 <= 24_000
    drawn_phases = [ORDER[heat["z"][rank][column]] for rank, column in ((0, 0), (0, -1), (1, -1))]
    assert drawn_phases == ["compute", "wait", "communicate"] and figure["layout"]["height"] == 30 + 3 * 64


def test_timeline_draws_a_bounded_number_of_blocks() -> None:
    figure, _ = drawn("timeline", run_of({"ranks": 24, "parts": 24}, steps=steps(60, 24), phases=phases(24, 60)))
    assert sum(len(trace["x"]) for trace in figure["data"]) <= 900


# Energy


def readings(seconds: range, ranks: int = 2, joules: float | None = 10.0, **columns: Any) -> list[dict[str, Any]]:
    usual = {"interval_s": 1.0, "watts": 22.0, "reader": "model", "source": "modelled", "scope": "rank"}
    return [
        {"rank": rank, "time_ns": START_NS + int(1e9 * second), "joules": joules, **usual, **columns}
        for second in seconds
        for rank in range(ranks)
    ]


STARTED = {"kind": "started", "time_ns": START_NS}


def test_energy_is_stacked_by_rank() -> None:
    run = run_of(events=[STARTED], steps=steps(1), energy=readings(range(1, 31)))
    figure, caption = drawn("energy", run)
    tops = [trace["y"][-1] for trace in figure["data"] if trace.get("customdata")]
    assert tops == pytest.approx([300.0, 600.0])
    assert card_of(figure)["unit"] == "J, all ranks, modelled"
    assert [note["text"].split("</span> ")[1] for note in figure["layout"]["annotations"]] == ["rank 0", "rank 1"]
    assert caption == "Both ranks have used 600 J and draw 44.0 W now."


def test_energy_of_one_and_of_many_ranks_is_one_area() -> None:
    alone = run_of({"ranks": 1}, events=[STARTED], steps=steps(1, 1), energy=readings(range(1, 31), 1))
    assert drawn("energy", alone)[1] == "The only rank has used 300 J and draws 22.0 W now."
    config = {"ranks": 64, "parts": 64}
    figure, _ = drawn("energy", run_of(config, events=[STARTED], steps=steps(1, 64), energy=readings(range(1, 5), 64)))
    assert {trace["name"] for trace in figure["data"]} == {"all ranks"}
    assert figure["data"][-1]["y"][-1] == pytest.approx(64 * 40) and not figure["layout"]["annotations"]


def test_energy_that_was_not_read_is_a_gap_and_said() -> None:
    rows = [*readings(range(1, 11)), *readings(range(31, 41))]
    figure, caption = drawn("energy", run_of(events=[STARTED], steps=steps(1), energy=rows))
    top = figure["data"][-1]
    inside = [y for x, y in zip(top["x"], top["y"], strict=True) if 11 < x < 29]
    assert inside and all(y is None for y in inside) and top["y"][-1] == pytest.approx(400.0)
    assert caption == "Energy is known for 50% of the time; the rest is missing."


def test_energy_that_nothing_reads_is_unknown() -> None:
    rows = readings(range(1, 31), joules=None, watts=None)
    figure, caption = drawn("energy", run_of(events=[STARTED], steps=steps(1), energy=rows))
    assert not figure["data"] and caption == "Energy is unknown: this machine neither measures nor models it."


def test_energy_of_a_machine_and_of_steps() -> None:
    whole = readings(range(1, 31), 1, reader="rapl", source="counter", scope="node", node="a")
    figure, _ = drawn("energy", run_of(events=[STARTED], steps=steps(1), energy=whole))
    assert {trace["name"] for trace in figure["data"]} == {"machine"}
    assert card_of(figure)["unit"] == "J, all ranks, measured"
    rows = steps(5, energy_j=3.0, energy_source="modelled")
    assert drawn("energy", run_of(events=[STARTED], steps=rows))[1] == "Both ranks have used 30.0 J."


def test_energy_by_phase_names_the_largest() -> None:
    rows = [
        {"rank": rank, "phase": phase, "joules": joules, "seconds": 1.0, "source": "modelled", "coverage": 1.0}
        for rank in (0, 1)
        for phase, joules in (("compute", 6.0), ("wait", 4.0))
    ]
    figure, caption = drawn("energy_by_phase", run_of(steps=steps(1), phase_energy=rows))
    bars = traces(figure)
    assert bars["compute"]["x"] == [6.0, 6.0] and "pattern" in bars["wait for ranks"]["marker"]
    assert caption == "Compute took 60% of the energy."


def test_every_colour_of_the_energy_by_phase_is_named_and_small_phases_are_other() -> None:
    amounts = (("compute", 96.0), ("rebuild", 1.5), ("checkpoint", 1.5), ("stall", 1.0))
    rows = [{"rank": 0, "phase": phase, "joules": joules, "seconds": 1.0} for phase, joules in amounts]
    figure, _ = drawn("energy_by_phase", run_of({"ranks": 1}, steps=steps(1), phase_energy=rows))
    assert [key[0] for key in card_of(figure)["keys"]] == ["compute", "other"]
    assert traces(figure)["other"]["x"] == [4.0]


def test_joules_of_phases_that_nothing_reads_are_unknown_and_not_0() -> None:
    rows = [
        {"rank": rank, "phase": phase, "joules": joules, "seconds": 1.0, "source": "counter", "coverage": 1.0}
        for rank, phase, joules in ((0, "compute", 12_345.0), (0, "new phase", 5.0), (1, "compute", None))
    ]
    figure, caption = drawn("energy_by_phase", run_of(steps=steps(1), phase_energy=rows[2:]))
    assert figure["data"] == [] and caption == "Nothing measured yet."
    late = [{**row, "time_ns": START_NS + 60 * 10**9} for row in steps(1, first=1)]
    figure, caption = drawn("energy_by_phase", run_of(steps=[*steps(1), *late], phase_energy=rows[2:]))
    assert figure["data"] == [] and "unknown" in caption.lower()
    figure, caption = drawn("energy_by_phase", run_of(steps=steps(1), phase_energy=rows))
    assert card_of(figure)["unit"] == "kJ" and caption == "Compute took 100% of the energy."
    assert {name: bar["x"] for name, bar in traces(figure).items()} == {"compute": [12.345], "other": [0.005]}


# Tiles


def test_common_tiles_of_a_run() -> None:
    loss, time = common_tiles(run_of(steps=steps(60), evaluations=[evaluation(5, 0.06), evaluation(9, 0.0311)]))
    assert (loss.value, loss.note, loss.tone) == ("0.0311", "31% below persistence", "good")
    assert loss.spark == (0.06, 0.0311)
    assert (time.value, time.note) == ("100 ms", "10.0 steps/s of training")
    assert len(time.spark) == 60


def test_common_tiles_above_persistence_and_without_data() -> None:
    loss, _ = common_tiles(run_of(evaluations=[evaluation(5, 0.09)]))
    assert (loss.note, loss.tone) == ("100% above persistence", "bad")
    loss, time = common_tiles(run_of())
    assert (loss.value, time.value) == ("–", "–")


@pytest.mark.parametrize("name", CHARTS)
def test_captions_have_at_most_twenty_words(name: str) -> None:
    run = run_of(
        events=[STARTED],
        steps=steps(60),
        evaluations=[evaluation(5, 0.06)],
        phases=phases(2),
        energy=readings(range(1, 31)),
    )
    caption = drawn(name, run)[1]
    assert len(caption.split()) <= 20 and caption.endswith(".") and "(" not in caption


def test_all_charts_of_a_run_fit_one_sheet() -> None:
    run = run_of(events=[STARTED], steps=steps(6), phases=phases(2), energy=readings(range(1, 5)))
    cards = {chart: drawn(name, run) for name, chart in CHARTS.items()}
    with_data = {chart: card for chart, card in cards.items() if card[0]["data"]}
    figure = run_sheet(with_data, title="psg on CollegeMsg")
    texts = [note["text"] for note in figure["layout"]["annotations"]]
    titles = [text.removeprefix("<b>").partition("</b>")[0] for text in texts if text.startswith("<b>")]
    assert titles == ["Loss", "Time per step", "Timeline", "Energy"]  # energy by phase has no data
    go.Figure(figure)
