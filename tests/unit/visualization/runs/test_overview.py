"""Tiles of every run, and its charts together."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from dtdg_lab.visualization.runs.overview import common_tiles
from dtdg_lab.visualization.sheet import run_sheet
from tests.common_charts import CHARTS, STARTED, card_of, drawn, evaluation, phases, readings, run_of, steps


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_chart_without_data_says_when_it_appears(name: str, ranks: int) -> None:
    figure, caption = drawn(name, run_of({"ranks": ranks}))
    assert not figure["data"] and figure["layout"]["annotations"][0]["text"].startswith("Appears")
    assert caption == "Nothing measured yet." and card_of(figure)["title"]


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
