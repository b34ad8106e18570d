"""Pictures of chance say what can be computed."""

from __future__ import annotations

import pytest

from dtdg_lab.lessons.chance import (
    called_better,
    equal_systems_picture,
    pruning_picture,
    ring_picture,
    selection_picture,
)


@pytest.mark.parametrize(("seeds", "percent"), [(1, 0), (2, 100 / 6), (3, 5), (5, 100 / 252)])
def test_chance_calls_one_of_two_equal_systems_better(seeds: int, percent: float) -> None:
    """Of all orders of n + n losses, one has the first n in front."""
    assert called_better(seeds) == pytest.approx(percent, abs=2)


def test_more_seeds_are_more_dots() -> None:
    figure, caption = equal_systems_picture(seeds=5)
    assert [len(trace["x"]) for trace in figure["data"]] == [30, 30]
    assert caption.startswith("With 5 seeds,") and "With one seed," in equal_systems_picture(seeds=1)[1]


def test_the_lowest_of_many_is_too_low() -> None:
    (alone,) = selection_picture(tried=1)[0]["data"]
    assert alone["y"] == pytest.approx([1, 1, 1], abs=0.02)
    (bar,) = selection_picture(tried=20)[0]["data"]
    lowest, fresh, honest = bar["y"]
    assert lowest < 0.85 and abs(fresh - 1) < 0.02 and abs(honest - 1) < 0.02


def test_a_median_rule_ends_a_slow_starter() -> None:
    figure, caption = pruning_picture(after=2)
    assert caption == "After epoch 2 the rule ends D, G, among them D, the best of all."
    lengths = {trace["name"]: len(trace["x"]) for trace in figure["data"]}
    assert lengths["D, ended"] == 2 and lengths["A"] == 5
    assert "best of all" not in pruning_picture(after=4)[1]


def test_a_ring_hardly_grows() -> None:
    figure, caption = ring_picture(kilobytes=1)
    assert figure["data"][0]["y"][0] == 1000 and "2.00 times" in caption
