"""The chart of reply times and its caption."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts.batches import HITS
from dtdg_lab.systems.feature_cache.charts.reply_time import REPLIES
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions
from tests.feature_tables import batch, congestion, decision, feature_tables, features, reply

SLOW = [features(), congestion(0), congestion(40, {2: 20.0}), congestion(80)]


def drawn(chart: Chart, tables: RunTables) -> tuple[dict[str, Any], str]:
    return chart.figure(tables, ChartOptions()), chart.caption(tables, ChartOptions())


@pytest.mark.parametrize("chart", [HITS, REPLIES])
def test_before_the_first_step_there_are_axes_and_a_note(chart: Chart) -> None:
    figure, caption = drawn(chart, feature_tables())
    assert figure["data"] == [] and caption == NOTHING_YET
    assert "Appears with the first step" in str(figure["layout"]["annotations"])


def late_replies() -> dict[str, list[dict[str, Any]]]:
    """Return replies of which those of part 2 are late from step 40 to 80, and what controllers take them for."""
    slow = [s for s in range(100) if 40 <= s < 80]
    replies = [
        reply(s, part, owner, ms=21.0 if s in slow and owner == 2 else 1.0)
        for s in range(100)
        for part in range(4)
        for owner in range(4)
        if owner != part
    ]
    decisions = [decision(s, 0, 16, delays_ms=[0.0, 19.0 * (s in slow), 0.0]) for s in range(0, 100, 10)]
    return {"fetches": replies, "cache_decisions": decisions}


def test_of_a_slow_owner_measured_added_and_estimated_delays_are_drawn() -> None:
    figure, _ = drawn(REPLIES, feature_tables(100, late_replies(), SLOW))
    assert [label for label, *_ in figure["layout"]["meta"]["card"]["keys"]] == [
        "part 2",
        "added",
        "estimated, dotted",
        "other parts",
    ]
    by_dash = {trace["line"].get("dash"): trace for trace in figure["data"] if trace["name"] == "part 2"}
    assert max(by_dash["solid"]["y"]) == 21.0
    assert by_dash["dash"]["y"] == [0, 0, 20, 20, 0, 0]
    assert max(by_dash["dot"]["y"]) == 19.0
    assert len([trace for trace in figure["data"] if trace["name"] != "part 2"]) == 3


def test_replies_of_caches_that_hold_all_rows_say_that_nothing_is_fetched() -> None:
    rows = {"resolved": [batch(s, p, rate=1.0) for s in range(120) for p in range(4)]}
    figure, caption = drawn(REPLIES, feature_tables(120, rows, [features()]))
    assert caption == "Nothing is fetched: all rows were found in caches."
    assert [note["text"] for note in figure["layout"]["annotations"]] == [caption]


def test_the_caption_names_the_slowest_owner_and_what_is_added() -> None:
    tables = feature_tables(100, late_replies(), SLOW[:3])
    rows = {"fetches": [reply(s, 0, owner, ms=32.0 if owner == 2 else 1.0) for s in range(50) for owner in (1, 2, 3)]}
    assert "is slowest to reply" in drawn(REPLIES, tables)[1]
    assert drawn(REPLIES, feature_tables(50, rows, SLOW[:3]))[1] == (
        "Part 2 takes 32.0 ms to reply; 20 ms of it are added."
    )


def test_a_call_that_hung_does_not_flatten_the_others() -> None:
    rows = {"fetches": [reply(s, 0, 1, ms=4_000.0 if 396 <= s < 404 else 2.0) for s in range(1_600)]}
    figure, _ = drawn(REPLIES, feature_tables(1_600, rows, [features()]))
    assert figure["layout"]["yaxis"]["range"][1] < 10
