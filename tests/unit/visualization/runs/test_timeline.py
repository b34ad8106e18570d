"""The last seconds of every rank."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.visualization.runs.timeline import ORDER
from tests.common_charts import OWN_STEPS, card_of, drawn, phases, run_of, steps, traces
from tests.tables import START_NS


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
