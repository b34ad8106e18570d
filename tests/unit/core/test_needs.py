"""What tasks need of a graph: the catalogue says so without importing them."""

from __future__ import annotations

import pytest

from dtdg_lab.core import catalogue


@pytest.mark.parametrize("task", catalogue.names("tasks"))
def test_the_catalogue_and_the_class_need_the_same(task: str) -> None:
    entry = catalogue.entry("tasks", task)
    assert entry.needs == entry.load().needs
