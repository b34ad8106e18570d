"""The exercises of lesson 14 accept right answers and reject wrong ones; widgets and points of all lessons."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PredictionError
from dtdg_lab.lessons import checks as scale_checks
from dtdg_lab.lessons.checks import Estimate, Feedback, agrees, close, points
from tests.lesson_solutions import answers

ROWS = [
    {"quantity": "efficiency", "curve": "psg", "ranks": ranks, "value": share}
    for ranks, share in ((1, 1.0), (2, 0.98), (16, 0.9), (64, 0.74), (256, 0.7), (1024, 0.6))
]
ROWS += [{**row, "curve": "fold", "value": 0.9} for row in ROWS]
ROWS += [{"quantity": "rank_bytes", "curve": "psg", "ranks": 2, "value": 0.1}]
HOSTS = {"node1": 4, "node2": 2}

RING_WRONG: list[Any] = [
    None,
    5,
    "2 * (r - 1) / r * g",
    lambda g, r: g,
    lambda g, r: 2 * g,
    lambda g, r: g * r,
    lambda g, r: g / r,
    lambda g, r: (r - 1) / r * g,
    lambda g, r: 2 * g / r,
    lambda g, r: 2 * (r - 1) * g,
    lambda g, r: None,
    lambda g, r: 2 * (r + 1) / r * g,
    lambda g: g,
    lambda g, r: 2 * g * (1 - 1 / r) + 1,
    lambda g, r: 1 / 0,
]
EFFICIENCY_WRONG: list[Any] = [
    None,
    1.0,
    "a / b / r",
    lambda a, b, r: a / b,
    lambda a, b, r: b / a / r,
    lambda a, b, r: b / a,
    lambda a, b, r: a / b * r,
    lambda a, b, r: (a - b) / a,
    lambda a, b, r: 1 - b / a,
    lambda a, b, r: a / (b + r),
    lambda a, b, r: 100 * a / b / r,
    lambda a, b, r: "1",
    lambda a, b: a / b,
    lambda a, b, r: r * b / a,
]
HOSTS_WRONG: list[Any] = [
    None,
    {},
    [4, 2],
    "node1: 4",
    {"node1": 4},
    {"node2": 2},
    {"node1": 2, "node2": 4},
    {"node1": 1, "node2": 1},
    {"node1": 6},
    {"node1": 4, "node2": 2, "node3": 1},
    {"node1": "4", "node2": "2"},
    {"node1": 4, "node2": 2.5},
    {"node1": True, "node2": 2},
]
RIGHT = answers("14_scale_out")


@pytest.mark.parametrize("right", [scale_checks.ring, lambda g, r: 2 * g - 2 * g / r])
def test_the_ring_is_accepted_in_any_form(right: Any) -> None:
    assert scale_checks.check_ring(right)


@pytest.mark.parametrize("wrong", RING_WRONG, ids=range(len(RING_WRONG)))
def test_other_rings_are_not(wrong: Any) -> None:
    feedback = scale_checks.check_ring(wrong)
    assert not feedback and "one rank sends nothing" in feedback.words


def test_efficiency_is_accepted() -> None:
    assert scale_checks.check_efficiency(lambda a, b, r: a / b / r)
    assert scale_checks.check_efficiency(lambda a, b, r: np.float64(a) / (b * r))


@pytest.mark.parametrize("wrong", EFFICIENCY_WRONG, ids=range(len(EFFICIENCY_WRONG)))
def test_other_efficiencies_are_not(wrong: Any) -> None:
    assert not scale_checks.check_efficiency(wrong)


def test_the_first_ranks_below_are_read_off_the_curve() -> None:
    assert scale_checks.first_below(ROWS, "psg", 0.75) == 64 and scale_checks.first_below(ROWS, "fold", 0.75) is None
    assert scale_checks.check_first_below(64, ROWS, "psg", 0.75)
    assert scale_checks.check_first_below(np.int64(64), ROWS, "psg", 0.75)


@pytest.mark.parametrize("wrong", [None, 1, 2, 16, 63, 65, 256, 1024, "64", math.nan, [64], True, 0.74])
def test_other_numbers_of_ranks_are_not(wrong: Any) -> None:
    assert not scale_checks.check_first_below(wrong, ROWS, "psg", 0.75)


def test_engines_are_one_for_each_gpu() -> None:
    assert scale_checks.check_hosts({"node2": 2, "node1": 4}, HOSTS)


@pytest.mark.parametrize("wrong", HOSTS_WRONG, ids=range(len(HOSTS_WRONG)))
def test_other_engines_are_told_why(wrong: Any) -> None:
    feedback = scale_checks.check_hosts(wrong, HOSTS)
    assert not feedback and feedback.words.startswith("4: ")


def test_lost_steps_are_those_since_the_checkpoint() -> None:
    assert scale_checks.check_lost(17, 117, 100) and scale_checks.check_lost(0, 50, 50)


@pytest.mark.parametrize("wrong", [None, 0, 16, 18, 100, 117, 217, -17, "17", math.nan, [17], True, 17.5])
def test_other_steps_are_not(wrong: Any) -> None:
    assert not scale_checks.check_lost(wrong, 117, 100)


def test_points_are_all_or_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert points(Feedback(True, "good"), 2) == 2.0 and points(Feedback(False, "look again"), 2) == 0.0
    assert str(Feedback(False, "look again")) == "not yet look again"


def test_functions_are_asked_in_every_case() -> None:
    assert agrees(lambda x: x, lambda x: x, [(1,), (2,)]) == ""
    assert agrees(lambda x: 1, lambda x: x, [(1,), (2,)]) == "for (2,) it returns 1"
    assert "raises ZeroDivisionError" in agrees(lambda x: 1 / 0, lambda x: x, [(1,)])
    assert close(1.0, 1.0 + 1e-9) and not close(True, 1.0) and not close("1", 1.0) and not close(math.inf, math.inf)


def test_an_estimate_is_right_within_its_factor() -> None:
    estimate = Estimate("How long?", "ms", factor=2)
    with pytest.raises(PredictionError, match=r"No prediction yet: How long\? First type a number into its field"):
        estimate.reveal(10.0)
    assert estimate.value is None and not estimate._field.disabled
    for said, right in ((10, True), (19, True), (21, False), (5.1, True), (4.9, False), (0, False), (-10, False)):
        estimate.guess(said)
        assert estimate.is_right(10.0) is right, said
    estimate.guess(30)
    assert estimate.reveal(10.0) == "How long? It is 10 ms; you estimated 30, which is too large."
    estimate.guess(0)
    assert estimate.is_right(0.0) and not estimate.is_right(math.nan)
    assert "How long?" in str(estimate._asked.value) and estimate._field.disabled
    with pytest.raises(ConfigError, match="above 1"):
        Estimate("?", factor=1.0)
