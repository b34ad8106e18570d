"""Charts of communication, transfers and waiting: small tables in, figures and captions out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.records.rows import Rows
from dtdg_lab.visualization.chart import ChartOptions
from dtdg_lab.visualization.runs.transfers import measured_traffic, predicted_traffic, transfers_chart
from dtdg_lab.visualization.runs.waiting import communication_chart, communication_time, waiting_chart, waiting_share
from dtdg_lab.visualization.thinning import least_by_rank, newest_rows
from tests.tables import run_tables

OPTIONS = ChartOptions()


def steps(count: int, ranks: int = 2, **columns: Any) -> list[dict[str, Any]]:
    return [{"rank": rank, "step": step, "time_s": 0.1, **columns} for step in range(count) for rank in range(ranks)]


def exchanges(count: int, ranks: int = 2) -> list[dict[str, Any]]:
    """Two layers, each 5 ms in flight; ranks wait for 2 ms of each."""
    return [
        {"rank": rank, "step": step, "layer": layer, "pass_name": "forward", "in_flight_s": 0.005, "exposed_s": 0.002}
        for step in range(count)
        for rank in range(ranks)
        for layer in (0, 1)
    ]


def test_communication_is_waited_for_and_hidden_time_of_a_step() -> None:
    chart = communication_chart()
    run = run_tables({}, {"steps": steps(10), "exchanges": exchanges(10)}, rollups=chart.rollups)
    waited, hidden = chart.figure(run, OPTIONS)["data"]
    assert waited["y"] == pytest.approx([4.0] * 10) and hidden["y"] == pytest.approx([6.0] * 10)
    time = communication_time(run)
    assert time is not None and time.hidden_share == pytest.approx(0.6)
    assert chart.caption(run, OPTIONS) == "Ranks waited for 4.00 of 10.0 ms of row exchange per step."


def test_communication_of_a_long_run_has_few_bars_that_are_means() -> None:
    chart = communication_chart()
    run = run_tables({}, {"steps": steps(1000), "exchanges": exchanges(1000)}, rollups=chart.rollups)
    waited, _ = chart.figure(run, OPTIONS)["data"]
    assert 75 <= len(waited["y"]) <= 150 and waited["y"] == pytest.approx([4.0] * len(waited["y"]))


def test_communication_without_exchanges_says_when_it_appears() -> None:
    chart = communication_chart()
    figure = chart.figure(run_tables({}, rollups=chart.rollups), OPTIONS)
    assert not figure["data"] and "first exchange" in figure["layout"]["annotations"][0]["text"]
    alone = chart.figure(run_tables({"ranks": 1}, rollups=chart.rollups), OPTIONS)
    assert alone["layout"]["annotations"][0]["text"] == "With one rank, nothing is sent"


def blocks(predicted: list[list[float]], step: int = 0) -> dict[str, Any]:
    sent = {"forward": [predicted], "backward": [[[0, 0], [0, 0]]]}
    usual = {"layout": "halo_vertex", "ranks": 2, "nodes": 10, "blocks": 1, "requested": 1, "bounds": [0, 4]}
    data = {**usual, "predicted": sent}
    return {"kind": "blocks", "step": step, "data": data}


def links(step: int, count: int) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "step": step, "layer": layer, "pass_name": "forward", "to": 1 - rank, "bytes": count}
        for rank in (0, 1)
        for layer in (0, 1)
    ]


def test_transfers_are_those_of_the_last_complete_step_beside_the_prediction() -> None:
    rows = {"steps": steps(3), "links": [*links(0, 1), *links(1, 512), *links(2, 7)]}
    run, chart = run_tables({}, rows, events=[blocks([[0, 1024], [1024, 0]])]), transfers_chart()
    measured = measured_traffic(run)
    assert measured is not None and measured.step == 1 and measured.total == 2048
    (heat,) = chart.figure(run, OPTIONS)["data"]
    assert heat["z"] == [[None, 1.0], [1.0, None]]
    assert heat["customdata"][0][1] == "1.00 KiB forward; predicted 1.00 KiB forward"
    assert chart.caption(run, OPTIONS) == "A step sent 2.00 KiB of rows, as predicted."


def test_transfers_before_the_first_step_are_predicted_ones() -> None:
    run, chart = run_tables({}, events=[blocks([[0, 1024], [0, 0]])]), transfers_chart()
    figure = chart.figure(run, OPTIONS)
    assert figure["layout"]["meta"]["card"]["unit"] == "KiB of rows per step, predicted"
    assert chart.caption(run, OPTIONS) == "A step will send 1.00 KiB of rows."


@pytest.mark.parametrize(
    ("predicted", "caption"),
    [
        ([[0, 512], [512, 0]], "A step sent 2.00 KiB of rows, 100% more than predicted."),
        ([[0, 4096], [0, 0]], "A step sent 2.00 KiB of rows, 50% less than predicted."),
        ([[0, 0], [0, 0]], "A step sent 2.00 KiB of rows, although nothing was predicted."),
    ],
)
def test_transfers_differ_from_the_prediction(predicted: list[list[float]], caption: str) -> None:
    run = run_tables({}, {"steps": steps(2), "links": links(0, 512)}, events=[blocks(predicted)])
    assert transfers_chart().caption(run, OPTIONS) == caption


def test_transfers_of_an_older_plan_do_not_count() -> None:
    events = [blocks([[0, 9], [9, 0]]), blocks([[0, 1024], [1024, 0]], step=2)]
    run = run_tables({}, {"steps": steps(2), "links": links(1, 9)}, events=events)
    predicted = predicted_traffic(run)
    assert measured_traffic(run) is None and predicted is not None and predicted.total == 2048


def test_transfers_of_many_ranks_have_no_numbers_in_cells() -> None:
    rows = [{"rank": rank, "step": 0, "layer": 0, "pass_name": "forward", "to": 0, "bytes": 9} for rank in range(1, 64)]
    run = run_tables({"ranks": 64, "parts": 64}, {"steps": steps(1, 64), "links": rows})
    (heat,) = transfers_chart().figure(run, OPTIONS)["data"]
    assert len(heat["z"]) == 64 and "texttemplate" not in heat


def waits(count: int, seconds: list[float]) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "step": step, "time_s": 0.1, "wait_s": wait_s}
        for step in range(count)
        for rank, wait_s in enumerate(seconds)
    ]


def test_the_ranks_that_waited_least_and_most_are_named() -> None:
    chart = waiting_chart()
    run = run_tables({}, {"steps": waits(4, [0.03, 0.01])}, rollups=chart.rollups)
    first, second = chart.figure(run, OPTIONS)["data"]
    assert first["y"] == pytest.approx([30.0] * 4) and second["y"] == pytest.approx([10.0] * 4)
    assert chart.caption(run, OPTIONS) == "Rank 1 waited least, 10.0 ms per step, and rank 0 waited most, 30.0 ms."
    assert waiting_share(run) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("config", "seconds", "caption"),
    [
        ({}, [0.021, 0.02], "All ranks waited about 20.5 ms per step."),
        ({"ranks": 1}, [0.0], "The only rank never waits."),
    ],
)
def test_ranks_that_wait_alike(config: dict[str, Any], seconds: list[float], caption: str) -> None:
    assert waiting_chart().caption(run_tables(config, {"steps": waits(3, seconds)}), OPTIONS) == caption


def test_many_ranks_are_a_band_with_their_mean() -> None:
    chart, ranks = waiting_chart(), 64
    seconds = [0.001 * rank for rank in range(ranks)]
    run = run_tables({"ranks": ranks, "parts": ranks}, {"steps": waits(2, seconds)}, rollups=chart.rollups)
    least, most, mean = chart.figure(run, OPTIONS)["data"]
    assert (least["y"][0], most["y"][0], mean["y"][0]) == pytest.approx((0.0, 63.0, 31.5))


def test_the_end_of_a_long_table_is_found_without_reading_all_of_it() -> None:
    rows = Rows.of({"rank": np.array([0, 1] * 500), "step": np.repeat(np.arange(500), 2)})
    tail = newest_rows(rows, 4, lambda some: bool((least_by_rank(some, "step", 2) < 490).all()))
    assert len(tail) == 32 and tail["step"][-1] == 499
    assert len(newest_rows(rows, 4, lambda some: bool((least_by_rank(some, "step", 3) < 490).all()))) == 1000
