"""Warnings about link metrics of few pairs."""

from __future__ import annotations

from dtdg_lab.records.link_metrics import few_pairs


def test_other_tasks_have_no_pairs() -> None:
    assert few_pairs({"mae": 0.5}, "test") == few_pairs(None, None) == ""
    assert few_pairs({"pairs": 1.0}, "test").startswith("The link metrics of the test split rest on 1 pair, fewer")
