"""Curves, figures and bounds of a race from made-up records with known numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.visualization.runs.curves import FETCHED, FINE, bytes_at
from dtdg_lab.visualization.studies.race import (
    COSTS,
    Curve,
    RaceLevel,
    curve_of,
    near_losses,
    race_cards,
    race_figure,
    reached,
)
from dtdg_lab.visualization.studies.race_bounds import Bound, bounds_cards, bounds_figure
from tests.synthetic_lines import START_NS, energy_row, evaluation_row, line, step_row


def rows(table: str, *found: dict) -> list[list]:
    return [[row.get(column) for column in TABLES[table]] for row in found]


def tables() -> RunTables:
    """Two ranks, ten steps of 20 ms that send 100 and 50 bytes each; evaluations before steps 5 and 10."""
    made = RunTables(RunConfig(system="psg", dataset="growing", ranks=2), rollups=all_rollups())
    at = TABLES["steps"].index("bytes_sent")
    for rank, sent in ((0, 100), (1, 50)):
        steps = [step_row(step, 1.0) for step in range(10)]
        for row in steps:
            row[at] = sent
        made.add_lines([line("steps", steps, rank=rank)])
        made.add_lines([line("energy", [energy_row(0.1, 2.0), energy_row(0.2, 2.0)], rank=rank, seq=1)])
        memory = rows("memory", {"step": 0, "time_ns": START_NS, "peak_bytes": 1000 * (1 + rank)})
        made.add_lines([line("memory", memory, rank=rank, seq=2)])
    made.add_lines(
        [line("evaluations", [evaluation_row(5, "validation", 0.8), evaluation_row(10, "validation", 0.4)], seq=3)]
    )
    return made


def test_a_curve_has_what_was_spent_at_every_evaluation():
    curve = curve_of("psg", 3, tables(), over=True)
    assert curve.losses == (0.8, 0.4) and curve.seconds == pytest.approx((0.1, 0.2))
    assert curve.bytes == (6 * 150, 10 * 150), "the step that begins in the second of the evaluation is counted"
    assert curve.joules == pytest.approx((4.0, 8.0)) and curve.peak == 2000 and curve.sources == ("modelled",)
    assert curve.judged == "validation" and curve.loss_name == "mean squared error"


def test_bytes_of_features_are_counted_and_told_twice_count_once():
    made = tables()
    fetched = rows(
        "fetches",
        *(
            {"step": step, "part": 0, "owner": 1, "purpose": "miss", "bytes": 1000.0, "rtt_s": 0.1 + step}
            for step in (0, 4, 5)
        ),
    )
    for _ in range(2):
        made.add_lines([line("fetches", fetched, rank=0, seq=4)])
    assert curve_of("psg", 0, made, over=True).bytes == (6 * 150 + 2000, 10 * 150 + 3000)


def test_bytes_of_a_long_run_are_kept_in_few_sums():
    made = RunTables(RunConfig(system="psg", dataset="growing"), rollups=all_rollups(), recent=100)
    fetch = {"part": 0, "owner": 1, "purpose": "miss", "bytes": 1.0, "rtt_s": 0.1}
    for first in range(0, 20_000, 500):
        steps = range(first, first + 500)
        made.add_lines([line("steps", [step_row(step, 1.0) for step in steps], seq=first)])
        made.add_lines([line("fetches", rows("fetches", *({"step": step, **fetch} for step in steps)), seq=first + 1)])
    assert len(made.rollup(FETCHED)) <= 2 * FINE
    fetched = bytes_at(made, [-1.0, -1.0], [10_000, 20_000])
    assert abs(fetched[0] - 10_000) <= 20 and fetched[1] == 20_000


def curve(label: str, seed: int, losses: list[float], *, speed: float = 1.0, **more) -> Curve:
    at = [speed * (place + 1) for place in range(len(losses))]
    full = Curve(
        label=label,
        seed=seed,
        losses=tuple(losses),
        seconds=tuple(at),
        joules=tuple(10 * s for s in at),
        bytes=tuple(100 * s for s in at),
        peak=int(1e6 * speed),
        judged="validation",
        loss_name="mean squared error",
        sources=("modelled",),
        over=True,
    )
    return replace(full, **more)


CURVES = [
    curve("slow", 0, [0.9, 0.5, 0.31]),
    curve("slow", 1, [0.8, 0.6, 0.30]),
    curve("quick", 0, [0.7, 0.4, 0.30], speed=0.5),
    curve("quick", 1, [0.7, 0.31, 0.29], speed=0.5),
]


def test_near_the_best_follows_the_seed():
    near = near_losses(CURVES, ("slow", "quick"))
    assert near == pytest.approx({0: 0.315, 1: 0.3045})
    assert [reached(each, near, "seconds") for each in CURVES] == [3.0, 3.0, 1.5, 1.5]
    assert reached(curve("slow", 0, [0.9]), near, "seconds") is None
    assert near_losses(CURVES[:3], ("slow", "quick")).keys() == {0}, "one of them has no seed 1 yet"
    assert near_losses(CURVES, ("slow", "quick", "absent")) == {}


def test_panels_draw_seeds_thin_and_medians_thick_and_say_who_needs_least():
    panels = race_cards(CURVES, [RaceLevel("slow", "seconds", 2.5, "3 epochs, makespan bound")])
    assert list(panels) == list(COSTS)
    figure, words = panels["seconds"]
    go.Figure(figure)
    thin = [trace for trace in figure["data"] if not trace.get("showlegend", True)]
    slow, quick = [trace for trace in figure["data"] if trace.get("showlegend", True)]
    assert len(thin) == 4 and slow["y"] == pytest.approx([0.85, 0.55, 0.305]) and quick["x"] == [0.5, 1.0, 1.5]
    assert "quick needs least time: 1.5 s; slow 3.0 s" in words
    assert figure["layout"]["shapes"][0]["x0"] == 2.5
    assert "slow: 3 epochs, makespan bound" in figure["layout"]["annotations"][-1]["text"]
    assert "(J)" in panels["joules"][0]["layout"]["xaxis"]["title"]["text"] and "modelled" in panels["joules"][1]
    diamonds = [trace["y"] for trace in panels["peak"][0]["data"] if trace.get("showlegend", True)]
    assert diamonds == [[pytest.approx(0.305)], [pytest.approx(0.295)]]
    joined = race_figure(panels)
    go.Figure(joined)
    axes = [name for name in joined["layout"] if name.startswith("yaxis") and name != "yaxis"]
    assert len(axes) == 3 and all(joined["layout"][name]["matches"] == "y" for name in axes)


def test_a_median_goes_as_far_as_half_of_the_seeds():
    early = [curve("a", 0, [0.9, 0.8]), curve("a", 1, [0.7, 0.6, 0.5]), curve("a", 2, [0.5])]
    (line_,) = [trace for trace in race_cards(early)["seconds"][0]["data"] if trace.get("showlegend", True)]
    assert line_["y"] == pytest.approx([0.7, 0.7])


def test_what_is_unknown_or_nothing_is_said():
    unknown = [replace(each, joules=(), peak=None) if each.label == "slow" else each for each in CURVES]
    panels = race_cards(unknown)
    assert "Unknown for slow." in panels["joules"][1] and "slow 3" not in panels["joules"][1]
    assert race_cards([replace(each, bytes=(0.0,) * 3) for each in CURVES])["bytes"][0]["data"] == []
    for figure, words in race_cards([], labels=("a", "b")).values():
        go.Figure(figure)
        assert words and "no run" in figure["layout"]["annotations"][-1]["text"]


def test_losses_that_fall_far_get_a_logarithmic_axis():
    far = [curve("a", 0, [9.0, 0.1]), curve("b", 0, [8.0, 0.2])]
    assert race_cards(far)["seconds"][0]["layout"]["yaxis"]["type"] == "log"
    assert "type" not in race_cards(CURVES)["seconds"][0]["layout"]["yaxis"]


def test_bounds_stand_beside_what_was_measured():
    bounds = [
        Bound("a", "epoch", 0.03, 0.02, "makespan bound"),
        Bound("b", "epoch", 0.05, 0.01, "even load"),
        Bound("a", "moving", 0.01, 1e-6, "copying in memory"),
    ]
    panels = bounds_cards(bounds, ("a", "b"))
    assert list(panels) == ["epoch", "moving"]
    figure, words = panels["epoch"]
    go.Figure(figure)
    assert figure["data"][0]["text"] == ["x 1.5", "x 5"] and figure["data"][1]["x"] == [0.02, 0.01]
    assert words.startswith("a is closest to its bound: 30 ms, 1.5 times 20 ms")
    assert panels["moving"][0]["layout"]["xaxis"]["type"] == "log"
    assert "x 10,000" in panels["moving"][0]["data"][0]["text"]
    go.Figure(bounds_figure(bounds, ("a", "b")))
    assert bounds_cards([], ("a",))["epoch"][0]["data"] == []
    assert np.isfinite(bounds[0].over)
