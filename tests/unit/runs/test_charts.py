"""Charts of a run: what they say where no data will come any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dtdg_lab.runs.charts import draw
from dtdg_lab.visualization.chart import FIRST_EPOCH, FIRST_STEP, NOTHING_YET, Chart, ChartOptions, always, card
from tests.tables import run_tables

STEPS: list[dict[str, Any]] = [{"rank": rank, "step": step} for step in range(200) for rank in (0, 1)]


def words(empty: str, steps: int, *, ended: bool) -> tuple[str, str]:
    """Return what a chart without data says in its plot and under it."""
    chart = Chart(
        name="bare",
        title="Bare",
        figure=lambda tables, options: card([], "Bare", empty=empty),
        caption=lambda tables, options: NOTHING_YET,
        place="supporting",
        shown=always,
    )
    figure, caption = draw(chart, run_tables({}, {"steps": STEPS[: 2 * steps]}), replace(ChartOptions(), ended=ended))
    return figure["layout"]["annotations"][0]["text"], caption


@pytest.mark.parametrize("empty", [FIRST_STEP, FIRST_EPOCH, "Appears with the first exchange"])
def test_a_chart_of_a_run_that_begins_says_when_it_appears(empty: str) -> None:
    assert words(empty, 0, ended=False) == (empty, NOTHING_YET)
    assert words(empty, 3, ended=False)[0] == empty


@pytest.mark.parametrize("ended", [False, True])
def test_a_chart_says_what_a_run_has_not_recorded(ended: bool) -> None:
    assert words(FIRST_STEP, 200, ended=ended) == ("This run didn't record it", "Nothing was measured.")


def test_a_chart_says_what_a_run_that_has_ended_has_none_of() -> None:
    assert words(FIRST_STEP, 0, ended=True)[0] == "This run has no step"
    assert words(FIRST_EPOCH, 3, ended=True)[0] == "This run has no complete epoch"
    assert words("Appears with the first exchange", 9, ended=True)[0] == "This run has no exchange"
    assert words("Appears when a size was rewarded", 9, ended=True)[0] == "This run has none of it"
    assert words("With one rank, nothing is sent", 9, ended=True)[0] == "With one rank, nothing is sent"
