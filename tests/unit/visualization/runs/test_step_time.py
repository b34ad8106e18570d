"""Time per step by phase and rank."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.visualization.runs.overview import common_tiles
from tests.common_charts import OWN_STEPS, card_of, drawn, run_of, steps, traces


def test_step_time_stacks_phases_of_each_rank() -> None:
    rows = [*steps(4, 1), *[{**row, "rank": 1, "compute_s": 0.08, "wait_s": 0.0} for row in steps(4, 1)]]
    figure, caption = drawn("step_time", run_of(steps=rows))
    compute = traces(figure)["compute"]
    assert compute["x"] == [60.0, 80.0] and compute["y"] == ["rank 0", "rank 1"]
    assert compute["text"] == ["compute 60.0", "compute 80.0"]
    assert [key[0] for key in card_of(figure)["keys"]] == ["compute", "communicate", "wait"]
    assert caption == "Rank 1 is slowest: it works 80.0 ms per step; rank 0, the fastest, 60.0 ms."


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
    assert caption == "Rank 0 is slowest: it fetches 46.0 ms and works 3.00 ms per step; rank 1, the fastest, 3.00 ms."


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
