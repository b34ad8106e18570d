"""What the catalogue says of tasks without importing them."""

from __future__ import annotations

import pytest

from dtdg_lab.config import catalogue


@pytest.mark.parametrize("task", catalogue.names("tasks"))
def test_the_catalogue_says_what_the_class_says(task: str) -> None:
    entry = catalogue.entry("tasks", task)
    kind = entry.load()
    assert (entry.needs, entry.per_vertex) == (kind.needs, kind.per_vertex)
    assert (entry.loss, entry.metrics) == (kind.loss_name, kind.main_metrics)


def test_three_strategies_never_have_all_nodes() -> None:
    assert [entry.name for entry in catalogue.entries("parallel") if not entry.all_nodes] == [
        "cached_vertex",
        "sampled_window",
        "remote_feature",
    ]
