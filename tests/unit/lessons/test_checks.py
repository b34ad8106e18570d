"""The exercises of lesson 14 accept right answers and reject wrong ones; widgets and points of all lessons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PredictionError
from dtdg_lab.lessons import checks as scale_checks
from dtdg_lab.lessons.checks import Estimate, Feedback, agrees, close, points
from tests.lesson_solutions import NO_FUNCTIONS

RING_WRONG: list[Any] = [
    *NO_FUNCTIONS,
    lambda g, r: g,
    lambda g, r: 2 * g,
    lambda g, r: g * r,
    lambda g, r: g / r,
    lambda g, r: (r - 1) / r * g,
    lambda g, r: 2 * g / r,
    lambda g, r: 2 * (r - 1) * g,
    lambda g, r: 2 * (r + 1) / r * g,
    lambda g, r: 2 * g * (1 - 1 / r) + 1,
]
EFFICIENCY_WRONG: list[Any] = [
    *NO_FUNCTIONS,
    lambda a, b, r: a / b,
    lambda a, b, r: b / a / r,
    lambda a, b, r: b / a,
    lambda a, b, r: a / b * r,
    lambda a, b, r: (a - b) / a,
    lambda a, b, r: 1 - b / a,
    lambda a, b, r: a / (b + r),
    lambda a, b, r: 100 * a / b / r,
    lambda a, b, r: r * b / a,
]
Check = Callable[[Any], Feedback]


def check_lost(answer: Any) -> Feedback:
    return scale_checks.check_lost(answer, 117, 100)


ACCEPTED: dict[Check, list[Any]] = {
    scale_checks.check_ring: [scale_checks.ring, lambda g, r: 2 * g - 2 * g / r],
    scale_checks.check_efficiency: [lambda a, b, r: a / b / r, lambda a, b, r: np.float64(a) / (b * r)],
    check_lost: [17],
}
REJECTED: list[tuple[Check, str, list[Any]]] = [  # with words of the hint
    (scale_checks.check_ring, "one rank sends nothing", RING_WRONG),
    (scale_checks.check_efficiency, "", EFFICIENCY_WRONG),
    (check_lost, "", [None, 0, 16, 18, 100, 117, 217, -17, "17", math.nan, [17], True, 17.5]),
]


@pytest.mark.parametrize(
    ("check", "right"), [(check, right) for check, answers in ACCEPTED.items() for right in answers]
)
def test_right_answers_are_accepted_in_any_form(check: Check, right: Any) -> None:
    assert check(right)


@pytest.mark.parametrize(
    ("check", "hint", "wrong"), [(check, hint, wrong) for check, hint, answers in REJECTED for wrong in answers]
)
def test_wrong_answers_get_a_hint(check: Check, hint: str, wrong: Any) -> None:
    feedback = check(wrong)
    assert not feedback and hint in feedback.words


def test_no_step_is_lost_at_a_checkpoint() -> None:
    assert scale_checks.check_lost(0, 50, 50)


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
