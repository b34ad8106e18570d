"""What lessons read from races, studies and forecasts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd

from dtdg_lab.lessons.comparisons import kind_sent_least, middle, rows_of, sent_by_a_rank, spent_chart


def test_what_was_spent_has_four_panels() -> None:
    columns = ("total_time_s", "joules", "bytes", "peak_bytes")
    figure = spent_chart(pd.DataFrame({name: [1.0, 2.0] for name in columns}, index=["psg", "esdg"]))
    assert len([name for name in figure["layout"] if name.startswith("xaxis")]) == 4


def test_runs_of_a_study_are_rows() -> None:
    losses = {"validation_loss": 1.0, "test_loss": 2.0, "persistence_loss": 3.0, "train_loss": 4.0}
    trial = SimpleNamespace(number=7, seed=1, values=losses)
    study: Any = SimpleNamespace(combinations=[SimpleNamespace(number=7, described="rate 0.1")], trials=[trial])
    (row,) = rows_of(study)
    assert row == {"cell": "rate 0.1", "seed": 1, "validation_loss": 1.0, "test_loss": 2.0, "persistence_loss": 3.0}
    assert middle(value for value in (3.0, 1.0, 2.0)) == 2.0


def test_a_forecast_says_what_one_rank_sends() -> None:
    rows = [
        {"quantity": "rank_bytes", "ranks": ranks, "kind": kind, "curve": curve, "value": value}
        for ranks, kind, curve, value in (
            (1024, "counted", "halo, metis", 9.0),
            (1024, "formula", "gradients, every system", 1.0),
            (1024, "measured", "psg", 5.0),
            (2, "counted", "halo, metis", 3.0),
        )
    ]
    curves: Any = SimpleNamespace(rows=rows)
    sent = sent_by_a_rank(curves, ranks=1024)
    assert sent == {"halo, metis": 9.0, "gradients, every system": 1.0}
    assert kind_sent_least(sent) == "gradients" and kind_sent_least({"halo, metis": 1.0}) == "halo rows"
